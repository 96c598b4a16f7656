//! A PG's memory of itself, and its reports on what it waits for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::*;
use crate::pg::Pg;
use crate::pg::message::{PeerBody, PeeringId};
use crate::pg::recent::{RECENT_BYTES, State, What};

fn pg(sim: &Sim, osd: OsdId) -> &Pg {
    let core = sim.nodes[&osd].core.as_ref().unwrap();
    core.pg(PgId::new(POOL, 0)).unwrap()
}

fn sentence(sim: &Sim, osd: OsdId) -> String {
    pg(sim, osd).seen().sentence(sim.usec)
}

/// The sentence of the primary of the first PG.
fn leader_s(sim: &Sim) -> String {
    let leads = |id: &&OsdId| {
        let core = sim.nodes[*id].core.as_ref();
        core.is_some_and(|c| c.pgs().any(|pg| pg.seen().is_primary()))
    };
    sentence(sim, *sim.nodes.keys().find(leads).unwrap())
}

#[test]
fn a_pg_says_on_whom_it_waits_and_since_when() {
    let mut sim = Sim::new(3, 3, 1, 5);
    sim.settle_clean(5);
    let serves = sentence(&sim, OsdId::new(0));
    assert!(
        serves.starts_with("Serves since 10") && serves.ends_with(", and waits for nothing."),
        "{serves}"
    );
    assert!(sentence(&sim, OsdId::new(1)).starts_with("Follows osd.0, which serves, since 10"));

    let op = sim.build("a", vec![write_full("x")]);
    sim.submit(op).unwrap();
    while let Some(step) = sim.steps().into_iter().find(|s| *s != Step::Flush(OsdId::new(1))) {
        sim.step(step);
    }
    let writes = sentence(&sim, OsdId::new(0));
    assert!(
        writes.starts_with("Serves (Primary/Active since ")
            && writes.contains(") and waits for osd.1 to have write "),
        "{writes}"
    );
    let follows = sentence(&sim, OsdId::new(1));
    assert!(
        follows.contains(", and waits for its store to have write ")
            && follows.ends_with(" durable, of 1 transactions, submitted 0 s ago."),
        "{follows}"
    );
    sim.settle_clean(5);

    sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().min_size = 3);
    sim.settle();
    sim.crash_and_mark_down(OsdId::new(2));
    sim.settle();
    let waits = sentence(&sim, OsdId::new(0));
    assert!(
        waits.contains(" for more OSDs: 2 of the min_size of 3 are up. This is attempt "),
        "{waits}"
    );
    // It has waited as long, whatever maps come meanwhile.
    let standing = pg(&sim, OsdId::new(0)).seen().stands_since();
    assert_eq!(standing.0, State::MinSize);
    sim.pass(5);
    sim.change_map(|_| ());
    sim.settle();
    assert_eq!(pg(&sim, OsdId::new(0)).seen().stands_since(), standing);
    sim.start_and_mark_up(OsdId::new(2));
    sim.settle_clean(5);
    let past = pg(&sim, OsdId::new(0)).seen().past_states();
    let waited = past.iter().find(|s| s.state == State::MinSize).unwrap();
    assert!(
        waited.enter == standing.1 && waited.exit > waited.enter,
        "{past:?}"
    );
}

/// Lets some of the cluster's work happen until the leader of the first PG says this.
fn run_until(sim: &mut Sim, part: &str) -> String {
    for _ in 0..500 {
        let said = leader_s(sim);
        if said.contains(part) {
            return said;
        }
        sim.run_some(1);
    }
    panic!("not {part:?} but {}", leader_s(sim));
}

#[test]
fn a_pg_that_serves_names_the_object_that_it_waits_for() {
    let mut sim = Sim::new(3, 3, 1, 5);
    sim.settle_clean(5);
    let op = sim.build("a", vec![plain(OpCode::STAT)]);
    sim.submit(op).unwrap();
    let reads = leader_s(&sim);
    assert!(
        reads.contains(" waits for its store to read 1:")
            && reads.contains("a:head, of 1, for a request that came "),
        "{reads}"
    );
    sim.settle_clean(5);
    assert!(leader_s(&sim).ends_with(", and waits for nothing."));

    sim.write_full("source", "x");
    sim.settle_clean(5);
    sim.with(OsdId::new(0), |core, _| core.drop_contexts());
    let op = sim.build("copy", vec![copy::copy("source")]);
    sim.submit(op).unwrap();
    let copies = run_until(&mut sim, " to send part 1 of source to be copied, asked 0 s ago");
    assert!(copies.contains(" waits for osd.0 to send "), "{copies}");
    sim.settle_clean(5);
    assert_eq!(sim.read("copy").unwrap(), "x");
}

