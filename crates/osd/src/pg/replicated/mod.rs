//! Replicated PGs: every member has all of each object, in the same version. So a member that lacks
//! nothing can give any other what that lacks, and any complete copy can serve alone.

mod plan;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_invariant::invariant;
use spirula_maps::{EVersion, OsdId, Positions};
use spirula_proto::RawMessage;

use super::backend::{Backend, Change, Copies, Sent, newest_activation};
use super::config::PgConfig;
use super::fetch::Want;
use super::info::PgInfo;
use super::layout::Part;
use super::log::PgLog;
use super::message::{LogUpdate, PeerBody, PeerMessage, RepOp};
use super::output::{Ctx, Output, Reader};
use super::push::{PushPart, SyncPlan};
use super::store_queue::{Pending, StoreQueue};
use super::txn::Txn;

/// Members are copies of each other.
#[derive(Debug)]
pub(super) struct Replicated;

impl Backend for Replicated {
    fn part(&self, _: Option<usize>) -> Part {
        Part::default()
    }

    fn is_enough(&self, acting: &Positions, min_size: u32) -> bool {
        acting.count() >= min_size as usize
    }

    fn authority<'a>(
        &self,
        copies: &'a Copies,
        unfit: &BTreeSet<OsdId>,
        prefer: &[&[OsdId]],
    ) -> Option<(OsdId, &'a PgInfo)> {
        let rank = |o: OsdId| prefer.iter().position(|g| g.contains(&o)).unwrap_or(prefer.len());
        let complete = copies
            .iter()
            .filter_map(|(o, i)| i.as_ref().filter(|i| !i.incomplete).map(|i| (*o, i)));
        let best = complete.min_by_key(|(o, i)| (Reverse(i.age()), unfit.contains(o), rank(*o), *o));
        // A complete copy may be older than one that was complete: writes could be missing from it.
        best.filter(|(_, i)| i.last_epoch_started == newest_activation(copies))
    }

    /// One member of an interval that was active has all that was written in it.
    fn is_proof(&self, acting: &Positions, answered: &dyn Fn(OsdId) -> bool) -> bool {
        acting.osds().any(answered)
    }

    fn lacking(
        &self,
        auth: &PgLog,
        theirs: &PgLog,
        exact: bool,
        cfg: &PgConfig,
    ) -> Option<(SyncPlan, LogUpdate)> {
        plan::compare(auth, theirs, exact, cfg)
    }

    fn givers(&self, acting: &Positions, bad: &BTreeSet<OsdId>) -> Vec<OsdId> {
        acting.osds().filter(|o| !bad.contains(o)).collect()
    }

    fn portion(&self, pushed: PushPart, _: Part) -> PushPart {
        pushed
    }

    fn write(&self, change: Change, others: &[(OsdId, EVersion)], cx: &mut Ctx<'_>) -> (Txn, Sent) {
        invariant!(
            change.stable <= change.prev && change.trim_to <= change.prev,
            "a change to come after all that is durable everywhere, and after what leaves the log";
            pg = change.pgid, prev = change.prev, stable = change.stable, trim_to = change.trim_to
        );
        let Some((first, _)) = others.first() else {
            return (change.txn, Sent::new(RawMessage::default(), Vec::new()));
        };
        let message = PeerMessage {
            pgid: change.pgid,
            id: change.id,
            body: PeerBody::RepOp(RepOp {
                prev: change.prev,
                entry: change.entry,
                trim_to: change.trim_to,
                stable: change.stable,
                txn: change.txn,
            }),
        };
        let edition = cx.versions.to(*first);
        // Members of one edition are sent one message.
        let others_differ = others.iter().filter(|(osd, _)| cx.versions.to(*osd) != edition);
        let apart = others_differ.map(|(osd, _)| (*osd, cx.versions.write(*osd, &message)));
        let sent = Sent::new(cx.versions.write(*first, &message), apart.collect());
        for (osd, _) in others {
            cx.out.push(Output::Send {
                osd: *osd,
                msg: sent.to(*osd).clone(),
                reply: false,
            });
        }
        let PeerBody::RepOp(RepOp { txn, .. }) = message.body else {
            spirula_invariant::impossible!("a write to be the message that was made of it"; pg = change.pgid);
        };
        (txn, sent)
    }

    fn read(
        &self,
        key: Bytes,
        wants: Vec<Want>,
        reader: Option<Reader>,
        what: Pending,
        store: &mut StoreQueue,
        cx: &mut Ctx<'_>,
    ) {
        store.read(key, wants, reader, what, cx);
    }
}
