//! How full the store is, as the monitors are told.

use serde_json::{Map, Value, json};
use spirula_maps::{OsdMap, OsdState};
use spirula_proto::Payload;
use spirula_proto::internal::report::{FullState, Fullness, OsdReport};

use super::report::TINY_RESERVE;
use super::state::Osd;

/// Space below is scarce where there is less than so many times what may be under way.
const SCARCE: u64 = 8;

/// Ticks after which the monitors are told again what the map does not say.
const UNHEARD_TICKS: u32 = 5;

/// The ratios from which an OSD is full, too full for backfill, and nearly full. Each is at least the next one, as official
/// OSDs raise them where they are set out of order.
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

/// What the map says of an OSD in this state.
fn in_map(state: OsdState) -> Fullness {
    let levels = [
        (OsdState::FULL, Fullness::FULL),
        (OsdState::BACKFILLFULL, Fullness::BACKFILLFULL),
        (OsdState::NEARFULL, Fullness::NEARFULL),
    ];
    let says = levels.into_iter().find(|(bit, _)| state.contains(*bit));
    says.map_or(Fullness::NONE, |(_, level)| level)
}

/// A fullness that an operator pretends, and for how many looks at the space; negative for all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Injected {
    level: Fullness,
    /// Nothing may grow at all, as beyond `osd_failsafe_full_ratio`.
    pub(super) failsafe: bool,
    left: i64,
}

impl Osd {
    /// Tells the monitors again how full the store is, if the map does not say so after some ticks: the word may have waited for its
    /// turn at a leader that was lost, while the session with another monitor went on.
    pub(super) fn doubt_space(&mut self) {
        let says = in_map(self.maps.map().state(self.cfg.id));
        let heard = self.reports.fullness.is_none_or(|told| told == says);
        self.reports.unheard = if heard { 0 } else { self.reports.unheard + 1 };
        if self.reports.unheard >= UNHEARD_TICKS {
            self.reports.unheard = 0;
            self.reports.fullness = None;
        }
    }

    /// Tells the store what the file system below can still give. Where that is little, the store takes ahead what it needs for all that
    /// was accepted.
    fn look_below(&mut self) {
        let lacking = self.io.store.without_space();
        match self.host.below(&self.cfg.device, lacking) {
            Ok(below) => {
                let under_way = self.under_way().min(self.io.store.statfs().total / TINY_RESERVE);
                let scarce = below < under_way.saturating_mul(SCARCE);
                self.io.store.set_below(below, if scarce { under_way } else { 0 });
            }
            Err(error) => tracing::debug!(%error, "the file system below can't be looked at"),
        }
    }

    /// Lets the store give back what was free for a while.
    pub(super) fn give_back_space(&mut self) {
        self.io.store.tick(self.values.uint("spirula_osd_discard_rate"));
    }

    /// Tells the monitors how full the store is, where that has changed.
    pub(super) fn check_space(&mut self) {
        self.look_below();
        self.io.writes.reserve = self.reserve();
        let s = self.io.store.statfs();
        let used = 1.0 - s.available as f64 / s.total.max(1) as f64;
        let map = self.maps.map();
        let mut level = if self.full.contains(&self.cfg.id) {
            Fullness::FULL
        } else {
            level(map, used)
        };
        if let Some(injected) = &mut self.injected_full {
            level = injected.level;
            injected.left = if injected.left < 0 { -1 } else { injected.left - 1 };
            if injected.left == 0 {
                self.injected_full = None;
            }
        }
        if self.reports.fullness != Some(level) && self.is_up() {
            let state = FullState {
                epoch: map.epoch,
                state: level,
            };
            if self.mon.send(OsdReport::Full(state).to_message()) {
                self.reports.fullness = Some(level);
            }
        }
    }

    /// Pretends that the store is so full, to see what happens then. Another state is no error for Ceph's OSDs, whose answer it is.
    pub(super) fn inject_full(&mut self, args: &Map<String, Value>) -> Value {
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
        self.injected_full = wanted.map(|level| Injected {
            level,
            failsafe,
            left,
        });
        self.check_room();
        self.check_space();
        json!("")
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
