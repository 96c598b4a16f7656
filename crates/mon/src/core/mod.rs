//! The monitor as a state machine without I/O.
//!
//! Call order: [`Monitor::load`] from the committed state; then [`Monitor::open`],
//! [`Monitor::message`], [`Monitor::close`], [`Monitor::tick`] and [`Monitor::committed`] as things
//! happen, and after each of them [`Monitor::take_outputs`], whose commands the daemon carries out
//! in order.
//!
//! Changes of the replicated state go one at a time: while a proposal is in flight, further writes
//! wait in a queue, so that each of them sees the committed result of the one before. Reads are
//! answered once it is certain that this monitor leads, which in a group of one is always so.

mod client_log;
mod dispatch;
mod dropped;
mod failure;
mod image_io;
pub(crate) mod manager;
mod message;
mod module;
mod ops;
mod osd_down;
mod osd_report;
mod osd_told;
mod pg_num;
mod pool_op;
mod pool_snaps;
mod push;
mod quorum;
mod recent;
mod rights;
mod route;
mod session;
mod steady;
pub(crate) mod store_damage;
#[cfg(test)]
mod tests;
mod timecheck;
mod topic;
mod view;
mod write;

use std::collections::BTreeMap;
use std::rc::Rc;

use spirula_denc::{EntityAddrVec, Fsid, UTime};
use spirula_invariant::{AtWork, Counts, invariant};
use spirula_manager::Request;
use spirula_maps::Epoch;
use spirula_proto::RawMessage;
use spirula_proto::mon::LogPriority;

use client_log::ClientLog;
use dropped::DropReason;
pub use failure::Failure;
pub(crate) use manager::Sender;
pub use manager::{Manager, MgrSession};
pub use module::ModuleStart;
pub(crate) use quorum::MAX_MONITORS;
pub use quorum::{PeerInfo, Quorum, Role};
use recent::{Recent, What};
pub use session::{NewSession, Session, SessionId, Sub};
use steady::Steady;
pub use timecheck::TimeAnswer;
use timecheck::TimeCheck;
pub use topic::Topic;
use view::LogLine;
pub use view::View;
pub(crate) use view::{Changes, Daemon, Effect, Turn};
use write::{Fate, Waiter};

use crate::command::Audit;
use crate::health::{DiskUse, Versions};
use crate::image_io::ImageIo;
use crate::kv::{KvError, KvRead, Txn};
use crate::options::Values;
use crate::progress::Progress;
use crate::raft::Applied;
use crate::service::{Auth, Config, Service, Source, State};

/// A command of the core to the daemon.
#[derive(Debug)]
pub enum Output {
    /// Send a message on a session.
    Send(SessionId, RawMessage),
    /// End a session after what was sent before.
    Close(SessionId),
    /// Replicate a transaction; it comes back through [`Monitor::committed`].
    Propose(Txn),
    /// Send a client's message to the leader.
    Forward(SessionId, RawMessage),
    /// Find out whether this monitor still leads; [`Monitor::confirmed`] is the answer.
    Confirm,
    /// Ask the leader to reserve global ids, under this number; the log brings them.
    AskIds(u64),
    /// Ask these monitors for the time, in this round; [`Monitor::time_answer`] takes the answers.
    AskTimes(u64, Vec<String>),
    /// Start the manager's modules; their news go to [`Monitor::module_news`].
    StartModule(Box<ModuleStart>),
    /// Hand a request over to the modules.
    AskModule(Request),
    /// End the modules. Their earlier news do not count any more.
    StopModule,
}

/// The identity of this monitor.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The cluster.
    pub fsid: Fsid,
    /// The name: `a` in `mon.a`.
    pub name: String,
    /// The host it runs on.
    pub hostname: String,
    /// The addresses that it listens on.
    pub addrs: EntityAddrVec,
    /// The addresses that it listens on as the manager; empty for none.
    pub mgr_addrs: EntityAddrVec,
    /// `ceph mon metadata`.
    pub metadata: BTreeMap<String, String>,
}

/// The committed state cannot be read: the monitor must not go on.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// A stored value does not decode.
    #[error("stored {what}: {source}")]
    Decode {
        /// Which value.
        what: &'static str,
        /// Why.
        source: spirula_denc::Error,
    },
    /// A value that every initialised monitor has is missing.
    #[error("the store holds no {0}: was mkfs run?")]
    Missing(&'static str),
    /// Stored maps do not fit together.
    #[error("stored osdmap {epoch}: {why}")]
    Map {
        /// The epoch that could not be made.
        epoch: Epoch,
        /// Why.
        why: String,
    },
}

