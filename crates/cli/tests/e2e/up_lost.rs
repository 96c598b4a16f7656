//! OSDs that are lost, replaced or removed below `spirula up`: the others go on, nothing is made
//! twice or overwritten, and all data is there afterwards.

use std::process::Stdio;

use crate::common::{Cluster, output, spirula, text};

/// Runs `spirula up --detach ARGS`: returns whether it succeeded, and its message.
fn up(c: &Cluster, args: &[&str]) -> (bool, String) {
    // The daemons inherit `up`'s output, so that a pipe would never end.
    let log = c.dir().with_extension("said");
    let file = std::fs::File::create(&log).unwrap();
    let mut command = spirula();
    command.args(["up", "--detach", "--dir"]).arg(c.dir()).args(args);
    let status = command.stdin(Stdio::null()).stderr(file).status().unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(log).unwrap();
    (status.success(), said)
}

fn up_succeeds(c: &Cluster, args: &[&str]) -> String {
    let (good, said) = up(c, args);
    assert!(good, "{args:?}: {said}\n{}", c.logs());
    said
}

fn up_fails(c: &Cluster, args: &[&str], why: &str) {
    let (good, said) = up(c, args);
    assert!(!good && said.contains(why), "{args:?}: no {why:?} in {said}");
}

/// `spirula osd rm ARGS`.
fn rm(c: &Cluster, args: &[&str]) -> (bool, String) {
    let out = spirula()
        .args(["osd", "rm", "--dir"])
        .arg(c.dir())
        .args(args)
        .output()
        .unwrap();
    (out.status.success(), text(&out.stderr))
}

fn rm_succeeds(c: &Cluster, osd: &str) -> String {
    let (good, said) = rm(c, &[osd]);
    assert!(good, "{said}\n{}", c.logs());
    said
}

fn rm_fails(c: &Cluster, args: &[&str], why: &str) {
    let (good, said) = rm(c, args);
    assert!(!good && said.contains(why), "{args:?}: no {why:?} in {said}");
}

/// Stores forty objects of many sizes, whose checksums `checked` has.
const STORE: &str = "mkdir -p sent; for i in $(seq 40); do head -c $((i * 7919)) /dev/urandom > sent/o$i; rados -p p put o$i sent/o$i; done";
/// Reads them all.
const CHECK: &str = "for i in $(seq 40); do timeout 60 rados -p p get o$i out; cmp out sent/o$i; done";

fn wanted(c: &Cluster) -> serde_json::Value {
    let spec = std::fs::read(c.dir().join("cluster.json")).unwrap();
    serde_json::from_slice::<serde_json::Value>(&spec).unwrap()["osds"].take()
}

#[test]
fn a_lost_osd_is_told_and_made_anew_and_the_others_go_on() {
    let c = Cluster::up("lost", 3, &[]);
    c.sh(
        "ceph osd pool create p 16 16 replicated; ceph osd pool application enable p test
          ceph config set global mon_allow_pool_size_one true; ceph osd pool create single 8 8 replicated
          ceph osd pool set single size 1 --yes-i-really-mean-it; ceph osd pool application enable single test
          ceph health mute POOL_NO_REDUNDANCY
          for i in $(seq 30); do rados -p single put s$i ceph.conf; done",
    );
    c.sh(STORE);
    c.sh("cp ceph.conf sample");
    let (dir, aside) = (c.dir().join("osd.2"), c.dir().join("aside"));
    // Its content is never overwritten, whether the OSD runs or not.
    up_fails(&c, &["--replace-osd", "2"], "may hold the only copy");
    up_fails(&c, &["--replace-osd", "7"], "not one of the cluster");
    c.down();
    up_fails(&c, &["--replace-osd", "2"], "may hold the only copy");

    std::fs::rename(&dir, &aside).unwrap();
    let said = up_succeeds(&c, &[]);
    assert!(said.contains("osd.2 is not run: the cluster has it"), "{said}");
    assert!(
        said.contains("--replace-osd 2") && said.contains("osd rm 2"),
        "{said}"
    );
    c.sh(CHECK);
    c.sh("rados -p p put o1 sent/o2; rados -p p put o1 sent/o1");
    assert!(!dir.exists());
    // The only replicas of a pool are on it.
    up_fails(&c, &["--replace-osd", "2"], "may hold what no other one has");
    rm_fails(&c, &["2"], "without osd.2 2 OSDs are left");
    rm_fails(&c, &["2", "--force"], "--yes-i-really-mean-it");
    let map = c.sh("ceph osd dump -f json");
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    let lost = &map["osds"][2];
    assert_eq!(
        (lost["osd"].as_u64(), lost["in"].as_u64(), lost["up"].as_u64()),
        (Some(2), Some(1), Some(0))
    );
    // Found again: all is as it was.
    std::fs::rename(&aside, &dir).unwrap();
    let said = up_succeeds(&c, &[]);
    assert!(!said.contains("is not run"), "{said}");
    c.wait_healthy();
    c.sh("for i in $(seq 30); do rados -p single get s$i out; cmp out sample; done");

    // Lost for good, when no pool depends on it alone.
    c.sh(
        "ceph osd pool delete single single --yes-i-really-really-mean-it 2>/dev/null || {
              ceph config set mon mon_allow_pool_delete true
              ceph osd pool delete single single --yes-i-really-really-mean-it
          }",
    );
    c.down();
    std::fs::remove_dir_all(&dir).unwrap();
    up_succeeds(&c, &[]);
    c.sh("rados -p p put while-away sample");
    let said = up_succeeds(&c, &["--replace-osd", "2"]);
    assert!(said.contains("osd.2 is made anew"), "{said}");
    c.wait_healthy();
    let map: serde_json::Value = serde_json::from_str(&c.sh("ceph osd dump -f json")).unwrap();
    let uuid = std::fs::read_to_string(dir.join("fsid")).unwrap();
    assert_eq!(map["osds"][2]["uuid"].as_str().unwrap(), uuid.trim());
    assert_ne!(map["osds"][2]["uuid"], lost["uuid"]);
    // Everything is read from the new one alone.
    c.sh("ceph osd primary-affinity 0 0; ceph osd primary-affinity 1 0");
    c.wait_healthy();
    assert!(
        c.sh("ceph pg dump pgs -f json | jq -c '[.pg_stats[] | select(.acting_primary == 2)] | length'")
            .trim()
            != "0"
    );
    c.sh(CHECK);
    c.sh("rados -p p get while-away out; cmp out sample");
    // Nothing is left to be done at the next start.
    c.down();
    let said = up_succeeds(&c, &[]);
    assert!(!said.contains("is not run"), "{said}");
    c.wait_healthy();
    c.sh(CHECK);
}

