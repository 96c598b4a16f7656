//! Clients with a key that ask for much and read none of it: the answers take their own share of
//! the memory, and a client that asks for little is served meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use spirula_denc::encode_to_vec;
use spirula_proto::osd::{OpArgs, OpCode, OsdOpIn};
use spirula_proto::osd_op_data::{OmapGetVals, OmapKeys};

use crate::common::Cluster;
use crate::common::raw_client::{RawClient, reader, run};
use crate::common::raw_ops::{RawPool, extent, write_full};

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// A cluster of one OSD, which all clients share; `h` is the pool of the hostile clients.
fn cluster() -> Cluster {
    let c = Cluster::up("readers", 1, &["--no-respawn"]);
    c.sh(
        "for p in h r; do ceph osd pool create $p 1 1 replicated; ceph osd pool application enable $p test; done
        for n in 1 2 3 4; do ceph auth get-or-create client.h$n mon 'allow r' osd 'allow rw pool=h' >/dev/null; done
        head -c 4194304 /dev/urandom >data; rados -p r put large data",
    );
    c
}

/// In the hostile clients' pool, `data` has 4 MiB, and two omaps have 16 MiB each: one of large
/// values, one of small ones.
async fn fill(pool: &mut RawPool) {
    assert_eq!(pool.result(b"data", vec![write_full(&vec![7; 4 << 20])]).await, 0);
    for (name, count, size) in [("few", 16, 1 << 20), ("many", 1024, 16 << 10)] {
        for first in (0..count).step_by(count / 4) {
            let value = Bytes::from(vec![first as u8; size]);
            let pairs: BTreeMap<Bytes, Bytes> = (first..first + count / 4)
                .map(|n| (format!("key{n:05}").into(), value.clone()))
                .collect();
            let set = OsdOpIn::new(OpCode::OMAPSETVALS, OpArgs::None, encode_to_vec(&pairs));
            assert_eq!(pool.result(name.as_bytes(), vec![set]).await, 0);
        }
    }
}

/// All values of an omap.
fn get_values() -> OsdOpIn {
    let all = OmapGetVals {
        max: u64::MAX,
        ..OmapGetVals::default()
    };
    OsdOpIn::new(OpCode::OMAPGETVALS, OpArgs::None, encode_to_vec(&all))
}

/// The values of the first keys.
fn get_by_keys(count: usize) -> OsdOpIn {
    let keys: OmapKeys = (0..count).map(|n| format!("key{n:05}").into()).collect();
    OsdOpIn::new(OpCode::OMAPGETVALSBYKEYS, OpArgs::None, encode_to_vec(&keys))
}

/// All of an object.
fn read_data() -> (&'static str, Vec<OsdOpIn>) {
    ("data", vec![extent(OpCode::READ, 0, 4 * MIB, Vec::new())])
}

/// Opens connections for each client, asks for much on each of them, reads none of it for two
/// seconds, and leaves.
async fn ask_and_read_nothing(
    at: &RawPool,
    clients: &[RawClient],
    (connections, requests): (u64, u64),
    ask: impl Fn(u64) -> (&'static str, Vec<OsdOpIn>),
) {
    let mut open = Vec::new();
    for client in clients {
        for n in 0..connections {
            // One that comes while all others are hung up on may be refused.
            let Ok(mut pool) = at.another(client).await else {
                continue;
            };
            for tid in 0..requests {
                let (name, ops) = ask(n + tid);
                let request = pool.request(name.as_bytes(), ops);
                pool.send(&request);
            }
            open.push(pool);
        }
    }
    tokio::time::sleep(2 * SECOND).await;
}

#[test]
fn who_reads_nothing_takes_only_the_own_share() {
    let c = cluster();
    let before = c.pid("osd.0");
    run(async {
        let raw = RawClient::login(&c, "client.h1").await;
        let mut at = RawPool::open(&c, &raw, "h").await;
        fill(&mut at).await;
        // Many reads from two connections that never read; each time while the other client is at
        // it.
        let other = reader(&c, "r", "large", 20, SECOND);
        while !other.is_finished() {
            ask_and_read_nothing(&at, std::slice::from_ref(&raw), (2, 400), |_| read_data()).await;
        }
        println!("beside two connections: {:?}", other.join().unwrap());

        // Four tenants with 16 connections each, and omaps too, whose answers are large before they
        // are sent.
        let mut clients = Vec::new();
        for n in 1..=4 {
            clients.push(RawClient::login(&c, &format!("client.h{n}")).await);
        }
        let other = reader(&c, "r", "large", 20, SECOND);
        while !other.is_finished() {
            ask_and_read_nothing(&at, &clients, (16, 40), |n| match n % 8 {
                0 => ("few", vec![get_values()]),
                1 => ("many", vec![get_values()]),
                2 => ("few", vec![get_values(); 3]),
                3 => ("many", vec![get_by_keys(400); 2]),
                4 => ("few", vec![get_by_keys(6)]),
                _ => read_data(),
            })
            .await;
        }
        println!("beside four tenants: {:?}", other.join().unwrap());
    });
    let peak = c.peak_rss("osd.0");
    println!("osd.0 took {} MiB", peak / MIB);
    assert!(peak < 128 * MIB, "osd.0 took {} MiB", peak / MIB);
    assert_eq!(c.pid("osd.0"), before, "the OSD ended");
}
