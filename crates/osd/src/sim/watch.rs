//! Watches, notifications, and clients on the blocklist.

use super::*;
use spirula_denc::{Reader, encode_to_vec};
use spirula_proto::osd::{WatchArgs, WatchEvent, WatchOp};
use spirula_proto::osd_op_data::{ListWatchersResponse, NotifyAck, NotifyReplies, NotifyRequest, WatcherId};

const fn watcher(client: u64, cookie: u64) -> WatcherId {
    WatcherId { client, cookie }
}

fn cluster() -> Sim {
    let mut sim = Sim::new(3, 3, 4, 1);
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    sim
}

pub(super) fn client(conn: u64) -> Arc<Client> {
    let name = EntityName::new(EntityType::CLIENT, 4100 + conn as i64);
    let addr = format!("v2:127.0.0.1:0/{conn}").parse().unwrap();
    Arc::new(Client::new(conn, name, addr, Arc::new(AllowAll)))
}

fn watch(cookie: u64, op: WatchOp, timeout: u32) -> OsdOpIn {
    let args = WatchArgs {
        cookie,
        op,
        timeout,
        ..WatchArgs::default()
    };
    OsdOpIn::new(OpCode::WATCH, OpArgs::Watch(args), Bytes::new())
}

fn notify(cookie: u64, timeout: u32, payload: &'static str) -> OsdOpIn {
    let request = NotifyRequest {
        version: 1,
        timeout,
        payload: Bytes::from_static(payload.as_bytes()),
    };
    OsdOpIn::new(OpCode::NOTIFY, OpArgs::Notify(cookie), encode_to_vec(&request))
}

fn ack(notify_id: u64, cookie: u64, reply: &'static str) -> OsdOpIn {
    let ack = NotifyAck {
        notify_id,
        cookie,
        reply: Bytes::from_static(reply.as_bytes()),
    };
    OsdOpIn::new(OpCode::NOTIFY_ACK, OpArgs::Notify(0), encode_to_vec(&ack))
}

/// The next one of three OSDs.
fn after(osd: OsdId) -> OsdId {
    OsdId::below(3).cycle().nth(osd.index() + 1).unwrap()
}

impl Sim {
    fn by(&mut self, who: &Arc<Client>, name: &str, op: OsdOpIn) -> MOsdOpReply {
        self.client = Arc::clone(who);
        self.call(name, vec![op])
    }

    /// Cookie and address of each watcher.
    fn watchers(&mut self, name: &str) -> Vec<(u64, String, u32)> {
        let r = self.call(name, vec![plain(OpCode::LIST_WATCHERS)]);
        assert_eq!(r.result, 0);
        let data = r.ops[0].data.to_bytes();
        let list: ListWatchersResponse = Reader::new(&data).get().unwrap();
        let entries = list.entries.into_iter();
        entries
            .map(|e| (e.cookie, e.addr.to_string(), e.timeout_seconds))
            .collect()
    }

    fn event(&mut self, conn: u64) -> Option<MWatchNotify> {
        let at = self.events.iter().position(|(c, _)| *c == conn)?;
        self.events.remove(at).map(|(_, m)| m)
    }

    /// Sends a notification; returns its id.
    fn notify(&mut self, who: &Arc<Client>, timeout: u32) -> u64 {
        let r = self.by(who, "a", notify(99, timeout, "news"));
        assert_eq!((r.result, r.ops[0].result), (0, 0));
        u64::from_le_bytes(r.ops[0].data.to_bytes()[..].try_into().unwrap())
    }

    fn close(&mut self, who: &Arc<Client>) {
        who.closed.store(true, std::sync::atomic::Ordering::Relaxed);
        for id in OsdId::below(3) {
            self.with(id, |core, cx| core.handle_client_closed(who.conn, cx));
        }
    }

    fn primary(&mut self, name: &str) -> OsdId {
        let pgid = self.pgid_of(&self.object(name));
        self.map().placement(pgid).primary.unwrap()
    }
}

fn outcome(m: &MWatchNotify) -> NotifyReplies {
    assert_eq!(m.event, WatchEvent::NOTIFY_COMPLETE);
    Reader::new(&m.replies.to_bytes()).get().unwrap()
}

