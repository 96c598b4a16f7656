//! Splitting: when a pool gets more PGs, each PG's log and info are shared out. Objects stay where
//! they are.

use std::sync::Arc;

use spirula_invariant::invariant;
use spirula_maps::PgId;

use super::Pg;
use super::cluster::ClusterMap;
use super::coded::fold::Fragments;
use super::output::Ctx;

impl Pg {
    /// Splits children off, each of which gets one of these slots on the reactor: the pool has
    /// `pg_num` PGs now. The map that says so is handed to all of them afterwards.
    pub fn split(
        &mut self,
        children: &[(PgId, u32)],
        pg_num: u32,
        map: &Arc<dyn ClusterMap>,
        cx: &mut Ctx<'_>,
    ) -> Vec<Self> {
        invariant!(
            pg_num > self.copy.info.pg_num,
            "a PG to be split for more PGs than before";
            pg = self.site.pgid, epoch = self.site.map.epoch(), before = self.copy.info.pg_num, pg_num = pg_num
        );
        let mut split_off = |&(child, slot): &(PgId, u32)| {
            let (cfg, map) = (Arc::clone(&self.site.cfg), Arc::clone(map));
            let mut new = Self::new(child, self.site.whoami, slot, cfg, map);
            let (copy, txn) = self.copy.split_off(self.site.pgid, child, pg_num);
            if copy.exists {
                new.store.fragments = Fragments::of(copy.info.part);
                new.site.follow(copy.info.part.layout);
            }
            new.copy = copy;
            new.lead.promised = self.lead.promised;
            new.site.interval = self.site.interval.clone();
            self.store.record(txn, cx);
            new
        };
        let new = children.iter().map(&mut split_off).collect();
        self.copy.info.pg_num = pg_num;
        new
    }
}
