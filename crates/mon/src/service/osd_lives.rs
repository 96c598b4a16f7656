//! The monitor's knowledge of each OSD besides the map: when it was last heard of, and which OSDs
//! complain about it. It is not replicated: a new leader starts to count anew.

use std::collections::BTreeMap;
use std::time::Duration;

use spirula_invariant::invariant;
use spirula_maps::{Epoch, OsdId, OsdMap};
use spirula_proto::internal::report::SlowOps;

use crate::core::Failure;
use crate::core::store_damage::Damage;
use crate::health::{Clock, CommitTime, Scrubs};

/// The state of one OSD.
#[derive(Debug, Clone, Default)]
pub struct Life {
    /// The time of the last sign of life. This and the other times are on the monitor's steady
    /// clock.
    pub seen: Duration,
    /// When its last session broke; `None` while it has one.
    pub lost: Option<Duration>,
    /// The OSDs that report that it does not answer, and since when.
    pub failure: Failure,
    /// The epoch before which none of its PGs needs maps.
    pub min_last_epoch_clean: Epoch,
    /// The time between its beacons.
    pub interval: Duration,
    /// Its slow requests.
    pub slow_ops: SlowOps,
    /// The difference of its clock from the monitor's.
    pub clock: Clock,
    /// The time that its store takes to make a transaction durable.
    pub commits: CommitTime,
    /// Its scrubs, and when they will be done.
    pub scrubs: Scrubs,
    /// When it was seen to be down, for marking it out.
    pub down_since: Option<Duration>,
    /// What it last said of its damaged store.
    pub damage: Option<Damage>,
}

/// The states of all OSDs.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    lives: BTreeMap<OsdId, Life>,
}

impl Lives {
    pub(crate) fn start(&mut self, now: Duration, map: &OsdMap) {
        self.lives.clear();
        for osd in map.osds() {
            let down = (!map.is_up(osd)).then_some(now);
            self.lives.insert(
                osd,
                Life {
                    seen: now,
                    down_since: down,
                    ..Life::default()
                },
            );
        }
    }

    pub(crate) fn get(&self, osd: OsdId) -> Option<&Life> {
        self.lives.get(&osd)
    }

    pub(crate) fn entry(&mut self, osd: OsdId) -> &mut Life {
        self.lives.entry(osd).or_default()
    }

    pub(crate) fn seen(&mut self, osd: OsdId, now: Duration) {
        let life = self.entry(osd);
        life.seen = now;
        life.lost = None;
    }

    pub(crate) fn lost(&mut self, osd: OsdId, now: Duration) {
        self.entry(osd).lost = Some(now);
    }

    /// Follows a change of the map.
    pub(crate) fn follow(&mut self, before: &OsdMap, map: &OsdMap, now: Duration) {
        invariant!(map.epoch > before.epoch, "a newer map"; epoch = map.epoch, before = before.epoch);
        for osd in before.osds() {
            if !map.exists(osd) {
                self.lives.remove(&osd);
            } else if before.is_up(osd) && !map.is_up(osd) {
                self.went_down(osd, now);
            } else if before.is_out(osd) && !map.is_out(osd) && map.is_down(osd) {
                // It is given the whole time again.
                self.entry(osd).down_since = Some(now);
            }
        }
        for osd in map.osds().filter(|o| map.is_up(*o) && !before.is_up(*o)) {
            let life = self.entry(osd);
            life.failure.clear();
            life.down_since = None;
            life.damage = None;
        }
    }

    fn went_down(&mut self, osd: OsdId, now: Duration) {
        let life = self.entry(osd);
        life.failure.clear();
        life.clock = Clock::default();
        life.lost = None;
        life.down_since = Some(now);
        // Nor does anybody listen to it.
        for life in self.lives.values_mut() {
            life.failure.cancel(osd);
        }
    }
}