/// The monitor.
pub struct Monitor {
    pub(crate) view: View,
    pub(crate) changes: Changes,
    pub(crate) audit: Audit,
    client_log: ClientLog,
    pending: route::Pending,
    unconfirmed: route::Unconfirmed,
    pub(crate) writes: write::Writes,
    queue: write::WriteQueue,
    pub(crate) out: Vec<Output>,
    /// How often messages were dropped, by reason.
    dropped: Counts<DropReason>,
    recent: Recent,
    /// The first unreadable value, which ends the daemon.
    failed: Option<LoadError>,
}

impl View {
    pub(crate) fn refresh_values(&mut self) {
        let central = self
            .state
            .config
            .for_daemon("mon", &self.me.name, &self.me.hostname, "");
        self.values.set_central(central);
        self.state.auth.set_values(&self.values);
        self.op_history.set_options(&self.values);
    }

    fn refresh_versions(&mut self) {
        let daemons = crate::command::daemon_versions(self);
        self.versions.set(daemons.into_iter(), self.now);
    }

    /// Updates the clocks to `now`.
    fn see_time(&mut self, now: UTime) {
        self.steady.see(now);
        self.now = now;
    }

    /// Notes an event in the cluster log.
    pub(crate) fn log_event(&mut self, priority: LogPriority, text: impl Into<String>) {
        let (by, text) = (None, text.into());
        self.log_line("cluster", LogLine { by, priority, text });
    }

    /// Notes an event in the audit log.
    pub(crate) fn audit_event(&mut self, priority: LogPriority, text: String) {
        let by = None;
        self.log_line("audit", LogLine { by, priority, text });
    }

    fn log_line(&mut self, channel: &str, line: LogLine) {
        let LogLine { by, priority, text } = line;
        let mut entry = self
            .state
            .clog
            .own_entry(&self.me, self.now, priority, channel, text);
        if let Some(by) = by {
            entry.name = by.named();
            entry.rank = by.entity;
            entry.addrs = by.addr.into();
        }
        self.state.clog.add(entry);
    }
}

impl Monitor {
    /// Makes the core from the committed state. `local` are the values from `ceph.conf`. A monitor
    /// that is `alone` in its group leads at once, in this term; another one waits to be told.
    ///
    /// # Errors
    /// Where the state is missing or unreadable.
    pub fn load(
        me: Identity,
        kv: Rc<dyn KvRead>,
        local: BTreeMap<String, String>,
        term: u64,
        alone: bool,
        now: UTime,
    ) -> Result<Self, LoadError> {
        let from = Source {
            kv: &kv,
            me: &me,
            now,
        };
        let (state, recent) = (State::load(from)?, Recent::new(&me.name));
        let view = View {
            state,
            versions: Versions::default(),
            progress: Progress::default(),
            image_io: ImageIo::default(),
            disk: None,
            values: Values::from_file(local),
            quorum: Quorum::new(&me.name, alone, now),
            peers: BTreeMap::new(),
            metadata_due: true,
            op_history: ops::MonOps::default(),
            me,
            kv,
            now,
            steady: Steady::new(now),
            timecheck: TimeCheck::default(),
            started: now,
            term,
            sessions: BTreeMap::new(),
        };
        let mut m = Self {
            view,
            changes: Changes::default(),
            audit: Audit::default(),
            client_log: ClientLog::default(),
            pending: route::Pending::default(),
            unconfirmed: route::Unconfirmed::default(),
            writes: write::Writes::default(),
            queue: write::WriteQueue::default(),
            out: Vec::new(),
            dropped: Counts::default(),
            recent,
            failed: None,
        };
        m.recent.note(What::Role(m.view.quorum.role), &m.view);
        m.view.refresh_values();
        m.view.state.osd.start(m.view.steady.now());
        m.view.refresh_versions();
        if m.view.quorum.leads() {
            // A fresh range of global ids, and secrets if they are due, before the first client can
            // log in.
            m.maintain();
            m.pump();
        }
        Ok(m)
    }

