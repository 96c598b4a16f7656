//! Requests and replies down to the payloads of their operations.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, EntityName, EntityType, Reader, decode_all, encode_to_vec};
use spirula_maps::{HObject, ObjectName, snap};
use spirula_proto::osd::*;
use spirula_proto::osd_op_data::*;

use crate::hex::message;

fn request(name: &str) -> MOsdOp {
    message(&format!("osd_op:{name}")).decode().unwrap()
}

fn output<T: Decode>(name: &str) -> T {
    let reply: MOsdOpReply = message(&format!("osd_op_reply:{name}")).decode().unwrap();
    decode_all(&reply.ops[0].data.to_bytes()).unwrap()
}

#[test]
fn a_write_has_its_extent_and_bytes() {
    let r = request("write");
    assert_eq!(r.oid, ObjectName::from("a"));
    assert!(r.may_write() && r.flags.intersects(OsdFlags::WRITE) && r.flags.intersects(OsdFlags::ONDISK));
    assert_eq!(r.ops.len(), 1);
    let args = r.ops[0].op.args();
    let extent = args.extent().unwrap();
    assert_eq!((extent.offset, extent.length), (5, 3));
    assert_eq!(r.ops[0].data.to_bytes(), "xyz");
    let me = EntityName::new(EntityType::CLIENT, 4117);
    assert_eq!(r.reqid(me).name, me);
    let object = r.object();
    assert_eq!(
        (object.oid, object.snap, object.hash),
        (r.oid.clone(), snap::NOSNAP, r.hash)
    );
    assert!(object.key.is_empty());
}

#[test]
fn operation_input_shares_the_received_data() {
    let m = message("osd_op:append");
    let r: MOsdOp = m.decode().unwrap();
    assert_eq!(
        r.ops[0].data.to_bytes().as_ptr(),
        m.data.iter().next().unwrap().as_ptr()
    );
    assert!(m.front.as_ptr_range().contains(&r.oid.as_bytes().as_ptr()));
}

#[test]
fn stat_attributes_and_listing_come_back() {
    let s: StatResult = output("stat");
    assert_eq!(s.size, 112);
    let x: Xattrs = output("getxattrs");
    assert_eq!(x.get(&b"k1"[..]), Some(&Bytes::from("v1")));
    let l: PgNlsResponse = output("pgnls");
    assert_eq!(encode_to_vec(&l).len(), 49);
    let begin = decode_all::<HObject>(&request("pgnls").ops[0].data.to_bytes()).unwrap();
    assert!(begin <= HObject::max());
    assert!(matches!(request("pgnls").ops[0].op.args(), OpArgs::List(l) if l.count > 0));
}

#[test]
fn names_are_cut_from_the_input() {
    let set = request("setxattr");
    let x = XattrInput::of(&set.ops[0]).unwrap();
    assert_eq!((&x.name[..], &x.value[..]), (&b"k1"[..], &b"v1"[..]));
    let call = CallInput::of(&request("call").ops[0]).unwrap();
    assert_eq!(&call.class[..], b"lock");
}

#[test]
fn one_message_may_hold_many_operations() {
    let name = "create+write+zero+append+truncate+write-same+setxattr+rmxattr+omap-set-vals";
    let r = request(name);
    assert_eq!(
        r.ops
            .iter()
            .map(|o| o.op.code.to_string())
            .collect::<Vec<_>>()
            .join("+"),
        name
    );
    assert!(
        matches!(r.ops[5].op.args(), OpArgs::WriteSame(w) if w.data_length == 2 && w.length == 4 && w.offset == 8)
    );
    let vals: OmapVals = decode_all(&r.ops[8].data.to_bytes()).unwrap();
    assert_eq!(
        vals,
        BTreeMap::from([("o1".into(), "w1".into()), ("o2".into(), "w2".into())])
    );

    let reply: MOsdOpReply = message("osd_op_reply:omap-get-vals+omap-get-keys+omap-get-vals-by-keys")
        .decode()
        .unwrap();
    let vals: OmapValsReply = decode_all(&reply.ops[0].data.to_bytes()).unwrap();
    assert_eq!((vals.vals.len(), vals.more), (2, false));
    let keys: OmapKeysReply = decode_all(&reply.ops[1].data.to_bytes()).unwrap();
    assert_eq!(keys.keys.len(), 2);
    let some: OmapVals = decode_all(&reply.ops[2].data.to_bytes()).unwrap();
    assert_eq!(some.len(), 1);

    let get = request("omap-get-vals+omap-get-keys+omap-get-vals-by-keys");
    assert_eq!(
        decode_all::<OmapGetVals>(&get.ops[0].data.to_bytes())
            .unwrap()
            .max,
        10
    );
    assert_eq!(
        decode_all::<OmapGetKeys>(&get.ops[1].data.to_bytes())
            .unwrap()
            .max,
        10
    );
}

#[test]
fn watches_and_notifications_go_around() {
    let OpArgs::Watch(w) = request("watch").ops[0].op.args() else {
        panic!("no watch")
    };
    assert_ne!(w.cookie, 0);
    let n: NotifyRequest = decode_all(&request("notify").ops[0].data.to_bytes()).unwrap();
    assert_eq!(n.payload, "hey");
    let id: u64 = output("notify");
    let ack: NotifyAck = decode_all(&request("notify-ack").ops[0].data.to_bytes()).unwrap();
    assert_eq!(ack.notify_id, id);
    let done = crate::hex::messages()
        .iter()
        .filter(|(name, _)| *name == "watch-notify")
        .map(|(_, m)| m.decode::<MWatchNotify>().unwrap())
        .find(|m| m.event == WatchEvent::NOTIFY_COMPLETE)
        .unwrap();
    assert_eq!(done.notify_id, id);
    let replies: NotifyReplies = Reader::new(&done.replies.to_bytes()).get().unwrap();
    assert_eq!((replies.replies.len(), replies.missed.len()), (1, 0));
}

#[test]
fn a_failed_comparison_says_where() {
    let OpArgs::Extent(e) = request("cmpext").ops[0].op.args() else {
        panic!("no extent")
    };
    assert_eq!(e.length, 4);
    let reply: MOsdOpReply = message("osd_op_reply:cmpext").decode().unwrap();
    assert_eq!(reply.ops[0].result, -4095);
}

#[test]
fn snapshots_and_watchers_are_listed() {
    let snaps: ListSnapsResponse = output("list-snaps");
    let last = snaps.clones.last().unwrap();
    assert_eq!((last.id, snaps.clones.len()), (snap::NOSNAP, 2));
    assert!(!snaps.clones[0].overlap.is_empty());
    let watchers: ListWatchersResponse = output("list-watchers");
    assert_eq!(
        (watchers.entries.len(), watchers.entries[0].timeout_seconds),
        (1, 30)
    );
    assert_eq!(request("list-snaps").snapid, snap::SNAPDIR);
}

#[test]
fn hints_copies_and_omap_changes_are_read() {
    let write = request("set-alloc-hint+write");
    assert!(matches!(write.ops[0].op.args(), OpArgs::AllocHint(h) if h.expected_object_size == 4096));
    assert_eq!((write.ops[1].data.len(), write.snapc.is_valid()), (4096, true));
    let source: CopySource = decode_all(&request("copy-from").ops[0].data.to_bytes()).unwrap();
    assert_eq!((source.oid, source.truncate), ("w2".into(), None));
    let keys: OmapKeys = decode_all(&request("omap-rm-keys").ops[0].data.to_bytes()).unwrap();
    assert!(keys.contains(&b"k"[..]));
}
