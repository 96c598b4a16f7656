//! Memory is a budget: an OSD stays within it whatever the load.

use std::time::{Duration, Instant};

use crate::common::Cluster;

/// What an OSD may use at most.
const LIMIT: u64 = 128 << 20;

fn assert_within_budget(c: &Cluster, osds: u32) {
    for osd in 0..osds {
        let rss = c.peak_rss(&format!("osd.{osd}"));
        println!("osd.{osd}: {} MiB at its peak", rss >> 20);
        assert!(rss <= LIMIT, "osd.{osd} used {} MiB", rss >> 20);
    }
}

/// What OSDs that have nothing to do may keep after large values.
const IDLE: u64 = 60 << 20;

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

/// `SPIRULA_OBJECTS` sets how many; a million takes some minutes.
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
    // What is in no buffer of a pool.
    c.sh("for bytes in 524288 2097152; do
              rados bench -p large 6 write --write-xattr -b $bytes -t 16 > /dev/null
          done
          rados bench -p large 6 write --write-omap -b 1048576 -t 16 > /dev/null");
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
