//! The daemon's life: whether it goes on or ends.

use spirula_maps::{Epoch, OsdId};

use super::OsdError;

/// The stages of a daemon's life.
#[derive(Default)]
pub(super) struct Life {
    /// The epoch in which this process first came up; 0 for not yet.
    pub(super) boot_epoch: Epoch,
    failed: Option<OsdError>,
    /// Whether the daemon has said goodbye: it must not ask to be up again.
    stopping: bool,
    /// Whether the daemon ends by itself, because it was told to or does only harm.
    leaving: bool,
}

impl Life {
    /// Notes that the daemon can't go on.
    pub(super) fn fail(&mut self, id: OsdId, e: OsdError) {
        tracing::error!("osd.{id} stops: {e}");
        self.failed.get_or_insert(e);
    }

    /// Whether the daemon can't go on.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether the daemon can't go on because its store is damaged.
    pub(super) fn is_damaged(&self) -> bool {
        let is_damage = |e: &OsdError| e.is_ruin() || e.pages_to_cut().is_some();
        self.failed.as_ref().is_some_and(is_damage)
    }

    /// Takes the reason why the daemon can't go on.
    pub(super) fn take_failure(&mut self) -> Option<OsdError> {
        self.failed.take()
    }

    /// Makes the daemon end in order, by itself.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
        self.stopping = true;
    }

    /// Notes that the daemon is about to end: the map will have it down.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether the daemon ends by itself.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Whether the daemon ends, for whatever reason.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }
}