#[test]
fn osds_are_removed_when_nothing_depends_on_them_and_stay_removed() {
    let c = Cluster::up("removed", 4, &[]);
    c.sh("ceph osd pool create p 16 16 replicated; ceph osd pool application enable p test");
    c.sh(STORE);
    let dir = c.dir().join("osd.3");
    let said = rm_succeeds(&c, "3");
    assert!(said.contains("osd.3 is removed from the cluster"), "{said}");
    let gone = || {
        assert!(!dir.exists());
        assert_eq!(wanted(&c), 3);
        assert_eq!(c.sh("ceph osd ls"), "0\n1\n2\n");
        assert!(!c.sh("ceph auth ls 2>/dev/null; ceph osd tree").contains("osd.3"));
        c.wait_healthy();
        c.sh(CHECK);
    };
    gone();
    rm_fails(&c, &["3"], "there is no osd.3");
    rm_fails(&c, &["2"], "without osd.2 2 OSDs are left");
    for _ in 0..2 {
        c.down();
        assert!(!up_succeeds(&c, &[]).contains("is not run"));
        gone();
    }

    // A number in the middle, and then the same number again.
    up_succeeds(&c, &["--osds", "4"]);
    assert_eq!(c.sh("ceph osd ls"), "0\n1\n2\n3\n");
    rm_succeeds(&c, "1");
    assert_eq!(wanted(&c), serde_json::json!([0, 2, 3]));
    c.down();
    up_succeeds(&c, &["--osds", "3"]);
    assert_eq!(c.sh("ceph osd ls"), "0\n2\n3\n");
    c.sh(CHECK);
    up_succeeds(&c, &["--osds", "4"]);
    assert_eq!(
        (c.sh("ceph osd ls").as_str(), wanted(&c)),
        ("0\n1\n2\n3\n", 4.into())
    );
    c.wait_healthy();

    // By hand, as Ceph's documents have it: `up` forgets it.
    let by_hand = "ceph osd out 3
        until ceph osd safe-to-destroy 3 && ceph pg stat | grep -E '16 active.clean;' >/dev/null; do sleep 0.2; done
        ceph osd stop 3; until ceph osd dump -f json | jq -e '.osds[] | select(.osd == 3).up == 0' >/dev/null; do sleep 0.1; done
        ";
    c.sh(&format!(
        "{by_hand} ceph osd crush remove osd.3; ceph auth del osd.3; ceph osd rm 3"
    ));
    std::fs::remove_dir_all(&dir).unwrap();
    up_succeeds(&c, &[]);
    gone();
    // Purged, with the directory still there: the OSD is neither run nor made again, and the
    // suggested command works.
    up_succeeds(&c, &["--osds", "4"]);
    c.wait_healthy();
    c.sh(&format!("{by_hand} ceph osd purge 3 --yes-i-really-mean-it"));
    for _ in 0..2 {
        let said = up_succeeds(&c, &[]);
        assert!(
            said.contains("osd.3 is not run: it was removed from the cluster"),
            "{said}"
        );
        assert!(dir.join("block").exists());
        c.sh(CHECK);
        c.down();
    }
    rm_fails(&c, &["3"], "Does the cluster run?");
    up_succeeds(&c, &[]);
    let told = spirula().args(["status", "--dir"]).arg(c.dir()).output().unwrap();
    let told = output(&told);
    let line = told
        .lines()
        .find(|l| l.contains("osd.3: it was removed"))
        .unwrap();
    let command = line.split('`').nth(1).unwrap().replacen(
        "spirula",
        &crate::common::binary().display().to_string(),
        1,
    );
    c.sh(&command);
    gone();
}
