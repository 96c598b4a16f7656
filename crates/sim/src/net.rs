//! The network: connections between nodes, each direction a queue that keeps its order, as TCP
//! does.
//!
//! Where no packet passes from one node to another, messages wait in their queue and arrive late,
//! when the path is whole again and the connection still stands. A connection that breaks loses
//! what is on its way; its ends learn of it each in its own time.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use spirula_denc::EntityAddr;
use spirula_maps::OsdId;
use spirula_msgr::Sender;
use spirula_osd::BeatPeer;
use spirula_osd::pg::link::LinkPeer;
use spirula_proto::RawMessage;

use crate::clock::SECOND;
use crate::world::{Event, World};

/// How long an attempt to connect to a silent host takes.
const CONNECT_TIMEOUT: u64 = 10 * SECOND;
/// How often an end repeats its notice of a closed connection while the path is blocked.
const TELL_AGAIN: u64 = SECOND / 2;

/// A process with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Node {
    Mon(usize),
    Osd(OsdId),
    Client(usize),
}

/// The purpose of a connection, as the end that made it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A session with a monitor.
    Monitor,
    /// From one OSD to another.
    Data(LinkPeer),
    /// For heartbeats.
    Beats(BeatPeer),
    /// A client's session with an OSD, and the client's number for it.
    Client(OsdId, u64),
}

/// One end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection is not made yet.
    Waiting,
    Open,
    Closed,
}

/// The messages in one direction.
#[derive(Default)]
struct Flight {
    messages: VecDeque<RawMessage>,
    /// How many of them would have arrived if the path had not been blocked.
    due: usize,
    /// When the last one arrives.
    last: u64,
}

/// A connection, or an attempt to make one. The first end made it.
pub(crate) struct Conn {
    pub(crate) ends: [Node; 2],
    lives: [u64; 2],
    pub(crate) kind: Kind,
    pub(crate) addr: EntityAddr,
    pub(crate) senders: [Sender; 2],
    pub(crate) state: [End; 2],
    /// Set when the end that made the connection drops it.
    pub(crate) cut: Rc<Cell<bool>>,
    /// Towards either end.
    flights: [Flight; 2],
    /// The second end's number for it.
    pub(crate) number: u64,
    /// Since when the path has been blocked, as the first end last saw.
    silent_since: Option<u64>,
}

/// The description of a connection that is over.
#[derive(Clone)]
pub(crate) struct Label {
    pub(crate) ends: [Node; 2],
    pub(crate) kind: Kind,
    pub(crate) addr: EntityAddr,
    pub(crate) cut: Rc<Cell<bool>>,
    pub(crate) number: u64,
}

impl Conn {
    fn label(&self) -> Label {
        Label {
            ends: self.ends,
            kind: self.kind,
            addr: self.addr,
            cut: Rc::clone(&self.cut),
            number: self.number,
        }
    }
}

/// All connections and paths.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) conns: BTreeMap<u64, Conn>,
    of: BTreeMap<Node, BTreeSet<u64>>,
    last: u64,
    /// Blocked paths, from one node to another.
    pub(crate) blocked: BTreeSet<(Node, Node)>,
    /// Packets take longer than usual, in some runs.
    pub(crate) slow: bool,
}

impl Network {
    pub(crate) fn new(slow: bool) -> Self {
        Self {
            slow,
            ..Self::default()
        }
    }

    pub(crate) fn passes(&self, from: Node, to: Node) -> bool {
        !self.blocked.contains(&(from, to))
    }

    /// Whether packets pass both ways.
    pub(crate) fn joined(&self, a: Node, b: Node) -> bool {
        self.passes(a, b) && self.passes(b, a)
    }

    /// The connections of a node.
    pub(crate) fn of(&self, node: Node) -> Vec<u64> {
        self.of.get(&node).into_iter().flatten().copied().collect()
    }

