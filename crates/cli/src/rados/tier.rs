//! Commands on cache tiers and manifests. Spirula has neither, and its OSDs refuse them; they work
//! on a cluster that has.

use spirula_client::{Chunk, Error, IoCtx};
use spirula_maps::{ObjectName, snap};
use spirula_proto::osd::OpCode;

use super::objects::decimal;
use super::{Done, OnObject, Tool, complain, shown};

impl Tool {
    /// The commands of cache tiers and manifests.
    pub(super) async fn run_tier(&self, command: &str) -> Done {
        let code = match command {
            "cache-flush" => OpCode::CACHE_FLUSH,
            "cache-try-flush" => OpCode::CACHE_TRY_FLUSH,
            "cache-evict" => OpCode::CACHE_EVICT,
            "cache-flush-evict-all" => return self.flush_evict_all(command, OpCode::CACHE_FLUSH).await,
            "cache-try-flush-evict-all" => {
                return self.flush_evict_all(command, OpCode::CACHE_TRY_FLUSH).await;
            }
            "tier-promote" => return self.manifest(command, OpCode::TIER_PROMOTE).await,
            "tier-flush" => return self.manifest(command, OpCode::TIER_FLUSH).await,
            "tier-evict" => return self.manifest(command, OpCode::TIER_EVICT).await,
            "unset-manifest" => return self.manifest(command, OpCode::UNSET_MANIFEST).await,
            "set-redirect" => return self.set_redirect().await,
            "set-chunk" => return self.set_chunk().await,
            other => return Err(Self::unknown(other)),
        };
        let OnObject { io, oid, .. } = self.object_command(0..)?;
        let mut clones = vec![snap::NOSNAP];
        if self.args.with_clones {
            let listed = io.list_snaps(&oid).await;
            let listed = listed.map_err(|e| self.failed("error listing snapshots", &oid, &e))?;
            clones = listed.clones.iter().map(|c| c.id).collect();
        }
        for id in clones {
            let done = io.clone().with_snap_read(id).tier(&oid, code).await;
            done.map_err(|e| {
                // The official tool calls evictions flushes.
                let what = format!("error from cache-flush {}", shown(&oid));
                complain(1, format!("{what}: {}", e.errno()))
            })?;
        }
        Ok(())
    }

    async fn manifest(&self, command: &str, code: OpCode) -> Done {
        let OnObject { io, oid, .. } = self.object_command(0..)?;
        io.tier(&oid, code).await.map_err(|e| {
            let (pool, object, why) = (self.pool_name(), shown(&oid), e.errno());
            complain(1, format!("error {command} {pool}/{object} : {why}"))
        })
    }

    async fn flush_evict_all(&self, command: &str, flush: OpCode) -> Done {
        let (io, _) = self.pool_command(0)?;
        let mut errors = false;
        let mut list = io.list(true);
        loop {
            let entry = list.next().await;
            let Some(entry) = entry.map_err(|e| complain(1, e.errno()))? else {
                break;
            };
            println!("{}\t{}\t{}", entry.nspace, entry.oid, entry.locator);
            let io = io
                .clone()
                .with_namespace(&entry.nspace)
                .with_locator(&entry.locator);
            if let Err((what, e)) = flush_evict(&io, &entry.oid, flush).await {
                let (nspace, oid, why) = (&entry.nspace, &entry.oid, e.errno());
                eprintln!("{what} {nspace}/{oid}: {why}");
                errors = true;
            }
        }
        if errors {
            return Err(complain(1, format!("{command} finished with errors")));
        }
        Ok(())
    }

    async fn set_redirect(&self) -> Done {
        let on = self.object_command(0..)?;
        let name = self.target_name(&on)?;
        let done = match self.target_pool().await {
            Ok(to) => {
                on.io
                    .set_redirect(&on.oid, &to, name, self.args.with_reference)
                    .await
            }
            Err((_, e)) => Err(e),
        };
        done.map_err(|e| {
            let pool = self.pool_name();
            let target = self.args.target_pool.as_deref().unwrap_or(pool);
            let (from, to, why) = (shown(&on.oid), shown(name), e.errno());
            complain(
                1,
                format!("error set-redirect {pool}/{from} => {target}/{to}: {why}"),
            )
        })
    }

    async fn set_chunk(&self) -> Done {
        let on = self.object_command(4..)?;
        let [offset, length, target, target_offset, ..] = on.rest else {
            return Err(self.usage());
        };
        let size = |text: &str| match decimal(text) {
            Some(n) => Ok(n.cast_unsigned()),
            None => Err(complain(1, format!("Invalid value for size: '{text}'"))),
        };
        let chunk = Chunk {
            offset: size(offset)?,
            length: size(length)?,
            target: target.into(),
            target_offset: size(target_offset)?,
        };
        let done = match self.target_pool().await {
            Ok(to) => on.io.set_chunk(&on.oid, &to, &chunk).await,
            Err((_, e)) => Err(e),
        };
        done.map_err(|e| {
            let pool = self.pool_name();
            let target = self.args.target_pool.as_deref().unwrap_or(pool);
            let (object, why) = (shown(&on.oid), e.errno());
            complain(
                1,
                format!(
                    "error set-chunk {pool}/{object}  offset {} length {} target_pool {target}tgt_offset: {} : {why}",
                    chunk.offset, chunk.length, chunk.target_offset
                ),
            )
        })
    }
}

/// Flushes and evicts all clones of an object, and its head.
async fn flush_evict(io: &IoCtx, oid: &ObjectName, flush: OpCode) -> Result<(), (&'static str, Error)> {
    let listed = io.list_snaps(oid).await;
    let listed = listed.map_err(|e| ("error listing snap shots", e))?;
    let mut clones: Vec<_> = listed.clones.iter().map(|c| c.id).collect();
    if clones.is_empty() {
        clones.push(snap::NOSNAP);
    }
    for id in clones {
        let io = io.clone().with_snap_read(id);
        io.tier(oid, flush).await.map_err(|e| ("failed to flush", e))?;
        let evicted = io.tier(oid, OpCode::CACHE_EVICT).await;
        evicted.map_err(|e| ("failed to evict", e))?;
    }
    Ok(())
}
