//! Operations that outlast a request: watches, and notifications under way. The core routes their
//! events by cookie, and tells when they must be registered anew: their target has changed, or the
//! session was lost. Registrations and pings are in [`crate::watch`].

use spirula_maps::{ObjectLocator, ObjectName, OsdId, OsdMap};
use spirula_proto::osd::MWatchNotify;
use tokio::sync::{mpsc, watch};

use super::core::{Aim, Core, Place, Target};

/// The core's record of a watch or notification.
pub(super) struct Linger {
    oid: ObjectName,
    locator: ObjectLocator,
    target: Option<Target>,
    events: mpsc::UnboundedSender<MWatchNotify>,
    moved: watch::Sender<()>,
}

impl Linger {
    /// Whether its owner has gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }
}

/// The owner's end of a watch or notification.
pub(crate) struct LingerEnd {
    /// Its number within this client.
    pub(crate) cookie: u64,
    /// Notifications, disconnections, completions.
    pub(crate) events: mpsc::UnboundedReceiver<MWatchNotify>,
    /// Changes when the watch must be registered anew.
    pub(crate) moved: watch::Receiver<()>,
}

impl Core {
    /// Begins to route the events of a new watch or notification.
    pub(crate) fn linger(&mut self, oid: ObjectName, locator: ObjectLocator) -> LingerEnd {
        self.last_cookie += 1;
        let cookie = self.last_cookie;
        let (events, receiver) = mpsc::unbounded_channel();
        let (moved, moves) = watch::channel(());
        let linger = Linger {
            oid,
            locator,
            target: None,
            events,
            moved,
        };
        self.lingers.insert(cookie, linger);
        if let Some(map) = self.map().cloned() {
            self.aim_linger(&map, cookie);
        }
        LingerEnd {
            cookie,
            events: receiver,
            moved: moves,
        }
    }

    /// Ends a watch or notification; later events for it are dropped.
    pub(crate) fn unlinger(&mut self, cookie: u64) {
        self.lingers.remove(&cookie);
    }

    /// Routes an event to its watch or notification.
    pub(crate) fn handle_watch_notify(&mut self, event: MWatchNotify) {
        match self.lingers.get(&event.cookie) {
            // The owner may be gone; the record is removed later.
            Some(linger) => drop(linger.events.send(event)),
            None => tracing::debug!("{} for {}, which is no watch", event.event, event.cookie),
        }
    }

    fn aim_linger(&mut self, map: &OsdMap, cookie: u64) {
        let Some(linger) = self.lingers.get(&cookie) else {
            return;
        };
        let (oid, locator) = (linger.oid.clone(), linger.locator.clone());
        let place = Place {
            oid: &oid,
            locator: &locator,
            aim: Aim::Object,
        };
        let target = self.target(map, &place).and_then(|(_, _, target)| target);
        if let Some(linger) = self.lingers.get_mut(&cookie)
            && linger.target != target
        {
            linger.target = target;
            linger.moved.send_replace(());
        }
    }

    pub(super) fn aim_lingers(&mut self, map: &OsdMap) {
        let cookies: Vec<u64> = self.lingers.keys().copied().collect();
        cookies
            .into_iter()
            .for_each(|cookie| self.aim_linger(map, cookie));
    }

    /// Handles the loss of a session with an OSD, and so of the registrations there.
    pub(super) fn lingers_lost(&mut self, osd: OsdId) {
        let there = |l: &&Linger| l.target.as_ref().is_some_and(|t| t.osd == osd);
        for linger in self.lingers.values().filter(there) {
            linger.moved.send_replace(());
        }
    }
}