    fn remove_if_over(&mut self, id: u64) {
        let Some(c) = self.conns.get(&id) else { return };
        if c.state != [End::Closed; 2] {
            return;
        }
        for end in c.ends {
            if let Some(all) = self.of.get_mut(&end) {
                all.remove(&id);
            }
        }
        self.conns.remove(&id);
    }
}

impl World {
    /// How long a packet takes.
    pub(crate) fn latency(&mut self) -> u64 {
        let usual = self.rng.between(50, 600);
        match self.rng.below(if self.net.slow { 5 } else { 40 }) {
            0 => usual + self.rng.between(1_000, 60_000),
            _ => usual,
        }
    }

    fn life(&self, node: Node) -> u64 {
        match node {
            Node::Mon(m) => self.mons.life(m),
            Node::Osd(o) => self.osds.get(&o).map_or(0, |n| n.life),
            Node::Client(c) => self.clients.get(c).map_or(0, |n| n.life),
        }
    }

    /// Connects.
    pub(crate) fn dial(&mut self, from: Node, kind: Kind, addr: EntityAddr, cut: Rc<Cell<bool>>) -> u64 {
        self.net.last += 1;
        let id = self.net.last;
        // An address at which nobody ever was leads nowhere.
        let to = addr.socket.and_then(|s| self.who(s)).unwrap_or(from);
        let conn = Conn {
            ends: [from, to],
            lives: [self.life(from), self.life(to)],
            kind,
            addr,
            senders: [Sender::detached(), Sender::detached()],
            state: [End::Waiting; 2],
            cut,
            flights: Default::default(),
            number: 0,
            silent_since: None,
        };
        self.net.conns.insert(id, conn);
        for end in [from, to] {
            self.net.of.entry(end).or_default().insert(id);
        }
        let after = self.latency();
        self.after(after, Event::Dial(id));
        id
    }

    fn who(&self, addr: SocketAddr) -> Option<Node> {
        let osds = self.osds.iter().map(|(id, n)| (Node::Osd(*id), n.addrs));
        let of_osd = |(node, a): (Node, spirula_osd::Addrs)| {
            let all = [a.public, a.cluster, a.heartbeat_back, a.heartbeat_front];
            all.iter().any(|a| a.socket == Some(addr)).then_some(node)
        };
        self.mons
            .at(addr)
            .map(Node::Mon)
            .or_else(|| osds.into_iter().find_map(of_osd))
    }

    /// Handles the arrival of a connection's first packet.
    pub(crate) fn on_dial(&mut self, id: u64) {
        let Some((ends, addr, kind)) = self.wanted(id) else {
            return;
        };
        if ends[0] == ends[1] || !self.net.joined(ends[0], ends[1]) || !self.has_power(ends[1]) {
            return self.after(CONNECT_TIMEOUT, Event::DialFailed(id, false));
        }
        let accepted = match ends[1] {
            Node::Mon(m) => self.mon_accept(m, id, ends[0]),
            Node::Osd(o) => self.osd_accept(o, id, ends[0], kind, addr),
            Node::Client(_) => Err(true),
        };
        let after = self.latency();
        match accepted {
            Ok(number) => {
                let life = self.life(ends[1]);
                if let Some(c) = self.net.conns.get_mut(&id) {
                    (c.number, c.state[1], c.lives[1]) = (number, End::Open, life);
                }
                self.drain(ends[1]);
                self.after(after, Event::Dialled(id));
            }
            Err(refused) => self.after(after, Event::DialFailed(id, refused)),
        }
    }

    /// An attempt to connect that is still wanted; one that is not is ended.
    fn wanted(&mut self, id: u64) -> Option<([Node; 2], EntityAddr, Kind)> {
        let c = self.net.conns.get(&id)?;
        let found = (c.ends, c.addr, c.kind);
        if c.state[0] == End::Waiting && !c.cut.get() && c.lives[0] == self.life(c.ends[0]) {
            return Some(found);
        }
        self.close_end(id, 0);
        None
    }

