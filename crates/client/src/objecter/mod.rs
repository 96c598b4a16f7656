//! Requests to OSDs: the [`Core`], which simulations use too, with the OSDs' and the monitors'
//! sessions around it.

mod backoff;
mod core;
mod linger;

use std::rc::Rc;

use spirula_denc::UTime;
use spirula_maps::{Epoch, ObjectLocator, ObjectName, OsdId, OsdMap, PgId, SpgId};
use spirula_monc::MonClient;
use spirula_msgr::Config;
use spirula_proto::mon::MCommand;
use spirula_proto::osd::{MOsdOp, OsdFlags};
use spirula_proto::{MsgType, RawMessage};
use tokio::sync::{mpsc, oneshot};

use crate::osd_session::{Event, OsdSessions};

use self::core::CommandOutcome;
pub use self::core::{Action, Aim, Core, Outcome, Resend};
pub(crate) use self::linger::LingerEnd;

/// The state behind a [`crate::Rados`].
pub(crate) struct Objecter {
    core: Core,
    sessions: OsdSessions,
    monc: MonClient,
}

impl Objecter {
    pub(crate) fn new(config: Rc<Config>, monc: MonClient, events: mpsc::UnboundedSender<Event>) -> Self {
        Self {
            core: Core::default(),
            sessions: OsdSessions::new(config, monc.clone(), events),
            monc,
        }
    }

    /// The newest map, `None` before the first.
    pub(crate) fn map(&self) -> Option<Rc<OsdMap>> {
        self.core.map().cloned()
    }

    /// Completes when the map is at `epoch` or later.
    pub(crate) fn wait_for_map(&mut self, epoch: Epoch) -> oneshot::Receiver<()> {
        let wait = self.core.wait_for_map(epoch);
        self.act();
        wait
    }

    /// Sends a request; its tid, epoch, PG and attempt are filled in on the way.
    pub(crate) fn submit(&mut self, op: MOsdOp, aim: Aim, resend: Resend) -> oneshot::Receiver<Outcome> {
        let answer = self.core.submit(op, aim, resend);
        self.act();
        answer
    }

    /// Begins a watch or notification: its events are routed from now on.
    pub(crate) fn linger(&mut self, oid: ObjectName, locator: ObjectLocator) -> LingerEnd {
        self.core.linger(oid, locator)
    }

    /// Ends a watch or notification.
    pub(crate) fn unlinger(&mut self, cookie: u64) {
        self.core.unlinger(cookie);
    }

    /// Sends a command to an OSD.
    pub(crate) fn command(&mut self, osd: OsdId, msg: MCommand) -> oneshot::Receiver<CommandOutcome> {
        let answer = self.core.command(osd, msg);
        self.act();
        answer
    }

    /// Handles an event of an OSD session.
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Up(osd, number) => self.core.handle_up(osd, number),
            Event::Down(osd, number) => self.core.handle_down(osd, number),
            Event::Message(osd, number, msg) => self.take_from(osd, number, &msg),
        }
        self.act();
    }

    /// Handles a message from an OSD, or a map from a monitor.
    pub(crate) fn handle_message(&mut self, msg: &RawMessage) {
        self.take(msg);
        self.act();
    }

    fn take_from(&mut self, osd: OsdId, number: u64, msg: &RawMessage) {
        if msg.kind() != MsgType::OSD_BACKOFF {
            return self.take(msg);
        }
        match msg.decode() {
            Ok(backoff) => self.core.handle_backoff(osd, number, backoff),
            Err(e) => tracing::error!("{e}"),
        }
    }

    fn take(&mut self, msg: &RawMessage) {
        let handled = match msg.kind() {
            MsgType::OSD_OP_REPLY => msg.decode().map(|reply| self.core.handle_reply(reply)),
            MsgType::OSD_MAP => msg.decode().map(|maps| self.core.handle_maps(&maps)),
            MsgType::WATCH_NOTIFY => msg.decode().map(|event| self.core.handle_watch_notify(event)),
            MsgType::COMMAND_REPLY => msg
                .decode()
                .map(|reply| self.core.handle_command_reply(msg.header.tid, reply)),
            other => {
                tracing::debug!("unexpected {other}");
                Ok(())
            }
        };
        if let Err(e) = handled {
            tracing::error!("{e}");
        }
    }

    /// Drops requests whose callers have gone.
    pub(crate) fn sweep(&mut self) {
        self.core.sweep();
    }

    fn act(&mut self) {
        while let Some(action) = self.core.poll() {
            match action {
                Action::Open(osd, addr, number) => self.sessions.open(osd, addr, number),
                Action::Close(osd) => self.sessions.close(osd),
                // A session that is lost this very moment is reported, and the core sends again.
                Action::Send(osd, msg) => self.sessions.send(osd, msg),
                Action::Subscribe(from) => self.monc.subscribe("osdmap", u64::from(from)),
                Action::FullMap => self.monc.subscribe_once("osdmap", 0),
                Action::Received(epoch) => self.monc.received("osdmap", u64::from(epoch)),
            }
        }
    }
}

/// A request for `oid`, without tid, epoch and PG.
pub fn request(locator: ObjectLocator, oid: ObjectName) -> MOsdOp {
    MOsdOp {
        tid: 0,
        spg: SpgId::whole(PgId::default()),
        hash: 0,
        epoch: Epoch::NONE,
        flags: OsdFlags::default(),
        explicit_reqid: spirula_maps::ReqId::default(),
        trace: spirula_proto::osd::Trace::default(),
        client_inc: 0,
        mtime: UTime::now(),
        locator,
        oid,
        ops: Vec::new(),
        snapid: spirula_maps::snap::NOSNAP,
        snapc: spirula_maps::SnapContext::default(),
        retry_attempt: 0,
        features: spirula_maps::features::PACIFIC_ALL,
    }
}
