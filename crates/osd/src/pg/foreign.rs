//! Which OSDs may speak about a PG.
//!
//! A connection proves which OSD sends, and no more. So a message is accepted only if that OSD has
//! to do with the PG in the way the message says: as its primary, as a member (of `up` or
//! `acting`), as a holder of a copy from an interval that still matters, or as an OSD that was
//! asked. Messages from other OSDs are dropped and counted; as stale if they are of an earlier
//! attempt at peering, as the sender may have been what the message says then. Messages of an
//! attempt at peering count only within that one.
//!
//! The members are those of the map, which are looked up once for each map; so a write costs a look
//! at a list of three.

use spirula_invariant::dropped;
use spirula_maps::{Epoch, OsdId, Positions};

use super::message::{PeerBody, PeeringId};
use super::output::Ctx;
use super::perf::DropReason;
use super::role::Role;
use super::seen::Seen;

/// The role that an OSD must have to send a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// The primary.
    Primary,
    /// A member of the acting set.
    Acting,
    /// A member of the acting set, or of the one that should be.
    Member,
    /// The OSD with the newest copy, as the primary has found.
    Source,
    /// That OSD, or one that may have a copy.
    Holder,
    /// Any OSD that has, or had, a copy: the handler of the message decides what becomes of it.
    Anybody,
}

impl Sender {
    fn of(body: &PeerBody) -> Self {
        match body {
            PeerBody::RepOp(_)
            | PeerBody::Ahead { .. }
            | PeerBody::Query
            | PeerBody::Lease { .. }
            | PeerBody::LeaseShared(_)
            | PeerBody::GetLog
            | PeerBody::StartSync { .. }
            | PeerBody::Stable(_)
            | PeerBody::Activate { .. }
            | PeerBody::Copied { .. }
            | PeerBody::Reserve(_)
            | PeerBody::Release
            | PeerBody::Remove => Self::Primary,
            PeerBody::Scrub(s) if s.is_primarys() => Self::Primary,
            PeerBody::RepCommitted(_)
            | PeerBody::Placed { .. }
            | PeerBody::LeaseGranted(_)
            | PeerBody::ShareLease(_)
            | PeerBody::Repair(_)
            | PeerBody::Scrub(_) => Self::Acting,
            PeerBody::PushRefused
            | PeerBody::ScanAck(_)
            | PeerBody::Activated
            | PeerBody::Reserved
            | PeerBody::Revoked => Self::Member,
            PeerBody::Push(_)
            | PeerBody::Take(_)
            | PeerBody::Scan { .. }
            | PeerBody::SyncDone(_)
            | PeerBody::SyncFailed(_)
            | PeerBody::SyncRefused(_) => Self::Source,
            PeerBody::FragmentWant(_) | PeerBody::Redo(_) | PeerBody::PushAck => Self::Holder,
            // Answers to questions, and copies that belong elsewhere; reads for copies are of
            // another PG's primary.
            PeerBody::Notify { .. }
            | PeerBody::Log { .. }
            | PeerBody::Fragment { .. }
            | PeerBody::CopyRead(_)
            | PeerBody::CopyPart(_) => Self::Anybody,
        }
    }
}

impl PeerBody {
    /// Whether the message means something only within its attempt at peering, whose members have
    /// spoken in that attempt's map. All other messages may come before the map that they belong
    /// to.
    pub(crate) fn is_of_attempt(&self) -> bool {
        !matches!(
            self,
            Self::Query
                | Self::Notify { .. }
                | Self::Reserve(_)
                | Self::Release
                | Self::Remove
                | Self::CopyRead(_)
                | Self::CopyPart(_)
        )
    }
}

impl Seen<'_> {
    /// Whether a message belongs to an attempt at peering other than the present one. Counts such
    /// messages.
    pub(super) fn is_stale_message(
        &self,
        from: OsdId,
        id: PeeringId,
        body: &PeerBody,
        cx: &mut Ctx<'_>,
    ) -> bool {
        let is_stale = body.is_of_attempt() && id != self.lead.id;
        if is_stale {
            dropped!(cx.perf.dropped, DropReason::PeerStale; pg = self.site.pgid, from = from);
        }
        is_stale
    }

    /// Whether a message is not for this OSD to send. Counts such messages.
    pub(super) fn is_foreign(&self, from: OsdId, id: PeeringId, body: &PeerBody, cx: &mut Ctx<'_>) -> bool {
        if from == self.site.whoami {
            return false;
        }
        let place = &self.site.interval.place;
        let is_theirs = match Sender::of(body) {
            Sender::Anybody => return false,
            Sender::Primary => place.primary == Some(from),
            Sender::Acting => place.acting.contains(from),
            Sender::Member => place.acting.contains(from) || place.up.contains(from),
            Sender::Source => self.may_be_source(from),
            Sender::Holder => self.may_be_source(from) || self.may_have_copy(from),
        };
        if !is_theirs {
            dropped!(cx.perf.dropped, DropReason::of_stranger(id < self.lead.id); pg = self.site.pgid, from = from);
        }
        !is_theirs
    }

    /// Whether this OSD may have been found to have the newest copy.
    fn may_be_source(&self, osd: OsdId) -> bool {
        match &self.role {
            Role::Peering(p) => p.auth == Some(osd),
            // Copying in the background is the primary's work.
            Role::Active(_) => false,
            Role::Idle | Role::Stray | Role::Deleting => self.site.interval.place.primary == Some(osd),
            Role::Replica(_) => self.may_have_copy(osd),
        }
    }

    /// Whether an OSD may have a copy that counts, as far as is known here. If maps were missed, or
    /// the copy is new, any OSD may; and if an operator has given up members, an OSD that was only
    /// copied to may have to do.
    fn may_have_copy(&self, osd: OsdId) -> bool {
        let (place, history) = (&self.site.interval.place, &self.copy.info.history);
        let is_known = self.copy.exists && history.covers(self.copy.info.last_epoch_started);
        if !is_known || place.up.contains(osd) || place.acting.contains(osd) {
            return true;
        }
        let past = history.intervals().iter().map(|i| &i.acting);
        let mut holders = past
            .chain([&self.copy.info.last_acting])
            .flat_map(Positions::osds);
        let is_lost = |o: OsdId| self.site.map.osd(o).is_none_or(|v| v.lost_at > Epoch::NONE);
        holders.any(|o| o == osd || is_lost(o))
    }
}
