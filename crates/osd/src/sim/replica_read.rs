//! Reads that members other than the primary answer.

use spirula_errno::EAGAIN;

use super::*;
use crate::pg::bug::Bug;

/// The answer of osd.`id` to a read with `BALANCE_READS`; `None` if it has not answered yet.
fn ask(sim: &mut Sim, id: OsdId, name: &str) -> Option<Result<Bytes, i32>> {
    let mut op = sim.build(name, vec![extent(OpCode::READ, 0, 0, "")]);
    (op.epoch, op.flags) = (
        sim.nodes[&id].epoch,
        OsdFlags::ONDISK.with(OsdFlags::BALANCE_READS),
    );
    let (pgid, tid) = (op.pgid, op.tid);
    sim.with(id, |core, cx| core.handle_op(pgid, op, cx));
    while let Some(step) = sim.steps().into_iter().find(|s| *s == Step::Answer(id)) {
        sim.step(step);
    }
    let r = sim.reply_to(tid)?;
    Some(match r.result {
        0 => Ok(r.ops[0].data.to_bytes()),
        e => Err(e),
    })
}

fn cluster(bug: Option<Bug>) -> (Sim, OsdId) {
    let cfg = PgConfig {
        bug,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, 5, cfg);
    sim.settle();
    sim.write_full("a", "one");
    let place = sim.map().placement(PgId::new(POOL, 0));
    let member = place.acting.osds().find(|o| Some(*o) != place.primary).unwrap();
    (sim, member)
}

/// Gets the member its share: the first question is answered by the primary, the next ones by the
/// member.
fn share(sim: &mut Sim, member: OsdId) {
    assert_eq!(ask(sim, member, "a"), Some(Err(-EAGAIN)));
    sim.run_some(10_000);
    assert_eq!(ask(sim, member, "a"), Some(Ok("one".into())));
}

#[test]
fn a_member_with_a_share_answers_what_is_durable_everywhere() {
    let (mut sim, member) = cluster(None);
    share(&mut sim, member);
    assert_eq!(ask(&mut sim, member, "absent"), Some(Err(-2)));
    let op = sim.build("a", vec![write_full("two")]);
    let primary = sim.map().placement(op.pgid).primary.unwrap();
    let tid = sim.submit(op).unwrap();
    // It knows of the write, and not whether the others have it.
    sim.step(Step::Deliver(primary, member));
    sim.step(Step::Flush(member));
    assert_eq!(ask(&mut sim, member, "a"), Some(Err(-EAGAIN)));
    sim.run_some(10_000);
    assert_eq!(sim.reply_to(tid).unwrap().result, 0);
    assert_eq!(
        ask(&mut sim, member, "a"),
        Some(Err(-EAGAIN)),
        "it was told nothing yet"
    );
    sim.write_full("b", "next");
    assert_eq!(ask(&mut sim, member, "a"), Some(Ok("two".into())));
    // Nobody asks for long: the share is over.
    sim.pass(10);
    assert_eq!(ask(&mut sim, member, "a"), Some(Err(-EAGAIN)));
}

#[test]
fn a_write_overtakes_a_read_that_the_store_has_not_answered() {
    let (mut sim, member) = cluster(None);
    share(&mut sim, member);
    sim.with(member, |core, _| core.drop_contexts());
    let mut op = sim.build("a", vec![extent(OpCode::READ, 0, 0, "")]);
    op.flags = OsdFlags::ONDISK.with(OsdFlags::BALANCE_READS);
    let (pgid, tid) = (op.pgid, op.tid);
    sim.with(member, |core, cx| core.handle_op(pgid, op, cx));
    let write = sim.build("a", vec![write_full("two")]);
    let primary = sim.map().placement(pgid).primary.unwrap();
    sim.submit(write).unwrap();
    sim.step(Step::Deliver(primary, member));
    assert_eq!(sim.reply_to(tid).unwrap().result, -EAGAIN);
    sim.run_some(10_000);
    assert!(sim.all_clean());
}

