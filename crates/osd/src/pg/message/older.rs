//! Infos of objects as the release before understands them: without digests. A copy without them is
//! as good as one with them.

use crate::pg::object::ObjectInfo;
use crate::pg::push::{Push, PushPart};
use crate::pg::txn::{ObjectOp, Txn};

/// Removes the digests from a change.
pub(super) fn remove_from_txn(txn: &mut Txn) {
    for op in txn.objects.iter_mut().flat_map(|(_, ops)| ops) {
        if let ObjectOp::SetInfo(info) = op {
            *info = ObjectInfo::without_digests(info);
        }
    }
}

/// Removes the digests from an object, or a part of it.
pub(super) fn remove_from_push(push: &mut Push) {
    if let PushPart::Data { last: Some(end), .. } = &mut push.part {
        end.info = ObjectInfo::without_digests(&end.info);
    }
}
