//! OSDs whose stores have no room for objects that are copied to them.

use super::*;
use crate::pg::key;

fn states_of(sim: &mut Sim, seconds: u32) -> Vec<String> {
    sim.pass(seconds);
    sim.states()
}

/// Three OSDs of which the last was away while some objects were removed and as many were made.
fn returned(objects: usize, cfg: PgConfig) -> Sim {
    let mut sim = Sim::with_config(3, 3, 1, 9, cfg);
    sim.settle();
    for i in 0..objects {
        sim.write_full(&format!("old{i}"), "what was there before");
    }
    sim.crash_and_mark_down(OsdId::new(2));
    sim.settle();
    for i in 0..objects {
        sim.call(&format!("old{i}"), vec![plain(OpCode::DELETE)]);
        sim.write_full(&format!("new{i}"), "what is there now");
    }
    sim.roomless.insert(OsdId::new(2));
    sim.start_and_mark_up(OsdId::new(2));
    sim
}

/// The names of an OSD's objects.
fn names(sim: &Sim, osd: OsdId) -> Vec<String> {
    let keys = sim.nodes[&osd].store.objects().keys();
    let mut all: Vec<String> = keys
        .map(|k| String::from_utf8_lossy(key::parse_object_key(k).unwrap().oid.as_bytes()).into_owned())
        .collect();
    all.sort();
    all
}

#[test]
pub(super) fn who_has_no_room_for_the_few_objects_it_lacks_is_left_out_and_gets_what_was_removed() {
    let mut sim = returned(5, PgConfig::default());
    let states = states_of(&mut sim, 10);
    assert_eq!(
        states,
        ["1.0 active+backfill_toofull+remapped+undersized+degraded"]
    );
    assert_eq!(names(&sim, OsdId::new(2)), [""; 0]);
    // Requests are served meanwhile, also removals; these too reach the target.
    assert_eq!(sim.call("new0", vec![plain(OpCode::DELETE)]).result, 0);
    sim.roomless.clear();
    sim.pass(40);
    assert!(sim.all_clean(), "{:?}", sim.states());
    assert_eq!(names(&sim, OsdId::new(2)), ["new1", "new2", "new3", "new4"]);
    sim.assert_agree([2, 0].map(OsdId::new));
}

#[test]
pub(super) fn a_full_osd_that_is_copied_to_in_the_background_gets_what_was_removed() {
    // Either the logs tell what it lacks, or all objects are compared.
    for (objects, state) in [(150, "recovery"), (3000, "backfill")] {
        let mut sim = returned(objects, PgConfig::default());
        sim.change_map(|m| m.set_full(OsdId::new(2), true, true));
        let states = states_of(&mut sim, 20);
        let expected = format!("1.0 active+{state}_toofull+remapped+undersized+degraded");
        assert_eq!(states, [expected]);
        assert_eq!(names(&sim, OsdId::new(2)), [""; 0], "{state}");
        sim.roomless.clear();
        sim.change_map(|m| m.set_full(OsdId::new(2), false, false));
        sim.pass(40);
        assert!(sim.all_clean(), "{state}: {:?}", sim.states());
        sim.assert_agree([2, 0].map(OsdId::new));
    }
}

#[test]
fn a_pg_that_cannot_do_without_who_has_no_room_waits_and_goes_on_with_others() {
    for others_return in [false, true] {
        let mut sim = Sim::new(3, 3, 1, 9);
        sim.settle();
        sim.crash_and_mark_down(OsdId::new(2));
        sim.settle();
        sim.write_full("a", "new");
        sim.crash_and_mark_down(OsdId::new(1));
        sim.roomless.insert(OsdId::new(2));
        sim.start_and_mark_up(OsdId::new(2));
        let states = states_of(&mut sim, 20);
        assert_eq!(states, ["1.0 peering+recovery_toofull+undersized+degraded"]);
        if others_return {
            sim.start_and_mark_up(OsdId::new(1));
            let states = states_of(&mut sim, 20);
            assert!(states[0].starts_with("1.0 active"), "{states:?}");
            sim.write_full("b", "served");
        }
        sim.roomless.clear();
        sim.pass(40);
        assert_eq!(sim.all_clean(), others_return, "{:?}", sim.states());
        assert_eq!(sim.read("a"), Ok(Bytes::from_static(b"new")));
        sim.assert_agree([2, 0].map(OsdId::new));
    }
}

#[test]
fn a_member_without_room_holds_up_none_that_gets_what_it_lacks() {
    // The copy that is made anew lacks more than requests usually wait for, or less.
    for objects in [3, 3000] {
        let mut sim = Sim::new(3, 3, 1, 9);
        sim.settle();
        sim.crash_and_mark_down(OsdId::new(2));
        sim.settle();
        for i in 0..objects {
            sim.write_full(&format!("o{i}"), "what the others lack");
        }
        sim.crash_and_mark_down(OsdId::new(1));
        sim.replace_disk(OsdId::new(1));
        sim.roomless.insert(OsdId::new(2));
        sim.start_and_mark_up(OsdId::new(2));
        sim.start_and_mark_up(OsdId::new(1));
        let states = states_of(&mut sim, 30);
        let serves = states[0].starts_with("1.0 active+") && states[0].contains("_toofull+");
        assert!(serves, "{states:?}");
        assert_eq!(names(&sim, OsdId::new(1)).len(), objects);
        // Clients can make room.
        assert_eq!(sim.call("o0", vec![plain(OpCode::DELETE)]).result, 0);
        sim.roomless.clear();
        sim.pass(40);
        assert!(sim.all_clean(), "{:?}", sim.states());
        assert_eq!(names(&sim, OsdId::new(2)).len(), objects - 1);
        sim.assert_agree([0, 1, 2].map(OsdId::new));
    }
}

#[test]
fn nothing_stays_of_an_object_for_the_rest_of_which_there_is_no_room() {
    let mut cfg = PgConfig::default();
    cfg.push_window.chunk = 10;
    let mut sim = Sim::with_config(3, 3, 1, 9, cfg);
    sim.settle();
    sim.crash_and_mark_down(OsdId::new(2));
    sim.settle();
    sim.write_full("a", &"much ".repeat(100));
    sim.start_and_mark_up(OsdId::new(2));
    while sim.nodes[&OsdId::new(2)].store.objects().is_empty() {
        let steps = sim.steps();
        let at = sim.random(steps.len());
        sim.step(steps[at]);
    }
    sim.roomless.insert(OsdId::new(2));
    let states = states_of(&mut sim, 5);
    assert!(states[0].starts_with("1.0 active"), "{states:?}");
    assert!(sim.nodes[&OsdId::new(2)].store.objects().is_empty());
    sim.roomless.clear();
    sim.pass(40);
    assert!(sim.all_clean(), "{:?}", sim.states());
    sim.assert_agree([2, 0].map(OsdId::new));
}
