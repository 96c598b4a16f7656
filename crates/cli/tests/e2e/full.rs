//! A full cluster refuses or holds writes, lets deletes through, and recovers by itself.

use crate::common::Cluster;

#[test]
fn a_full_cluster_takes_deletes_and_recovers() {
    let c = Cluster::up("full", 3, &["--osd-size", "512M"]);
    c.sh("ceph osd pool create f 8 8 replicated; ceph osd pool application enable f test; head -c 4194304 /dev/urandom > in");
    // Writes until the cluster says that it is full: librados answers ENOSPC or holds the write.
    let written = c.sh(
        "i=0; while timeout 10 rados -p f put o$i in 2>err; do i=$((i+1)); [ $i -lt 400 ]; done; echo $i",
    );
    let written: u32 = written.trim().parse().unwrap();
    assert!(
        (40..128).contains(&written),
        "{written} objects of 4 MiB in 512 MiB"
    );
    let health = c.sh(
        "for i in $(seq 100); do ceph health detail > h; grep -q OSD_FULL h && break; sleep 0.1; done; cat h",
    );
    assert!(
        health.contains("HEALTH_ERR") && health.contains("OSD_FULL"),
        "{health}"
    );
    // Acknowledged data reads back from the full cluster.
    c.sh("rados -p f get o0 out; cmp in out");
    // Without this flag the official client itself holds removals for as long as the map says that
    // the pool is full.
    c.sh(&format!(
        "for i in $(seq 0 {}); do timeout 20 rados -p f rm o$i --force-full; done",
        written - 1
    ));
    c.wait_healthy();
    c.sh("for i in $(seq 0 9); do rados -p f put n$i in; rados -p f get n$i out; cmp in out; done");
}
