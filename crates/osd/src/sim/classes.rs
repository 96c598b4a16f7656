//! Methods of object classes, called through the whole core. The results were compared with a real
//! Ceph 16.2.15.

use spirula_denc::Writer;
use spirula_proto::osd_op_data::CallInput;

use super::*;

fn cluster() -> Sim {
    let mut sim = Sim::new(3, 3, 4, 1);
    sim.settle();
    sim
}

fn method(class: &str, method: &str, input: &[u8]) -> OsdOpIn {
    CallInput::op(class, method, input).unwrap()
}

fn hello(name: &str, input: &str) -> OsdOpIn {
    method("hello", name, input.as_bytes())
}

/// Calls a method of `hello`; returns the request's result, its op's result, and its op's output.
fn say(sim: &mut Sim, oid: &str, name: &str, input: &str, flags: OsdFlags) -> (i32, i32, Bytes) {
    let mut op = sim.build(oid, vec![hello(name, input)]);
    op.flags.insert(flags);
    let r = sim.call_op(op);
    (r.result, r.ops[0].result, r.ops[0].data.to_bytes())
}

#[test]
pub(super) fn calls_read_and_write_their_object() {
    let mut sim = cluster();
    let none = OsdFlags::default();
    let long = "x".repeat(101);
    for (name, input, result, output) in [
        ("say_hello", "", -2, ""),
        ("replay", "", -2, ""),
        ("bad_writer", "x", -2, ""),
        ("record_hello", &long, -22, ""),
        ("record_hello", "you", 0, ""),
        ("record_hello", "you", -17, ""),
        ("say_hello", "you", 0, "Hello, you!"),
        ("say_hello", &long, -22, ""),
        ("replay", "", 0, "Hello, you!"),
        ("turn_it_to_11", "", 0, ""),
        ("replay", "", 0, "HELLO, YOU!"),
        ("bad_reader", "", -5, ""),
        ("bad_writer", "x", -5, ""),
        ("nothing", "", -95, ""),
    ] {
        let (code, _, data) = say(&mut sim, "a", name, input, none);
        assert_eq!((code, &data[..]), (result, output.as_bytes()), "{name} {input}");
    }
    assert_eq!(sim.read("a").unwrap(), "HELLO, YOU!");
}

#[test]
pub(super) fn what_writes_return_is_for_those_who_ask() {
    let mut sim = cluster();
    let (none, returnvec) = (OsdFlags::default(), OsdFlags::RETURNVEC);
    let seen = Bytes::from("you might see this");
    let failed = Bytes::from("too much input data!");
    for (name, input, flags, want) in [
        ("write_return_data", "", none, (0, 42, Bytes::new())),
        ("write_return_data", "", returnvec, (42, 42, seen)),
        ("write_return_data", "x", none, (-22, -22, failed.clone())),
        ("write_return_data", "x", returnvec, (-22, -22, failed)),
        ("write_too_much_return_data", "", none, (0, 42, Bytes::new())),
        (
            "write_too_much_return_data",
            "",
            returnvec,
            (-75, -75, Bytes::new()),
        ),
    ] {
        assert_eq!(say(&mut sim, "a", name, input, flags), want, "{name} {input}");
    }
}

#[test]
pub(super) fn a_call_sent_again_is_answered_as_before() {
    let mut sim = cluster();
    for (name, input, result) in [("write_return_data", "", 42), ("write_return_data", "x", -22)] {
        let mut op = sim.build("a", vec![hello(name, input)]);
        op.flags.insert(OsdFlags::RETURNVEC);
        let reqid = op.reqid;
        let first = sim.call_op(op);
        // The object that it found has changed meanwhile.
        sim.call("a", vec![plain(OpCode::DELETE)]);
        let mut again = sim.build("a", vec![hello(name, input)]);
        again.flags.insert(OsdFlags::RETURNVEC);
        again.reqid = reqid;
        let second = sim.call_op(again);
        assert_eq!((first.result, second.result), (result, result));
        assert_eq!(first.user_version, second.user_version);
        assert_eq!(first.ops[0].data.to_bytes(), second.ops[0].data.to_bytes());
        assert_eq!(first.ops[0].result, second.ops[0].result);
        assert_eq!(sim.read("a"), Err(-2), "executed again");
    }
}

