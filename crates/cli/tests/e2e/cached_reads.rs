//! Small reads through the system's page cache: when it answers, when it is passed by, and that an
//! operator can turn it off.

use std::time::{Duration, Instant};

use spirula_proto::osd::OpFlags;

use crate::common::Cluster;
use crate::common::raw_client::{RawClient, run};
use crate::common::raw_ops::{RawPool, read, write_full};

/// Reads that the page cache answered, and that the device was asked for, since the start.
fn counts(c: &Cluster) -> (u64, u64) {
    let said = c.sh("ceph tell osd.0 perf dump | jq '.store | .cached_reads, .device_reads'");
    let mut numbers = said.split_whitespace().map(|n| n.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// What `work` adds to the counts.
fn added(c: &Cluster, work: impl FnOnce()) -> (u64, u64) {
    let before = counts(c);
    work();
    let after = counts(c);
    (after.0 - before.0, after.1 - before.1)
}

fn set_cached(c: &Cluster, on: bool) {
    const OPTION: &str = "bluestore_default_buffered_read";
    c.sh(&format!("ceph config set osd {OPTION} {on}"));
    let until = Instant::now() + Duration::from_secs(20);
    while c
        .sh(&format!("ceph tell osd.0 config get {OPTION} | jq -r .{OPTION}"))
        .trim()
        != on.to_string()
    {
        assert!(Instant::now() < until, "{OPTION} does not change");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn small_reads_are_answered_from_free_memory() {
    let c = Cluster::up("cached-reads", 1, &[]);
    c.sh("ceph osd pool create p 8 8 replicated; ceph osd pool application enable p test");
    c.sh("for i in $(seq 40); do head -c 9000 /dev/urandom > o$i; rados -p p put o$i o$i; done");
    c.sh("head -c 4000000 /dev/urandom > large; rados -p p put large large");
    // A restart writes all back, so that nothing is answered from what waits for that.
    c.down();
    c.start(1, &[]);
    let get = || {
        c.sh("for i in $(seq 40); do rados -p p get o$i back; cmp back o$i; done");
    };
    let large = || {
        c.sh("rados -p p get large back; cmp back large");
    };
    let (cached, device) = added(&c, get);
    // A device may have read the pages by the time the kernel looks whether they are there.
    assert!(
        device >= 20 && cached + device >= 40,
        "first: {cached} cached, {device} of the device"
    );
    // The kernel may want a page back, or be busy with it.
    let (cached, device) = added(&c, get);
    assert!(
        cached >= 35 && device <= 5,
        "then: {cached} cached, {device} of the device"
    );
    let (cached, _) = added(&c, || (0..3).for_each(|_| large()));
    assert_eq!(cached, 0, "large reads go past the cache");

    set_cached(&c, false);
    let (cached, device) = added(&c, get);
    assert!(
        cached == 0 && device >= 40,
        "off: {cached} cached, {device} of the device"
    );
    set_cached(&c, true);

    c.sh("ceph osd pool create q 1 1 replicated; ceph osd pool application enable q test");
    run(async {
        let client = RawClient::login(&c, "client.admin").await;
        let mut pool = RawPool::open(&c, &client, "q").await;
        let written = pool.result(b"once", vec![write_full(&[7; 5000])]).await;
        assert_eq!(written, 0);
    });
    c.down();
    c.start(1, &[]);
    run(async {
        let client = RawClient::login(&c, "client.admin").await;
        let mut pool = RawPool::open(&c, &client, "q").await;
        for flag in [OpFlags::FADVISE_DONTNEED, OpFlags::FADVISE_NOCACHE] {
            for _ in 0..3 {
                let mut op = read();
                op.op = op.op.with_flags(flag);
                let before = counts(&c);
                assert_eq!(pool.result(b"once", vec![op]).await, 0);
                let after = counts(&c);
                assert!(
                    after.0 == before.0 && after.1 > before.1,
                    "{flag}: {before:?} to {after:?}"
                );
            }
        }
    });
    println!("osd.0: {} MiB at its peak", c.peak_rss("osd.0") >> 20);
    c.down();
}
