//! The replica's side: answers the primary's questions, applies its writes.

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_invariant::dropped;
use spirula_maps::EVersion;
use spirula_proto::mon::LogPriority;

use super::bug::Bug;
use super::copying::Copying;
use super::key;
use super::leadership::Leadership;
use super::log::LogEntry;
use super::message::{PeerBody, PeeringId};
use super::op_queue::OpQueue;
use super::outbox::Outbox;
use super::output::{Ctx, Output};
use super::perf::DropReason;
use super::promise::Promise;
use super::replica_read::Share;
use super::site::Site;
use super::store_queue::Commit;
use super::store_queue::StoreQueue;
use super::stored_copy::StoredCopy;
use super::txn::{MetaOp, Txn, is_storable, log_bytes};

/// A member that is not primary.
#[derive(Debug, Default)]
pub(super) struct Replica {
    /// Whether it was activated in this attempt at peering.
    pub(super) active: bool,
    /// Up to where its log is durable.
    pub(super) committed: EVersion,
    /// Lets it answer reads.
    pub(super) share: Share,
}

/// Follows a primary.
pub(super) struct Following<'a> {
    pub(super) site: &'a Site,
    pub(super) copy: &'a mut StoredCopy,
    pub(super) store: &'a mut StoreQueue,
    pub(super) outbox: &'a mut Outbox,
    pub(super) lead: &'a mut Leadership,
    pub(super) replica: &'a mut Replica,
    pub(super) ops: &'a mut OpQueue,
    pub(super) copying: &'a mut Copying,
}

impl Following<'_> {
    /// A write of the primary.
    pub(super) fn rep_op(
        &mut self,
        from: i32,
        id: PeeringId,
        prev: EVersion,
        entry: Bytes,
        (trim_to, stable): (EVersion, EVersion),
        mut txn: Txn,
        cx: &mut Ctx<'_>,
    ) {
        let from_leader = self.site.is_leader(from, id);
        let r = &mut *self.replica;
        if !r.active || !from_leader {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        let e = match decode_all::<LogEntry>(&entry) {
            Ok(e) => e,
            Err(error) => return self.cannot_take(from, &error.to_string(), cx),
        };
        if e.version <= self.copy.info.last_update {
            // Sent again. If it is not durable yet, its commit will answer.
            let committed = r.committed;
            if e.version <= committed {
                self.outbox
                    .send(from, id, PeerBody::RepCommitted(committed), true, cx);
            }
            return;
        }
        if prev != self.copy.info.last_update {
            // One before was lost; the primary sends both again.
            return dropped!(cx.perf.dropped, DropReason::PeerGap; pg = self.site.pgid, version = e.version);
        }
        if !is_storable(&txn.objects) || log_bytes(&txn.objects) > self.site.cfg.max_push_logged {
            return self.cannot_take(from, "no store takes what it changes", cx);
        }
        r.share.note_stable(stable);
        let v = e.version;
        self.ops.overtake_reads(&e.object, self.site, self.store, cx);
        self.copying.overtake_repair(&txn);
        cx.perf.sub_op_bytes += txn.data_len() as u64;
        txn.meta.push(MetaOp::Put(key::log_key(self.site.pgid, v), entry));
        self.copy.note_entry(e);
        self.copy.trim_log_to(trim_to, self.site, &mut txn);
        self.store.submit(txn, Commit::Write(v), cx);
        if self.site.cfg.has_bug(Bug::EarlyAck) {
            self.outbox.send(from, id, PeerBody::RepCommitted(v), true, cx);
        }
    }

    /// A write of the primary can't be taken. It waits for this member as for one that does not answer, and is sent again; so it is
    /// said what it waits for.
    fn cannot_take(&self, from: i32, why: &str, cx: &mut Ctx<'_>) {
        dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        let (pgid, me) = (self.site.pgid, self.site.whoami);
        cx.out.push(Output::ClusterLog {
            priority: LogPriority::ERROR,
            line: format!("{pgid} osd.{me} can not take a write of osd.{from}, which waits for it: {why}"),
        });
    }

    /// A write of this version is durable here.
    pub(super) fn write_committed(&mut self, v: EVersion, cx: &mut Ctx<'_>) {
        let r = &mut *self.replica;
        if r.active {
            r.committed = r.committed.max(v);
            let primary = self.site.interval.place.primary;
            self.outbox
                .send(primary, self.lead.id, PeerBody::RepCommitted(v), true, cx);
        }
    }

    /// The primary asks for a lease.
    pub(super) fn lease_wanted(
        &mut self,
        from: i32,
        id: PeeringId,
        stamp: u64,
        shared: bool,
        cx: &mut Ctx<'_>,
    ) {
        if !self.site.is_leader(from, id) || !self.replica.active {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        let until = cx.usec + self.site.cfg.read_lease_us;
        self.lead.promise(Promise {
            primary: until,
            members: if shared { until } else { 0 },
        });
        self.outbox
            .send(from, id, PeerBody::LeaseGranted(stamp), true, cx);
    }
}
