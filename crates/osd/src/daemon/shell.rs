//! The tasks' handle on the daemon's state, and the work that follows each use of it.

use std::cell::RefCell;
use std::rc::Rc;

use spirula_monc::{Guests, MonClient};
use spirula_msgr::Config;
use tokio::sync::Notify;

use super::OsdError;
use super::state::Osd;
use super::{beat_links, links};

/// The configurations of connections to other OSDs.
pub(super) struct Dialer {
    pub(super) mon: MonClient,
    /// For data.
    pub(super) data: Rc<Config>,
    /// For heartbeats.
    pub(super) beats: Rc<Config>,
}

/// The state that the daemon's tasks share.
pub(super) struct Shell {
    osd: RefCell<Osd>,
    pub(super) dialer: Dialer,
    /// The clients.
    pub(super) guests: Guests,
    /// Notified when the store has work.
    pub(super) wake: Notify,
    /// Notified when reads wait for room.
    pub(super) deferred: Notify,
    /// Notified when the daemon is to stop.
    pub(super) stop: Notify,
}

/// A task's handle on the daemon.
pub(super) type Shared = Rc<Shell>;

impl Shell {
    pub(super) fn new(osd: Osd, dialer: Dialer, guests: Guests) -> Shared {
        Rc::new(Self {
            osd: RefCell::new(osd),
            dialer,
            guests,
            wake: Notify::new(),
            deferred: Notify::new(),
            stop: Notify::new(),
        })
    }

    /// Calls `f` on the daemon's state, and has the store work afterwards. Must not be called from
    /// within `f`.
    pub(super) fn with<R>(self: &Rc<Self>, f: impl FnOnce(&mut Osd) -> R) -> R {
        let (r, failed) = {
            let mut osd = self.osd.borrow_mut();
            let r = f(&mut osd);
            self.dial(&mut osd);
            if osd.is_leaving() {
                self.stop.notify_one();
            }
            (r, osd.has_failed())
        };
        if failed {
            self.stop.notify_one()
        } else {
            self.wake.notify_one()
        }
        r
    }

    /// Lets the store work, without asking for more work of it.
    pub(super) fn work(self: &Rc<Self>) {
        let failed = {
            let mut osd = self.osd.borrow_mut();
            osd.work();
            self.dial(&mut osd);
            if osd.io.deferred_bytes().is_some() {
                self.deferred.notify_one();
            }
            osd.has_failed() || osd.is_leaving()
        };
        if failed {
            self.stop.notify_one();
        }
    }

    /// Starts the tasks for the connections that sending has asked for.
    fn dial(self: &Rc<Self>, osd: &mut Osd) {
        for (peer, addr) in osd.wanted_links() {
            let task = tokio::task::spawn_local(links::run(Rc::clone(self), peer, addr)).abort_handle();
            osd.link_started(peer, Box::new(move || task.abort()));
        }
        for (peer, addr) in osd.wanted_beat_links() {
            let task = tokio::task::spawn_local(beat_links::run(Rc::clone(self), peer, addr)).abort_handle();
            osd.beat_link_started(peer, Box::new(move || task.abort()));
        }
    }

    /// The error that made the daemon stop by itself.
    pub(super) fn failure(&self) -> Option<OsdError> {
        self.osd.borrow_mut().take_failure()
    }
}