#[test]
pub(super) fn a_watcher_is_listed_notified_heard_and_removed() {
    let mut sim = cluster();
    let (a, b) = (client(1), client(2));
    assert_eq!(sim.by(&a, "a", watch(7, WatchOp::WATCH, 0)).result, -2);
    let w = sim.by(&a, "a", write_full("x"));
    let r = sim.by(&a, "a", watch(7, WatchOp::WATCH, 0));
    // It is logged, and clients see no new version.
    assert_eq!(
        (r.result, r.replay_version.version, r.user_version),
        (0, w.replay_version.version + 1, w.user_version)
    );
    assert_eq!(sim.by(&b, "a", watch(7, WatchOp::WATCH, 12)).result, 0);
    let (at_a, at_b) = ("v2:127.0.0.1:0/1".to_owned(), "v2:127.0.0.1:0/2".to_owned());
    assert_eq!(sim.watchers("a"), [(7, at_a, 30), (7, at_b.clone(), 12)]);
    let id = sim.notify(&b, 5);
    let told = sim.event(1).unwrap();
    assert_eq!(
        (told.cookie, told.notify_id, told.event, told.notifier_gid),
        (7, id, WatchEvent::NOTIFY, 4102)
    );
    assert_eq!(
        (&told.payload.0[..], told.version),
        (&b"news"[..], w.user_version)
    );
    assert_eq!(sim.event(2).unwrap().event, WatchEvent::NOTIFY);
    assert_eq!(sim.by(&a, "a", ack(id, 7, "heard")).result, 0);
    assert!(sim.event(2).is_none(), "one did not answer yet");
    assert_eq!(sim.by(&b, "a", ack(id, 7, "")).result, 0);
    let done = sim.event(2).unwrap();
    assert_eq!((done.cookie, done.notify_id, done.result), (99, id, 0));
    let replies = outcome(&done);
    assert_eq!(
        replies.replies.into_iter().collect::<Vec<_>>(),
        [
            (watcher(4101, 7), Bytes::from("heard")),
            (watcher(4102, 7), Bytes::new())
        ]
    );
    assert!(replies.missed.is_empty());
    assert_eq!(sim.by(&a, "a", watch(7, WatchOp::UNWATCH, 0)).result, 0);
    assert_eq!(sim.by(&a, "a", watch(7, WatchOp::UNWATCH, 0)).result, 0);
    assert_eq!(sim.by(&a, "a", watch(7, WatchOp::RECONNECT, 0)).result, -107);
    assert_eq!(sim.watchers("a"), [(7, at_b, 12)]);
    assert_eq!(sim.by(&a, "a", watch(7, WatchOp::PING, 0)).result, -107);
    assert!(sim.events.is_empty(), "nobody is told of his own end");
}

#[test]
pub(super) fn a_notification_ends_without_those_who_do_not_answer_or_leave() {
    let mut sim = cluster();
    let (a, b, c) = (client(1), client(2), client(3));
    sim.by(&a, "a", write_full("x"));
    let id = sim.notify(&c, 5);
    let done = sim.event(3).unwrap();
    assert_eq!((done.notify_id, done.result), (id, 0));
    assert_eq!(outcome(&done), NotifyReplies::default());
    for who in [&a, &b] {
        assert_eq!(sim.by(who, "a", watch(1, WatchOp::WATCH, 0)).result, 0);
    }
    let id = sim.notify(&c, 5);
    sim.by(&b, "a", ack(id, 1, "b"));
    sim.pass(4);
    assert!(sim.event(3).is_none());
    // Not only at the next tick.
    sim.advance(Micros::from_secs(1));
    let done = sim.event(3).unwrap();
    assert_eq!(done.result, -110);
    let replies = outcome(&done);
    assert_eq!(
        (replies.missed, replies.replies.len()),
        (vec![watcher(4101, 1)], 1)
    );
    // Too late, and nothing of it.
    assert_eq!(sim.by(&a, "a", ack(id, 1, "a")).result, 0);
    sim.notify(&c, 5);
    sim.by(&a, "a", watch(1, WatchOp::UNWATCH, 0));
    sim.by(&b, "a", watch(1, WatchOp::UNWATCH, 0));
    let done = sim.event(3).unwrap();
    assert_eq!((done.result, outcome(&done)), (0, NotifyReplies::default()));
}

