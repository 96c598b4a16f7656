//! The copies between this OSD and others.

pub(super) mod parts;
pub(super) mod source;
pub(super) mod target;

use bytes::Bytes;
use spirula_denc::Micros;

use self::source::SyncSource;
use self::target::SyncTarget;
use super::incoming::Incoming;
use super::pace::Pace;
use super::repair::Patient;
use super::txn::Txn;

/// Copies under way, from this OSD and to it.
#[derive(Debug, Default)]
pub(super) struct Copying {
    /// The copy from here.
    pub(super) source: Option<SyncSource>,
    /// The copy to here.
    pub(super) target: Option<SyncTarget>,
    /// The object that this member repairs.
    pub(super) patient: Option<Patient>,
    /// The primary that copies to this OSD in the background, or wants to.
    pub(super) incoming: Incoming,
    /// The key of the object that could not be read, so that the last copy from here failed.
    pub(super) unreadable: Option<Bytes>,
    /// The key of an object that a copy from here has just found to be unreadable. A primary that
    /// serves has it repaired.
    pub(super) damaged: Option<Bytes>,
    /// The speed at which this OSD works in the background.
    pub(super) pace: Pace,
    /// When the last step of deleting the copy here began, until it is accounted for.
    pub(super) deleting: Option<Micros>,
}

impl Copying {
    /// Ends what belongs to the attempt at peering that is over.
    pub(super) fn leave_attempt(&mut self) {
        self.source = None;
        self.target = None;
    }

    /// The number of objects, of `all`, that the copy under way still has to copy.
    pub(super) fn objects_left(&self, all: i64) -> Option<i64> {
        Some(self.source.as_ref()?.left(all))
    }

    /// Ends what belongs to the interval that is over.
    pub(super) fn leave_interval(&mut self) {
        *self = Self {
            pace: self.pace.clone(),
            ..Self::default()
        };
    }

    /// Gives up the repair of an object that a change of the PG touches: as the primary lets no
    /// change pass a repair, it has given the repair up.
    pub(super) fn overtake_repair(&mut self, txn: &Txn) {
        if self.patient.as_ref().is_some_and(|p| p.is_changed_by(txn)) {
            self.patient = None;
        }
    }
}
