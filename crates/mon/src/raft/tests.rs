//! Groups of real nodes over real files; the network is a function call that may be cut.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use spirula_proto::internal::quorum::{AppendAsk, MonPeer, MonPeerReply};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::kv::KvRead;

/// Runs a test in a directory of its own.
fn with_dir(name: &str, f: impl AsyncFn(&Path)) {
    let dir = std::env::temp_dir().join(format!("spirula-mon-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&rt, f(&dir));
    std::fs::remove_dir_all(dir).unwrap();
}

fn put(n: u64) -> Arc<Txn> {
    let mut t = Txn::default();
    t.put("test", format!("{n:05}"), n.to_le_bytes().to_vec());
    Arc::new(t)
}

async fn alone(store: &Store) -> (Raft, UnboundedReceiver<Applied>) {
    let (calls, _) = unbounded_channel();
    let (raft, rx) = Raft::start(store.clone(), calls).await.unwrap();
    raft.found(Node::default()).await.unwrap();
    raft.lead_alone().await.unwrap();
    (raft, rx)
}

#[test]
fn what_is_acknowledged_is_there_after_a_restart() {
    with_dir("restart", async |dir| {
        for round in 0..3u64 {
            let store = Store::open(&dir.join("store.db")).unwrap();
            let (raft, mut rx) = alone(&store).await;
            assert_eq!(store.scan("test").unwrap().len() as u64, round * 10);
            for n in 0..10 {
                raft.propose(put(round * 10 + n)).await.unwrap();
            }
            let mut seen = 0;
            while let Ok(Applied::Txn { .. }) = rx.try_recv() {
                seen += 1;
            }
            assert!(seen >= 10, "every committed transaction is reported");
            raft.shutdown().await.unwrap();
        }
    });
}

#[test]
fn the_log_is_purged() {
    with_dir("purge", async |dir| {
        let store = Store::open(&dir.join("store.db")).unwrap();
        let (raft, _rx) = alone(&store).await;
        for n in 0..1500 {
            raft.propose(put(n)).await.unwrap();
        }
        raft.shutdown().await.unwrap();
        assert!(store.entries::<Tokio>(0, u64::MAX).unwrap().len() < 1100);
    });
}

#[test]
fn a_transaction_of_another_term_does_not_count() {
    with_dir("term", async |dir| {
        let store = Store::open(&dir.join("store.db")).unwrap();
        let (raft, _rx) = alone(&store).await;
        let term = raft.view().term;
        for (n, term) in [(1, term), (2, term + 1), (3, 0)] {
            let mut txn = (*put(n)).clone();
            txn.term = term;
            raft.propose(Arc::new(txn)).await.unwrap();
        }
        raft.shutdown().await.unwrap();
        let keys: Vec<_> = store.scan("test").unwrap().into_iter().map(|(k, _)| k).collect();
        assert_eq!(keys, ["00001", "00003"]);
    });
}

/// Monitors that reach each other unless they are cut off.
#[derive(Clone, Default)]
struct Net {
    nodes: Rc<RefCell<BTreeMap<String, Raft>>>,
    cut: Rc<RefCell<BTreeSet<String>>>,
}

struct Member {
    name: String,
    raft: Raft,
    store: Store,
    _applied: UnboundedReceiver<Applied>,
}

impl Net {
    async fn start(&self, dir: &Path, name: &str) -> Member {
        let path: PathBuf = dir.join(format!("{name}.db"));
        let is_new = !path.exists();
        let store = Store::open(&path).unwrap();
        if is_new {
            let number = u64::from(crc32c::crc32c(
                format!("{name}{}", self.nodes.borrow().len()).as_bytes(),
            ));
            store.plant(number + 1, b"").unwrap();
        }
        let (calls, mut queue) = unbounded_channel::<Call>();
        let (raft, applied) = Raft::start(store.clone(), calls).await.unwrap();
        self.nodes.borrow_mut().insert(name.to_owned(), raft.clone());
        let (net, me) = (self.clone(), name.to_owned());
        tokio::task::spawn_local(async move {
            while let Some(call) = queue.recv().await {
                let (net, me) = (net.clone(), me.clone());
                tokio::task::spawn_local(async move { net.carry(&me, call).await });
            }
        });
        Member {
            name: name.to_owned(),
            raft,
            store,
            _applied: applied,
        }
    }

    async fn carry(&self, from: &str, call: Call) {
        let is_cut = [from, call.addr.as_str()]
            .iter()
            .any(|n| self.cut.borrow().contains(*n));
        let target = self.nodes.borrow().get(&call.addr).cloned();
        let Some(target) = target.filter(|_| !is_cut) else {
            return;
        };
        // Through the encoded form, as on the wire.
        let ask: MonPeer = spirula_proto::Payload::to_message(&call.ask).decode().unwrap();
        let me = target.id();
        let answer = match ask {
            MonPeer::Vote(a) if a.target == me => target.handle_vote(&a).await.map(MonPeerReply::Vote),
            MonPeer::Append(a) if a.target == me => target.handle_append(&a).await.map(MonPeerReply::Append),
            MonPeer::Snapshot(p) if p.target == me => {
                target.handle_snapshot(p).await.map(MonPeerReply::Snapshot)
            }
            _ => return,
        };
        // A node that was shut down does not answer.
        if let Ok(answer) = answer {
            let _ = call.answer.send(answer);
        }
    }

    fn node(&self, m: &Member) -> Node {
        Node {
            addr: m.name.clone(),
            name: m.name.clone(),
        }
    }

    /// A group of these members, led by the first.
    async fn group(&self, dir: &Path, names: &[&str]) -> Vec<Member> {
        let mut all = Vec::new();
        for name in names {
            let m = self.start(dir, name).await;
            match all.first() {
                None => {
                    m.raft.found(self.node(&m)).await.unwrap();
                    m.raft.lead_alone().await.unwrap();
                }
                Some(first) => {
                    let first: &Member = first;
                    first
                        .raft
                        .admit(m.raft.id(), self.node(&m), &BTreeSet::new())
                        .await
                        .unwrap();
                }
            }
            all.push(m);
        }
        all
    }
}

async fn until(what: &str, within: Duration, f: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + within;
    while !f() {
        assert!(tokio::time::Instant::now() < end, "{what} takes too long");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Has the leader do something; on a busy machine another member may come to lead meanwhile.
async fn led(members: &[&Member], f: impl AsyncFn(&Raft) -> Result<(), Error>) {
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        for m in members.iter().filter(|m| m.raft.view().leads) {
            if f(&m.raft).await.is_ok() {
                return;
            }
        }
        assert!(tokio::time::Instant::now() < end, "nobody leads for long");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn count(m: &Member) -> usize {
    m.store.scan("test").unwrap().len()
}

#[test]
fn the_leader_goes_and_another_one_takes_over_with_everything() {
    with_dir("failover", async |dir| {
        let net = Net::default();
        let all = net.group(dir, &["a", "b", "c"]).await;
        for n in 0..20 {
            all[0].raft.propose(put(n)).await.unwrap();
        }
        net.cut.borrow_mut().insert("a".into());
        let leads = |m: &Member| m.raft.view().leads;
        until("an election", Duration::from_secs(3), || {
            all[1..].iter().any(leads)
        })
        .await;
        let next = all[1..].iter().find(|m| leads(m)).unwrap();
        // The other one may be slow to answer.
        while next.raft.confirm().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        next.raft.propose(put(20)).await.unwrap();
        assert_eq!(count(next), 21);
        // The old one leads no majority: it neither confirms nor commits.
        assert!(matches!(all[0].raft.confirm().await, Err(Error::NotLeader)));
        let lost = all[0].raft.propose(put(99));
        assert!(
            tokio::time::timeout(Duration::from_millis(500), lost)
                .await
                .is_err()
        );
        net.cut.borrow_mut().clear();
        until("catching up", Duration::from_secs(5), || count(&all[0]) == 21).await;
        assert!(all[0].store.get("test", "00099").unwrap().is_none());
        for m in all {
            m.raft.shutdown().await.unwrap();
        }
    });
}

/// The place of an entry of the first leader.
fn at(index: u64) -> openraft::LogId<u64> {
    openraft::LogId::new(openraft::CommittedLeaderId::new(1, 1), index)
}

/// Entries of the first leader at these places.
fn entries(indices: &[u64]) -> Vec<openraft::Entry<Types>> {
    let entry = |index: &u64| openraft::Entry::<Types> {
        log_id: at(*index),
        payload: openraft::EntryPayload::Normal(TxnData(put(*index))),
    };
    indices.iter().map(entry).collect()
}

/// Requests to append: the place before the first entry, the places of the entries, and whether
/// they have no gap.
const REQUESTS: [(Option<u64>, &[u64], bool); 7] = [
    (None, &[0, 1, 2], true),
    (Some(2), &[], true),
    (Some(2), &[3], true),
    (None, &[1], false),
    (Some(3), &[5, 6], false),
    (Some(3), &[4, 6], false),
    (Some(3), &[3, 4], false),
];

#[test]
fn a_follower_refuses_entries_with_a_gap() {
    with_dir("refused", async |dir| {
        let store = Store::open(&dir.join("store.db")).unwrap();
        let (raft, _applied) = Raft::start(store.clone(), unbounded_channel().0).await.unwrap();
        for (previous, indices, good) in REQUESTS {
            let ask = AppendAsk {
                target: raft.id(),
                vote: wire::vote(&openraft::Vote::new_committed(1, 1)),
                previous: previous.map(at).as_ref().map(wire::position),
                commit: None,
                entries: entries(indices)
                    .iter()
                    .map(|e| store::encode_entry(e).unwrap().into())
                    .collect(),
            };
            let answer = raft.handle_append(&ask).await;
            match good {
                true => assert!(!answer.unwrap().conflict, "{indices:?} after {previous:?}"),
                false => assert!(matches!(answer, Err(Error::Peer(_))), "{indices:?}: {answer:?}"),
            }
        }
        raft.shutdown().await.unwrap();
    });
}

#[test]
fn a_follower_refuses_entries_of_an_earlier_leader_behind_those_of_a_later_one() {
    let of = |leader, index| openraft::LogId::new(openraft::CommittedLeaderId::new(leader, 1), index);
    let follow = |previous: Option<openraft::LogId<u64>>, ids: &[openraft::LogId<u64>]| {
        let entry = |log_id: &openraft::LogId<u64>| openraft::Entry::<Types> {
            log_id: *log_id,
            payload: openraft::EntryPayload::Blank,
        };
        let entries: Vec<_> = ids.iter().map(entry).collect();
        wire::are_consecutive(previous.as_ref(), &entries)
    };
    assert!(follow(Some(of(1, 3)), &[of(1, 4), of(2, 5), of(2, 6)]) && follow(None, &[of(1, 0)]));
    assert!(!follow(Some(of(2, 3)), &[of(1, 4)]) && !follow(None, &[of(2, 0), of(1, 1)]));
}

#[test]
fn a_leader_sends_no_entries_with_a_gap() {
    use openraft::error::RPCError;
    use openraft::network::RPCOption;
    use openraft::{RaftNetwork, RaftNetworkFactory};

    with_dir("unsent", async |_| {
        let (calls, mut sent) = unbounded_channel();
        let limits = Limits::default();
        let mut peers = network::Peers { calls, limits };
        let mut route = RaftNetworkFactory::<Types>::new_client(&mut peers, 2, &Node::default()).await;
        for (previous, indices, good) in REQUESTS {
            let request = openraft::raft::AppendEntriesRequest::<Types> {
                vote: openraft::Vote::new_committed(1, 1),
                prev_log_id: previous.map(at),
                entries: entries(indices),
                leader_commit: None,
            };
            let patience = RPCOption::new(Duration::from_secs(1));
            let asking = RaftNetwork::<Types>::append_entries(&mut route, request, patience);
            let hearing = async { sent.recv().await.map(drop) };
            tokio::select! {
                biased;
                answer = asking => {
                    assert!(!good && matches!(answer, Err(RPCError::Network(_))), "{indices:?}: {answer:?}");
                }
                _ = hearing => assert!(good, "{indices:?} after {previous:?} were sent"),
            }
        }
    });
}

/// A power cut before the snapshot is on disk would leave a log that can never be applied.
#[test]
fn entries_after_a_snapshot_wait_until_it_is_on_disk() {
    with_dir("gap", async |dir| {
        let store = Store::open(&dir.join("store.db")).unwrap();
        let append = |from, to| store.append(&entries(&(from..to).collect::<Vec<u64>>()));
        let has_gap = |appended| matches!(appended, Err(StoreError::Gap { .. }));
        let state = |index| store::AppliedState {
            last: Some(at(index)),
            ..store::AppliedState::default()
        };
        let waits = async |index| {
            let waiting = store.installed_before(index);
            tokio::time::timeout(Duration::from_millis(50), waiting)
                .await
                .is_err()
        };
        assert!(has_gap(append(1, 2)), "an empty log begins with entry 0");
        assert!(append(0, 3).unwrap() && append(3, 5).unwrap() && append(5, 6).unwrap());
        assert!(has_gap(append(8, 10)));
        // A snapshot up to 7 has come.
        store.purge(at(7)).unwrap();
        assert!(!append(8, 10).unwrap() && waits(8).await);
        assert!(has_gap(append(9, 10)));
        store.stage(Some(at(7)), &put(7), true).unwrap();
        store.install_staged(&state(7)).unwrap();
        assert!(!waits(8).await && append(8, 10).unwrap());
        assert!(has_gap(append(11, 13)) && waits(11).await);
    });
}

/// Otherwise the entries would wait for ever.
#[test]
fn entries_after_a_snapshot_that_cannot_be_installed_are_refused() {
    with_dir("not-installed", async |dir| {
        let path = dir.join("store.db");
        drop(Store::open(&path).unwrap());
        // A file in which a snapshot cannot be staged.
        let other = redb::TableDefinition::<u64, u64>::new("stage");
        let db = redb::Database::create(&path).unwrap();
        let tx = db.begin_write().unwrap();
        tx.open_table(other).unwrap();
        tx.commit().unwrap();
        drop(db);
        let store = Store::open(&path).unwrap();
        let waits = store.installed_before(8);
        assert!(store.install_staged(&store::AppliedState::default()).is_err());
        assert!(matches!(waits.await, Err(StoreError::NotInstalled)));
    });
}

#[test]
fn nothing_is_purged_before_the_snapshot_that_covers_it_is_there() {
    with_dir("hole", async |dir| {
        let store = Store::open(&dir.join("store.db")).unwrap();
        assert!(store.append(&entries(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])).unwrap());
        let first = || {
            store
                .entries::<Tokio>(0, u64::MAX)
                .unwrap()
                .first()
                .map(|e| e.log_id.index)
        };
        store.purge(at(5)).unwrap();
        assert_eq!((first(), store.purged().unwrap()), (Some(0), None));
        let state = |index| store::AppliedState {
            last: Some(at(index)),
            ..store::AppliedState::default()
        };
        store.apply(&[], &state(2)).unwrap();
        store.purge(at(5)).unwrap();
        assert_eq!((first(), store.purged().unwrap()), (Some(3), Some(at(2))));
        store.stage(Some(at(7)), &put(7), true).unwrap();
        store.install_staged(&state(7)).unwrap();
        assert_eq!((first(), store.purged().unwrap()), (Some(8), Some(at(7))));
        // The request to purge what the snapshot covers comes late, or an older one.
        for late in [7, 3] {
            store.purge(at(late)).unwrap();
            assert_eq!((first(), store.purged().unwrap()), (Some(8), Some(at(7))));
        }
    });
}

#[test]
fn a_leader_that_is_removed_knows_it_only_when_the_others_do() {
    with_dir("farewell", async |dir| {
        for round in 0..5 {
            let (dir, net) = (dir.join(format!("{round}")), Net::default());
            std::fs::create_dir_all(&dir).unwrap();
            let all = net.group(&dir, &["a", "b"]).await;
            let (a, b) = (all[0].raft.clone(), all[1].raft.clone());
            let id = a.id();
            let leaver = a.clone();
            let change = tokio::task::spawn_local(async move { leaver.expel(&BTreeSet::from([id])).await });
            let mut was_early = false;
            while a.settled_voters().unwrap().contains(&id) {
                was_early |= !a.view().voters.contains_key(&id);
                tokio::task::yield_now().await;
            }
            assert!(was_early, "the leader has the entry before the others agree");
            assert!(!b.view().voters.contains_key(&id));
            change.await.unwrap().unwrap();
            for m in all {
                m.raft.shutdown().await.unwrap();
            }
        }
    });
}

#[test]
fn a_member_far_behind_and_one_without_a_disk_take_a_snapshot() {
    with_dir("snapshot", async |dir| {
        let net = Net::default();
        let all = net.group(dir, &["a", "b", "c"]).await;
        net.cut.borrow_mut().insert("c".into());
        // More than the log keeps, and more than one part of a snapshot.
        for n in 0..1200u64 {
            let mut t = Txn::default();
            t.put("test", format!("{n:05}"), vec![n as u8; 2500]);
            let txn = Arc::new(t);
            led(&[&all[0], &all[1]], async |raft| {
                raft.propose(Arc::clone(&txn)).await.map(drop)
            })
            .await;
        }
        net.cut.borrow_mut().clear();
        until("the snapshot", Duration::from_secs(60), || count(&all[2]) == 1200).await;
        // `c` comes back with an empty disk: under another number, in place of the old one.
        let old = all[2].raft.id();
        all[2].raft.shutdown().await.unwrap();
        std::fs::remove_file(dir.join("c.db")).unwrap();
        let again = net.start(dir, "c").await;
        assert_ne!(again.raft.id(), old);
        let node = net.node(&again);
        let (id, others) = (again.raft.id(), [&all[0], &all[1]]);
        led(&others, async |raft| {
            raft.admit(id, node.clone(), &BTreeSet::from([old])).await
        })
        .await;
        until("the last entries", Duration::from_secs(60), || {
            count(&again) == 1200
        })
        .await;
        led(&others, async |raft| {
            let voters: Vec<u64> = raft.view().voters.into_keys().collect();
            assert!(voters.contains(&id) && !voters.contains(&old) && voters.len() == 3);
            let me = raft.id();
            let rest = voters.into_iter().filter(|v| *v != me).collect();
            raft.expel(&rest).await?;
            assert!(raft.is_alone());
            raft.propose(put(1)).await.map(drop)
        })
        .await;
    });
}
