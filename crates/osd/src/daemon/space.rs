//! How full the store is, as reported to the monitors.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use spirula_conf::options::Values;
use spirula_denc::Micros;
use spirula_maps::{OsdId, OsdMap, OsdState};
use spirula_proto::Payload;
use spirula_proto::internal::heartbeat::Heartbeat;
use spirula_proto::internal::report::{FullState, Fullness, OsdReport};
use spirula_store::Store;

use super::heartbeat::beat;
use super::maps::Maps;
use super::mons::Mons;
use super::peers::Peers;
use super::report::Reports;
use super::setup::Setup;
use super::store_writes::Writes;

/// The reserve is at most this part (one in so many) of the store.
const TINY_RESERVE: u64 = 7;

/// Space below is scarce if there is less than this many times what may be under way.
const SCARCE: u64 = 8;

/// Ticks after which a state that the map does not show is reported to the monitors again.
const UNHEARD_TICKS: u32 = 5;

/// The ratios from which an OSD is full, too full for backfill, and nearly full. Each is at least
/// the next one, as official OSDs raise ratios that are set out of order.
fn ratios(map: &OsdMap) -> [(f32, Fullness); 3] {
    let near = map.nearfull_ratio;
    let backfill = map.backfillfull_ratio.max(near);
    let full = map.full_ratio.max(backfill);
    [
        (full, Fullness::FULL),
        (backfill, Fullness::BACKFILLFULL),
        (near, Fullness::NEARFULL),
    ]
}

fn level(map: &OsdMap, used: f64) -> Fullness {
    let reached = |(ratio, _): &(f32, Fullness)| *ratio > 0.0 && used >= f64::from(*ratio);
    ratios(map)
        .into_iter()
        .find(reached)
        .map_or(Fullness::NONE, |(_, level)| level)
}

/// The fullness of an OSD in this state of the map.
fn in_map(state: OsdState) -> Fullness {
    let levels = [
        (OsdState::FULL, Fullness::FULL),
        (OsdState::BACKFILLFULL, Fullness::BACKFILLFULL),
        (OsdState::NEARFULL, Fullness::NEARFULL),
    ];
    let says = levels.into_iter().find(|(bit, _)| state.contains(*bit));
    says.map_or(Fullness::NONE, |(_, level)| level)
}

/// A fullness that an operator injects, and for how many checks of the space; negative for all.
#[derive(Debug, Clone, Copy)]
struct Injected {
    level: Fullness,
    /// Whether nothing may grow at all, as beyond `osd_failsafe_full_ratio`.
    failsafe: bool,
    left: i64,
}

/// The fullness of this OSD and of others.
pub(super) struct Space {
    /// OSDs, this one among them, on which nothing may grow.
    pub(super) full: BTreeSet<OsdId>,
    /// The share of the space above which nothing may grow, whatever the monitors say.
    pub(super) failsafe_ratio: f64,
    /// An injected fullness.
    injected: Option<Injected>,
}

impl Space {
    pub(super) fn new(values: &Values) -> Self {
        Self {
            full: BTreeSet::new(),
            failsafe_ratio: values.float("osd_failsafe_full_ratio"),
            injected: None,
        }
    }

    /// Notes whether another OSD has room, if the heartbeat is about that.
    pub(super) fn note(&mut self, osd: OsdId, msg: &Heartbeat) {
        match msg {
            Heartbeat::Room(beat) if beat.full => drop(self.full.insert(osd)),
            Heartbeat::Room(_) => drop(self.full.remove(&osd)),
            Heartbeat::Ping(_) | Heartbeat::Pong(_) | Heartbeat::YouDied(_) => {}
        }
    }

    /// Forgets the fullness of another OSD whose connection has ended: the next connection or life
    /// of it tells anew.
    pub(super) fn forget(&mut self, osd: OsdId) {
        self.full.remove(&osd);
    }
}

/// Checks the space here, and tells others of it.
pub(super) struct Spacing<'a> {
    pub(super) setup: &'a Setup,
    pub(super) maps: &'a Maps,
    pub(super) store: &'a mut Store,
    pub(super) writes: &'a mut Writes,
    pub(super) space: &'a mut Space,
    pub(super) reports: &'a mut Reports,
    pub(super) mons: &'a Mons,
    pub(super) peers: &'a Peers,
    /// The number of OSDs that share PGs with this one.
    pub(super) partners: usize,
}

