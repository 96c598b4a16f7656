//! COPY_FROM: objects copied between PGs, also while members come and go.

use spirula_denc::{Encode, encode_to_vec};
use spirula_maps::ObjectLocator;
use spirula_proto::osd::{CmpMode, CmpOp, CopyFromArgs, CopyFromFlags, OpFlags, XattrArgs};
use spirula_proto::osd_op_data::{CopySource, OmapVals};

use super::*;

fn cluster(chunk: u64) -> Sim {
    let cfg = PgConfig {
        copy_chunk: chunk,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 2, 8, 5, cfg);
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    sim
}

fn copy_from(code: OpCode, source: &str, version: u64, flags: u8, truncate: Option<(u32, u64)>) -> OsdOpIn {
    let source = CopySource {
        oid: ObjectName::from(source),
        locator: ObjectLocator {
            pool: Some(POOL),
            ..ObjectLocator::default()
        },
        truncate,
    };
    let args = CopyFromArgs {
        snapid: snap::NOSNAP,
        version,
        flags: CopyFromFlags(flags),
        src_fadvise_flags: OpFlags::empty(),
    };
    OsdOpIn::new(code, OpArgs::CopyFrom(args), encode_to_vec(&source))
}

pub(super) fn copy(source: &str) -> OsdOpIn {
    copy_from(OpCode::COPY_FROM, source, 0, 0, None)
}

fn omap(n: usize) -> OsdOpIn {
    let pair = |i: usize| {
        (
            Bytes::from(format!("key {i:04}")),
            Bytes::from(format!("value {i}")),
        )
    };
    let vals: OmapVals = (0..n).map(pair).collect();
    let mut w = spirula_denc::Writer::new();
    vals.encode(&mut w);
    OsdOpIn::new(OpCode::OMAPSETVALS, OpArgs::None, w.into_vec())
}

fn set_attr(name: &str, value: &str) -> OsdOpIn {
    let args = XattrArgs {
        name_len: name.len() as u32,
        value_len: value.len() as u32,
        cmp_op: CmpOp(0),
        cmp_mode: CmpMode(0),
    };
    OsdOpIn::new(
        OpCode::SETXATTR,
        OpArgs::Xattr(args),
        Bytes::from(format!("{name}{value}")),
    )
}

impl Sim {
    /// The object in the primary's store: data, attributes, omap, header.
    pub(super) fn stored(&self, name: &str) -> store::Object {
        let object = self.object(name);
        let primary = self.map().placement(self.pgid_of(&object)).primary.unwrap();
        let key = crate::pg::key::object_key(&object);
        self.nodes[&primary]
            .store
            .objects()
            .get(&key)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn assert_copied(&self, from: &str, to: &str) {
        let (a, b) = (self.stored(from), self.stored(to));
        assert!((a.data, a.attrs) == (b.data, b.attrs), "{from} {to}");
        assert!((a.omap, a.omap_header) == (b.omap, b.omap_header), "{from} {to}");
    }
}

#[test]
pub(super) fn a_copy_has_everything_of_its_source_and_its_version() {
    for chunk in [8 << 20, 100, 7] {
        let mut sim = cluster(chunk);
        for _ in 0..3 {
            sim.write_full("source", "the data of the source, some of it");
        }
        let header = OsdOpIn::new(OpCode::OMAPSETHEADER, OpArgs::None, Bytes::from_static(b"head"));
        let w = sim.call("source", vec![set_attr("a", "1"), omap(30), header]);
        for (i, to) in ["b", "c", "d", "e"].into_iter().enumerate() {
            if i % 2 == 0 {
                sim.call(
                    to,
                    vec![write_full("what was there"), set_attr("old", "x"), omap(2)],
                );
            }
            let r = sim.call(to, vec![copy("source")]);
            assert_eq!((r.result, r.user_version), (0, w.user_version), "{to}");
            sim.assert_copied("source", to);
            assert_eq!(sim.read(to).unwrap(), sim.read("source").unwrap());
        }
        sim.call("plain", vec![plain(OpCode::CREATE)]);
        assert_eq!(sim.call("b", vec![copy("plain")]).result, 0);
        sim.assert_copied("plain", "b");
    }
}

#[test]
pub(super) fn copies_fail_as_with_the_official_osd() {
    let mut sim = cluster(100);
    let v = sim.write_full("source", "data").user_version;
    assert_eq!(sim.call("to", vec![copy("nothing")]).result, -2);
    assert_eq!(sim.call("source", vec![copy("source")]).result, -22);
    let with = |code, version, flags| copy_from(code, "source", version, flags, None);
    assert_eq!(
        sim.call("to", vec![with(OpCode::COPY_FROM, v + 1, 0)]).result,
        -75
    );
    assert_eq!(sim.call("to", vec![with(OpCode::COPY_FROM2, 0, 64)]).result, -22);
    assert_eq!(sim.call("to", vec![with(OpCode::COPY_FROM2, 0, 32)]).result, -22);
    assert_eq!(sim.read("to"), Err(-2));
    assert_eq!(sim.call("to", vec![with(OpCode::COPY_FROM, v, 64)]).result, 0);
    let truncate = copy_from(OpCode::COPY_FROM2, "source", 0, 32, Some((7, 2)));
    assert_eq!(sim.call("to", vec![truncate]).result, 0);
    assert_eq!(sim.read("to").unwrap(), "data");
}

#[test]
pub(super) fn copies_in_a_circle_and_lost_messages_end() {
    let mut sim = cluster(3);
    for name in ["a", "b", "c"] {
        sim.write_full(name, &format!("data of {name}"));
    }
    let circle = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("d", "b")];
    let mut tids = Vec::new();
    for (to, from) in circle {
        let op = sim.build(to, vec![copy(from)]);
        tids.push(sim.submit(op).unwrap());
    }
    sim.run_some(3);
    let others: Vec<OsdId> = sim.nodes.keys().copied().collect();
    for pair in others.windows(2) {
        sim.cut_link(pair[0], pair[1]);
    }
    sim.settle();
    for tid in tids {
        assert_eq!(sim.reply_to(tid).unwrap().result, 0);
    }
    for name in ["a", "b", "c", "d"] {
        assert!(sim.read(name).unwrap().starts_with(b"data of "));
    }
}

#[test]
pub(super) fn a_question_of_another_osd_is_as_old_as_it_is() {
    let mut sim = cluster(8 << 20);
    sim.write_full("source", "data");
    sim.pass(100);
    let begun = sim.usec;
    let op = sim.build("to", vec![copy("source")]);
    let tid = sim.submit(op).unwrap();
    let asked = (0..10_000).find_map(|_| {
        sim.run_some(1);
        sim.records()
            .into_iter()
            .find(|r| r.description.contains("copy-get"))
    });
    let asked = asked.expect("nobody asked for the source");
    assert_eq!(asked.client.kind, EntityType::OSD);
    assert!(
        asked.stamps.received >= begun && asked.stamps.queued >= begun,
        "{asked:?}"
    );
    let received = sim
        .nodes
        .values()
        .filter_map(|n| n.core.as_ref())
        .flat_map(Core::ops_received);
    assert!(received.filter(|t| !t.is_zero()).all(|t| t >= begun));
    sim.settle();
    assert_eq!(sim.reply_to(tid).unwrap().result, 0);
}
