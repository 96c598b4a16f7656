//! Splitting: when a pool gets more PGs, each PG's log and info are shared out. Objects stay where they are.

use std::sync::Arc;

use spirula_maps::PgId;

use super::cluster::ClusterMap;
use super::txn::{MetaOp, Txn};
use super::{Commit, Ctx, Pg, key};

impl Pg {
    /// The number of PGs that this copy was last split for.
    pub fn split_for(&self) -> u32 {
        self.info.pg_num
    }

    /// Remembers that the copy is split for this many PGs.
    pub fn set_split_for(&mut self, pg_num: u32) {
        self.info.pg_num = pg_num;
    }

    /// Splits a child off. The map with the new number is handed to both afterwards.
    pub fn split_off(
        &mut self,
        child: PgId,
        slot: u32,
        pg_num: u32,
        map: Arc<dyn ClusterMap>,
        cx: &mut Ctx<'_>,
    ) -> Self {
        let mut new = Self::new(child, self.whoami, slot, Arc::clone(&self.cfg), map);
        new.log = self.log.split_off(|o| child.contains_hash(pg_num, o.hash));
        // Nothing tells which of them is whose.
        new.dups = self.dups.clone();
        new.exists = self.exists;
        new.promised = self.promised;
        self.info.usage_invalid = true;
        self.info.pg_num = pg_num;
        new.info = self.info.clone();
        new.interval = self.interval.clone();
        if self.exists {
            let mut txn = Txn::default();
            for e in new.log.iter() {
                txn.meta.push(MetaOp::Delete(key::log_key(self.pgid, e.version)));
                txn.meta
                    .push(MetaOp::Put(key::log_key(child, e.version), e.to_bytes()));
            }
            for batch in new.dups.batches() {
                let key = key::dups_key(child, batch.name());
                txn.meta.push(MetaOp::Put(key, batch.to_bytes()));
            }
            txn.meta.push(new.info_record());
            txn.meta.push(self.info_record());
            self.submit(txn, Commit::Record, cx);
        }
        new
    }
}
