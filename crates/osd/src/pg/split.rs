//! Splitting: when a pool gets more PGs, each PG's log and info are shared out. Objects stay where
//! they are.
//!
//! Calls to the store that wait for one another may change objects that belong to another PG since a
//! split. So the calls of PGs that are split off wait for those of the other, until the reactor,
//! which knows all PGs, lets them go.

use std::sync::Arc;

use spirula_invariant::invariant;
use spirula_maps::PgId;

use super::Pg;
use super::cluster::ClusterMap;
use super::coded::fold::{Folds, Fragments};
use super::leadership::Leadership;
use super::output::Ctx;
use super::site::Site;
use super::store_queue::StoreQueue;
use super::stored_copy::StoredCopy;
use super::txn::Txn;

/// Splits PGs off, and keeps the order of their calls to the store.
pub(crate) struct Splitting<'a> {
    site: &'a Site,
    copy: &'a mut StoredCopy,
    store: &'a mut StoreQueue,
    lead: &'a Leadership,
}

impl Splitting<'_> {
    /// Splits children off, each of which gets one of these slots on the reactor: the pool has
    /// `pg_num` PGs now. The map that says so is handed to all of them afterwards.
    pub(crate) fn split(
        &mut self,
        children: &[(PgId, u32)],
        pg_num: u32,
        map: &Arc<dyn ClusterMap>,
        cx: &mut Ctx<'_>,
    ) -> Vec<Pg> {
        invariant!(
            pg_num > self.copy.info.pg_num,
            "a PG to be split for more PGs than before";
            pg = self.site.pgid, epoch = self.site.map.epoch(), before = self.copy.info.pg_num, pg_num = pg_num
        );
        let is_preceded = !self.store.folds.is_empty();
        let mut txn = Txn::default();
        let mut split_off = |&(child, slot): &(PgId, u32)| {
            let (cfg, map) = (Arc::clone(&self.site.cfg), Arc::clone(map));
            let mut new = Pg::new(child, self.site.whoami, slot, cfg, map);
            let copy = self.copy.split_off(self.site.pgid, child, pg_num, &mut txn.meta);
            if copy.exists {
                new.store.fragments = Fragments::of(copy.info.part);
                new.site.follow(copy.info.part.layout);
            }
            new.store.folds = Folds::of_split(is_preceded);
            // These may be much, and count only with what comes after them.
            for records in copy.records(child, self.site.cfg.max_part_logged) {
                self.store.record(records, cx);
            }
            new.copy = copy;
            new.lead.promised = self.lead.promised;
            new.site.interval = self.site.interval.clone();
            new
        };
        let mut new: Vec<Pg> = children.iter().map(&mut split_off).collect();
        self.copy.info.pg_num = pg_num;
        if self.copy.exists {
            // This one transaction is the split: a copy that was split before some of its children
            // were there would never be split again.
            let copies = new.iter().map(|child| child.copy.info_record(child.site.pgid));
            txn.meta
                .extend(copies.chain([self.copy.info_record(self.site.pgid)]));
        }
        self.store.record(txn, cx);
        for child in new.iter_mut().filter(|child| child.copy.exists) {
            // A copy is told of when all that its PG has submitted is durable: so its own commits
            // include one that comes after those of this PG.
            child.copy.save_info(child.site.pgid, &mut child.store, cx);
        }
        // Behind the records of the children.
        let slots = children.iter().map(|(_, slot)| *slot);
        self.store.folds.precede(slots.collect());
        new
    }

    /// The slots of PGs that were split off, and need wait no longer for calls of this one.
    pub(crate) fn freed(&mut self) -> Vec<u32> {
        self.store.folds.freed()
    }

    /// Goes on after the calls of the PG that this one was split off from have gone out.
    pub(crate) fn go(&mut self, cx: &mut Ctx<'_>) {
        self.store.go(cx);
    }
}

impl Pg {
    /// The part that splits PGs off.
    pub(crate) fn splitting(&mut self) -> Splitting<'_> {
        Splitting {
            site: &self.site,
            copy: &mut self.copy,
            store: &mut self.store,
            lead: &self.lead,
        }
    }
}
