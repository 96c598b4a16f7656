//! Splitting: when a pool gets more PGs, each PG's log and info are shared out. Objects stay where they are.

use std::sync::Arc;

use spirula_maps::PgId;

use super::Pg;
use super::cluster::ClusterMap;
use super::output::Ctx;

impl Pg {
    /// The number of PGs that this copy was last split for.
    pub fn split_for(&self) -> u32 {
        self.copy.info.pg_num
    }

    /// Remembers that the copy is split for this many PGs.
    pub fn set_split_for(&mut self, pg_num: u32) {
        self.copy.info.pg_num = pg_num;
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
        let (pgid, whoami) = (self.site.pgid, self.site.whoami);
        let mut new = Self::new(child, whoami, slot, Arc::clone(&self.site.cfg), map);
        let (copy, txn) = self.copy.split_off(pgid, child, pg_num);
        new.copy = copy;
        new.lead.promised = self.lead.promised;
        new.site.interval = self.site.interval.clone();
        self.store.record(txn, cx);
        new
    }
}
