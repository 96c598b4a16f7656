//! Several cores as one cluster: messages between them are function calls, the log is a loop over
//! their stores.

use std::collections::{BTreeMap, BTreeSet};

use spirula_cephx::KeyServer;
use spirula_proto::mon::{MMonGetVersion, MMonGetVersionReply};

use super::*;
use crate::core::{Role, TimeAnswer};

struct Member {
    kv: Rc<SharedKv>,
    mon: Monitor,
    up: bool,
    inbox: BTreeMap<SessionId, Vec<RawMessage>>,
    closed: BTreeSet<SessionId>,
    /// Sessions of other monitors' clients: the monitor, and the session's number there.
    through: BTreeMap<SessionId, (usize, SessionId)>,
}

struct Group {
    members: Vec<Member>,
    leader: Option<usize>,
    term: u64,
    now: UTime,
    /// Whether the next proposed transaction gets lost with its leader.
    lose: bool,
    /// How far the clock of `c` is ahead.
    ahead: Duration,
}

fn name(n: usize) -> String {
    char::from(b'a' + n as u8).to_string()
}

fn addrs(n: usize) -> spirula_denc::EntityAddrVec {
    EntityAddr::v2(format!("127.0.0.1:{}", 3300 + n).parse().unwrap(), 0).into()
}

impl Group {
    fn new(size: usize) -> Self {
        let now = UTime::from_secs(1_000_000);
        let mut first = Txn::default();
        let mut monmap = MonMap::initial(Fsid([7; 16]), now);
        for n in 0..size {
            monmap.add(&name(n), addrs(n));
        }
        MonMaps::put(&monmap, &mut first);
        let mut map = OsdMap::new(Fsid([7; 16]), CrushMap::with_default_root("osd").unwrap());
        map.epoch = Epoch::new(1);
        map.require_osd_release = release::PACIFIC;
        OsdMaps::create(&map, &mut first);
        Auth::create(&Keyring::default(), &Ciphers::default(), &mut first);
        let member = |n: usize| {
            let kv = Rc::new(SharedKv::default());
            kv.0.borrow_mut().apply(&first);
            let me = Identity {
                name: name(n),
                addrs: addrs(n),
                ..identity()
            };
            Member {
                mon: Monitor::load(me, kv.clone(), BTreeMap::new(), 1, false, now).unwrap(),
                kv,
                up: true,
                inbox: BTreeMap::new(),
                closed: BTreeSet::new(),
                through: BTreeMap::new(),
            }
        };
        Self {
            members: (0..size).map(member).collect(),
            leader: None,
            term: 1,
            now,
            lose: false,
            ahead: Duration::ZERO,
        }
    }

