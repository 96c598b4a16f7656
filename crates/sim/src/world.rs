//! A cluster and all its events, one after the other.

use std::collections::BTreeMap;
use std::rc::Rc;

use spirula_denc::Fsid;

use crate::client::ClientNode;
use crate::clock::Clock;
use crate::fault::Weather;
use crate::history::History;
use crate::mon::{MonEvent, Mons};
use crate::net::{Network, Node};
use crate::osd::{OsdNode, Timer};
use crate::setup::{Failure, Setup};
use crate::trace::Trace;
use spirula_maps::OsdId;
use spirula_random::Rng;

/// The cluster's id.
pub(crate) const FSID: Fsid = Fsid([7; 16]);
/// A run with more events than this within a second of virtual time is in an endless loop.
const MOST_EVENTS: u64 = 400_000;

/// An event at a time.
#[derive(Debug)]
pub(crate) enum Event {
    /// The first packet of this connection arrives.
    Dial(u64),
    /// This connection is established, as the end that made it sees it.
    Dialled(u64),
    /// This connection can't be made; says whether it was refused.
    DialFailed(u64, bool),
    /// A message arrives on this connection, at this end.
    Deliver(u64, usize),
    /// This connection is over, as this end sees it.
    Broken(u64, usize),
    /// A timed event of an OSD, in this life of its process.
    Osd(OsdId, u64, Timer),
    /// An event of a monitor, or of all.
    Mon(MonEvent),
    /// A client looks for a monitor, in this life of its process.
    Hunt(Node, u64),
    /// A client checks whether its monitor is silent, on this connection.
    Listen(Node, u64),
    /// A client reconnects to an OSD, under this number.
    Redial(usize, OsdId, u64),
    /// A client's worker begins its next request.
    Work(usize, u64, usize),
    /// A fault is injected.
    Disturb,
    /// A fault ends.
    Mend(crate::fault::Mend),
}

/// The cluster.
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) clock: Rc<Clock>,
    pub(crate) rng: Rng,
    queue: BTreeMap<(u64, u64), Event>,
    last_event: u64,
    pub(crate) net: Network,
    pub(crate) mons: Mons,
    pub(crate) osds: BTreeMap<OsdId, OsdNode>,
    pub(crate) clients: Vec<ClientNode>,
    pub(crate) history: History,
    pub(crate) weather: Weather,
    pub(crate) trace: Trace,
    /// The factor by which disks are slower than in other runs.
    pub(crate) slowness: u64,
    /// The factor by which the monitors' stores are slower than in other runs.
    pub(crate) mon_slowness: u64,
    /// The first broken guarantee.
    pub(crate) failure: Option<String>,
}

impl World {
    pub(crate) fn new(seed: u64, setup: &Setup) -> Result<Self, Failure> {
        let mut rng = Rng::new(seed);
        let clock = Rc::new(Clock::default());
        clock.set(1);
        let mons = Mons::new(setup.mons, &clock).map_err(|what| Failure { what, at: 0 })?;
        let slow_net = rng.one_in(4);
        let slowness = match rng.below(4) {
            0 => rng.between(5, 60),
            _ => 1,
        };
        let mon_slowness = match rng.below(4) {
            0 => rng.between(20, 300),
            _ => 1,
        };
        let mut world = Self {
            net: Network::new(slow_net),
            slowness,
            mon_slowness,
            setup: setup.clone(),
            rng,
            clock,
            queue: BTreeMap::new(),
            last_event: 0,
            mons,
            osds: BTreeMap::new(),
            clients: Vec::new(),
            history: History::default(),
            weather: Weather::default(),
            trace: Trace::default(),
            failure: None,
        };
        world.start_mons();
        for id in OsdId::below(setup.osds) {
            world.add_osd(id);
        }
        for _ in 0..setup.clients {
            world.add_client();
        }
        Ok(world)
    }

    /// Schedules an event for a time.
    pub(crate) fn at(&mut self, usec: u64, event: Event) {
        self.last_event += 1;
        self.queue
            .insert((usec.max(self.clock.usec()), self.last_event), event);
    }

    /// Schedules an event in this many microseconds.
    pub(crate) fn after(&mut self, usec: u64, event: Event) {
        self.at(self.clock.usec() + usec, event);
    }

    /// Records a broken guarantee.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.failure.get_or_insert(what.into());
    }

    /// Whether a node's host has power.
    pub(crate) fn has_power(&self, node: Node) -> bool {
        match node {
            Node::Osd(o) => self.osds.get(&o).is_some_and(|n| n.powered),
            Node::Mon(_) | Node::Client(_) => true,
        }
    }

    /// Lets this many microseconds pass, or fewer if `done` returns true.
    pub(crate) fn run(&mut self, usec: u64, mut done: impl FnMut(&Self) -> bool) -> Result<(), Failure> {
        let end = self.clock.usec() + usec;
        let (mut second, mut events) = (0, 0);
        while let Some(first) = self.queue.first_entry().filter(|e| e.key().0 <= end) {
            let ((at, _), event) = first.remove_entry();
            self.clock.set(at);
            events = if at / crate::clock::SECOND == second {
                events + 1
            } else {
                0
            };
            second = at / crate::clock::SECOND;
            self.trace.event(at, &event);
            self.happen(event);
            if events > MOST_EVENTS {
                self.fail("turns in a circle");
            }
            if let Some(what) = self.failure.take() {
                return Err(Failure { what, at });
            }
            if done(self) {
                return Ok(());
            }
        }
        self.clock.set(end);
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Dial(c) => self.on_dial(c),
            Event::Dialled(c) => self.on_dialled(c),
            Event::DialFailed(c, refused) => self.on_dial_failed(c, refused),
            Event::Deliver(c, to) => self.on_deliver(c, to),
            Event::Broken(c, end) => self.on_broken(c, end),
            Event::Osd(id, life, timer) => self.on_osd_timer(id, life, timer),
            Event::Mon(event) => self.on_mon(event),
            Event::Hunt(node, life) => self.on_hunt(node, life),
            Event::Listen(node, conn) => self.on_listen(node, conn),
            Event::Redial(client, osd, number) => self.on_redial(client, osd, number),
            Event::Work(client, life, worker) => self.on_work(client, life, worker),
            Event::Disturb => self.on_disturb(),
            Event::Mend(mend) => self.on_mend(mend),
        }
    }
}