#[test]
pub(super) fn a_watch_lives_by_its_pings_and_an_old_one_by_its_connection() {
    let mut sim = cluster();
    let (a, b) = (client(1), client(2));
    sim.by(&a, "a", write_full("x"));
    sim.by(&a, "a", watch(1, WatchOp::WATCH, 10));
    sim.by(&b, "a", watch(2, WatchOp::LEGACY_WATCH, 10));
    sim.pass(8);
    assert_eq!(sim.by(&a, "a", watch(1, WatchOp::PING, 0)).result, 0);
    sim.pass(8);
    assert_eq!(sim.watchers("a").len(), 2);
    sim.pass(4);
    assert_eq!(sim.watchers("a").len(), 1, "the one that pings is dropped");
    assert_eq!(sim.event(1).unwrap().event, WatchEvent::DISCONNECT);
    sim.pass(30);
    assert_eq!(sim.watchers("a").len(), 1);
    sim.close(&b);
    sim.pass(8);
    assert_eq!(sim.watchers("a").len(), 1);
    sim.pass(4);
    assert!(sim.watchers("a").is_empty());
    assert!(sim.event(2).is_none());
}

#[test]
pub(super) fn the_end_of_a_watch_is_as_old_as_it_is() {
    let mut sim = cluster();
    let a = client(1);
    sim.by(&a, "a", write_full("x"));
    sim.pass(100);
    sim.by(&a, "a", watch(1, WatchOp::WATCH, 10));
    let (begun, primary) = (sim.usec, sim.primary("a"));
    // It waits for a member that does not answer.
    sim.isolate(after(primary));
    sim.pass(12);
    let records = sim.records();
    let end = records.iter().find(|r| r.description.contains("watch"));
    let end = end.expect("the watch has not ended");
    assert!(end.stamps.received >= begun + Micros::from_secs(10), "{end:?}");
}

#[test]
pub(super) fn a_watch_is_taken_up_again_after_its_connection_or_primary_was_lost() {
    let mut sim = cluster();
    let a = client(1);
    sim.by(&a, "a", write_full("x"));
    sim.by(&a, "a", watch(1, WatchOp::WATCH, 20));
    sim.close(&a);
    let again = Arc::new(Client::new(5, a.name, a.addr, Arc::clone(&a.access)));
    assert_eq!(sim.by(&again, "a", watch(1, WatchOp::PING, 0)).result, -110);
    let b = client(2);
    let id = sim.notify(&b, 30);
    // A connection that is back gets the notification that it missed.
    assert_eq!(sim.by(&again, "a", watch(1, WatchOp::RECONNECT, 0)).result, 0);
    assert_eq!(sim.event(5).unwrap().notify_id, id);
    let primary = sim.primary("a");
    for left in [1, 0] {
        sim.crash_and_mark_down(primary);
        sim.run_some(200_000);
        sim.start_and_mark_up(primary);
        sim.run_some(200_000);
        assert_eq!(sim.watchers("a").len(), 1, "it is stored");
        assert_eq!(sim.by(&again, "a", watch(1, WatchOp::PING, 0)).result, -110);
        sim.pass(12);
        if left == 1 {
            assert_eq!(sim.by(&again, "a", watch(1, WatchOp::RECONNECT, 0)).result, 0);
        }
        sim.pass(12);
        assert_eq!(sim.watchers("a").len(), left);
    }
}

