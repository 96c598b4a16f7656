//! The other monitors: links to them, their states, and this monitor's role, which follows from
//! both.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use spirula_cephx::{AuthName, CryptoKey, KeyServer};
use spirula_denc::{UTime, decode_all};
use spirula_maps::{Epoch, MonMap};
use spirula_monc::RefusalLog;
use spirula_msgr::Config;
use spirula_proto::internal::quorum::{
    Forwarded, IdsWanted, MonHello, MonPeer, MonState, MonWelcome, RoutedReply, SessionGone,
};
use tokio::sync::mpsc::UnboundedSender;

use super::Error;
use super::heard::Ears;
use super::link::Link;
use super::seed::Seed;
use super::shell::Shell;
use crate::core::{PeerInfo, SessionId};
use crate::health::DiskUse;
use crate::raft::{Call, Raft, View};

/// How long a wish to be a member counts; it is repeated more often.
const JOIN_FRESH: Duration = Duration::from_secs(3);

/// An event for the daemon's loop, which first applies everything committed.
pub(super) enum Event {
    /// Whether this monitor leads in this term, and has applied everything before it.
    Lead(u64, bool),
    /// The leadership of this term is confirmed for reads.
    Confirmed(u64),
    /// The connection to this address is new.
    Linked(SocketAddr),
    /// Whether a change of the members was made; there may be more to do.
    MembersKept(bool),
    /// The daemon cannot go on.
    Failed(Error),
}

/// The role that was last told to the core.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Leader(u64),
    Peon(String, u64),
    Adrift,
}

/// The other monitors.
pub(super) struct Hub {
    me: MonHello,
    /// Logins that were refused, for the log.
    pub(super) refusals: RefusalLog,
    raft: Raft,
    seed: RefCell<Option<Seed>>,
    dialling: Rc<Config>,
    links: RefCell<BTreeMap<SocketAddr, Rc<Link>>>,
    heard: Ears,
    joins: RefCell<BTreeMap<String, (Instant, MonHello)>>,
    shell: OnceCell<Rc<Shell>>,
    told: RefCell<Told>,
    confirming: Cell<Option<u64>>,
    keeping: Cell<bool>,
    quorum: RefCell<(Vec<String>, UTime)>,
    connections: Cell<u64>,
    disk: Cell<Option<DiskUse>>,
    events: UnboundedSender<Event>,
}

