//! `lspools`, `mkpool`, `rmpool`, `df`.

use serde_json::json;
use spirula_client::errno;
use spirula_maps::{PoolId, PoolStat};
use spirula_text::{Align, Format, Table, size::bytes};

use super::{Done, Tool, complain, format};

const HEADS: [&str; 14] = [
    "POOL_NAME",
    "USED",
    "OBJECTS",
    "CLONES",
    "COPIES",
    "MISSING_ON_PRIMARY",
    "UNFOUND",
    "DEGRADED",
    "RD_OPS",
    "RD",
    "WR_OPS",
    "WR",
    "USED COMPR",
    "UNDER COMPR",
];

fn unsigned(v: i64) -> u64 {
    v.max(0).cast_unsigned()
}

/// Bytes that a pool takes on its OSDs; where they don't count by pool, the bytes of its data.
fn used(stat: &PoolStat, per_pool: bool) -> u64 {
    if per_pool {
        unsigned(stat.store_stats.allocated) + unsigned(stat.store_stats.omap_allocated)
    } else {
        unsigned(stat.stats.sum.num_bytes)
    }
}

fn row(name: &str, stat: &PoolStat, per_pool: bool) -> Vec<String> {
    let sum = &stat.stats.sum;
    vec![
        name.to_owned(),
        bytes(used(stat, per_pool)),
        sum.num_objects.to_string(),
        sum.num_object_clones.to_string(),
        sum.num_object_copies.to_string(),
        sum.num_objects_missing_on_primary.to_string(),
        sum.num_objects_unfound.to_string(),
        sum.num_objects_degraded.to_string(),
        sum.num_rd.to_string(),
        bytes(unsigned(sum.num_rd_kb) << 10),
        sum.num_wr.to_string(),
        bytes(unsigned(sum.num_wr_kb) << 10),
        bytes(unsigned(stat.store_stats.data_compressed_allocated)),
        bytes(unsigned(stat.store_stats.data_compressed_original)),
    ]
}

fn object(name: &str, id: Option<PoolId>, stat: &PoolStat, per_pool: bool) -> serde_json::Value {
    let sum = &stat.stats.sum;
    let used = used(stat, per_pool);
    json!({
        "name": name,
        "id": id,
        "size_bytes": used,
        "size_kb": used.div_ceil(1024),
        "num_objects": sum.num_objects,
        "num_object_clones": sum.num_object_clones,
        "num_object_copies": sum.num_object_copies,
        "num_objects_missing_on_primary": sum.num_objects_missing_on_primary,
        "num_objects_unfound": sum.num_objects_unfound,
        "num_objects_degraded": sum.num_objects_degraded,
        "read_ops": sum.num_rd,
        "read_bytes": unsigned(sum.num_rd_kb) << 10,
        "write_ops": sum.num_wr,
        "write_bytes": unsigned(sum.num_wr_kb) << 10,
        "compress_bytes_used": stat.store_stats.data_compressed_allocated,
        "compress_under_bytes": stat.store_stats.data_compressed_original,
    })
}

impl Tool {
    async fn pool_names(&self) -> Result<Vec<String>, i32> {
        let pools = self.rados.pools().await;
        let pools = pools.map_err(|e| complain(1, format!("error listing pools: {}", e.errno())))?;
        Ok(pools.into_iter().map(|(_, name)| name).collect())
    }

    pub(super) async fn list_pools(&self) -> Done {
        for name in self.pool_names().await? {
            println!("{name}");
        }
        Ok(())
    }

    pub(super) async fn create_pool(&self, name: &str, rule: i16) -> Done {
        let created = self.rados.create_pool(name, rule).await;
        created
            .map(drop)
            .map_err(|e| complain(1, format!("error creating pool {name}: {}", e.errno())))
    }

    pub(super) async fn make_pool(&self) -> Done {
        let [_, name, rule @ ..] = &self.words[..] else {
            return Err(self.usage());
        };
        let rule = match rule.first().map(|r| r.parse()) {
            None => -1,
            Some(Ok(rule)) => rule,
            Some(Err(_)) => {
                return Err(complain(
                    1,
                    format!("Invalid value for crush-rule: '{}'", rule[0]),
                ));
            }
        };
        self.create_pool(name, rule).await?;
        println!("successfully created pool {name}");
        Ok(())
    }

    pub(super) async fn remove_pool(&self) -> Done {
        let [_, name, again @ ..] = &self.words[..] else {
            return Err(self.usage());
        };
        let sure = again.iter().any(|w| w == "--yes-i-really-really-mean-it");
        if again.first() != Some(name) || !sure {
            return Err(complain(
                1,
                "WARNING:\n  This will PERMANENTLY DESTROY an entire pool of objects with no way back.\n  To confirm, \
                 pass the pool to remove twice, followed by\n  --yes-i-really-really-mean-it",
            ));
        }
        let removed = self.rados.delete_pool(name).await;
        removed.map_err(|e| {
            eprintln!("error deleting pool {name}: {}", e.errno());
            if e.errno() == errno::EPERM {
                eprintln!(
                    "Check your monitor configuration - `mon allow pool delete` is set to false by default"
                );
            }
            1
        })?;
        println!("successfully deleted pool {name}");
        Ok(())
    }

    pub(super) async fn df(&self) -> Done {
        let names = match &self.args.pool {
            Some(pool) => vec![pool.clone()],
            None => self.pool_names().await?,
        };
        let (stats, per_pool) = self
            .rados
            .pool_stats(names)
            .await
            .map_err(|e| complain(1, format!("error fetching pool stats: {}", e.errno())))?;
        let total = self
            .rados
            .statfs(None)
            .await
            .map_err(|e| complain(1, format!("error getting total cluster usage: {}", e.errno())))?;
        if self.format == Format::Plain {
            let mut table = Table::default();
            for (n, head) in HEADS.into_iter().enumerate() {
                let align = if n == 0 { Align::Left } else { Align::Right };
                table.column(head, align, align);
            }
            for (name, stat) in &stats {
                table.row(row(name, stat, per_pool));
            }
            print!("{}", table.render());
            println!();
            println!("total_objects    {}", total.num_objects);
            println!("total_used       {}", bytes(total.kb_used << 10));
            println!("total_avail      {}", bytes(total.kb_avail << 10));
            println!("total_space      {}", bytes(total.kb << 10));
            return Ok(());
        }
        let map = self.rados.map();
        let id = |name: &str| map.as_ref().and_then(|m| m.pool_id(name));
        let pools: Vec<_> = stats
            .iter()
            .map(|(name, stat)| object(name, id(name), stat, per_pool))
            .collect();
        let all = json!({
            "pools": pools,
            "total_objects": total.num_objects,
            "total_used": total.kb_used,
            "total_avail": total.kb_avail,
            "total_space": total.kb,
        });
        super::objects::print(&format::render(self.format, &all, "stats", ""))
    }
}
