//! OSDs with damaged stores: which PGs can't do without them.
//!
//! An OSD gives up what it has on this word. So a PG counts only as one that can do without the OSD
//! if its primary has said so since the OSD went down: that it is active, in an interval without the
//! OSD, and misses nothing.

use std::time::Duration;

use spirula_maps::{Epoch, OsdId, OsdMap, PgId, PgStat, PgState};
use spirula_proto::internal::report::{DamagedStore, Need, Needed, StoreDamaged};

use super::View;
use crate::service::Stats;

/// The most PGs that are named.
const MOST_NAMED: usize = 200;
/// The most bytes that are kept of the words about the damage.
const MOST_WORDS: usize = 1000;
/// How long a report counts: OSDs repeat theirs.
pub(crate) const LIFETIME: Duration = Duration::from_secs(60);

/// What an OSD says of its damaged store, and when: on the monitor's steady clock.
#[derive(Debug, Clone)]
pub struct Damage {
    /// What the OSD does.
    pub(crate) state: DamagedStore,
    /// The damage, in words.
    pub(crate) words: String,
    /// The number of PGs that can't do without the OSD, and one of them.
    pub(crate) needed: (u64, Option<PgId>),
    pub(crate) reported: Duration,
    /// When the OSD, which served, was told that nobody needs it.
    pub(crate) let_go: Option<Duration>,
}

/// Why a PG can't do without an OSD; `None` if it can.
fn need(map: &OsdMap, stat: Option<&PgStat>, pg: PgId, osd: OsdId) -> Option<Need> {
    let Some(stat) = stat.filter(|s| s.state != PgState::empty()) else {
        return Some(Need::UNKNOWN);
    };
    let is_active = stat.state.contains(PgState::ACTIVE)
        && !stat.state.contains(PgState::STALE)
        && !stat.state.contains(PgState::DOWN)
        && !stat.state.contains(PgState::INCOMPLETE)
        && !stat.state.contains(PgState::PEERING);
    if !is_active {
        return Some(Need::INACTIVE);
    }
    if stat.stats.sum.num_objects_unfound > 0 {
        return Some(Need::UNFOUND);
    }
    let is_member = stat.acting.contains(osd) || stat.up.contains(osd);
    if !map.is_up(osd) {
        let down_at = map.osd_info.get(osd.index()).map_or(Epoch::NONE, |i| i.down_at);
        return (is_member || stat.reported_epoch < down_at).then_some(Need::UNKNOWN);
    }
    let min_size = map.pool_of(pg).map_or(usize::MAX, |p| usize::from(p.min_size));
    let is_degraded = stat.state.contains(PgState::DEGRADED) && !stat.avail_no_missing.is_empty();
    let others = match is_degraded {
        // Others lack objects.
        true => stat.avail_no_missing.iter().filter(|s| s.osd != osd).count(),
        false => stat.acting.osds().filter(|o| *o != osd).count(),
    };
    (is_member && others < min_size).then_some(Need::MEMBER)
}

/// The PGs that can't do without an OSD, and why.
fn needed<'a>(map: &'a OsdMap, stats: &'a Stats, osd: OsdId) -> impl Iterator<Item = (PgId, Need)> + 'a {
    map.pgs()
        .filter_map(move |pg| Some((pg, need(map, stats.pgs.get(&pg), pg, osd)?)))
}

/// Notes what an OSD says of its store; returns which PGs can't do without the OSD.
///
/// An OSD that serves is not let go within a minute after another one: the statistics may not tell
/// yet that the other one is gone.
pub(super) fn note(view: &mut View, osd: OsdId, report: StoreDamaged) -> Needed {
    let (map, stats) = (&view.state.osd.map, &view.state.stats);
    let now = view.steady.now();
    let mut answer = Needed {
        number: report.number,
        epoch: map.epoch,
        is_up: map.is_up(osd),
        ..Needed::default()
    };
    for (pg, why) in needed(map, stats, osd) {
        answer.count += 1;
        if answer.pgs.len() < MOST_NAMED {
            answer.pgs.insert(pg, why);
        }
    }
    let lives = &mut view.state.osd.lives;
    let was_let_go = |o: OsdId| lives.get(o).and_then(|l| l.damage.as_ref()?.let_go);
    let is_recent = |at: Duration| now.saturating_sub(at) <= LIFETIME;
    let serves = report.state == DamagedStore::SERVES;
    let others = map.osds().filter(|o| *o != osd);
    if serves && answer.count == 0 && others.filter_map(was_let_go).any(is_recent) {
        answer.count = 1;
    }
    let damage = Damage {
        state: report.state,
        words: spirula_text::cut(report.damage, MOST_WORDS),
        needed: (answer.count, answer.pgs.keys().next().copied()),
        reported: now,
        let_go: (serves && answer.count == 0).then_some(now),
    };
    lives.entry(osd).damage = Some(damage);
    answer
}