    /// Makes this monitor lead from now on, if it has a majority; the others follow.
    fn elect(&mut self, leader: usize) {
        self.term += 1;
        let up: Vec<String> = (0..self.members.len())
            .filter(|n| self.members[*n].up)
            .map(name)
            .collect();
        let majority = up.len() * 2 > self.members.len();
        self.leader = majority.then_some(leader);
        for (n, m) in self.members.iter_mut().enumerate().filter(|(_, m)| m.up) {
            m.through.clear();
            match majority {
                true if n == leader => m.mon.lead(self.term, self.now),
                true => m.mon.follow(&name(leader), self.term, self.now),
                false => m.mon.adrift(self.term, self.now),
            }
            if majority {
                m.mon.see_quorum(&up, self.now, self.now);
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let mut all = Vec::new();
            for (n, m) in self.members.iter_mut().enumerate().filter(|(_, m)| m.up) {
                all.extend(m.mon.take_outputs().into_iter().map(|o| (n, o)));
                assert!(m.mon.take_failure().is_none());
            }
            if all.is_empty() {
                return;
            }
            for (n, output) in all {
                self.carry_out(n, output);
            }
        }
    }

    fn carry_out(&mut self, n: usize, output: Output) {
        let (now, leads) = (self.now, self.leader == Some(n));
        match output {
            Output::Send(id, msg) => match self.members[n].through.get(&id).copied() {
                Some((of, number)) => self.members[of].mon.routed(number, msg, now),
                None => self.members[n].inbox.entry(id).or_default().push(msg),
            },
            Output::Close(id) => {
                self.members[n].closed.insert(id);
                self.members[n].mon.close(id, now);
            }
            Output::Propose(_) if std::mem::take(&mut self.lose) => {}
            Output::Propose(txn) => {
                assert!(leads && txn.term == self.term, "a proposal of a deposed leader");
                let news = Applied::Txn {
                    index: 0,
                    txn: Arc::new(txn.clone()),
                };
                for m in self.members.iter_mut().filter(|m| m.up) {
                    m.kv.0.borrow_mut().apply(&txn);
                    m.mon.committed(&news, now);
                }
            }
            Output::Forward(id, msg) => {
                let leader = self.leader.unwrap();
                let through = &self.members[leader].through;
                let known = through.iter().find(|(_, w)| **w == (n, id)).map(|(s, _)| *s);
                let session = known.unwrap_or(1000 * (n as u64 + 1) + id);
                if known.is_none() {
                    let client = self.members[n].mon.client(id).unwrap();
                    let new = NewSession {
                        name: client.name.parse().unwrap(),
                        global_id: client.global_id,
                        caps: client.caps,
                        addr: client.addr,
                        ip: client.ip.parse().ok(),
                        features: client.features,
                        handshake: ServerHandshake::new(),
                    };
                    let m = &mut self.members[leader];
                    m.through.insert(session, (n, id));
                    m.mon.open_forwarded(session, new, &client.host, now);
                }
                self.members[leader].mon.message(session, msg, now);
            }
            Output::StartModule(_) | Output::AskModule(_) | Output::StopModule => {}
            Output::Confirm if leads => self.members[n].mon.confirmed(self.term, now),
            Output::Confirm => {}
            Output::AskIds(nonce) => {
                let leader = self.leader.unwrap();
                self.members[leader].mon.ids_wanted(&name(n), nonce);
            }
            Output::AskTimes(round, names) => {
                let round_trip = Duration::from_millis(10);
                let answer = |ahead| TimeAnswer {
                    round,
                    sent: now,
                    theirs: now.plus(round_trip / 2).plus(ahead),
                    round_trip,
                };
                for who in names {
                    let ahead = if who == "c" { self.ahead } else { Duration::ZERO };
                    let m = &mut self.members[n].mon;
                    m.time_answer(&who, &answer(ahead), now.plus(round_trip));
                }
            }
        }
    }

    fn open(&mut self, n: usize, id: SessionId, who: AuthName, caps: &str) {
        let new = NewSession {
            name: who,
            global_id: 4000 + id,
            caps: caps.into(),
            addr: EntityAddr::v2("127.0.0.1:50000".parse().unwrap(), 1),
            ip: Some([127, 0, 0, 1].into()),
            features: spirula_maps::features::PACIFIC_ALL,
            handshake: ServerHandshake::new(),
        };
        self.members[n].mon.open(id, new, self.now);
        self.settle();
    }

    fn admin(&mut self, n: usize) {
        self.open(n, 1, AuthName::new(EntityType::CLIENT, "admin"), "allow *");
    }

    fn send(&mut self, n: usize, id: SessionId, msg: RawMessage) {
        self.members[n].mon.message(id, msg, self.now);
        self.settle();
    }

    fn command(&mut self, n: usize, tid: u64, json: &str) {
        let m = MMonCommand {
            paxos: PaxosVersion(0),
            fsid: Fsid([7; 16]),
            cmd: vec![json.to_owned()],
            ..MMonCommand::default()
        };
        self.send(n, 1, m.to_message().with_tid(tid));
    }

    /// The results of the commands of the administrator at this monitor, by transaction.
    fn acks(&self, n: usize) -> BTreeSet<(u64, i32)> {
        let all = self.members[n].inbox.get(&1).into_iter().flatten();
        let acks = all.filter(|m| m.kind() == MsgType::MON_COMMAND_ACK);
        let acks: Vec<_> = acks
            .map(|m| (m.header.tid, m.decode::<MMonCommandAck>().unwrap().result))
            .collect();
        let set: BTreeSet<_> = acks.iter().copied().collect();
        assert_eq!(set.len(), acks.len(), "answered twice: {acks:?}");
        set
    }

    fn pass(&mut self, d: Duration) {
        self.now = self.now.plus(d);
        for m in self.members.iter_mut().filter(|m| m.up) {
            m.mon.tick(self.now);
        }
        self.settle();
    }

    fn has_noout(&self, n: usize) -> bool {
        self.members[n]
            .mon
            .view
            .state
            .osd
            .map
            .flags
            .contains(OsdMapFlags::NOOUT)
    }
}

const SET: &str = r#"{"prefix":"osd set","key":"noout"}"#;

#[test]
fn a_command_at_any_monitor_is_the_leaders_and_every_monitor_serves_the_result() {
    let mut g = Group::new(3);
    g.elect(1);
    (0..3).for_each(|n| g.admin(n));
    let what = BTreeMap::from([("osdmap".to_owned(), Subscription { start: 2, flags: 0 })]);
    let subscribe = MMonSubscribe {
        what,
        hostname: String::new(),
    };
    g.send(2, 1, subscribe.to_message());
    g.command(0, 7, SET);
    assert_eq!(g.acks(0), BTreeSet::from([(7, 0)]));
    assert!((0..3).all(|n| g.has_noout(n)));
    let pushed = &g.members[2].inbox[&1];
    assert!(pushed.iter().any(|m| m.kind() == MsgType::OSD_MAP), "{pushed:?}");
    let ask = MMonGetVersion {
        handle: 3,
        what: "osdmap".into(),
    };
    g.send(2, 1, ask.to_message());
    let all = &g.members[2].inbox[&1];
    let reply = all
        .iter()
        .find(|m| m.kind() == MsgType::MON_GET_VERSION_REPLY)
        .unwrap();
    assert_eq!(reply.decode::<MMonGetVersionReply>().unwrap().version, 2);
    // Capabilities count at the leader as they do where the client is.
    g.open(0, 9, AuthName::new(EntityType::CLIENT, "x"), "allow r");
    let unset = MMonCommand {
        cmd: vec![r#"{"prefix":"osd unset","key":"noout"}"#.to_owned()],
        ..MMonCommand::default()
    };
    g.send(0, 9, unset.to_message());
    let ack: MMonCommandAck = g.members[0].inbox[&9][0].decode().unwrap();
    assert_eq!(ack.result, -13);
}

#[test]
fn a_request_that_the_old_leader_took_along_is_answered_by_the_new_one() {
    let mut g = Group::new(3);
    g.elect(0);
    g.admin(0);
    g.admin(1);
    g.lose = true;
    g.command(1, 5, SET);
    g.command(0, 6, r#"{"prefix":"osd dump"}"#);
    // Writes that wait behind the lost proposal have no answer yet; reads have.
    assert!(g.acks(1).is_empty());
    assert_eq!(g.acks(0), BTreeSet::from([(6, 0)]));
    g.elect(2);
    assert_eq!(g.acks(1), BTreeSet::from([(5, 0)]));
    assert!((0..3).all(|n| g.has_noout(n)));
}

#[test]
fn without_a_majority_nothing_is_answered_and_clients_are_sent_away() {
    let mut g = Group::new(3);
    g.elect(0);
    g.admin(0);
    (g.members[1].up, g.members[2].up) = (false, false);
    g.elect(0);
    assert_eq!(g.members[0].mon.view.quorum.role, Role::Adrift);
    g.command(0, 5, SET);
    g.command(0, 6, r#"{"prefix":"status"}"#);
    assert!(g.acks(0).is_empty() && !g.has_noout(0));
    assert!(g.members[0].mon.serves());
    g.members[1].up = true;
    g.elect(1);
    assert_eq!(g.acks(0), BTreeSet::from([(5, 0), (6, 0)]));
    g.members[1].up = false;
    g.elect(0);
    g.pass(Duration::from_secs(6));
    assert!(!g.members[0].mon.serves() && g.members[0].closed.contains(&1));
}

#[test]
fn a_deposed_leader_confirms_no_read() {
    let mut g = Group::new(3);
    g.elect(0);
    g.admin(0);
    // The others have elected another one; it does not know yet.
    g.leader = Some(1);
    g.command(0, 5, r#"{"prefix":"osd dump"}"#);
    assert!(g.acks(0).is_empty());
    g.elect(1);
    assert_eq!(g.acks(0), BTreeSet::from([(5, 0)]));
}

#[test]
fn no_two_monitors_give_the_same_global_id() {
    let mut g = Group::new(3);
    g.elect(0);
    (0..3).for_each(|_| g.pass(Duration::from_millis(250)));
    let mut seen = BTreeSet::new();
    for m in &g.members {
        for _ in 0..100 {
            assert!(seen.insert(m.mon.auth().new_global_id().unwrap()));
        }
    }
    // Nor do they after a restart.
    let m = &g.members[2];
    let me = m.mon.view.me.clone();
    let mut again = Monitor::load(me, m.kv.clone(), BTreeMap::new(), 9, false, g.now).unwrap();
    assert_eq!(again.auth().new_global_id(), None);
    again.follow("a", g.term, g.now);
    g.members[2].mon = again;
    (0..3).for_each(|_| g.pass(Duration::from_millis(250)));
    assert!(seen.insert(g.members[2].mon.auth().new_global_id().unwrap()));
}

#[test]
fn an_osd_tells_a_new_leader_everything_and_is_not_missed_with_its_monitor() {
    let mut g = Group::new(3);
    g.elect(0);
    let osd = AuthName::new(EntityType::OSD, "0");
    g.open(1, 100, osd.clone(), "allow profile osd");
    let addr = |port: i32| EntityAddr::v2(format!("127.0.0.1:{port}").parse().unwrap(), 9).into();
    let boot = OsdBoot {
        osd: OsdId::new(0),
        fsid: Fsid([7; 16]),
        uuid: Fsid([1; 16]),
        public_addrs: addr(6800),
        cluster_addrs: addr(6801),
        ..OsdBoot::default()
    };
    g.send(1, 100, OsdReport::Boot(boot).to_message());
    assert!((0..3).all(|n| g.members[n].mon.view.state.osd.map.is_up(OsdId::new(0))));
    // Its monitor dies: the OSD may be alive.
    let session = *g.members[0].through.keys().next().unwrap();
    g.members[0].mon.forget(session);
    g.pass(Duration::from_secs(5));
    assert!(g.members[0].mon.view.state.osd.map.is_up(OsdId::new(0)));
    g.elect(2);
    assert!(
        g.members[1].closed.contains(&100),
        "it has to report to the new leader"
    );
}

#[test]
fn health_and_status_name_the_monitors_that_are_away() {
    let mut g = Group::new(3);
    g.elect(0);
    g.admin(0);
    g.members[2].up = false;
    g.elect(1);
    let health = g.members[1].mon.view.health();
    let down = &health["MON_DOWN"];
    assert_eq!(down.summary, "1/3 mons down, quorum a,b");
    assert_eq!(
        down.detail,
        ["mon.c (rank 2) addr v2:127.0.0.1:3302/0 is down (out of quorum)"]
    );
    g.command(0, 1, r#"{"prefix":"mon stat"}"#);
    let ack: MMonCommandAck = g.members[0].inbox[&1].last().unwrap().decode().unwrap();
    let text = String::from_utf8_lossy(&ack.output.to_bytes()).into_owned();
    assert!(text.ends_with("leader 1 b, quorum 0,1 a,b"), "{text}");
}

#[test]
fn the_leader_warns_of_monitors_whose_clocks_differ() {
    let mut g = Group::new(3);
    g.elect(0);
    g.admin(0);
    let second = Duration::from_secs(1);
    g.pass(second);
    let status = |g: &mut Group, tid| -> serde_json::Value {
        g.command(0, tid, r#"{"prefix":"time-sync-status","format":"json"}"#);
        let acks = g.members[0].inbox[&1].iter();
        let ack = acks.rev().find(|m| m.header.tid == tid).unwrap();
        let ack: MMonCommandAck = ack.decode().unwrap();
        serde_json::from_slice(&ack.output.to_bytes()).unwrap()
    };
    let s = status(&mut g, 1);
    assert_eq!(s["timechecks"]["round"], 2);
    assert_eq!(s["timechecks"]["round_status"], "finished");
    assert_eq!(s["time_skew_status"]["c"]["health"], "HEALTH_OK");
    assert!(!g.members[0].mon.view.health().contains_key("MON_CLOCK_SKEW"));
    // The next round comes after five minutes, and finds a difference.
    g.ahead = Duration::from_millis(300);
    for _ in 0..301 {
        g.pass(second);
    }
    let check = g.members[0].mon.view.health().remove("MON_CLOCK_SKEW").unwrap();
    assert_eq!(check.summary, "clock skew detected on mon.c");
    assert_eq!(
        check.detail,
        ["mon.c clock skew 0.285s > max 0.05s (latency 0.01s)"]
    );
    let s = status(&mut g, 2);
    let c = &s["time_skew_status"]["c"];
    assert_eq!(
        (&c["health"], &c["details"]),
        (&"HEALTH_WARN".into(), &"clock skew 0.285s > max 0.05s".into())
    );
    // From then on it is looked at more often.
    g.ahead = Duration::ZERO;
    for _ in 0..31 {
        g.pass(second);
    }
    assert!(!g.members[0].mon.view.health().contains_key("MON_CLOCK_SKEW"));
    // A new quorum starts anew.
    g.elect(0);
    assert_eq!(status(&mut g, 3)["timechecks"]["round"], 0);
}