    pub(crate) fn on_dialled(&mut self, id: u64) {
        let Some((ends, addr, kind)) = self.wanted(id) else {
            return;
        };
        let Some(c) = self.net.conns.get_mut(&id) else {
            return;
        };
        c.state[0] = End::Open;
        let sender = c.senders[0].clone();
        let wanted = match ends[0] {
            Node::Osd(o) => self.osd_dialled(o, id, kind, addr, &sender),
            Node::Client(n) => self.client_dialled(n, id, kind, sender),
            Node::Mon(_) => false,
        };
        if !wanted {
            self.close_end(id, 0);
        }
        // Delivers messages that came before this end was ready.
        self.arrive_late(id, 0);
        self.drain(ends[0]);
    }

    pub(crate) fn on_dial_failed(&mut self, id: u64, refused: bool) {
        let Some((ends, addr, kind)) = self.wanted(id) else {
            return;
        };
        if let Some(c) = self.net.conns.get_mut(&id) {
            c.state = [End::Closed; 2];
        }
        self.net.remove_if_over(id);
        match ends[0] {
            Node::Osd(o) => self.osd_dial_failed(o, kind, addr, refused),
            Node::Client(c) => self.client_dial_failed(c, kind),
            Node::Mon(_) => {}
        }
    }

    /// Sends the messages of a node, and ends the connections that it has closed.
    pub(crate) fn drain(&mut self, node: Node) {
        for id in self.net.of(node) {
            for end in 0..2 {
                let Some(c) = self.net.conns.get(&id) else { break };
                if c.ends[end] != node || c.state[end] != End::Open {
                    continue;
                }
                let (sender, cut) = (c.senders[end].clone(), end == 0 && c.cut.get());
                let label = c.label();
                if !cut {
                    for msg in sender.take() {
                        self.launch(id, 1 - end, msg);
                    }
                }
                if cut || sender.is_closed() {
                    self.close_end(id, end);
                    if !cut {
                        self.end_lost(&label, end);
                    }
                }
            }
        }
    }

    fn launch(&mut self, id: u64, to: usize, msg: RawMessage) {
        let now = self.clock.usec();
        let latency = self.latency();
        let Some(c) = self.net.conns.get_mut(&id) else {
            return;
        };
        let flight = &mut c.flights[to];
        flight.last = (now + latency).max(flight.last + 1);
        flight.messages.push_back(msg);
        let at = flight.last;
        self.at(at, Event::Deliver(id, to));
    }

    /// Delivers a message, unless the path is blocked.
    pub(crate) fn on_deliver(&mut self, id: u64, to: usize) {
        let Some(c) = self.net.conns.get_mut(&id) else {
            return;
        };
        let (from, node) = (c.ends[1 - to], c.ends[to]);
        if c.state[to] == End::Closed {
            c.flights[to].messages.clear();
            return;
        }
        if c.state[to] == End::Waiting
            || !self.net.blocked.is_empty() && self.net.blocked.contains(&(from, node))
        {
            c.flights[to].due += 1;
            return;
        }
        let Some(msg) = c.flights[to].messages.pop_front() else {
            return;
        };
        let (kind, number) = (c.kind, c.number);
        self.trace.message(from, node, &msg);
        match (node, to) {
            (Node::Mon(m), _) => self.mon_message(m, number, msg),
            (Node::Osd(o), 0) => self.osd_answered(o, id, kind, &msg),
            (Node::Osd(o), _) => self.osd_asked(o, id, from, kind, number, &msg),
            (Node::Client(c), _) => self.client_message(c, kind, &msg),
        }
    }

    /// Delivers the messages that were held back towards an end.
    fn arrive_late(&mut self, id: u64, to: usize) {
        let Some(c) = self.net.conns.get_mut(&id) else {
            return;
        };
        for _ in 0..std::mem::take(&mut c.flights[to].due) {
            let (now, latency) = (self.clock.usec(), self.latency());
            let Some(c) = self.net.conns.get_mut(&id) else {
                return;
            };
            let flight = &mut c.flights[to];
            flight.last = (now + latency).max(flight.last + 1);
            let at = flight.last;
            self.at(at, Event::Deliver(id, to));
        }
    }

