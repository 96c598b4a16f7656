//! Messages as the release before understands them.

use super::{PeerBody, PeerMessage};
use crate::pg::object::ObjectInfo;
use crate::pg::push::{Push, PushPart};
use crate::pg::repair::message::RepairBody;
use crate::pg::txn::{ObjectOp, Txn};

/// A message with infos of objects as release 0.1.0 knows them: without digests. A copy without them
/// is like one with them.
pub(super) fn without_digests(mut message: PeerMessage) -> PeerMessage {
    match &mut message.body {
        PeerBody::RepOp(op) => from_txn(&mut op.txn),
        PeerBody::Push(push) => from_push(push),
        PeerBody::Repair(RepairBody::Part {
            found: Some(part), ..
        }) => from_push(&mut part.push),
        _ => {}
    }
    message
}

fn from_txn(txn: &mut Txn) {
    for op in txn.objects.iter_mut().flat_map(|(_, ops)| ops) {
        if let ObjectOp::SetInfo(info) = op {
            *info = ObjectInfo::without_digests(info);
        }
    }
}

fn from_push(push: &mut Push) {
    if let PushPart::Data { last: Some(end), .. } = &mut push.part {
        end.info = ObjectInfo::without_digests(&end.info);
    }
}
