//! The next map: its effects on a PG, and the end of an interval.

use std::sync::Arc;

use super::Pg;
use super::bug::Bug;
use super::cluster::ClusterMap;
use super::history::History;
use super::interval::Interval;
use super::message::PeeringId;
use super::output::Ctx;
use super::promise::Promise;
use super::replica::Replica;
use super::role::Role;
use spirula_invariant::invariant;
use spirula_maps::Epoch;

impl Pg {
    /// Handles the next map. `gap` says that maps between were missed; `up`, that the map has this
    /// OSD up as it runs now.
    pub fn handle_map(&mut self, map: Arc<dyn ClusterMap>, gap: bool, up: bool, cx: &mut Ctx<'_>) {
        // An OSD that was restarted does not know what it has promised.
        self.lead
            .promised
            .get_or_insert(Promise::to_all(cx.usec + self.site.cfg.read_lease));
        let epoch = map.epoch();
        invariant!(
            epoch >= self.site.map.epoch(),
            "maps to come in their order";
            pg = self.site.pgid, epoch = epoch, before = self.site.map.epoch()
        );
        self.recent.epoch = epoch;
        let last = std::mem::replace(&mut self.site.map, map);
        let Some(pool) = self.site.map.pool(self.site.pgid.pool) else {
            return self.pool_deleted(cx);
        };
        if self.site.pool.full && !pool.full {
            self.ops.dropped.room(epoch);
        }
        self.site.pool = pool;
        let mut next = Interval::new(self.site.pgid, &*self.site.map);
        let was_idle = matches!(self.role, Role::Idle);
        let same = next.is_same(&self.site.interval);
        if same && !gap {
            next.since = self.site.interval.since;
            next.seen = self.site.interval.seen;
            next.same_primary_since = self.site.interval.same_primary_since;
        } else if !gap {
            next.since = epoch;
            next.same_primary_since = if next.place.primary == self.site.interval.place.primary {
                self.site.interval.same_primary_since
            } else {
                epoch
            };
        }
        next.split_at = if next.pg_num == self.site.interval.pg_num {
            self.site.interval.split_at
        } else {
            epoch
        };
        if gap || !same {
            self.note_interval(&*last, gap, cx);
        }
        self.site.interval = next;
        let (since, primary) = (self.site.interval.since, self.site.interval.place.primary);
        self.recent.interval(since, primary, cx.now);
        if !up {
            if !was_idle {
                self.leave_interval(cx);
                self.ops.recheck_held(Epoch::MAX, cx);
                self.role = Role::Idle;
            }
        } else if !same || was_idle || gap {
            self.new_interval(cx);
        } else {
            self.same_interval(cx);
            for (token, all) in self.serving().shares().give_up_on_dead(cx) {
                self.handle_store(token, all, cx);
            }
        }
    }

    /// Handles the removal of the pool.
    fn pool_deleted(&mut self, cx: &mut Ctx<'_>) {
        if !matches!(self.role, Role::Deleting) {
            self.leave_interval(cx);
            self.ops.recheck_held(Epoch::MAX, cx);
            self.deleting().begin_delete(cx);
        }
    }

    /// Remembers the interval that ended, durably before the map that ended it; or that maps were
    /// missed.
    fn note_interval(&mut self, last: &dyn ClusterMap, gap: bool, cx: &mut Ctx<'_>) {
        let epoch = self.site.map.epoch();
        if gap {
            self.copy.info.history = History::since(epoch);
        } else {
            let backend = &*self.site.backend;
            let ended = self.site.interval.ended(backend, last, epoch.before(1));
            let Some(ended) = ended.filter(|_| !self.site.cfg.has_bug(Bug::NoHistory)) else {
                // It has not served, so nobody need ask its members.
                return;
            };
            invariant!(
                ended.first <= ended.last,
                "an interval to end after it began";
                pg = self.site.pgid, epoch = self.site.map.epoch(), first = ended.first, last = ended.last
            );
            self.copy.info.history.push(ended);
        }
        if self.copy.exists {
            self.copy.save_info(self.site.pgid, &mut self.store, cx);
        }
    }

    /// Drops everything that belonged to the interval that ended. Client ops are kept; the next
    /// primary decides about them.
    fn leave_interval(&mut self, cx: &mut Ctx<'_>) {
        if matches!(self.role, Role::Replica(_)) {
            self.ops.give_up_reads(&self.site, &mut self.store, cx);
        }
        self.copying.leave_interval();
        self.lead.leave_interval();
        self.ops.stages = Default::default();
        self.ops.dropped = Default::default();
        self.ops.watches.clear();
        let mut ops = Vec::new();
        if let Role::Active(a) = &mut self.role {
            // Writes in flight are answered from the log, if they survive: held, they are found
            // there.
            ops.extend(
                std::mem::take(&mut a.in_flight)
                    .into_iter()
                    .flat_map(|w| w.into_ops()),
            );
            ops.extend(std::mem::take(&mut a.lease).into_ops());
        }
        ops.extend(self.store.take_ops(|_| true));
        ops.extend(self.ops.contexts.clear());
        self.ops.hold_first(ops);
    }

    fn new_interval(&mut self, cx: &mut Ctx<'_>) {
        self.leave_interval(cx);
        if matches!(self.role, Role::Deleting) {
            // The rest of the copy is marked incomplete: it can be made whole, but never counts.
            self.role = Role::Stray;
        }
        if self.site.leads() {
            self.ops.recheck_held(self.site.interval.same_primary_since, cx);
            self.begin_peering(cx);
        } else {
            self.ops.recheck_held(Epoch::MAX, cx);
            // Messages still under way from primaries of earlier intervals mean nothing any more:
            // an object that is pushed may not even belong to this PG since a split.
            self.lead.id = PeeringId {
                epoch: self.site.interval.since,
                round: 0,
            };
            if self.site.interval.place.acting.contains(self.site.whoami) {
                self.role = Role::Replica(Replica::default());
            } else {
                self.role = Role::Stray;
                self.led().announce(cx);
            }
        }
    }

    fn same_interval(&mut self, cx: &mut Ctx<'_>) {
        self.serving().check_watches(cx);
        self.agree(cx, |a, cx| a.recheck(cx));
        self.feeding().pump_feeds(cx);
        self.serving().trimming().update_trim_queue();
        self.serving().trimming().trim_on(cx);
    }
}