impl Hub {
    pub(super) fn new(
        me: MonHello,
        raft: Raft,
        seed: Option<Seed>,
        dialling: Rc<Config>,
        events: UnboundedSender<Event>,
    ) -> Rc<Self> {
        Rc::new(Self {
            me,
            refusals: RefusalLog::default(),
            raft,
            seed: RefCell::new(seed),
            dialling,
            links: RefCell::default(),
            heard: Ears::default(),
            joins: RefCell::default(),
            shell: OnceCell::new(),
            told: RefCell::new(Told::Adrift),
            confirming: Cell::new(None),
            keeping: Cell::new(false),
            quorum: RefCell::default(),
            connections: Cell::new(0),
            disk: Cell::new(None),
            events,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.me.name
    }

    pub(super) fn me(&self) -> &MonHello {
        &self.me
    }

    pub(super) fn raft(&self) -> &Raft {
        &self.raft
    }

    pub(super) fn shell(&self) -> Option<&Rc<Shell>> {
        self.shell.get()
    }

    pub(super) fn dialling(&self) -> &Rc<Config> {
        &self.dialling
    }

    pub(super) fn hello(&self) -> MonPeer {
        MonPeer::Hello(self.me.clone())
    }

    pub(super) fn report(&self, event: Event) {
        // The loop has ended where nobody listens.
        let _ = self.events.send(event);
    }

    /// The key of `mon.`: committed, or from the seed.
    pub(super) fn shared_key(&self) -> Option<CryptoKey> {
        match self.shell.get() {
            Some(shell) => shell.peek(|c| c.auth().lookup(&AuthName::monitors()).map(|e| e.key)),
            None => self.seed.borrow().as_ref().map(|s| s.key.clone()),
        }
    }

    /// Notes that the monitor is a member, and has a core. Alone it leads already.
    pub(super) fn enter(&self, shell: &Rc<Shell>, view: &View) {
        let _ = self.shell.set(shell.clone());
        self.seed.take();
        if shell.peek(|c| c.view.quorum.leads()) {
            *self.told.borrow_mut() = Told::Leader(view.term);
            *self.quorum.borrow_mut() = (vec![self.me.name.clone()], UTime::now());
        }
    }

    /// A number for a connection from another monitor.
    pub(super) fn connection(&self) -> u64 {
        self.connections.set(self.connections.get() + 1);
        self.connections.get()
    }

    /// Handles another monitor's state, on a connection of this number.
    pub(super) fn hear(&self, connection: u64, state: MonState) {
        if let Some(shell) = self.shell.get() {
            let info = PeerInfo {
                metadata: state.metadata.clone(),
                disk: match state.disk.as_slice() {
                    [total, available, store] if *total > 0 => Some(DiskUse {
                        total: *total,
                        available: *available,
                        store: *store,
                    }),
                    _ => None,
                },
            };
            let follows = matches!(&*self.told.borrow(), Told::Peon(l, _) if *l == state.name);
            shell.with_core(|c| {
                c.see_peer(&state.name, info);
                if follows {
                    c.see_quorum(&state.quorum, state.quorum_since, UTime::now());
                }
            });
        }
        if self.heard.hear(connection, state) {
            self.look();
        }
    }

    /// Notes that a connection from another monitor has ended.
    pub(super) fn hung_up(&self, connection: u64) {
        self.heard.hung_up(connection);
        self.look();
    }

    fn alive(&self, node: u64) -> bool {
        node == self.me.node || self.heard.alive(node)
    }

    /// Whether a monitor is alive and has the cluster's state.
    fn serves(&self, node: u64) -> bool {
        node == self.me.node || self.heard.state(node).is_some_and(|s| s.member)
    }

    /// Whether a monitor that can be heard is a member of the cluster.
    pub(super) fn hears_members(&self) -> bool {
        self.heard.any(|s| s.member)
    }

    /// Whether a monitor of this name is alive and waits as this one does.
    pub(super) fn hears_waiting(&self, name: &str) -> bool {
        self.heard.any(|s| s.name == name && !s.member)
    }

    /// Whether the voting members that are alive are a majority.
    fn majority(&self, view: &View) -> bool {
        let alive = view.voters.keys().filter(|v| self.alive(**v)).count();
        alive * 2 > view.voters.len()
    }

    /// Determines this monitor's role from the log and the others; the core is told of a change.
    pub(super) fn look(&self) {
        let view = self.raft.view();
        if let Some(why) = &view.failed {
            let e = crate::raft::Error::Raft(why.clone());
            self.report(Event::Failed(e.into()));
            return;
        }
        let majority = self.majority(&view);
        self.raft.allow_elections(majority);
        let Some(shell) = self.shell.get() else { return };
        let next = self.standing(&view, majority);
        let told = self.told.borrow().clone();
        match next {
            Some(next) if next != told => self.tell(shell, next, view.term),
            _ => {}
        }
        let alone = self.raft.is_alone();
        if shell.peek(|c| c.view.quorum.alone) != alone {
            shell.with_core(|c| c.see_alone(alone));
        }
        if self.is_leader() {
            self.count_quorum(shell, &view);
        }
    }

    /// This monitor's role; `None` while it is being found out whether it leads.
    fn standing(&self, view: &View, majority: bool) -> Option<Told> {
        if view.leads && majority {
            let leader = Told::Leader(view.term);
            if *self.told.borrow() == leader {
                return Some(leader);
            }
            self.confirm_leadership(view.term);
            return None;
        }
        let reached = view
            .leader
            .filter(|l| view.voters.get(l).is_some_and(|n| self.reaches(&n.addr)));
        let leader = reached.and_then(|l| self.heard.state(l));
        // The leader has to know that it leads: before, it would not accept forwarded messages.
        Some(match leader.filter(|l| l.leader == l.name) {
            Some(l) => Told::Peon(l.name, l.term),
            None => Told::Adrift,
        })
    }

    /// Whether the connection to a monitor is established. One that is heard may still be out of
    /// reach.
    fn reaches(&self, addr: &str) -> bool {
        let link = addr
            .parse()
            .ok()
            .and_then(|a: SocketAddr| self.links.borrow().get(&a).cloned());
        link.is_some_and(|l| l.welcome.borrow().is_some())
    }

    fn tell(&self, shell: &Rc<Shell>, next: Told, term: u64) {
        let now = UTime::now();
        match &next {
            Told::Adrift => tracing::warn!("mon.{} is out of quorum, in term {term}", self.me.name),
            _ => tracing::info!("mon.{} in term {term}: {next:?}", self.me.name),
        }
        *self.told.borrow_mut() = next.clone();
        shell.forget_forwarded();
        match &next {
            Told::Leader(term) => shell.with_core(|c| c.lead(*term, now)),
            Told::Peon(leader, term) => {
                let state = self.raft.view().leader.and_then(|l| self.heard.state(l));
                shell.with_core(|c| {
                    c.follow(leader, *term, now);
                    if let Some(s) = &state {
                        c.see_quorum(&s.quorum, s.quorum_since, now);
                    }
                });
            }
            Told::Adrift => shell.with_core(|c| c.adrift(term, now)),
        }
        self.broadcast();
    }

    /// Handles [`Event::Lead`].
    pub(super) fn leads(&self, term: u64, certain: bool) {
        self.confirming.set(None);
        if !certain {
            return;
        }
        let view = self.raft.view();
        let Some(shell) = self.shell.get() else { return };
        if view.leads && view.term == term && *self.told.borrow() != Told::Leader(term) {
            *self.quorum.borrow_mut() = Default::default();
            self.tell(shell, Told::Leader(term), term);
            self.look();
        }
    }

    fn confirm_leadership(&self, term: u64) {
        if self.confirming.get() == Some(term) {
            return;
        }
        self.confirming.set(Some(term));
        let (raft, events) = (self.raft.clone(), self.events.clone());
        tokio::task::spawn_local(async move {
            let event = match raft.barrier().await {
                Ok(()) => Event::Lead(term, true),
                Err(crate::raft::Error::NotLeader) => Event::Lead(term, false),
                Err(e) => Event::Failed(e.into()),
            };
            let _ = events.send(event);
        });
    }

    /// Determines the monitors in quorum, as the leader.
    fn count_quorum(&self, shell: &Shell, view: &View) {
        let alive = view.voters.iter().filter(|(id, _)| self.serves(**id));
        let mut names: Vec<String> = alive.map(|(id, _)| self.name_of(*id, view)).collect();
        names.sort();
        let changed = self.quorum.borrow().0 != names;
        if changed {
            *self.quorum.borrow_mut() = (names, UTime::now());
        }
        let (names, since) = self.quorum.borrow().clone();
        if changed {
            shell.with_core(|c| c.see_quorum(&names, since, UTime::now()));
            self.broadcast();
        }
    }

    fn name_of(&self, node: u64, view: &View) -> String {
        match view.voters.get(&node) {
            _ if node == self.me.node => self.me.name.clone(),
            Some(n) => n.name.clone(),
            None => String::new(),
        }
    }

    /// Tells the others how this monitor sees the quorum.
    pub(super) fn broadcast(&self) {
        let links: Vec<Rc<Link>> = self.links.borrow().values().cloned().collect();
        if links.is_empty() {
            return;
        }
        let state = MonPeer::State(self.state());
        for link in links {
            link.tell(&state);
        }
    }

    fn state(&self) -> MonState {
        let (quorum, quorum_since) = self.quorum.borrow().clone();
        let disk = self.disk.get().map(|d| vec![d.total, d.available, d.store]);
        let shell = self.shell.get();
        let (leader, monmap_epoch, metadata) = match shell {
            Some(s) => s.peek(|c| {
                let q = c.view.quorum.leader.clone();
                (q, c.view.state.monmap.map.epoch, c.view.me.metadata.clone())
            }),
            None => Default::default(),
        };
        MonState {
            name: self.me.name.clone(),
            node: self.me.node,
            member: shell.is_some(),
            term: self.raft.view().term,
            leader,
            quorum: if self.is_leader() { quorum } else { Vec::new() },
            quorum_since,
            monmap_epoch,
            disk: disk.unwrap_or_else(|| vec![0; 3]),
            metadata,
        }
    }

    /// Sets how full the disk is.
    pub(super) fn disk(&self, disk: Option<DiskUse>) {
        self.disk.set(disk);
    }

    /// Dials these monitors and no others.
    pub(super) fn dial(self: &Rc<Self>, addrs: &BTreeSet<SocketAddr>) {
        let own = self.me.addrs.v2().and_then(|a| a.socket);
        let mut links = self.links.borrow_mut();
        links.retain(|a, _| addrs.contains(a));
        for addr in addrs.iter().filter(|a| Some(**a) != own) {
            links.entry(*addr).or_insert_with(|| Link::start(self, *addr));
        }
    }

    /// The addresses of the monitors that the map and the log's group name.
    fn addresses(&self, map: &MonMap) -> BTreeSet<SocketAddr> {
        let view = self.raft.view();
        let nodes = view.voters.values().chain(view.learners.values());
        let of_nodes = nodes.filter_map(|n| n.addr.parse().ok());
        addresses_in(map).into_iter().chain(of_nodes).collect()
    }

    /// Called regularly: updates links, the others' signs of life, and the members.
    pub(super) fn tick(self: &Rc<Self>) {
        self.heard.prune();
        if let Some(shell) = self.shell.get() {
            let map = shell.peek(|c| c.view.state.monmap.map.clone());
            self.dial(&self.addresses(&map));
            self.look();
            self.check_membership(&map);
            self.keep_members();
        } else {
            self.look();
        }
        self.broadcast();
    }

    /// Ends a monitor that was removed from the map, once it or another knows that the group of the
    /// log can do without it. Until then, however long that takes, the change may need its vote.
    fn check_membership(&self, map: &MonMap) {
        if map.mons.contains_key(&self.me.name) {
            return;
        }
        let links: Vec<Rc<Link>> = self.links.borrow().values().cloned().collect();
        // As long as only this monitor has the entry that says so, the others may need its vote to
        // come to it.
        let Some(settled) = self.settled_voters() else {
            return;
        };
        let mut out = !settled.contains(&self.me.node);
        for link in links {
            out |= link.welcome.borrow().as_ref().is_some_and(|w| self.is_out(w));
            // The answer tells how things stand then.
            link.tell(&self.hello());
        }
        if out {
            self.report(Event::Failed(Error::Removed(self.me.name.clone())));
        }
    }

    /// The voting members that a majority has agreed on; `None` if the store has failed, which ends
    /// the daemon.
    pub(super) fn settled_voters(&self) -> Option<BTreeSet<u64>> {
        match self.raft.settled_voters() {
            Ok(voters) => Some(voters),
            Err(e) => {
                self.report(Event::Failed(e.into()));
                None
            }
        }
    }

    /// Whether another monitor knows that this one was removed, from a newer map and from the log's
    /// group.
    fn is_out(&self, welcome: &MonWelcome) -> bool {
        let Ok(map) = decode_all::<MonMap>(&welcome.monmap) else {
            return false;
        };
        let known = self
            .shell
            .get()
            .map_or(Epoch::NONE, |s| s.peek(|c| c.view.state.monmap.map.epoch));
        let newer = map.epoch >= known && !map.mons.contains_key(&self.me.name);
        newer && !welcome.nodes.contains(&self.me.node)
    }

    /// Notes that the link to a monitor is established.
    pub(super) fn linked(&self, link: &Link) {
        self.broadcast_to(link);
        let out = link.welcome.borrow().as_ref().is_some_and(|w| self.is_out(w));
        if out && self.shell.get().is_some() {
            self.report(Event::Failed(Error::Removed(self.me.name.clone())));
        }
        self.report(Event::Linked(link.addr));
        self.look();
    }

    fn broadcast_to(&self, link: &Link) {
        link.tell(&MonPeer::State(self.state()));
    }

    /// Sends everything again, after the connection to the leader was made anew.
    pub(super) fn relinked(&self, addr: SocketAddr) {
        let Some(shell) = self.shell.get() else { return };
        if self.leader_link().is_some_and(|l| l.addr == addr) {
            shell.with_core(|c| c.relinked(UTime::now()));
        }
    }

    /// The link to the monitor at this address.
    pub(super) fn link(&self, addr: SocketAddr) -> Option<Rc<Link>> {
        self.links.borrow().get(&addr).cloned()
    }

    fn leader_link(&self) -> Option<Rc<Link>> {
        let shell = self.shell.get()?;
        let addr = shell.peek(|c| {
            let leader = c.view.state.monmap.map.mons.get(&c.view.quorum.leader)?;
            leader.public_addrs.v2()?.socket
        })?;
        self.links.borrow().get(&addr).cloned()
    }

    /// Carries a request of the log.
    pub(super) fn carry(&self, call: Call) {
        let addr: Option<SocketAddr> = call.addr.parse().ok();
        let link = addr.and_then(|a| self.links.borrow().get(&a).cloned());
        if let Some(link) = link {
            link.ask(&call.ask, call.answer);
        }
    }

    /// Sends a client's message to the leader.
    pub(super) fn forward(&self, message: Forwarded) {
        if let Some(link) = self.leader_link() {
            link.tell(&MonPeer::Forward(message));
        }
    }

    /// Tells the leader that a client whose messages may have been forwarded is gone.
    pub(super) fn client_gone(&self, session: SessionId) {
        if matches!(*self.told.borrow(), Told::Peon(..))
            && let Some(link) = self.leader_link()
        {
            link.tell(&MonPeer::Gone(SessionGone { session }));
        }
    }

    /// Asks the leader for global ids.
    pub(super) fn ask_ids(&self, nonce: u64) {
        if let Some(link) = self.leader_link() {
            let name = self.me.name.clone();
            link.tell(&MonPeer::NeedIds(IdsWanted { name, nonce }));
        }
    }

    pub(super) fn routed(&self, r: RoutedReply) {
        if let Some(shell) = self.shell.get() {
            shell.with_core(|c| c.routed(r.session, r.message, UTime::now()));
        }
    }

    pub(super) fn close_client(&self, session: SessionId) {
        if let Some(shell) = self.shell.get() {
            shell.end(session);
        }
    }

    pub(super) fn is_leader(&self) -> bool {
        matches!(*self.told.borrow(), Told::Leader(_))
    }

    pub(super) fn is_keeping(&self) -> bool {
        self.keeping.get()
    }

    pub(super) fn set_keeping(&self, keeping: bool) {
        self.keeping.set(keeping);
    }

    pub(super) fn events(&self) -> UnboundedSender<Event> {
        self.events.clone()
    }

    /// The monitors that want to be members.
    pub(super) fn fresh_joins(&self) -> Vec<MonHello> {
        let mut joins = self.joins.borrow_mut();
        joins.retain(|_, (at, _)| at.elapsed() < JOIN_FRESH);
        joins.values().map(|(_, hello)| hello.clone()).collect()
    }

    /// Notes that another monitor wants to be a member.
    pub(super) fn wants_to_join(&self, hello: MonHello) {
        if self.is_leader() && hello.fsid == self.me.fsid && hello.name != self.me.name {
            self.joins
                .borrow_mut()
                .insert(hello.name.clone(), (Instant::now(), hello));
            self.keep_members();
        }
    }

    /// Asks the members to make this monitor one.
    pub(super) fn ask_to_join(&self) {
        let join = MonPeer::Join(self.me.clone());
        for link in self.links.borrow().values() {
            link.tell(&join);
        }
    }

    /// The monitors that the dialled ones know.
    pub(super) fn known_by_others(&self) -> BTreeSet<SocketAddr> {
        let links = self.links.borrow();
        let maps = links.values().filter_map(|l| {
            let welcome = l.welcome.borrow();
            decode_all::<MonMap>(&welcome.as_ref()?.monmap).ok()
        });
        maps.flat_map(|m| addresses_in(&m)).collect()
    }
}

pub(super) fn addresses_in(map: &MonMap) -> BTreeSet<SocketAddr> {
    let infos = map.mons.values();
    infos
        .filter_map(|i| i.public_addrs.v2().and_then(|a| a.socket))
        .collect()
}
