//! What comes too late, to an OSD of another role, or to nobody, is counted by its reason.

use super::*;
use crate::pg::message::{PeerBody, PeeringId};

fn pgid() -> PgId {
    PgId::new(POOL, 0)
}

/// Why an OSD drops what another one says.
fn reason(sim: &mut Sim, (from, to): (u16, u16), id: PeeringId, body: PeerBody) -> Option<DropReason> {
    let (pgid, mut reason) = (pgid(), None);
    sim.with(OsdId::new(to), |core, cx| {
        core.handle_peer(OsdId::new(from), PeerMessage { pgid, id, body }, cx);
        reason = cx.perf.dropped.newest_since(0);
    });
    reason
}

/// Why the primary drops a request.
fn reason_of_op(sim: &mut Sim, pgid: PgId, op: ClientOp) -> Option<DropReason> {
    let mut reason = None;
    sim.with(OsdId::new(0), |core, cx| {
        core.handle_op(pgid, op, cx);
        reason = cx.perf.dropped.newest_since(0);
    });
    reason
}

#[test]
fn messages_without_an_effect_are_counted_by_their_reason() {
    let mut sim = Sim::new(3, 3, 1, 1);
    sim.settle_clean(1);
    let core = sim.nodes[&OsdId::new(0)].core.as_ref().unwrap();
    let id = core.pg(pgid()).unwrap().seen().attempt();
    for (way, body, expected) in [
        // Nobody has asked, as nothing is copied.
        ((1, 0), PeerBody::Reserved, DropReason::PeerLate),
        ((1, 0), PeerBody::Revoked, DropReason::PeerLate),
        ((1, 0), PeerBody::PushRefused, DropReason::PeerLate),
        // A replica has no turn, and its copy is needed.
        ((1, 2), PeerBody::Reserved, DropReason::PeerMisled),
        ((1, 2), PeerBody::Revoked, DropReason::PeerMisled),
        ((0, 1), PeerBody::Remove, DropReason::PeerMisled),
    ] {
        let said = format!("{body:?}");
        assert_eq!(reason(&mut sim, way, id, body), Some(expected), "{said}");
    }
    let before = PeeringId::default();
    assert_eq!(
        reason(&mut sim, (0, 1), before, PeerBody::Remove),
        Some(DropReason::PeerStale)
    );
    assert!(sim.steps().is_empty() && sim.all_clean());
}

#[test]
fn requests_without_an_answer_are_counted_by_their_reason() {
    let mut sim = Sim::new(1, 1, 2, 1);
    sim.settle_clean(1);
    let op = sim.build("a", vec![write_full("x")]);
    let other = PgId::new(POOL, 1 - op.pgid.seed);
    assert_eq!(reason_of_op(&mut sim, other, op), Some(DropReason::OpMisdirected));
    let core = sim.nodes[&OsdId::new(0)].core.as_ref().unwrap();
    let newest = core.pg(other).unwrap().seen().transitions().last().unwrap().what;
    assert_eq!(newest.to_string(), "dropped 1 requests: op_misdirected");

    let op = sim.build("a", vec![write_full("x")]);
    let pgid = op.pgid;
    assert_eq!(reason_of_op(&mut sim, pgid, op), None);
    sim.settle();
    sim.full.insert(OsdId::new(0));
    // The second one grows nothing, but must not overtake the first.
    for ops in [vec![write_full("more")], vec![plain(OpCode::DELETE)]] {
        let op = sim.build("a", ops);
        assert_eq!(reason_of_op(&mut sim, pgid, op), Some(DropReason::OpNoRoom));
    }
    sim.full.clear();

    sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().eio = true);
    sim.settle();
    let mut op = sim.build("a", vec![plain(OpCode::STAT)]);
    op.flags.insert(OsdFlags::SUPPORTSPOOLEIO);
    assert_eq!(reason_of_op(&mut sim, pgid, op), Some(DropReason::OpPoolEio));
    assert!(sim.replies.iter().all(|r| r.result == 0), "{:?}", sim.replies);
}
