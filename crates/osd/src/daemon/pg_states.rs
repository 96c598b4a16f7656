//! States of PGs as `dump_pgstate_history` and `pg query` show them. In Ceph's shape
//! (`PGStateHistory::dump` in its `src/osd/PGStateUtils.cc`), where numbers and times are strings.

use serde_json::{Map, Value, json};
use spirula_denc::Micros;
use spirula_maps::{Epoch, OsdId, OsdMap};

use crate::pg::Pg;
use crate::pg::recent::{PastState, State, Transition};

/// The state of each PG, and its earlier states.
pub(super) fn history<'a>(pgs: impl Iterator<Item = &'a Pg>) -> Value {
    let mut pgs: Vec<&Pg> = pgs.collect();
    pgs.sort_unstable_by_key(|pg| pg.pgid());
    let all = pgs.iter().map(|pg| {
        json!({
            "pg": pg.pgid().to_string(),
            "currently": pg.seen().stands_since().0.name(),
            "history": epochs(&pg.seen().past_states()),
        })
    });
    json!({"pgs": all.collect::<Vec<_>>()})
}

/// States by the epoch in which they ended.
fn epochs(past: &[PastState]) -> Vec<Value> {
    let state = |s: &PastState| json!({"state": s.state.name(), "enter": s.enter.to_string(), "exit": s.exit.to_string()});
    past.chunk_by(|a, b| a.epoch == b.epoch)
        .filter_map(|of_epoch| {
            let epoch = of_epoch.first()?.epoch.to_string();
            Some(json!({"epoch": epoch, "states": of_epoch.iter().map(state).collect::<Vec<_>>()}))
        })
        .collect()
}

/// The state of a PG, since when it is in it, and what it waits for.
pub(super) fn now(pg: &Pg, usec: Micros, map: &OsdMap) -> Value {
    let (state, since) = pg.seen().stands_since();
    let mut now =
        json!({"name": state.name(), "enter_time": since.to_string(), "comment": pg.seen().sentence(usec)});
    if state == State::Down
        && let (Some(report), Some(fields)) = (pg.seen().report(), now.as_object_mut())
    {
        let lost_at = |osd: OsdId| {
            let info = map.osd_info.get(osd.index());
            info.map_or(Epoch::NONE, |i| i.lost_at)
        };
        fields.extend(blocked(&report.blocked_by, lost_at));
    }
    now
}

/// The OSDs that keep a PG from peering, as Ceph shows them (`Peering::react` to a query in its
/// `src/osd/PeeringState.cc`).
fn blocked(by: &[OsdId], lost_at: impl Fn(OsdId) -> Epoch) -> Map<String, Value> {
    let of = |osd: &OsdId| {
        json!({"osd": osd, "current_lost_at": lost_at(*osd),
            "comment": "starting or marking this osd lost may let us proceed"})
    };
    let mut fields = Map::new();
    fields.insert("blocked".to_owned(), json!("peering is blocked due to down osds"));
    fields.insert("down_osds_we_would_probe".to_owned(), json!(by));
    fields.insert("peering_blocked_by".to_owned(), by.iter().map(of).collect());
    fields
}

/// The transitions of a PG.
pub(super) fn transitions(all: &[Transition]) -> Vec<Value> {
    let one = |t: &Transition| json!({"time": t.at.to_string(), "epoch": t.epoch, "transition": t.what.to_string()});
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use spirula_denc::UTime;

    use super::*;
    use crate::pg::recent::What;

    fn at(sec: u32) -> UTime {
        UTime {
            sec: 1_700_000_000 + sec,
            nsec: 5000,
        }
    }

    fn past(state: State, enter: u32, epoch: Epoch) -> PastState {
        PastState {
            state,
            enter: at(enter),
            exit: at(enter + 1),
            epoch,
        }
    }

    #[test]
    fn states_are_shown_in_ceph_s_shape() {
        let past = [
            past(State::Flushing, 0, Epoch::new(7)),
            past(State::Infos, 1, Epoch::new(7)),
            past(State::Active, 2, Epoch::new(9)),
        ];
        let (t0, t1, t2, t3) = (
            "2023-11-14T22:13:20.000005+0000",
            "2023-11-14T22:13:21.000005+0000",
            "2023-11-14T22:13:22.000005+0000",
            "2023-11-14T22:13:23.000005+0000",
        );
        assert_eq!(
            json!(epochs(&past)),
            json!([
                {"epoch": "7", "states": [
                    {"state": "Primary/Peering/Flushing", "enter": t0, "exit": t1},
                    {"state": "Primary/Peering/Infos", "enter": t1, "exit": t2},
                ]},
                {"epoch": "9", "states": [{"state": "Primary/Active", "enter": t2, "exit": t3}]},
            ])
        );
        assert!(epochs(&[]).is_empty());
    }

    #[test]
    fn what_blocks_is_shown_as_ceph_shows_it() {
        assert_eq!(
            Value::Object(blocked(&[OsdId::new(3)], |osd| Epoch::new(10 + u32::from(osd)))),
            json!({
                "blocked": "peering is blocked due to down osds",
                "down_osds_we_would_probe": [3],
                "peering_blocked_by": [
                    {"osd": 3, "current_lost_at": 13, "comment": "starting or marking this osd lost may let us proceed"},
                ],
            })
        );
    }

    #[test]
    fn transitions_are_shown_with_their_time() {
        let t = Transition {
            at: at(0),
            epoch: Epoch::new(7),
            what: What::LeaseLate(true),
        };
        assert_eq!(
            transitions(&[t]),
            [json!({"time": "2023-11-14T22:13:20.000005+0000", "epoch": 7, "transition": "lease late"})]
        );
    }
}