#[test]
pub(super) fn whoever_watches_a_deleted_object_is_told() {
    let mut sim = cluster();
    let (a, b) = (client(1), client(2));
    sim.by(&a, "a", write_full("x"));
    sim.by(&a, "a", watch(1, WatchOp::WATCH, 0));
    assert_eq!(sim.by(&b, "a", plain(OpCode::DELETE)).result, 0);
    let told = sim.event(1).unwrap();
    assert_eq!((told.event, told.cookie), (WatchEvent::DISCONNECT, 1));
    assert_eq!(sim.by(&a, "a", watch(1, WatchOp::PING, 0)).result, -2);
    sim.by(&b, "a", write_full("x"));
    assert_eq!(sim.by(&a, "a", watch(1, WatchOp::PING, 0)).result, -107);
    assert!(sim.watchers("a").is_empty());
}

#[test]
pub(super) fn watches_and_notifications_have_bounds() {
    let cfg = PgConfig {
        max_watchers: 3,
        watch_bytes: 8192,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 4, 1, cfg);
    sim.settle();
    let a = client(1);
    sim.by(&a, "a", write_full("x"));
    for cookie in 0..5 {
        let want = if cookie < 3 { 0 } else { -28 };
        assert_eq!(sim.by(&a, "a", watch(cookie, WatchOp::WATCH, 0)).result, want);
    }
    let big = |len| {
        let request = NotifyRequest {
            version: 1,
            timeout: 600,
            payload: vec![1; len].into(),
        };
        OsdOpIn::new(OpCode::NOTIFY, OpArgs::Notify(9), encode_to_vec(&request))
    };
    assert_eq!(sim.by(&a, "a", big(2000)).result, -12);
    assert_eq!(sim.by(&a, "a", big(500)).result, 0);
    assert_eq!(sim.by(&a, "a", big(500)).result, -12);
    let id = sim.event(1).unwrap().notify_id;
    for cookie in 0..3 {
        sim.by(&a, "a", ack(id, cookie, ""));
    }
    assert_eq!(sim.by(&a, "a", big(500)).result, 0, "there is room again");
}

#[test]
pub(super) fn what_a_shut_out_client_sent_is_refused_even_if_it_waited() {
    let mut sim = cluster();
    let (a, b) = (client(1), client(2));
    sim.by(&b, "a", write_full("old"));
    assert_eq!(sim.by(&a, "a", watch(1, WatchOp::WATCH, 0)).result, 0);
    // A read that waits for the store, a write behind it, and one that reads first.
    sim.client = Arc::clone(&a);
    let cmp = extent(OpCode::CMPEXT, 0, 3, "old");
    let late = [
        sim.build("a", vec![extent(OpCode::READ, 0, 0, "")]),
        sim.build("a", vec![write_full("late")]),
        sim.build("a", vec![cmp, write_full("later")]),
        sim.build("new", vec![write_full("late")]),
    ];
    let tids: Vec<u64> = late.into_iter().map(|op| sim.submit(op).unwrap()).collect();
    sim.change_map(|m| m.blocklist.push("v2:127.0.0.1:0/1".parse().unwrap()));
    for id in OsdId::below(3) {
        sim.step(Step::Map(id));
    }
    sim.run_some(100_000);
    for tid in tids {
        assert_eq!(sim.reply_to(tid).unwrap().result, -108);
    }
    sim.client = Arc::clone(&b);
    assert_eq!(sim.read("a").unwrap(), "old");
    assert_eq!(sim.read("new"), Err(-2));
    assert!(sim.watchers("a").is_empty());
    assert_eq!(sim.event(1).unwrap().event, WatchEvent::DISCONNECT);
}

#[test]
fn what_a_shut_out_client_sent_is_refused_when_the_pg_becomes_active() {
    let mut sim = cluster();
    let a = client(1);
    sim.client = Arc::clone(&a);
    sim.write_full("a", "old");
    // Another member restarts, so that requests are held.
    let other = after(sim.primary("a"));
    sim.crash_and_mark_down(other);
    sim.run_some(200_000);
    let op = sim.build("a", vec![write_full("late")]);
    let tid = sim.submit(op).unwrap();
    sim.change_map(|m| m.blocklist.push(a.addr));
    sim.start_and_mark_up(other);
    sim.run_some(200_000);
    assert_eq!(sim.reply_to(tid).unwrap().result, -108);
    sim.client = client(2);
    assert_eq!(sim.read("a").unwrap(), "old");
}