#[cfg(test)]
mod tests {
    use spirula_crush::CrushMap;
    use spirula_denc::Fsid;
    use spirula_maps::{OsdInfo, OsdState, PgPool, PgShard, PoolId, Positions, SpgId};

    use super::*;

    const OSD: OsdId = OsdId::new(2);
    const PG: PgId = PgId {
        pool: PoolId::new(1),
        seed: 0,
    };

    fn map(is_up: bool) -> OsdMap {
        let mut map = OsdMap::new(Fsid::default(), CrushMap::default());
        map.epoch = Epoch::new(20);
        map.max_osd = 3;
        let state = |osd| match osd == OSD && !is_up {
            true => OsdState::EXISTS,
            false => OsdState::EXISTS.with(OsdState::UP),
        };
        map.osd_state = OsdId::below(3).map(state).collect();
        map.osd_info = vec![OsdInfo::default(); 3];
        map.osd_info[2].down_at = Epoch::new(10);
        let pool = PgPool {
            size: 3,
            min_size: 2,
            ..PgPool::default()
        };
        map.pools.insert(PG.pool, pool);
        map
    }

    fn osds(all: &[i32]) -> Positions {
        Positions::from(
            all.iter()
                .map(|o| OsdId::of_item(*o).unwrap())
                .collect::<Vec<_>>(),
        )
    }

    /// A PG that is active on these OSDs, as was reported in this epoch.
    fn stat(acting: &[i32], epoch: u32) -> PgStat {
        PgStat {
            state: PgState::ACTIVE.with(PgState::UNDERSIZED),
            acting: osds(acting),
            up: osds(acting),
            reported_epoch: Epoch::new(epoch),
            ..PgStat::default()
        }
    }

    #[test]
    fn a_pg_does_without_an_osd_when_its_primary_has_said_so_since() {
        let map = map(false);
        let why = |stat: PgStat| need(&map, Some(&stat), PG, OSD);
        assert_eq!(why(stat(&[0, 1], 10)), None);
        assert_eq!(why(stat(&[0, 1], 20)), None);
        assert_eq!(need(&map, None, PG, OSD), Some(Need::UNKNOWN));
        assert_eq!(why(PgStat::default()), Some(Need::UNKNOWN));
        // As it was before the OSD went down, or as if it had not.
        assert_eq!(why(stat(&[0, 1], 9)), Some(Need::UNKNOWN));
        assert_eq!(why(stat(&[0, 1, 2], 15)), Some(Need::UNKNOWN));
        for bad in [
            PgState::STALE,
            PgState::DOWN,
            PgState::INCOMPLETE,
            PgState::PEERING,
        ] {
            let mut stat = stat(&[0, 1], 15);
            stat.state.insert(bad);
            assert_eq!(why(stat), Some(Need::INACTIVE), "{bad:?}");
        }
        for alone in [
            PgState::DOWN,
            PgState::PEERED,
            PgState::CREATING,
            PgState::UNDERSIZED,
        ] {
            let stat = PgStat {
                state: alone,
                ..stat(&[0, 1], 15)
            };
            assert_eq!(why(stat), Some(Need::INACTIVE), "{alone:?}");
        }
        let mut unfound = stat(&[0, 1], 15);
        unfound.stats.sum.num_objects_unfound = 1;
        assert_eq!(why(unfound), Some(Need::UNFOUND));
    }

    #[test]
    fn a_pg_does_without_a_member_that_is_up_if_enough_others_have_all() {
        let map = map(true);
        let why = |stat: &PgStat| need(&map, Some(stat), PG, OSD);
        assert_eq!(why(&stat(&[0, 1, 2], 5)), None);
        assert_eq!(why(&stat(&[0, 1], 5)), None, "it is no member");
        assert_eq!(why(&stat(&[0, 2], 5)), Some(Need::MEMBER));
        let mut lacking = stat(&[0, 1, 2], 5);
        lacking.state.insert(PgState::DEGRADED);
        let whole = |osd| PgShard {
            osd: OsdId::of_item(osd).unwrap(),
            shard: SpgId::NO_SHARD,
        };
        lacking.avail_no_missing = vec![whole(0), whole(2)];
        assert_eq!(why(&lacking), Some(Need::MEMBER));
        lacking.avail_no_missing.push(whole(1));
        assert_eq!(why(&lacking), None);
    }
}
