//! `cp`, `cppool`, `purge`.

use spirula_client::{Error, IoCtx};

use super::{Done, OnObject, Tool, complain, shown};
use crate::rados::bench;

impl Tool {
    /// The pool of the other object, with its locator and namespace where the options give them.
    pub(super) async fn target_pool(&self) -> Result<IoCtx, (String, Error)> {
        let name = self.args.target_pool.as_deref().unwrap_or(self.pool_name());
        let mut io = self.rados.pool(name).await.map_err(|e| (name.to_owned(), e))?;
        if let Some(key) = &self.args.target_locator {
            io = io.with_locator(key);
        }
        if let Some(nspace) = &self.args.target_nspace {
            io = io.with_namespace(nspace);
        }
        Ok(io)
    }

    /// The name of the other object: the given word, or the same name in another pool.
    pub(super) fn target_name<'a>(&'a self, on: &'a OnObject<'_>) -> Result<&'a [u8], i32> {
        let other = self
            .args
            .target_pool
            .as_deref()
            .filter(|t| *t != self.pool_name());
        match (on.rest.first(), other) {
            (Some(name), _) => Ok(name.as_bytes()),
            (None, Some(_)) => Ok(on.oid.as_bytes()),
            (None, None) => Err(complain(1, "cannot copy object into itself")),
        }
    }

    pub(super) async fn copy(&self) -> Done {
        let on = self.object_command(0..=1)?;
        let name = self.target_name(&on)?;
        let to = self.target_pool().await.map_err(|(target, e)| {
            complain(1, format!("error opening target pool {target}: {}", e.errno()))
        })?;
        to.copy_from(name, on.io, &on.oid).await.map_err(|e| {
            let pool = self.pool_name();
            let target = self.args.target_pool.as_deref().unwrap_or(pool);
            let (from, to, why) = (shown(&on.oid), shown(name), e.errno());
            complain(1, format!("error copying {pool}/{from} => {target}/{to}: {why}"))
        })
    }

    pub(super) async fn copy_pool(&self) -> Done {
        let (source, target, force) = match self.words.get(1..) {
            Some([source, target]) => (source, target, false),
            Some([source, target, force]) if force == "--yes-i-really-mean-it" => (source, target, true),
            _ => return Err(self.usage()),
        };
        if source == target {
            return Err(complain(1, "cannot copy pool into itself"));
        }
        eprintln!("WARNING: pool copy does not preserve user_version, which some     apps may rely on.");
        let failed = |what: Option<&str>, e: &Error| {
            if let Some(what) = what {
                eprintln!("{what}");
            }
            let why = e.errno();
            complain(1, format!("error copying pool {source} => {target}: {why}"))
        };
        let from = self.rados.pool(source).await;
        let from = from.map_err(|e| {
            let why = e.errno();
            complain(
                1,
                format!("failed to query pool {source} for selfmanaged snaps: {why}"),
            )
        })?;
        if from.has_self_managed_snaps().await.unwrap_or(false) {
            eprintln!(
                "WARNING: pool {source} has selfmanaged snaps, which are not preserved\n    by the cppool operation.  \
                 This will break any snapshot user."
            );
            if !force {
                eprintln!(
                    "    If you insist on making a broken copy, you can pass\n    --yes-i-really-mean-it to proceed \
                     anyway."
                );
                return Err(1);
            }
        }
        let to = self.rados.pool(target).await;
        let to = to.map_err(|e| failed(Some(&format!("cannot open target pool: {target}")), &e))?;
        let mut list = from.list(true);
        while let Some(entry) = list.next().await.map_err(|e| failed(None, &e))? {
            let slash = if entry.nspace.is_empty() { "" } else { "/" };
            let name = format!("{}{slash}{}", entry.nspace, entry.oid);
            let locator = match entry.locator.is_empty() {
                true => String::new(),
                false => format!("(@{})", entry.locator),
            };
            println!("{source}:{name}{locator} => {target}:{name}");
            let from = from
                .clone()
                .with_namespace(&entry.nspace)
                .with_locator(&entry.locator);
            let to = to.clone().with_namespace(&entry.nspace);
            let copied = to.copy_from(&entry.oid, &from, &entry.oid).await;
            copied.map_err(|e| {
                let what = format!("error copying object: {}", e.errno());
                failed(Some(&what), &e)
            })?;
        }
        println!("successfully copied pool {source}");
        Ok(())
    }

    pub(super) async fn purge(&self) -> Done {
        let [_, pool, sure @ ..] = &self.words[..] else {
            return Err(self.usage());
        };
        if sure.first().map(String::as_str) != Some("--yes-i-really-really-mean-it") {
            return Err(complain(
                1,
                "WARNING:\n  This will PERMANENTLY DESTROY all objects from a pool with no way back.\n  To confirm, \
                 follow pool with --yes-i-really-really-mean-it",
            ));
        }
        let io = self.rados.pool(pool).await;
        let io = io.map_err(|e| complain(1, format!("error pool {pool}: {}", e.errno())))?;
        match bench::purge(&io, self.sizes.concurrent).await {
            Ok(()) => {
                println!("successfully purged pool {pool}");
                Ok(())
            }
            Err(e) => {
                eprintln!("pool {pool} could not be purged");
                Err(super::last_words(e.errno()))
            }
        }
    }
}