/// A client is put on the blocklist; another client with that map reads from a member, while the
/// primary does not have the map and could accept the first client's writes.
#[test]
fn a_member_does_not_answer_who_knows_a_map_that_the_primary_may_not_know() {
    let (mut sim, member) = cluster(None);
    share(&mut sim, member);
    let primary = sim.map().placement(PgId::new(POOL, 0)).primary.unwrap();
    let mut shut_out = sim.build("a", vec![write_full("too late")]);
    shut_out.client = watch::client(77);
    let addr = shut_out.client.addr;
    let (pgid, tid) = (shut_out.pgid, shut_out.tid);
    sim.change_map(|m| m.blocklist.push(addr));
    sim.step(Step::Map(member));
    assert_eq!(ask(&mut sim, member, "a"), Some(Err(-EAGAIN)));
    sim.step(Step::Map(primary));
    sim.run_some(10_000);
    assert_eq!(ask(&mut sim, member, "a"), Some(Ok("one".into())));
    sim.with(primary, |core, cx| core.handle_op(pgid, shut_out, cx));
    sim.run_some(10_000);
    assert_eq!(sim.reply_to(tid).unwrap().result, -108);
    assert_eq!(ask(&mut sim, member, "a"), Some(Ok("one".into())));
}

/// A new member that its primary has not spoken to yet has no PG; a client that asks it has the
/// newest map, and hears of no other.
#[test]
fn who_has_nothing_yet_sends_clients_to_the_primary() {
    let mut sim = Sim::new(4, 3, 1, 5);
    sim.settle();
    sim.write_full("a", "one");
    let acting = sim.map().placement(PgId::new(POOL, 0)).acting;
    let other = OsdId::below(4).find(|o| !acting.contains(*o)).unwrap();
    assert_eq!(ask(&mut sim, other, "a"), Some(Err(-EAGAIN)));
}

#[test]
fn what_is_damaged_at_a_member_is_the_primary_s() {
    let (mut sim, member) = cluster(None);
    share(&mut sim, member);
    let key = crate::pg::key::object_key(&sim.object("a"));
    sim.nodes.get_mut(&member).unwrap().store.rotten.insert(key);
    assert_eq!(ask(&mut sim, member, "a"), Some(Err(-EAGAIN)));
    assert_eq!(sim.read("a").unwrap(), "one");
}

#[test]
fn a_member_that_starts_to_lead_or_is_asked_anew_answers_no_more_as_a_member() {
    let (mut sim, member) = cluster(None);
    share(&mut sim, member);
    let primary = sim.map().placement(PgId::new(POOL, 0)).primary.unwrap();
    sim.crash_and_mark_down(primary);
    sim.settle();
    let op = sim.build("a", vec![extent(OpCode::READ, 0, 0, "")]);
    let other = sim.map().placement(op.pgid).acting.osds().last().unwrap();
    assert_eq!(ask(&mut sim, other, "a"), Some(Err(-EAGAIN)));
    assert_eq!(sim.read("a").unwrap(), "one");
}

/// A member with a share is cut off and marked down; the others take a write. Returns whether that
/// was acknowledged before the end of the share, and the member's answer then.
fn cut_off(bug: Option<Bug>) -> (bool, Option<Result<Bytes, i32>>) {
    let (mut sim, member) = cluster(bug);
    share(&mut sim, member);
    sim.isolate(member);
    sim.change_map(|m| m.mark_down(member));
    sim.run_some(10_000);
    let op = sim.build("a", vec![write_full("two")]);
    let tid = sim.submit(op).unwrap();
    sim.run_some(10_000);
    let early = sim.reply_to(tid).is_some();
    let said = ask(&mut sim, member, "a");
    sim.pass(6);
    assert!(early || sim.reply_to(tid).is_some(), "{:?}", sim.states());
    assert_eq!(ask(&mut sim, member, "a"), Some(Err(-EAGAIN)));
    (early, said)
}

#[test]
fn a_write_waits_for_members_that_may_answer_reads_behind_its_back() {
    assert_eq!(cut_off(None), (false, Some(Ok("one".into()))));
    assert_eq!(cut_off(Some(Bug::NoSharedWait)), (true, Some(Ok("one".into()))));
}
