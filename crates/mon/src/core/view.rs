//! What a monitor knows, and what it is going to change.

use std::collections::BTreeMap;
use std::rc::Rc;

use spirula_denc::UTime;
use spirula_maps::Incremental;
use spirula_proto::mon::LogPriority;

use super::ops::MonOps;
use super::steady::Steady;
use super::timecheck::TimeCheck;
use super::{Identity, PeerInfo, Quorum, Session, SessionId};
use crate::health::{DiskUse, Versions};
use crate::image_io::ImageIo;
use crate::kv::{KvRead, Txn};
use crate::options::Values;
use crate::progress::Progress;
use crate::service::State;

/// What a monitor knows: the committed state, and what only this process has heard or measured.
pub struct View {
    pub(crate) me: Identity,
    pub(crate) kv: Rc<dyn KvRead>,
    pub(crate) now: UTime,
    /// Counts how long things last, whatever the clock is set to.
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
    pub(crate) op_history: MonOps,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
}

/// What is to be committed next.
#[derive(Default)]
pub(crate) struct Changes {
    /// The next osdmap's changes.
    pub(crate) osd: Option<Incremental>,
    /// Changes of other services.
    pub(crate) txn: Txn,
    /// Events for the cluster log.
    pub(crate) log: Vec<(LogPriority, String)>,
    /// The waiting entries of the cluster log are worth a proposal of their own.
    pub(crate) flush_log: bool,
}

impl Changes {
    /// The changes of the next osdmap, to be added to.
    pub(crate) fn osd(&mut self, view: &View) -> &mut Incremental {
        let map = &view.state.osd.map;
        self.osd.get_or_insert_with(|| {
            let mut inc = Incremental::new(map.fsid, map.epoch + 1);
            inc.modified = view.now;
            inc
        })
    }

    /// Nothing is prepared.
    pub(crate) fn is_empty(&self) -> bool {
        self.osd.is_none() && self.txn.is_empty()
    }
}

/// A command's turn: what it may look at, and what it changes.
pub(crate) struct Turn<'a> {
    pub(crate) view: &'a View,
    pub(crate) changes: &'a mut Changes,
}

impl Turn<'_> {
    /// The changes of the next osdmap, to be added to.
    pub(crate) fn pending_osd(&mut self) -> &mut Incremental {
        self.changes.osd(self.view)
    }

    /// Notes an event in the cluster log.
    pub(crate) fn log_event(&mut self, priority: LogPriority, text: impl Into<String>) {
        self.changes.log.push((priority, text.into()));
    }
}