#[test]
fn a_pg_that_trims_says_so() {
    let mut sim = Sim::new(3, 3, 1, 5);
    sim.settle_clean(5);
    sim.write_at_snaps("a", vec![write_full("one")], 0, &[]);
    sim.write_at_snaps("a", vec![write_full("two")], 3, &[3]);
    sim.change_map(|m| m.no_snap_trim = true);
    sim.remove_snaps(&[3]);
    sim.settle();
    let held = leader_s(&sim);
    assert!(
        held.ends_with(" waits for the flag nosnaptrim to go, to trim 1 removed snapshots."),
        "{held}"
    );
    sim.change_map(|m| m.no_snap_trim = false);
    run_until(
        &mut sim,
        "its store to list what to trim of snapshot 3, of 1 removed ones",
    );
    let trims = run_until(&mut sim, " to be trimmed, of 1 clones, for 1 removed snapshots");
    assert!(trims.contains("a:3 to be trimmed"), "{trims}");
    sim.settle();
    assert!(leader_s(&sim).ends_with(", and waits for nothing."));
}

#[test]
fn a_pg_names_the_osd_that_may_have_more() {
    let mut sim = Sim::new(4, 1, 1, 4);
    sim.settle();
    sim.write_full("a", "x");
    sim.crash_and_mark_down(OsdId::new(0));
    sim.change_map(|m| m.out.push(OsdId::new(0)));
    sim.settle();
    let waits = leader_s(&sim);
    assert!(
        waits.contains(" for osd.0 to come up, or to be declared lost: "),
        "{waits}"
    );
    sim.pass(5);
    sim.change_map(|_| ());
    sim.settle();
    assert_eq!(leader_s(&sim), waits);
    sim.start_and_mark_up(OsdId::new(0));
    sim.settle_clean(4);
}

#[test]
fn transitions_are_remembered_in_their_order() {
    let mut sim = Sim::new(3, 3, 1, 7);
    sim.settle_clean(7);
    let all = pg(&sim, OsdId::new(0)).seen().transitions();
    assert!(all.is_sorted_by_key(|t| t.at));
    let states: Vec<State> = all
        .iter()
        .filter_map(|t| match t.what {
            What::State(state) => Some(state),
            _ => None,
        })
        .collect();
    let order = [State::Flushing, State::Infos, State::Activating, State::Active];
    let places: Vec<_> = order
        .iter()
        .map(|s| states.iter().position(|x| x == s).unwrap())
        .collect();
    assert!(places.is_sorted(), "{states:?}");
    let place = |wanted: fn(&What) -> bool| all.iter().position(|t| wanted(&t.what)).unwrap();
    let interval = place(|w| matches!(w, What::Interval { primary: Some(osd), .. } if osd.index() == 0));
    let attempt = place(|w| matches!(w, What::Attempt(id) if id.round > 0));
    let asks = place(|w| *w == What::State(State::Infos));
    assert!(interval < attempt && attempt < asks, "{all:?}");

    // A message of an attempt that never was.
    let msg = PeerMessage {
        pgid: PgId::new(POOL, 0),
        id: PeeringId::default(),
        body: PeerBody::PushAck,
    };
    sim.with(OsdId::new(0), |core, cx| core.handle_peer(OsdId::new(2), msg, cx));
    let newest = pg(&sim, OsdId::new(0)).seen().transitions().last().unwrap().what;
    assert!(
        matches!(
            newest,
            What::Dropped {
                times: 1,
                from: Some(osd),
                ..
            } if osd.index() == 2
        ),
        "{newest:?}"
    );
}

#[test]
fn the_more_pgs_the_less_each_remembers() {
    let mut sim = Sim::new(3, 3, 64, 9);
    sim.settle_clean(9);
    for node in sim.nodes.values() {
        let core = node.core.as_ref().unwrap();
        let all: usize = core.pgs().map(|pg| pg.seen().transitions().len()).sum();
        let bytes = all * size_of::<crate::pg::recent::Transition>();
        assert!(all >= 64 && bytes <= RECENT_BYTES, "{all} transitions");
    }
}

#[test]
fn a_broken_invariant_tells_what_the_pg_did_before() {
    let mut sim = Sim::new(3, 3, 1, 11);
    sim.settle_clean(11);
    let heard = Arc::new(Mutex::new(String::new()));
    let (says, this) = (Arc::clone(&heard), std::thread::current().id());
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == this {
            *says.lock().unwrap() = spirula_invariant::told();
        } else {
            before(panic);
        }
    }));
    let nobody_asked = Token::new(1, u32::MAX);
    let broken = catch_unwind(AssertUnwindSafe(|| {
        sim.with(OsdId::new(0), |core, cx| {
            core.handle_store(nobody_asked, StoreReply::Committed, cx)
        });
    }));
    drop(std::panic::take_hook());
    assert!(broken.is_err());
    let heard = heard.lock().unwrap();
    assert!(
        heard.starts_with("recent transitions of pg 1.0 on osd.0:\n"),
        "{heard}"
    );
    assert!(heard.contains(" state Primary/Active\n"), "{heard}");
}
