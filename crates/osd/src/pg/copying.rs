//! What this OSD copies to others and others to it.

use bytes::Bytes;

use super::incoming::Incoming;
use super::pace::Pace;
use super::repair::Patient;
use super::replicated::source::SyncSource;
use super::replicated::target::SyncTarget;
use super::txn::Txn;

/// Copies under way, from this OSD and to it.
#[derive(Debug, Default)]
pub(super) struct Copying {
    /// What is copied from here.
    pub(super) source: Option<SyncSource>,
    /// What is copied to here.
    pub(super) target: Option<SyncTarget>,
    /// The object that this member repairs.
    pub(super) patient: Option<Patient>,
    /// Who copies to this OSD in the background, or would like to.
    pub(super) incoming: Incoming,
    /// The key of the object for which the last copy from here failed, as it can't be read.
    pub(super) unreadable: Option<Bytes>,
    /// The key of an object that a copy from here has just found that it can't read. A primary that serves has it repaired.
    pub(super) damaged: Option<Bytes>,
    /// How fast this OSD copies.
    pub(super) pace: Pace,
}

impl Copying {
    /// The attempt at peering is over.
    pub(super) fn leave_attempt(&mut self) {
        self.source = None;
        self.target = None;
    }

    /// Objects that the copy under way has left, of which there are `all`.
    pub(super) fn objects_left(&self, all: i64) -> Option<i64> {
        Some(self.source.as_ref()?.left(all))
    }

    /// The interval is over.
    pub(super) fn leave_interval(&mut self) {
        *self = Self {
            pace: self.pace.clone(),
            ..Self::default()
        };
    }

    /// A change of the PG comes to the object that is being repaired: as the primary lets none pass it, the repair was given up.
    pub(super) fn overtake_repair(&mut self, txn: &Txn) {
        if self.patient.as_ref().is_some_and(|p| p.is_changed_by(txn)) {
            self.patient = None;
        }
    }
}