#[test]
pub(super) fn a_failed_call_undoes_what_ops_before_it_did() {
    let mut sim = cluster();
    let ops = vec![write_full("data"), hello("record_hello", "")];
    // The object exists by then.
    assert_eq!(sim.call("a", ops).result, -17);
    assert_eq!(sim.read("a"), Err(-2));
    let ops = vec![hello("record_hello", ""), hello("turn_it_to_11", "")];
    assert_eq!(sim.call("a", ops).result, 0);
    // Reads see the object as it was before the request.
    assert_eq!(sim.read("a").unwrap(), "");
}

#[test]
pub(super) fn classes_are_refused_by_name() {
    let cfg = PgConfig {
        class_load_list: "hello  unknown".to_owned(),
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 4, 1, cfg);
    sim.settle();
    for (class, name, want) in [
        ("hello", "record_hello", 0),
        ("hello", "unknown", -95),
        ("unknown", "method", -95),
        ("lock", "list_locks", -1),
        ("hell", "record_hello", -1),
        ("", "", -1),
    ] {
        let r = sim.call("a", vec![method(class, name, b"")]);
        assert_eq!(r.result, want, "{class}.{name}");
    }
    let mut op = method("hello", "say_hello", b"");
    op.data = op.data.split_to(5);
    assert_eq!(sim.call("a", vec![op]).result, -22);
}

#[test]
pub(super) fn tags_of_new_versions_differ() {
    let mut sim = cluster();
    // cls_version_inc_op without conditions, its version empty.
    let inc = b"\x01\x01\x16\0\0\0\x01\x01\x0c\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut tags = BTreeSet::new();
    for oid in ["a", "b", "c"] {
        assert_eq!(sim.call(oid, vec![method("version", "inc", inc)]).result, 0);
        let r = sim.call(oid, vec![method("version", "read", b"")]);
        let out = r.ops[0].data.to_bytes();
        assert_eq!((out.len(), out[12]), (6 + 6 + 8 + 4 + 24, 2));
        tags.insert(out.slice(24..));
    }
    assert_eq!(tags.len(), 3);
}

/// The calls of librbd about all snapshots of an image when it opens it.
#[test]
pub(super) fn what_many_calls_read_is_fetched_together() {
    let mut sim = cluster();
    let mut create = Writer::new();
    create.u64(4096);
    create.u8(22);
    create.u64(0);
    create.string("rbd_data.1");
    create.i64(-1);
    let made = sim.call("h", vec![method("rbd", "create", create.as_slice())]);
    assert_eq!(made.result, 0);
    let snaps = 1..=60u64;
    for id in snaps.clone() {
        let mut add = Writer::new();
        add.string(&format!("snap{id}"));
        add.u64(id);
        let added = sim.call("h", vec![method("rbd", "snapshot_add", add.as_slice())]);
        assert_eq!(added.result, 0);
    }
    let asked = ["snapshot_get", "get_size", "get_protection_status"];
    let calls = snaps.flat_map(|id| asked.map(|name| method("rbd", name, &id.to_le_bytes())));
    let before = sim.reads;
    let reply = sim.call("h", calls.collect());
    assert_eq!(reply.result, 0);
    for (i, ops) in (1..).zip(reply.ops.chunks(asked.len())) {
        let name = format!("snap{i}");
        let found = ops[0].data.to_bytes();
        assert!(found.windows(name.len()).any(|w| w == name.as_bytes()), "{name}");
        let mut size = Writer::new();
        size.u8(22);
        size.u64(4096);
        assert_eq!(ops[1].data.to_bytes(), size.as_slice());
        assert_eq!(ops[2].data.to_bytes(), &[0][..]);
    }
    // The size's class method reads one value, then another: so do all of them.
    assert!(sim.reads - before <= 3, "{} reads", sim.reads - before);
}

