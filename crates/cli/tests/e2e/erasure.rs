//! Erasure-coded pools: everything that a replicated pool does, with members down and with damage.

use crate::common::Cluster;
use crate::conformance::CONFORMANCE;
use crate::damage::{content, damage_found, fsck, repaired};

/// A program in which 24 clients read an object of 14 MiB at once.
const LARGE_READS: &str = r#"
import os, rados
def client():
    cluster = rados.Rados(conffile=""); cluster.connect()
    data = cluster.open_ioctx("e").read("large", 14 << 20)
    os._exit(len(data) != 14 << 20)
clients = [os.fork() or client() for _ in range(24)]
assert not any([os.waitpid(pid, 0)[1] for pid in clients])
"#;

/// Makes a profile and a pool of this name.
fn make_pool(c: &Cluster, pool: &str, code: &str) {
    c.sh(&format!(
        "ceph osd erasure-code-profile set {pool} {code} crush-failure-domain=osd; \
         ceph osd pool create {pool} 8 8 erasure {pool}; ceph osd pool application enable {pool} test"
    ));
}

/// The path of a program of the conformance suites, which is built if it is not there.
fn program(c: &Cluster, name: &str) -> String {
    let out = format!("{}/conformance", env!("CARGO_TARGET_TMPDIR"));
    c.sh(&format!("make -s -C {CONFORMANCE}/cpp OUT={out} {out}/{name}"));
    format!("{out}/{name}")
}

#[test]
fn clients_cannot_tell_them_from_replicated_pools() {
    let c = Cluster::up("erasure-pools", 3, &[]);
    make_pool(&c, "e", "k=2 m=1");
    let out = format!("{}/conformance", env!("CARGO_TARGET_TMPDIR"));
    let said = c.sh(&format!(
        "{CONFORMANCE}/run --erasure e --suite cpp --suite python --out {out}"
    ));
    assert!(said.contains("cpp: ") && said.contains("python: "), "{said}");
    // Images with nothing beside the pool.
    let dir = c.dir().display();
    c.sh(&format!(
        "rbd pool init e; head -c 20000000 /dev/urandom > {dir}/in; rbd import {dir}/in e/a; \
         rbd snap create e/a@s; rbd snap protect e/a@s; rbd clone e/a@s e/b; \
         rbd bench --io-type write --io-size 4K --io-total 4M --io-pattern rand e/b; rbd flatten e/b; \
         rbd export e/a@s {dir}/out; cmp {dir}/in {dir}/out"
    ));
    // Far more reads at once than there is room for. Fragments of the larger object do not lie in
    // files.
    c.sh("head -c 14M /dev/urandom > in; rados -p e put large in");
    c.sh(&format!("timeout 60 /usr/bin/python3 -c '{LARGE_READS}'"));
    c.sh("timeout 60 rados bench -p e 3 write -t 32 --no-cleanup; \
         for i in 1 2 3 4; do timeout 60 rados bench -p e 4 rand -t 64 & pids+=($!); done; \
         for pid in ${pids[@]}; do wait $pid; done; rados -p e cleanup");
    for osd in ["osd.0", "osd.1", "osd.2"] {
        let peak = c.peak_rss(osd) >> 20;
        println!("{osd}: at most {peak} MiB");
        assert!(peak < 128, "{osd} took {peak} MiB");
    }
    let said = c.sh(&format!(
        "CONFORMANCE_PROFILE=e timeout 300 {} --ops 3000 --kill {dir}/run --every 4 --hasty 2",
        program(&c, "model")
    ));
    assert!(said.contains("3000 operations without a mismatch"), "{said}");
}

#[test]
fn all_borders_are_true_with_members_down() {
    let c = Cluster::up("erasure-borders", 6, &["--osd-size", "2G", "--no-respawn"]);
    c.sh("ceph osd pool create r 8 8 replicated; ceph osd pool application enable r test");
    make_pool(&c, "two", "k=2 m=1 stripe_unit=65536");
    make_pool(&c, "four", "k=4 m=2 stripe_unit=4096");
    c.sh("ceph osd pool set four min_size 4");
    c.wait_healthy();
    let borders = program(&c, "boundaries");
    let check = |pool: &str, more: &str| {
        let said = c.sh(&format!("timeout 200 {borders} {pool} {more}"));
        assert!(said.contains("cases without a difference"), "{said}");
    };
    check("two", "2 65536 --thin 11 --other r");
    check("four", "4 4096 --thin 11 --other r");
    c.sh("ceph osd set noout");
    c.kill("osd.5");
    c.sh("until ceph osd dump | grep -q \"osd.5 down\"; do sleep 0.2; done");
    check("two", "2 65536 --thin 19");
    c.kill("osd.4");
    c.sh("until ceph osd dump | grep -q \"osd.4 down\"; do sleep 0.2; done");
    check("four", "4 4096 --thin 13");
}

#[test]
fn what_rots_of_one_part_is_made_of_the_others() {
    let flags = ["--osd-size", "1G"];
    let c = Cluster::up("erasure-damage", 3, &flags);
    make_pool(&c, "e", "k=2 m=1");
    c.wait_healthy();
    let dir = c.dir().display();
    // The second one has one unit: its data and its parity are the same bytes.
    for (object, len) in [("large", (4 << 20) + 100), ("small", 9000), ("hopeless", 9000)] {
        std::fs::write(c.dir().join(object), content(object, len)).unwrap();
        c.sh(&format!(
            "rados -p e put {object} {dir}/{object}; rados -p e setomapval {object} key value"
        ));
    }
    c.sh("for i in 0 1 2; do ceph tell osd.$i flush_journal; done");
    c.down();
    let osds = ["0", "1", "2"];
    let on_one = |object: &str, block: usize| {
        let found = osds.iter().map(|osd| damage_found(&c, osd, object, &[block]));
        found.take_while(|n| *n == 0).count()
    };
    let large = on_one("large", 3);
    assert!(large < osds.len(), "the first unit is on one OSD");
    on_one("small", 1);
    let all: usize = osds
        .iter()
        .map(|osd| damage_found(&c, osd, "hopeless", &[0]))
        .sum();
    assert_eq!(all, 2, "data and parity");
    assert!(!fsck(&c, osds[large]));
    c.start(3, &flags);
    c.wait_healthy();
    for object in ["large", "small"] {
        c.sh(&format!(
            "timeout 60 rados -p e get {object} {dir}/back; cmp {dir}/back {dir}/{object}"
        ));
    }
    let (objects, shards) = repaired(&c);
    assert!(objects >= 2 && shards >= 2, "{objects} {shards}");
    let (status, _) = c.sh_fails(&format!("timeout 60 rados -p e get hopeless {dir}/back"));
    assert_ne!(status, 124, "the client waits");
    repaired(&c);
    let health = c.sh("ceph health detail");
    assert!(health.contains("1/3 objects unfound"), "{health}");
    c.sh(&format!("rados -p e put hopeless {dir}/large"));
    c.wait_healthy();
    c.down();
    assert!(osds.iter().all(|osd| fsck(&c, osd)));
}