    /// Unblocks all paths.
    pub(crate) fn join_all(&mut self) {
        self.net.blocked.clear();
        for id in self.net.conns.keys().copied().collect::<Vec<_>>() {
            self.arrive_late(id, 0);
            self.arrive_late(id, 1);
        }
    }

    /// Closes one end, and notifies the other one later.
    pub(crate) fn close_end(&mut self, id: u64, end: usize) {
        let latency = self.latency();
        let Some(c) = self.net.conns.get_mut(&id) else {
            return;
        };
        c.state[end] = End::Closed;
        c.senders[end].fail();
        if c.state[1 - end] == End::Waiting && end == 0 {
            c.state[1] = End::Closed;
        }
        let after = (c.flights[1 - end].last.saturating_sub(self.clock.usec())).max(latency);
        if c.state[1 - end] != End::Closed {
            self.after(after, Event::Broken(id, 1 - end));
        }
        self.net.remove_if_over(id);
    }

    /// Notifies an end that the connection is over, unless the path is blocked.
    pub(crate) fn on_broken(&mut self, id: u64, end: usize) {
        let Some(c) = self.net.conns.get(&id) else { return };
        if c.state[end] == End::Closed {
            return;
        }
        let other = c.ends[1 - end];
        if c.state[1 - end] == End::Closed && (!self.net.passes(other, c.ends[end]) || !self.has_power(other))
        {
            return self.after(TELL_AGAIN, Event::Broken(id, end));
        }
        if c.state[end] == End::Waiting {
            return self.on_dial_failed(id, false);
        }
        let label = c.label();
        self.close_end(id, end);
        self.end_lost(&label, end);
    }

    /// Tells a process that a connection is over.
    fn end_lost(&mut self, label: &Label, end: usize) {
        match (label.ends[end], end) {
            (Node::Osd(o), 0) => self.osd_lost(o, label),
            (Node::Osd(o), _) => self.osd_left(o, label),
            (Node::Mon(m), _) => self.mon_left(m, label.number),
            (Node::Client(c), _) => self.client_lost(c, label),
        }
    }

    /// Closes a connection on behalf of the end that made it.
    pub(crate) fn leave(&mut self, id: u64) {
        if let Some(c) = self.net.conns.get(&id).filter(|c| c.state[0] == End::Open) {
            let label = c.label();
            self.close_end(id, 0);
            self.end_lost(&label, 0);
        }
    }

    /// Breaks a connection: both ends learn of it at some time.
    pub(crate) fn break_conn(&mut self, id: u64) {
        for end in 0..2 {
            let after = self.latency() + self.rng.below(50_000);
            self.after(after, Event::Broken(id, end));
        }
    }

    /// Drops the connections of an ended process. The other ends learn of it at once, or if its
    /// host lost its power, when that is back.
    pub(crate) fn drop_conns(&mut self, node: Node) {
        for id in self.net.of(node) {
            for end in 0..2 {
                let Some(c) = self.net.conns.get(&id) else { break };
                if c.ends[end] == node && c.state[end] != End::Closed {
                    self.close_end(id, end);
                }
            }
        }
    }

    /// Whether a session with a monitor has been silent for longer than `limit`.
    pub(crate) fn is_silent(&mut self, id: u64, limit: u64) -> bool {
        let now = self.clock.usec();
        let Some(c) = self.net.conns.get(&id) else {
            return false;
        };
        let whole = self.net.joined(c.ends[0], c.ends[1]) && self.has_power(c.ends[1]);
        let Some(c) = self.net.conns.get_mut(&id) else {
            return false;
        };
        if whole {
            c.silent_since = None;
            return false;
        }
        now - *c.silent_since.get_or_insert(now) >= limit
    }
}