#[test]
pub(super) fn what_methods_read_is_bounded_however_much_they_are_asked_for() {
    let list = || {
        let mut input = Writer::new();
        input.blob(b"");
        input.u64(u64::MAX);
        method("rbd", "metadata_list", input.as_slice())
    };
    // Values that are lists of bytes, as the class keeps them.
    let pair = |n: usize| {
        let mut value = Writer::new();
        value.blob(&[7; 1000]);
        (
            Bytes::from(format!("metadata_{n:04}")),
            Bytes::from(value.into_vec()),
        )
    };
    let pairs: Vec<(Bytes, Bytes)> = (0..200).map(pair).collect();
    for (most, result) in [(64 << 10, -12), (1 << 20, 0)] {
        let cfg = PgConfig {
            max_class_bytes: most,
            max_class_page: 8 << 10,
            ..PgConfig::default()
        };
        let mut sim = Sim::with_config(3, 3, 1, 1, cfg);
        sim.settle();
        let data = spirula_denc::encode_to_vec(&pairs);
        let set = OsdOpIn::new(OpCode::OMAPSETVALS, OpArgs::None, data);
        assert_eq!(sim.call("o", vec![set]).result, 0);
        let reply = sim.call("o", vec![list()]);
        assert_eq!(reply.result, result);
        let is_listed = reply.ops[0].data.to_bytes().len() > 200_000;
        assert_eq!(is_listed, result == 0);
        // Other requests may read as much as ever.
        let all = OsdOpIn::new(OpCode::OMAPGETVALS, OpArgs::None, {
            let mut input = Writer::new();
            input.blob(b"");
            input.u64(1000);
            input.blob(b"");
            input.into_vec()
        });
        assert_eq!(sim.call("o", vec![all]).result, 0);
    }
}

#[test]
pub(super) fn maps_that_methods_make_are_bounded_in_all_calls_together() {
    let resize = |objects: u64| {
        let mut input = Writer::new();
        input.u64(objects);
        input.u8(1);
        let mut op = method("rbd", "object_map_resize", input.as_slice());
        op.op.flags = spirula_proto::osd::OpFlags::FAILOK;
        op
    };
    let cfg = PgConfig {
        max_class_bytes: 3 << 20,
        max_write_size: 900_000,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, 1, cfg);
    sim.settle();
    // Each is made, of a million bytes, and is too large to be written: as often as one likes, if
    // nothing counts it.
    let reply = sim.call("o", vec![resize(4_000_000); 5]);
    let results: Vec<i32> = reply.ops.iter().map(|o| o.result).collect();
    assert_eq!(results, [-90, -90, -90, -12, -12]);
}

/// A user's list of buckets with 10 bytes each, as class `user` keeps it.
fn buckets(n: usize) -> Vec<(Bytes, Bytes)> {
    let mut entry = Writer::new();
    entry.section(9, 5, |w| {
        w.blob(b"");
        w.u64(10);
        w.u32(0);
        w.u64(1);
        w.section(9, 8, |w| (0..4).for_each(|_| w.blob(b"x")));
        w.u64(4096);
        w.u8(1);
        w.u64(0);
    });
    let entry = Bytes::from(entry.into_vec());
    (0..n)
        .map(|i| (Bytes::from(format!("{i:05}")), entry.clone()))
        .collect()
}

#[test]
pub(super) fn a_method_sums_up_more_than_it_may_hold() {
    let cfg = PgConfig {
        max_class_bytes: 128 << 10,
        max_class_page: 16 << 10,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, 1, cfg);
    sim.settle();
    let data = spirula_denc::encode_to_vec(&buckets(5000));
    assert!(data.len() > 3 * (128 << 10));
    let set = OsdOpIn::new(OpCode::OMAPSETVALS, OpArgs::None, data);
    assert_eq!(sim.call("o", vec![set]).result, 0);
    let mut input = Writer::new();
    input.section(1, 1, |w| w.u64(0));
    let reset = method("user", "reset_user_stats", input.as_slice());
    assert_eq!(sim.call("o", vec![reset]).result, 0);
    let header = OsdOpIn::new(OpCode::OMAPGETHEADER, OpArgs::None, Bytes::new());
    let header = sim.call("o", vec![header]).ops[0].data.to_bytes();
    let mut sums = Writer::new();
    sums.section(1, 1, |w| {
        for sum in [5000u64, 50_000, 5000 * 4096] {
            w.u64(sum);
        }
    });
    assert_eq!(header[6..], *[sums.as_slice(), &[0; 16]].concat());
}
