//! Clients with a key whose requests have to wait, or that wait themselves: their waiting requests
//! are bounded, however many sessions they open, others are served meanwhile, and nothing of it
//! remains when they leave.

use std::time::{Duration, Instant};

use serde_json::Value;
use spirula_denc::encode_to_vec;
use spirula_proto::osd::{OpArgs, OpCode, OsdOpIn, WatchArgs, WatchOp};
use spirula_proto::osd_op_data::NotifyRequest;

use crate::common::Cluster;
use crate::common::raw_client::{RawClient, bystander, meanwhile, run};
use crate::common::raw_ops::{RawPool, read, write_full};

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);
const ENOMEM: i32 = -12;

/// The memory limit of an OSD, and the share that one client's requests may hold besides their
/// payload.
const MEMORY: u64 = 128 * MIB;
const SHARE: u64 = MEMORY / 16;

/// A cluster of one OSD, which all clients share; `h` is the pool of the hostile client.
fn cluster() -> Cluster {
    let c = Cluster::up("waiting", 1, &["--no-respawn"]);
    c.sh(
        "for p in h r; do ceph osd pool create $p 1 1 replicated; ceph osd pool application enable $p test; done
        ceph auth get-or-create client.raw mon 'allow r' osd 'allow rw pool=h' >/dev/null",
    );
    c
}

/// The connections of an entity, as the OSD shows them to the official client.
fn connections(c: &Cluster, entity: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(&c.sh("ceph tell osd.0 dump_clients")).unwrap();
    let clients = all["clients"].as_array().unwrap();
    clients
        .iter()
        .filter(|s| s["entity"] == entity)
        .cloned()
        .collect()
}

fn sum(sessions: &[Value], column: &str) -> u64 {
    sessions.iter().map(|s| s[column].as_u64().unwrap()).sum()
}

fn watch(cookie: u64) -> OsdOpIn {
    let args = WatchArgs {
        cookie,
        op: WatchOp::WATCH,
        timeout: 600,
        ..WatchArgs::default()
    };
    OsdOpIn::new(OpCode::WATCH, OpArgs::Watch(args), Vec::<u8>::new())
}

fn notify(cookie: u64, len: usize) -> OsdOpIn {
    let request = NotifyRequest {
        timeout: 600,
        payload: vec![b'x'; len].into(),
        ..NotifyRequest::default()
    };
    OsdOpIn::new(OpCode::NOTIFY, OpArgs::Notify(cookie), encode_to_vec(&request))
}

#[test]
fn what_waits_is_bounded_and_goes_with_whom_it_is_of() {
    let c = cluster();
    let before = c.pid("osd.0");
    run(async {
        let raw = RawClient::login(&c, "client.raw").await;
        let mut pool = RawPool::open(&c, &raw, "h").await;
        assert_eq!(pool.result(b"o", vec![write_full(b"x")]).await, 0);
        idle_sessions(&c, &pool, &raw).await;
        requests_for_a_map_to_come(&c, &pool, &raw).await;
        watches_and_notifications(&c, &mut pool).await;
    });
    let peak = c.peak_rss("osd.0");
    println!("osd.0 took {} MiB", peak / MIB);
    assert!(peak < MEMORY, "osd.0 took {} MiB", peak / MIB);
    assert_eq!(c.pid("osd.0"), before, "the OSD ended");
}

/// 1000 sessions that do nothing.
async fn idle_sessions(c: &Cluster, at: &RawPool, raw: &RawClient) {
    let before = (c.rss("osd.0"), c.rss("mon.a"));
    let (mut with_osd, mut with_monitor) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        with_osd.push(at.another(raw).await.unwrap());
        with_monitor.push(raw.monitor().await.unwrap());
    }
    let each = |daemon, before: u64| c.rss(daemon).saturating_sub(before) / 1000;
    let (osd, mon) = (each("osd.0", before.0), each("mon.a", before.1));
    println!("an idle session takes {osd} bytes of an OSD, {mon} of a monitor");
    assert!(osd < 16 << 10 && mon < 16 << 10, "{osd}, {mon}");
    let sessions = connections(c, "client.raw");
    assert_eq!(sessions.len(), 1001);
    assert!(sessions.iter().all(|s| s["entity_sessions"] == 1001));
}

