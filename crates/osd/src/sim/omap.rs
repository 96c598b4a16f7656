//! Ops on omaps, and requests that fetch while they are executed. The results were compared with a
//! real Ceph 16.2.15.

use spirula_denc::{Encode, decode_all, encode_to_vec};
use spirula_proto::osd::OpFlags;
use spirula_proto::osd_op_data::{
    OmapCmp, OmapGetKeys, OmapGetVals, OmapKeysReply, OmapRange, OmapVals, OmapValsReply,
};

use super::*;

fn cluster() -> Sim {
    let mut sim = Sim::new(3, 3, 4, 1);
    sim.settle();
    sim
}

fn with<T: Encode + ?Sized>(code: OpCode, input: &T) -> OsdOpIn {
    OsdOpIn::new(code, OpArgs::None, encode_to_vec(input))
}

fn bytes(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

fn vals(pairs: &[(&str, &str)]) -> OmapVals {
    pairs.iter().map(|(k, v)| (bytes(k), bytes(v))).collect()
}

pub(super) fn set(pairs: &[(&str, &str)]) -> OsdOpIn {
    with(OpCode::OMAPSETVALS, &vals(pairs))
}

fn get_keys(start_after: &str, max: u64) -> OsdOpIn {
    let input = OmapGetKeys {
        start_after: bytes(start_after),
        max,
    };
    with(OpCode::OMAPGETKEYS, &input)
}

fn get_vals(start_after: &str, prefix: &str, max: u64) -> OsdOpIn {
    let input = OmapGetVals {
        start_after: bytes(start_after),
        max,
        prefix: bytes(prefix),
    };
    with(OpCode::OMAPGETVALS, &input)
}

impl Sim {
    fn keys(&mut self, name: &str, start_after: &str, max: u64) -> (String, bool) {
        let r = self.call(name, vec![get_keys(start_after, max)]);
        assert_eq!(r.result, 0);
        let r: OmapKeysReply = decode_all(&r.ops[0].data.to_bytes()).unwrap();
        let keys: Vec<_> = r.keys.iter().map(|k| String::from_utf8_lossy(k)).collect();
        (keys.join(" "), r.more)
    }

    fn vals(&mut self, name: &str, start_after: &str, prefix: &str, max: u64) -> (OmapVals, bool) {
        let r = self.call(name, vec![get_vals(start_after, prefix, max)]);
        assert_eq!(r.result, 0);
        let r: OmapValsReply = decode_all(&r.ops[0].data.to_bytes()).unwrap();
        (r.vals, r.more)
    }
}

#[test]
pub(super) fn pairs_are_set_listed_compared_and_removed() {
    let mut sim = cluster();
    assert_eq!(sim.call("o", vec![get_keys("", 9)]).result, -2);
    let r = sim.call("o", vec![set(&[("a", "1"), ("b1", "2"), ("b2", "3"), ("c", "")])]);
    assert_eq!((r.result, r.user_version), (0, 1));
    assert_eq!(sim.keys("o", "", 9), ("a b1 b2 c".into(), false));
    assert_eq!(sim.keys("o", "a", 2), ("b1 b2".into(), true));
    assert_eq!(sim.keys("o", "b1", 2), ("b2 c".into(), false));
    assert_eq!(sim.keys("o", "", 0), (String::new(), true));
    assert_eq!(
        sim.vals("o", "", "b", 9),
        (vals(&[("b1", "2"), ("b2", "3")]), false)
    );
    assert_eq!(sim.vals("o", "b1", "b", 9), (vals(&[("b2", "3")]), false));
    assert_eq!(sim.vals("o", "c", "b", 9), (vals(&[]), false));
    assert_eq!(sim.vals("o", "", "b", 1), (vals(&[("b1", "2")]), true));

    let by_keys = with(
        OpCode::OMAPGETVALSBYKEYS,
        &[bytes("c"), bytes("x"), bytes("a")][..],
    );
    let r = sim.call("o", vec![by_keys]);
    assert_eq!(
        decode_all(&r.ops[0].data.to_bytes()),
        Ok(vals(&[("a", "1"), ("c", "")]))
    );

    for (key, given, cmp, want) in [
        ("a", "1", 1, 0),
        ("a", "2", 1, -125),
        ("a", "2", 5, 0),
        ("a", "0", 3, 0),
        ("a", "\u{80}", 3, 0),
        ("x", "", 1, 0),
        ("a", "1", 2, -22),
        ("a", "1", -1, -22),
    ] {
        let cmps = OmapCmp::from([(bytes(key), (bytes(given), cmp))]);
        let r = sim.call("o", vec![with(OpCode::OMAP_CMP, &cmps)]);
        assert_eq!(r.result, want, "{key} {given} {cmp}");
    }

    let rm = with(OpCode::OMAPRMKEYS, &[bytes("a"), bytes("nope")][..]);
    assert_eq!(sim.call("o", vec![rm]).result, 0);
    let range = OmapRange {
        begin: bytes("b1"),
        end: bytes("b2"),
    };
    assert_eq!(
        sim.call("o", vec![with(OpCode::OMAPRMKEYRANGE, &range)]).result,
        0
    );
    assert_eq!(sim.keys("o", "", 9), ("b2 c".into(), false));
}

#[test]
pub(super) fn the_header_is_kept_and_cleared_with_the_pairs() {
    let mut sim = cluster();
    assert_eq!(sim.call("o", vec![plain(OpCode::OMAPCLEAR)]).result, -2);
    let header = |data: &str| OsdOpIn::new(OpCode::OMAPSETHEADER, OpArgs::None, bytes(data));
    assert_eq!(sim.call("o", vec![header("head"), set(&[("k", "v")])]).result, 0);
    let get = |sim: &mut Sim| {
        let r = sim.call("o", vec![plain(OpCode::OMAPGETHEADER)]);
        (r.user_version, r.ops[0].data.to_bytes())
    };
    assert_eq!(get(&mut sim), (2, bytes("head")));
    assert_eq!(sim.call("o", vec![plain(OpCode::OMAPCLEAR)]).user_version, 3);
    assert_eq!(get(&mut sim), (3, Bytes::new()));
    assert_eq!(sim.keys("o", "", 9), (String::new(), false));
    // Nothing to clear: no change, no new version.
    sim.call("o", vec![plain(OpCode::OMAPCLEAR)]);
    assert_eq!(get(&mut sim).0, 3);
}

#[test]
pub(super) fn bad_input_and_missing_objects_fail_as_with_the_official_osd() {
    let mut sim = cluster();
    let bad = |code| OsdOpIn::new(code, OpArgs::None, Bytes::from_static(b"\x01"));
    for code in [
        OpCode::OMAPRMKEYS,
        OpCode::OMAPRMKEYRANGE,
        OpCode::OMAPGETVALSBYKEYS,
    ] {
        assert_eq!(sim.call("none", vec![bad(code)]).result, -2, "{code}");
    }
    assert_eq!(sim.call("none", vec![bad(OpCode::OMAPSETVALS)]).result, -22);
    assert_eq!(sim.read("none"), Err(-2));
    sim.call("o", vec![set(&[("k", "v")])]);
    for code in [
        OpCode::OMAPSETVALS,
        OpCode::OMAPRMKEYS,
        OpCode::OMAPRMKEYRANGE,
        OpCode::OMAPGETKEYS,
        OpCode::OMAPGETVALS,
        OpCode::OMAPGETVALSBYKEYS,
        OpCode::OMAP_CMP,
    ] {
        assert_eq!(sim.call("o", vec![bad(code)]).result, -22, "{code}");
    }
    let huge = OmapVals::from([(bytes("k"), Bytes::from(vec![0; 8 << 20]))]);
    assert_eq!(sim.call("o", vec![with(OpCode::OMAPSETVALS, &huge)]).result, -90);
}

#[test]
pub(super) fn a_request_sees_what_was_before_it_also_when_it_is_executed_again() {
    let mut sim = cluster();
    sim.call("o", vec![set(&[("k", "old")]), write_full("data")]);
    // The first read is cut by what the op before left, which can't be foreseen: it is fetched in a
    // second trip.
    let mut read_all = extent(OpCode::READ, 0, 0, "");
    read_all.op.flags = OpFlags::FAILOK;
    let ops = vec![
        set(&[("k", "new")]),
        extent(OpCode::TRUNCATE, 2, 0, ""),
        read_all,
        get_vals("", "", 9),
    ];
    let mut op = sim.build("o", ops);
    op.flags.insert(OsdFlags::RETURNVEC);
    let r = sim.call_op(op);
    assert_eq!(r.result, 0);
    assert_eq!(r.ops[2].data.to_bytes(), "da");
    let seen: OmapValsReply = decode_all(&r.ops[3].data.to_bytes()).unwrap();
    assert_eq!(seen.vals, vals(&[("k", "old")]));
    assert_eq!(sim.vals("o", "", "", 9).0, vals(&[("k", "new")]));
    assert_eq!(sim.read("o").unwrap(), "da");
}

#[test]
pub(super) fn a_write_that_reads_does_not_wait_for_the_one_before_it() {
    let mut sim = cluster();
    let first = sim.build("o", vec![write_full("one")]);
    let compare_and_write = vec![extent(OpCode::CMPEXT, 0, 3, "one"), write_full("two")];
    let second = sim.build("o", compare_and_write);
    let primary = sim.map().placement(first.pgid).primary.unwrap();
    let (a, b) = (sim.submit(first).unwrap(), sim.submit(second).unwrap());
    // Only the primary's store answers; nothing becomes durable.
    while let Some(step) = sim.steps().into_iter().find(|s| *s == Step::Answer(primary)) {
        sim.step(step);
    }
    assert_eq!(sim.nodes[&primary].store.unflushed_len(), 2);
    assert!(sim.reply_to(a).is_none() && sim.reply_to(b).is_none());
    sim.settle();
    assert_eq!(sim.reply_to(a).unwrap().result, 0);
    assert_eq!(sim.reply_to(b).unwrap().result, 0);
    assert_eq!(sim.read("o").unwrap(), "two");
}

#[test]
pub(super) fn omaps_are_copied_to_a_new_member_page_by_page() {
    let mut sim = Sim::new(4, 3, 1, 7);
    sim.settle();
    for n in 0..20 {
        let keys: Vec<String> = (0..500).map(|k| format!("key {n} {k}")).collect();
        let pairs: Vec<(&str, &str)> = keys.iter().map(|k| (k.as_str(), "value")).collect();
        assert_eq!(sim.call("many", vec![set(&pairs)]).result, 0);
    }
    let header = OsdOpIn::new(OpCode::OMAPSETHEADER, OpArgs::None, bytes("head"));
    assert_eq!(sim.call("many", vec![header, write_full("data")]).result, 0);
    assert_eq!(
        sim.call(
            "only header",
            vec![OsdOpIn::new(OpCode::OMAPSETHEADER, OpArgs::None, bytes("h"))]
        )
        .result,
        0
    );
    sim.change_map(|m| m.out.push(OsdId::new(1)));
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    let (from, to) = (
        sim.nodes[&OsdId::new(0)].store.objects(),
        sim.nodes[&OsdId::new(3)].store.objects(),
    );
    assert_eq!(from.len(), 2);
    assert!(from == to);
    assert!(
        from.values()
            .any(|o| o.omap.len() == 10_000 && o.omap_header == "head")
    );
}

fn rm_range(begin: &str, end: &str) -> OsdOpIn {
    let range = OmapRange {
        begin: bytes(begin),
        end: bytes(end),
    };
    with(OpCode::OMAPRMKEYRANGE, &range)
}

/// As in Ceph 16.2.15 (`omap_steps` of the conformance suite has more): a range removes keys that
/// existed before the request.
#[test]
pub(super) fn a_range_removes_what_was_there_before_its_request() {
    let mut sim = cluster();
    let set3 = |v| set(&[("a", v), ("b", v), ("c", v)]);
    let clear = || plain(OpCode::OMAPCLEAR);
    let remove = || plain(OpCode::DELETE);
    let cases = [
        (vec![set3("1"), rm_range("a", "c")], "a c d x"),
        (vec![rm_range("a", "c"), set3("1")], "a b c d x"),
        (
            vec![set3("1"), rm_range("a", "c"), set(&[("b", "2")])],
            "a b c d x",
        ),
        (vec![clear(), set3("1"), rm_range("a", "c")], "a c"),
        (
            vec![rm_range("a", "d"), set(&[("b", "1")]), rm_range("a", "z")],
            "",
        ),
        (vec![set3("1"), rm_range("a", "c"), rm_range("a", "z")], "a c"),
        (vec![set3("1"), rm_range("c", "a")], "a b c d x"),
        (
            vec![set3("1"), remove(), set(&[("d", "1")]), rm_range("a", "z")],
            "d",
        ),
        (vec![remove(), set3("1"), rm_range("a", "z")], "a b c"),
    ];
    for (at, (ops, left)) in cases.into_iter().enumerate() {
        let name = format!("o{at}");
        sim.call(&name, vec![set(&[("b", "0"), ("d", "0"), ("x", "0")])]);
        assert_eq!(sim.call(&name, ops).result, 0, "{at}");
        assert_eq!(sim.keys(&name, "", 9).0, left, "{at}");
    }
}

/// Values are read up to a limit: small ones at once, larger ones in a further round, and no more
/// than fit.
#[test]
pub(super) fn values_by_keys_are_bounded() {
    let mut sim = cluster();
    let value = "v".repeat(1 << 20);
    for at in 0..40 {
        let (first, second) = (format!("{at:02}a"), format!("{at:02}b"));
        sim.call("o", vec![set(&[(&first, &value), (&second, &value)])]);
    }
    let get = |n: usize| {
        let keys: Vec<_> = (0..n)
            .flat_map(|at| [bytes(&format!("{at:02}a")), bytes(&format!("{at:02}b"))])
            .collect();
        with(OpCode::OMAPGETVALSBYKEYS, &keys[..])
    };
    for (n, result) in [(1, 0), (3, 0), (5, -12), (40, -12)] {
        let r = sim.call("o", vec![get(n)]);
        assert_eq!(r.result, result, "{n}");
        if result == 0 {
            let found: OmapVals = decode_all(&r.ops[0].data.to_bytes()).unwrap();
            assert_eq!(found.len(), 2 * n);
        }
    }
}
