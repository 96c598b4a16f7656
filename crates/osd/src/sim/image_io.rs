//! Requests counted by image.

use spirula_proto::internal::image_io::ImageIo as Counts;
use spirula_proto::osd_op_data::CallInput;

use super::*;

/// The counts of all OSDs since the last call; they go on counting images of these pools.
fn ask(sim: &mut Sim, pools: &[PoolId]) -> BTreeMap<(PoolId, String), Counts> {
    let until = sim.usec + Micros::from_secs(1000);
    let told = sim
        .nodes
        .values_mut()
        .flat_map(|n| n.images.ask(pools.to_vec(), until));
    let mut all = BTreeMap::new();
    for counts in told {
        // Only primaries count.
        assert!(all.insert((counts.pool, counts.id.clone()), counts).is_none());
    }
    all
}

fn cluster() -> Sim {
    let mut sim = Sim::new(3, 3, 1, 1);
    sim.settle();
    sim
}

fn read() -> OsdOpIn {
    extent(OpCode::READ, 0, 0, "")
}

#[test]
fn what_was_done_is_counted_once_it_is_answered() {
    let mut sim = cluster();
    assert!(ask(&mut sim, &[]).is_empty());
    let copyup = || CallInput::op("rbd", "copyup", b"0123456789").unwrap();
    let (a, b) = ("rbd_data.a.0000000000000000", "rbd_data.a.0000000000000001");
    for (object, op, result) in [
        (a, write_full("hello"), 0),
        (a, write_at(5, "you"), 0),
        (a, extent(OpCode::ZERO, 0, 4, ""), 0),
        (a, read(), 0),
        // Neither failed requests nor those that change nothing count.
        (b, read(), -2),
        (a, extent(OpCode::WRITE, 0, 2, "x"), -22),
        (a, copyup(), 0),
        (b, copyup(), 0),
        ("rbd_header.a", write_full("header"), 0),
    ] {
        assert_eq!(sim.call(object, vec![op]).result, result, "{object}");
    }
    let all = ask(&mut sim, &[]);
    assert_eq!(all.len(), 1);
    let counts = &all[&(POOL, "a".to_owned())];
    let numbers = counts.numbers();
    // The method that copies up reads too.
    assert_eq!(numbers[..4], [4, 2, 5 + 3 + 4 + 10, 8]);
    assert!(numbers[4] > 0 && numbers[4].is_multiple_of(1000), "{counts:?}");
    assert!(ask(&mut sim, &[]).is_empty());
}

#[test]
fn images_of_other_pools_are_left_out_and_a_data_pool_is_not_the_images() {
    let mut sim = cluster();
    ask(&mut sim, &[PoolId::new(7)]);
    sim.call("rbd_data.a.0000000000000000", vec![write_full("x")]);
    sim.call("rbd_data.7.b.0000000000000000", vec![write_full("xyz")]);
    let all = ask(&mut sim, &[POOL]);
    assert_eq!(
        all.keys().collect::<Vec<_>>(),
        [&(PoolId::new(7), "b".to_owned())]
    );
    sim.call("rbd_data.a.0000000000000000", vec![read()]);
    sim.call("rbd_data.7.b.0000000000000000", vec![read()]);
    assert_eq!(ask(&mut sim, &[POOL]).len(), 1);
}

#[test]
fn requests_to_one_image_too_many_are_counted_as_left_out() {
    let mut sim = Sim::new(1, 1, 1, 1);
    sim.settle();
    ask(&mut sim, &[]);
    let left_out = |sim: &Sim| sim.nodes[&OsdId::new(0)].images.left_out();
    for n in 0..8192 {
        sim.write_full(&format!("rbd_data.{n:x}.0000000000000000"), "x");
    }
    assert_eq!(left_out(&sim), 0);
    sim.write_full("rbd_data.y.0000000000000000", "x");
    sim.write_full("rbd_data.0.0000000000000000", "x");
    assert_eq!(left_out(&sim), 1);
    ask(&mut sim, &[]);
    sim.write_full("rbd_data.y.0000000000000000", "x");
    assert_eq!(left_out(&sim), 1);
}

#[test]
fn nobody_counts_without_being_asked() {
    let mut sim = cluster();
    sim.call("rbd_data.a.0000000000000000", vec![write_full("x")]);
    assert!(ask(&mut sim, &[]).is_empty());
    sim.call("rbd_data.a.0000000000000000", vec![write_full("x")]);
    let late = sim.usec + Micros::from_secs(2000);
    sim.nodes.values_mut().for_each(|n| n.images.lapse(late));
    sim.call("rbd_data.a.0000000000000000", vec![write_full("x")]);
    assert!(ask(&mut sim, &[]).is_empty());
}