/// 400,000 requests that name an epoch which does not exist yet.
async fn requests_for_a_map_to_come(c: &Cluster, at: &RawPool, raw: &RawClient) {
    let mut open = Vec::new();
    for _ in 0..200 {
        let mut pool = at.another(raw).await.unwrap();
        for _ in 0..2000 {
            let mut request = pool.request(b"o", vec![read()]);
            request.epoch = request.epoch.after(1000);
            pool.send(&request);
        }
        open.push(pool);
        // Lets it send.
        tokio::task::yield_now().await;
    }
    let other = bystander(c, "r", 30, SECOND);
    while !other.is_finished() {
        tokio::time::sleep(SECOND / 10).await;
    }
    println!("beside requests that wait: {:?}", other.join().unwrap());
    let sessions = connections(c, "client.raw");
    let (requests, bytes) = (sum(&sessions, "requests"), sum(&sessions, "request_bytes"));
    println!("{requests} requests wait, with {bytes} bytes");
    assert!(requests > 1000, "{requests} wait");
    assert!(bytes <= SHARE + MIB, "{bytes} bytes wait");
    assert!(
        sessions
            .iter()
            .all(|s| s["entity_request_bytes"].as_u64() == Some(bytes))
    );
    assert!(sessions.iter().any(|s| s["is_read"] == false));
    drop(open);
    // Messages that a vanished sender left on the way are only noticed when they are read.
    let deadline = Instant::now() + 15 * SECOND;
    loop {
        let sessions = connections(c, "client.raw");
        let ops: Value = serde_json::from_str(&c.sh("ceph tell osd.0 dump_ops_in_flight")).unwrap();
        if sessions.len() == 1 && sum(&sessions, "entity_request_bytes") == 0 && ops["num_ops"] == 0 {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{} connections, {} ops are left",
            sessions.len(),
            ops["num_ops"]
        );
        tokio::time::sleep(SECOND / 5).await;
    }
}

/// Notifications that are never acknowledged, until the client's memory is used up: that of others
/// remains.
async fn watches_and_notifications(c: &Cluster, pool: &mut RawPool) {
    for cookie in 1..=4 {
        assert_eq!(pool.result(b"o", vec![watch(cookie)]).await, 0);
    }
    let mut said = 0;
    let refused = loop {
        match pool.result(b"o", vec![notify(said, 64 << 10)]).await {
            0 => said += 1,
            error => break error,
        }
        assert!(said < 1000, "there is no bound");
    };
    assert_eq!(refused, ENOMEM);
    println!("{said} notifications wait");
    let sessions = connections(c, "client.raw");
    assert_eq!(sum(&sessions, "watches"), 4);
    let bytes = sessions[0]["entity_watch_bytes"].as_u64().unwrap();
    assert!((3 * MIB..=5 * MIB).contains(&bytes), "{bytes}");
    let setup = "io.write_full('o', b'x')\n\
        heard = []\n\
        watch = io.watch('o', lambda notify_id, notifier, watch_id, data: heard.append(data))\n";
    let step = "assert io.notify('o', 'y' * 100000, 5000)\n\
        assert len(heard.pop()) >= 100000 and not heard\n";
    let other = meanwhile(c, "r", (setup, step), 20, SECOND);
    while !other.is_finished() {
        // The client of the test goes on as well.
        assert_eq!(pool.result(b"o", vec![notify(said, 64 << 10)]).await, ENOMEM);
        tokio::time::sleep(SECOND / 100).await;
    }
    println!("beside notifications: {:?}", other.join().unwrap());
}