    /// Takes the commands since the last call.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.recent.note_dropped(&self.dropped, &self.view);
        std::mem::take(&mut self.out)
    }

    /// Marks this thread as working on the monitor: if an invariant breaks meanwhile, the monitor's
    /// last transitions are reported.
    pub fn at_work(&self) -> AtWork {
        self.recent.recorder().at_work()
    }

    /// The monitor's last transitions, for the report on a failed test or simulation.
    pub fn trace(&self) -> String {
        self.recent.recorder().tell()
    }

    /// Takes the error that makes going on impossible.
    pub fn take_failure(&mut self) -> Option<LoadError> {
        self.failed.take()
    }

    /// The keys that handshakes check against.
    pub fn auth(&self) -> &Auth {
        &self.view.state.auth
    }

    /// The newest OSDMap that is committed here.
    pub fn osdmap(&self) -> &spirula_maps::OsdMap {
        &self.view.state.osd.map
    }

    /// The monitors in quorum, as this one knows it.
    pub fn quorum_names(&self) -> &[String] {
        &self.view.quorum.names
    }

    /// The values in force, for the daemon.
    pub fn values(&self) -> &Values {
        &self.view.values
    }

    /// Handles the passing of time; to be called about twice a second.
    pub fn tick(&mut self, now: UTime) {
        self.view.see_time(now);
        if !self.view.quorum.leads() {
            if !self.serves() {
                // They have waited long enough for a quorum.
                self.close_sessions(|_| true);
            }
            self.ask_ids();
            return; // The rest is the leader's.
        }
        if let Some((round, monitors)) = self.view.time_check_due() {
            self.out.push(Output::AskTimes(round, monitors));
        }
        self.view.state.stats.tick(now, &self.view.state.osd.map);
        self.view.watch_progress();
        self.watch_image_io();
        self.audit.tell_suppressed(&mut self.view);
        self.client_log.tell_suppressed(&mut self.view);
        if self.is_idle() && self.queue.is_empty() {
            self.maintain();
        }
        self.changes.flush_log = true;
        self.pump();
    }

    /// Sets how full the monitor's disk is.
    pub fn disk(&mut self, disk: DiskUse) {
        self.view.disk = Some(disk);
    }

    /// Does the work that falls due by time: mutes, down and out OSDs, full pools, secrets, ids,
    /// trimming, news of the health.
    fn maintain(&mut self) {
        let auth = self.view.state.auth.maintenance(self.view.now);
        self.changes.txn.extend(auth);
        self.osd_maintenance();
        self.turn(|turn| turn.review_mutes());
        self.turn(|turn| turn.view.state.trim(turn.view, &mut turn.changes.txn));
        self.view.log_health(&mut self.changes.txn);
        self.claim_manager();
        self.view.review_services(&mut self.changes.txn);
        let totals = self
            .view
            .state
            .stats
            .keep(&self.view.state.osd.map, self.view.now);
        self.changes.txn.extend(totals);
        let monitors = self.view.news_of_monitors();
        self.changes.txn.extend(monitors);
    }

    /// Handles what the log has committed: this monitor's proposals if it leads, otherwise the
    /// leader's.
    pub fn committed(&mut self, applied: &Applied, now: UTime) {
        self.view.see_time(now);
        let (what, result) = match applied {
            Applied::Txn { txn, .. } => (What::Committed(count(txn)), self.apply(txn)),
            Applied::Snapshot { .. } => (What::Snapshot, self.reload()),
        };
        self.recent.note(what, &self.view);
        if let Err(e) = result {
            self.recent.note(What::Failed, &self.view);
            tracing::error!("{}", self.trace());
            tracing::error!("committed state: {e}");
            self.failed = Some(e);
            return; // The daemon ends: nothing is made of a state that can't be read.
        }
        self.push_all();
        if self.view.quorum.leads() {
            // A barrier carries nothing, and may come between the proposal and its commit.
            if matches!(applied, Applied::Txn { txn, .. } if !txn.is_empty()) {
                self.answer_waiters();
            }
            for question in self.view.take_noted() {
                let done = true;
                self.out
                    .push(Output::AskModule(Request::Noted { question, done }));
            }
            self.pump();
        }
    }

    fn apply(&mut self, txn: &Txn) -> Result<(), LoadError> {
        let osdmap = Rc::clone(&self.view.state.osd.map);
        self.view.state.apply(txn)?;
        let (before, epoch) = (osdmap.epoch, self.view.state.osd.map.epoch);
        invariant!(epoch >= before, "OSDMaps that ascend"; epoch = epoch, before = before, term = self.view.term);
        self.view.state.osd.follow(&osdmap, self.view.steady.now());
        let is_changed = |services: &[&str]| txn.ops.iter().any(|op| services.contains(&op.service.as_str()));
        if is_changed(&["osd_metadata", "mon_metadata"]) {
            self.view.refresh_versions();
        }
        if is_changed(Config::NAMES) {
            self.view.refresh_values();
            self.push_config_all();
        }
        Ok(())
    }

    fn reload(&mut self) -> Result<(), LoadError> {
        let before = self.view.state.osd.map.epoch;
        self.view.state.reload(Source {
            kv: &self.view.kv,
            me: &self.view.me,
            now: self.view.now,
        })?;
        let epoch = self.view.state.osd.map.epoch;
        invariant!(epoch >= before, "a snapshot that is newer"; epoch = epoch, before = before, term = self.view.term);
        self.view.state.osd.start(self.view.steady.now());
        self.view.refresh_versions();
        self.view.refresh_values();
        Ok(())
    }

    pub(crate) fn send(&mut self, session: SessionId, msg: RawMessage) {
        if let Some(request) = self.pending.answered(session, &msg) {
            self.view.op_done(session, &request);
        }
        self.out.push(Output::Send(session, msg));
    }
}

/// How many changes a transaction has.
fn count(txn: &Txn) -> u32 {
    u32::try_from(txn.ops.len()).unwrap_or(u32::MAX)
}