impl Spacing<'_> {
    /// Reports the fullness to the monitors again, if the map does not show it after some ticks:
    /// the report may have waited for its turn at a leader that was lost, while the session with
    /// another monitor went on.
    pub(super) fn doubt(&mut self) {
        let says = in_map(self.maps.map().state(self.setup.id()));
        let heard = self.reports.fullness.is_none_or(|told| told == says);
        self.reports.unheard = if heard { 0 } else { self.reports.unheard + 1 };
        if self.reports.unheard >= UNHEARD_TICKS {
            self.reports.unheard = 0;
            self.reports.fullness = None;
        }
    }

    /// Tells the store how much the file system below can still give. If that is little, the store
    /// takes in advance the space that it needs for everything accepted.
    fn look_below(&mut self) {
        let lacking = self.store.without_space();
        match self.setup.host.below(&self.setup.cfg.device, lacking) {
            Ok(below) => {
                let under_way = self.under_way().min(self.store.statfs().total / TINY_RESERVE);
                let scarce = below < under_way.saturating_mul(SCARCE);
                self.store.set_below(below, if scarce { under_way } else { 0 });
            }
            Err(error) => tracing::debug!(%error, "the file system below can't be looked at"),
        }
    }

    /// Lets the store return space that has been free for a while.
    pub(super) fn give_back(&mut self) {
        self.store
            .tick(self.setup.values.uint("spirula_osd_discard_rate"));
    }

    /// Reports to the monitors how full the store is, if that has changed.
    pub(super) fn check(&mut self) {
        self.look_below();
        self.writes.reserve = self.reserve();
        let s = self.store.statfs();
        let used = 1.0 - s.available as f64 / s.total.max(1) as f64;
        let map = self.maps.map();
        let mut level = if self.space.full.contains(&self.setup.id()) {
            Fullness::FULL
        } else {
            level(map, used)
        };
        if let Some(injected) = &mut self.space.injected {
            level = injected.level;
            injected.left = if injected.left < 0 { -1 } else { injected.left - 1 };
            if injected.left == 0 {
                self.space.injected = None;
            }
        }
        if self.reports.fullness != Some(level) && self.maps.have_up(self.setup) {
            let state = FullState {
                epoch: map.epoch,
                state: level,
            };
            if self.mons.report(OsdReport::Full(state)) {
                self.reports.fullness = Some(level);
            }
        }
    }

    /// Pretends that the store is this full, to see what happens then. An unknown state is no error
    /// for Ceph's OSDs, whose answer this is.
    pub(super) fn inject(&mut self, args: &Map<String, Value>) -> Value {
        let kind = args.get("type").and_then(Value::as_str).unwrap_or("full");
        let left = args.get("count").and_then(Value::as_i64).unwrap_or(-1);
        let level = match kind {
            "none" => None,
            "nearfull" => Some(Fullness::NEARFULL),
            "backfillfull" => Some(Fullness::BACKFILLFULL),
            "full" | "failsafe" => Some(Fullness::FULL),
            _ => return json!("Invalid type use (none, nearfull, backfillfull, full, failsafe)"),
        };
        let failsafe = kind == "failsafe";
        let wanted = level.filter(|_| left != 0);
        self.space.injected = wanted.map(|level| Injected {
            level,
            failsafe,
            left,
        });
        self.check_room();
        self.check();
        json!("")
    }

    /// The bytes kept free for what the primaries, this OSD among them, have already accepted when
    /// it becomes full: each at most what clients may have under way. On a tiny store, no more than
    /// a share of it.
    fn reserve(&self) -> u64 {
        let total = self.store.statfs().total;
        let failsafe = (total as f64 * (1.0 - self.space.failsafe_ratio).clamp(0.0, 1.0)) as u64;
        failsafe.max(self.under_way().min(total / TINY_RESERVE))
    }

    /// The bytes that the primaries of this OSD's PGs may have accepted together.
    fn under_way(&self) -> u64 {
        let primaries = self.partners as u64 + 1;
        primaries.saturating_mul(self.setup.cfg.client_bytes() as u64)
    }

    /// Checks whether anything may still grow here. Cheap: called after each batch of the store's
    /// work.
    pub(super) fn check_room(&mut self) {
        let (me, available) = (self.setup.id(), self.store.available());
        let was_full = self.space.full.contains(&me);
        let reserve = self.writes.reserve;
        // Ops that were dropped come again when the map says that there is room: so it must have
        // said that there is none.
        let told = self.maps.map().state(me).contains(OsdState::FULL) || !self.maps.have_up(self.setup);
        let injected = self.space.injected.is_some_and(|i| i.failsafe);
        let is_full = if injected {
            true
        } else if was_full {
            !told || available < reserve + reserve / 4
        } else {
            available < reserve
        };
        if is_full == was_full {
            return; // Others know it.
        }
        if is_full {
            tracing::warn!(available, reserve, "no room left: nothing may grow");
            self.space.full.insert(me);
        } else {
            tracing::info!(available, "there is room again");
            self.space.full.remove(&me);
        }
        self.tell();
        self.check();
    }

    /// Tells the OSDs that may lead this one's PGs whether there is room here: on the connections
    /// on which they are told that writes are durable, so that the news comes before the room in
    /// their windows.
    pub(super) fn tell(&self) {
        let full = self.space.full.contains(&self.setup.id());
        let news = Heartbeat::Room(beat(self.setup, self.maps.map(), full, Micros::ZERO));
        self.peers.tell(&news.to_message());
    }
}

#[cfg(test)]
mod tests {
    use spirula_crush::CrushMap;
    use spirula_denc::Fsid;

    use super::*;

    #[test]
    fn ratios_out_of_order_are_raised() {
        let mut map = OsdMap::new(Fsid::default(), CrushMap::default());
        (map.nearfull_ratio, map.backfillfull_ratio, map.full_ratio) = (0.85, 0.9, 0.95);
        let levels = |map: &OsdMap| [0.8, 0.86, 0.91, 0.96].map(|used| level(map, used));
        let (none, near, back, full) = (
            Fullness::NONE,
            Fullness::NEARFULL,
            Fullness::BACKFILLFULL,
            Fullness::FULL,
        );
        assert_eq!(levels(&map), [none, near, back, full]);
        map.nearfull_ratio = 0.92;
        assert_eq!(levels(&map), [none, none, none, full]);
        assert_eq!(
            level(&map, 0.93),
            back,
            "nearfull and backfillfull are reached together"
        );
        map.full_ratio = 0.5;
        assert_eq!(level(&map, 0.91), none);
        assert_eq!(level(&map, 0.93), full);
    }
}
