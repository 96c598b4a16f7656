//! OSDs of neighbouring versions in one cluster, as while it is upgraded.

use spirula_proto::internal::{Edition, Protocol};

use super::*;
use crate::pg::message::PeerMessage;

/// All that is on the way comes in, and everything is whole.
fn check(sim: &mut Sim, objects: usize, value: &str) {
    sim.settle_clean(0);
    for i in 0..objects {
        assert_eq!(sim.read(&format!("o{i}")).unwrap(), value.as_bytes(), "o{i}");
    }
}

fn write_all(sim: &mut Sim, objects: usize, value: &str) {
    for i in 0..objects {
        assert_eq!(sim.write_full(&format!("o{i}"), value).result, 0);
    }
}

#[test]
fn a_cluster_is_upgraded_one_osd_after_the_other() {
    const OBJECTS: usize = 30;
    let mut sim = Sim::new(3, 3, 8, 1);
    OsdId::below(3).for_each(|id| sim.speak(id, Edition::Previous));
    sim.settle();
    write_all(&mut sim, OBJECTS, "old");
    // Each leads some PGs, follows in others, and lacks what was written while it was away.
    for (id, value) in [(1, "one"), (0, "two"), (2, "three")] {
        sim.crash_and_mark_down(OsdId::new(id));
        sim.settle();
        write_all(&mut sim, OBJECTS, value);
        sim.speak(OsdId::new(id), Edition::Current);
        sim.start_and_mark_up(OsdId::new(id));
        check(&mut sim, OBJECTS, value);
        write_all(&mut sim, OBJECTS, value);
        sim.settle();
        let speaks = |id: &OsdId| sim.nodes[id].versions.own();
        for ((a, b), written_in) in &sim.written_in {
            let newest = speaks(a).min(speaks(b));
            assert_eq!(
                *written_in,
                PeerMessage::version(newest),
                "osd.{a} to osd.{b} after {value}"
            );
        }
    }
}

#[test]
fn a_cluster_goes_back_to_the_version_before() {
    let mut sim = Sim::new(3, 3, 8, 2);
    sim.settle();
    write_all(&mut sim, 10, "new");
    sim.crash_and_mark_down(OsdId::new(1));
    sim.settle();
    write_all(&mut sim, 10, "newer");
    sim.speak(OsdId::new(1), Edition::Previous);
    sim.start_and_mark_up(OsdId::new(1));
    check(&mut sim, 10, "newer");
    assert_eq!(
        sim.written_in[&(OsdId::new(0), OsdId::new(1))],
        PeerMessage::PREVIOUS
    );
    assert_eq!(
        sim.written_in[&(OsdId::new(0), OsdId::new(2))],
        PeerMessage::CURRENT
    );
}
