//! The state of a monitor, and the changes that it prepares.

use std::collections::BTreeMap;
use std::rc::Rc;

use spirula_denc::UTime;
use spirula_invariant::Counts;
use spirula_maps::Incremental;
use spirula_proto::RawMessage;
use spirula_proto::mon::LogPriority;

use super::ops::MonOps;
use super::recent::Recent;
use super::route::Pending;
use super::steady::Steady;
use super::timecheck::TimeCheck;
use super::{DropReason, Identity, LoadError, PeerInfo, Quorum, Sender, Session, SessionId};
use crate::health::{DiskUse, Versions};
use crate::image_io::{ImageIo, Scope};
use crate::kv::{KvRead, Txn};
use crate::options::Values;
use crate::progress::Progress;
use crate::service::State;

/// The state of a monitor: the committed state, and what only this process has heard or measured.
pub struct View {
    pub(crate) me: Identity,
    pub(crate) kv: Rc<dyn KvRead>,
    pub(crate) now: UTime,
    /// Measures how long things last, whatever the clock is set to.
    pub(crate) steady: Steady,
    pub(crate) timecheck: TimeCheck,
    pub(crate) started: UTime,
    /// Raft's term: the election epoch in dumps.
    pub(crate) term: u64,
    pub(crate) values: Values,
    pub(crate) state: State,
    pub(crate) versions: Versions,
    pub(crate) progress: Progress,
    pub(crate) image_io: ImageIo,
    /// `None` until the daemon has told it.
    pub(crate) disk: Option<DiskUse>,
    pub(crate) quorum: Quorum,
    /// The other monitors, by name.
    pub(crate) peers: BTreeMap<String, PeerInfo>,
    /// Whether monitors have sent metadata that are not stored yet.
    pub(super) metadata_due: bool,
    pub(crate) op_history: MonOps,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
}

/// The changes to be committed next.
#[derive(Default)]
pub(crate) struct Changes {
    /// The next osdmap's changes.
    pub(crate) osd: Option<Incremental>,
    /// Changes of other services.
    pub(crate) txn: Txn,
    /// Events for the cluster log, which gets them at the end of the turn.
    pub(super) log: Vec<LogLine>,
    /// The effects to be carried out at the end of the turn.
    pub(super) effects: Vec<Effect>,
    /// Whether the waiting entries of the cluster log are worth a proposal of their own.
    pub(super) flush_log: bool,
}

/// An event for the cluster log.
#[derive(Debug)]
pub(super) struct LogLine {
    /// The author of the line; `None` for this monitor.
    pub(super) by: Option<Sender>,
    pub(super) priority: LogPriority,
    pub(super) text: String,
}

/// An effect of a turn besides changes of the replicated state. The monitor carries it out at the
/// end of the turn.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A message goes to a session.
    Send(SessionId, RawMessage),
    /// The manager's modules end, and so do the sessions with the manager.
    StopManager,
    /// The progress events are forgotten.
    ClearProgress,
    /// The OSDs are asked for the clients' I/O on the images of this scope.
    WatchImages(Scope),
    /// The audit log notes that a module of the manager has refused a session's command.
    AuditRefusal(SessionId, String),
    /// The store is damaged: the daemon ends.
    Fail(LoadError),
}

impl Effect {
    /// Whether the effect is a part of a refusal: it is carried out although the rest is taken back.
    fn tells_of_refusal(&self) -> bool {
        match self {
            Self::AuditRefusal(..) | Self::Fail(_) => true,
            Self::Send(..) | Self::StopManager | Self::ClearProgress | Self::WatchImages(_) => false,
        }
    }
}

impl Changes {
    /// The changes of the next osdmap, to be added to.
    pub(crate) fn osd(&mut self, view: &View) -> &mut Incremental {
        let map = &view.state.osd.map;
        self.osd.get_or_insert_with(|| {
            let mut inc = Incremental::new(map.fsid, map.epoch.next());
            inc.modified = view.now;
            inc
        })
    }

    /// Whether nothing is prepared.
    pub(crate) fn is_empty(&self) -> bool {
        self.osd.is_none() && self.txn.is_empty()
    }

    /// Drops what a turn has prepared that refuses: its events and effects and, unless the prepared
    /// changes are those of others, these.
    pub(super) fn take_back(&mut self, with_changes: bool) {
        self.log.clear();
        self.effects.retain(Effect::tells_of_refusal);
        if with_changes {
            self.osd = None;
            self.txn = Txn::default();
        }
    }
}

/// The turn of a command or a report: the state that it may read, and the changes that it makes.
pub(crate) struct Turn<'a> {
    pub(crate) view: &'a View,
    pub(crate) changes: &'a mut Changes,
    pub(super) dropped: &'a mut Counts<DropReason>,
}

impl Turn<'_> {
    /// The changes of the next osdmap, to be added to.
    pub(crate) fn pending_osd(&mut self) -> &mut Incremental {
        self.changes.osd(self.view)
    }

    /// Notes an event in the cluster log.
    pub(crate) fn log_event(&mut self, priority: LogPriority, text: impl Into<String>) {
        self.changes.log.push(LogLine {
            by: None,
            priority,
            text: text.into(),
        });
    }

    /// Writes a line to the cluster log in the name of `by`, and commits it.
    pub(crate) fn log_for(&mut self, by: Sender, text: String) {
        let (by, priority) = (Some(by), LogPriority::INFO);
        self.changes.log.push(LogLine { by, priority, text });
        self.changes.flush_log = true;
    }

    /// Adds an effect to be carried out at the end of the turn.
    pub(crate) fn effect(&mut self, effect: Effect) {
        self.changes.effects.push(effect);
    }
}

/// This daemon, as its own commands (of its admin socket, and of `ceph tell`) show and set it.
pub(crate) struct Daemon<'a> {
    pub(crate) view: &'a mut View,
    /// Requests that have no answer yet.
    pub(super) pending: &'a Pending,
    /// Writes that wait for their turn.
    pub(crate) waiting: usize,
    /// The numbers of dropped messages.
    pub(crate) dropped: &'a Counts<DropReason>,
    /// The monitor's memory of itself.
    pub(crate) recent: &'a Recent,
}
