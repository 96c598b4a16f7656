//! Memory is a budget: an OSD stays within it whatever the load.

use std::time::{Duration, Instant};

use crate::common::Cluster;

/// The memory limit of an OSD, in bytes.
const LIMIT: u64 = 128 << 20;

pub(crate) fn assert_within_budget(c: &Cluster, osds: u32) {
    for osd in 0..osds {
        let rss = c.peak_rss(&format!("osd.{osd}"));
        println!("osd.{osd}: {} MiB at its peak", rss >> 20);
        assert!(rss <= LIMIT, "osd.{osd} used {} MiB", rss >> 20);
    }
}

/// The memory that an idle OSD may keep after large values: caches, and the allocator's reserves
/// for each thread.
const IDLE: u64 = 96 << 20;

fn assert_given_back(c: &Cluster, osds: u32) {
    let until = Instant::now() + Duration::from_secs(20);
    for osd in 0..osds {
        let daemon = format!("osd.{osd}");
        while c.rss(&daemon) > IDLE {
            let has = c.rss(&daemon) >> 20;
            assert!(Instant::now() < until, "{daemon} keeps {has} MiB");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Writes xattrs and values of omaps, sixteen at a time, or checks them.
fn values(what: &str) -> String {
    let program = r#"
import random
from concurrent.futures import ThreadPoolExecutor
pool = cluster.open_ioctx('large')
def value(n):
    return random.Random(n).randbytes((4 << 20) + n)
def write(n):
    pool.set_xattr(f'values{n}', 'large', value(n))
    with rados.WriteOpCtx() as op:
        pool.set_omap(op, ('large',), (value(n + 100),))
        pool.operate_write_op(op, f'values{n}')
def check(n):
    assert pool.get_xattr(f'values{n}', 'large') == value(n), n
    with rados.ReadOpCtx() as op:
        found, _ = pool.get_omap_vals_by_keys(op, ('large',))
        pool.operate_read_op(op, f'values{n}')
        assert list(found) == [('large', value(n + 100))], n
with ThreadPoolExecutor(16) as threads:
    list(threads.map(WHAT, range(16)))
"#;
    program.replace("WHAT", what)
}

/// `SPIRULA_OBJECTS` sets their number; a million takes some minutes.
#[test]
fn many_small_objects_stay_within_the_budget() {
    let objects: u32 = std::env::var("SPIRULA_OBJECTS")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(200_000);
    let c = Cluster::up("small-objects", 3, &[]);
    c.sh("ceph osd pool create small 32 32 replicated");
    c.sh(&format!(
        "rados bench -p small 3600 write -b 4096 -t 64 --max-objects {objects} --no-cleanup > /dev/null"
    ));
    c.sh("rados bench -p small 10 rand -t 64 > /dev/null; rados bench -p small 10 seq -t 64 > /dev/null");
    let listed: u32 = c.sh("rados -p small ls | wc -l").trim().parse().unwrap();
    assert!(listed >= objects, "{listed} objects listed of {objects}");
    assert_within_budget(&c, 3);
}

#[test]
fn sixty_four_writers_of_large_objects_stay_within_the_budget() {
    let c = Cluster::up("large-writers", 3, &[]);
    c.sh("ceph osd pool create large 16 16 replicated
          for client in $(seq 8); do
              rados bench -p large 8 write -b 4194304 -t 8 --run-name client$client > /dev/null & jobs+=($!)
          done
          for job in ${jobs[@]}; do wait $job; done");
    assert_within_budget(&c, 3);
    // Memory outside the buffer pools.
    c.sh("for bytes in 524288 4194304; do
              rados bench -p large 6 write --write-xattr -b $bytes -t 16 > /dev/null
              rados bench -p large 6 write --write-omap -b $bytes -t 16 > /dev/null
          done");
    assert_within_budget(&c, 3);
    // Acknowledged data is there after all OSDs have died.
    c.python(&values("write"));
    (0..3).for_each(|osd| c.kill(&format!("osd.{osd}")));
    c.python(&values("check"));
    assert_within_budget(&c, 3);
    assert_given_back(&c, 3);
}

#[test]
fn snapshots_of_large_objects_stay_within_the_budget() {
    let c = Cluster::up("large-snapshots", 3, &[]);
    c.sh("ceph osd pool create snaps 16 16 replicated; ceph osd pool application enable snaps test");
    c.wait_healthy();
    c.sh(&format!(
        "cat > snapshots.py <<'END'\n{}END\n/usr/bin/python3 snapshots.py 15",
        include_str!("../data/snapshots.py")
    ));
    assert_within_budget(&c, 3);
}

#[test]
fn the_largest_requests_stay_within_the_budget() {
    let c = Cluster::up("largest-requests", 3, &[]);
    c.sh("ceph osd pool create large 8 8 replicated");
    // Caches and tables have reached their limits.
    c.sh("rados bench -p large 3600 write -b 4096 -t 64 --max-objects 30000 --no-cleanup > /dev/null");
    c.sh(&format!(
        "cat > largest.py <<'END'\n{}END\n/usr/bin/python3 largest.py crc 1",
        include_str!("../data/largest.py")
    ));
    assert_within_budget(&c, 3);
    // Others wait or go on beside it.
    c.sh("/usr/bin/python3 largest.py crc 4");
    assert_within_budget(&c, 3);
    // A frame is encrypted in one piece: as much of it is in memory as the machine does not send in
    // time.
    c.sh("/usr/bin/python3 largest.py secure 2");
}

/// A smaller target is a bound, too.
#[test]
fn a_smaller_target_makes_an_osd_smaller() {
    const TARGET: u64 = 64 << 20;
    let c = Cluster::up("small-target", 3, &[]);
    c.down();
    let conf = std::fs::read_to_string(c.conf()).unwrap();
    std::fs::write(c.conf(), format!("{conf}\n[osd]\nosd_memory_target = {TARGET}\n")).unwrap();
    c.start(3, &[]);
    c.sh("ceph osd pool create small 32 32 replicated
          rados bench -p small 3600 write -b 4096 -t 64 --max-objects 60000 --no-cleanup > /dev/null
          rados bench -p small 5 rand -t 64 > /dev/null
          for client in $(seq 4); do
              rados bench -p small 5 write -b 4194304 -t 4 --run-name client$client > /dev/null & jobs+=($!)
          done
          for job in ${jobs[@]}; do wait $job; done");
    for osd in 0..3 {
        let shown = c.sh(&format!("ceph daemon osd.{osd} dump_mempools"));
        let peak = c.peak_rss(&format!("osd.{osd}"));
        println!("osd.{osd}: {} MiB at its peak", peak >> 20);
        assert!(peak <= TARGET, "osd.{osd} used {} MiB: {shown}", peak >> 20);
    }
}
