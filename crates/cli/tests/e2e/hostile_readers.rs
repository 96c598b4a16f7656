//! Clients with a key that ask for much and read none of it: what they asked for takes their own share of the memory, and who asks for
//! little is served meanwhile.

use std::time::{Duration, Instant};

use spirula_denc::encode_to_vec;
use spirula_proto::osd::{OpArgs, OpCode, OsdOpIn};
use spirula_proto::osd_op_data::{OmapGetVals, OmapKeys};

use crate::common::Cluster;
use crate::common::raw_client::{RawClient, reader, run};
use crate::common::raw_ops::{RawPool, extent};

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// One OSD, so that everybody meets there; `h` is for the hostile clients. There, `data` has 4 MiB, and two omaps have 16 MiB each: one of
/// large values, one of small ones.
fn cluster() -> Cluster {
    let c = Cluster::up("readers", 1, &["--no-respawn"]);
    c.sh(
        "for p in h r; do ceph osd pool create $p 1 1 replicated; ceph osd pool application enable $p test; done
        for n in 1 2 3 4; do ceph auth get-or-create client.h$n mon 'allow r' osd 'allow rw pool=h' >/dev/null; done
        head -c 4194304 /dev/urandom >data; rados -p h put data data; rados -p r put large data",
    );
    c.python(
        "io = cluster.open_ioctx('h')\n\
         for name, count, size in [('few', 16, 1 << 20), ('many', 1024, 16 << 10)]:\n\
         \x20   for first in range(0, count, count // 4):\n\
         \x20       keys = tuple('key%05d' % n for n in range(first, first + count // 4))\n\
         \x20       with rados.WriteOpCtx() as op:\n\
         \x20           io.set_omap(op, keys, tuple(os.urandom(size) for _ in keys))\n\
         \x20           io.operate_write_op(op, name)\n",
    );
    c
}

/// All values of an omap.
fn get_values() -> OsdOpIn {
    let all = OmapGetVals {
        max: u64::MAX,
        ..OmapGetVals::default()
    };
    OsdOpIn::new(OpCode::OMAPGETVALS, OpArgs::None, encode_to_vec(&all))
}

/// The values of 64 of the small keys, or 8 of the large ones.
fn get_by_keys(count: usize) -> OsdOpIn {
    let keys: OmapKeys = (0..count).map(|n| format!("key{n:05}").into()).collect();
    OsdOpIn::new(OpCode::OMAPGETVALSBYKEYS, OpArgs::None, encode_to_vec(&keys))
}

/// Connects under each of the keys, asks for much on each connection, reads none of it, and begins anew once a second, until `stop`.
async fn ask_and_read_nothing(
    at: &RawPool,
    clients: &[RawClient],
    connections: u64,
    requests: u64,
    stop: Instant,
) {
    while Instant::now() < stop {
        let mut open = Vec::new();
        for client in clients {
            for n in 0..connections {
                // One that comes while all others are hung up on may be refused.
                let Ok(mut pool) = at.another(client).await else {
                    continue;
                };
                for tid in 0..requests {
                    let (name, ops) = match (n + tid) % 8 {
                        0 => ("few", vec![get_values()]),
                        1 => ("many", vec![get_values()]),
                        2 => ("few", vec![get_values(); 8]),
                        3 => ("many", vec![get_by_keys(512); 4]),
                        4 => ("few", vec![get_by_keys(12)]),
                        _ => ("data", vec![extent(OpCode::READ, 0, 4 * MIB, Vec::new())]),
                    };
                    let request = pool.request(name.as_bytes(), ops);
                    pool.send(&request);
                }
                open.push(pool);
            }
        }
        tokio::time::sleep(SECOND).await;
    }
}

#[test]
fn who_reads_nothing_takes_only_the_own_share() {
    let c = cluster();
    run(async {
        let raw = RawClient::login(&c, "client.h1").await;
        // As many reads as a client may have under way, from two connections that never read.
        let mut pools = Vec::new();
        for _ in 0..2 {
            let mut pool = RawPool::open(&c, &raw, "h").await;
            for _ in 0..400 {
                let request = pool.request(b"data", vec![extent(OpCode::READ, 0, 4 * MIB, Vec::new())]);
                pool.send(&request);
            }
            pools.push(pool);
        }
        tokio::time::sleep(SECOND / 2).await;
        let other = reader(&c, "r", "large", 20, SECOND);
        while !other.is_finished() {
            tokio::time::sleep(SECOND / 10).await;
        }
        println!("beside two connections: {:?}", other.join().unwrap());
        let at = pools.swap_remove(0);
        drop(pools);

        // Four tenants with 16 connections each, and omaps too, whose answers are large before they are sent.
        let mut clients = Vec::new();
        for n in 1..=4 {
            clients.push(RawClient::login(&c, &format!("client.h{n}")).await);
        }
        let other = reader(&c, "r", "large", 40, SECOND);
        ask_and_read_nothing(&at, &clients, 16, 40, Instant::now() + 6 * SECOND).await;
        println!("beside four tenants: {:?}", other.join().unwrap());
    });
    let peak = c.peak_rss("osd.0");
    println!("osd.0 took {} MiB", peak / MIB);
    assert!(peak < 128 * MIB, "osd.0 took {} MiB", peak / MIB);
    c.wait_healthy();
}
