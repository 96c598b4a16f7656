//! `spirula up` and `down`: the supervisor as users see it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Cluster, binary, spirula, text};

fn wait_until(what: &str, seconds: u64, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn two_clusters_run_side_by_side() {
    let (a, b) = (Cluster::up("side-a", 1, &[]), Cluster::up("side-b", 2, &[]));
    assert_ne!(a.sh("ceph fsid"), b.sh("ceph fsid"));
    assert_eq!(a.sh("ceph osd ls").lines().count(), 1);
    assert_eq!(b.sh("ceph osd ls").lines().count(), 2);
    a.down();
    assert_eq!(b.sh("ceph health"), "HEALTH_OK\n");
}

#[test]
fn a_cluster_goes_on_with_its_data_and_grows() {
    let c = Cluster::up("grows", 2, &[]);
    c.sh(
        "ceph osd pool create p 8 8 replicated; ceph osd pool application enable p test
          for i in $(seq 20); do rados -p p put o$i ceph.conf; done",
    );
    c.down();
    let (_, said) = c.sh_fails("timeout 2 ceph -s");
    assert!(!said.contains("HEALTH"), "{said}");
    c.start(2, &[]);
    // A running cluster: the third OSD is added, and data moves to it.
    c.start(3, &[]);
    assert_eq!(c.sh("ceph osd ls").lines().count(), 3);
    c.sh("ceph osd pool set p size 3");
    c.wait_healthy();
    c.sh("for i in $(seq 20); do rados -p p get o$i out; cmp out ceph.conf; done");
    let out = spirula()
        .args(["up", "--detach", "--osds", "1", "--dir"])
        .arg(c.dir())
        .output()
        .unwrap();
    assert!(
        !out.status.success() && text(&out.stderr).contains("has 3 OSDs"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn a_daemon_that_dies_comes_back() {
    let c = Cluster::up("respawn", 3, &[]);
    // A new process hears only from the monitors that it is to leave its place and class alone.
    c.sh("ceph config set osd osd_crush_update_on_start false; ceph config set osd osd_class_update_on_start false
          ceph osd crush set osd.1 0.5 root=default host=elsewhere; ceph osd crush rm-device-class osd.1");
    let before = c.pid("osd.1");
    c.kill("osd.1");
    wait_until("osd.1 is started again", 20, || c.pid("osd.1") != before);
    c.wait_healthy();
    c.sh("ceph osd find 1 | grep -q '\"host\": \"elsewhere\"'
          ceph osd tree | grep -q 'osd.1 .*up'; ceph osd crush get-device-class osd.1 2>&1 | grep -vq ssd");
    let before = c.pid("mon.a");
    c.kill("mon.a");
    wait_until("mon.a is started again", 20, || c.pid("mon.a") != before);
    c.wait_healthy();
}

#[test]
fn a_pool_serves_with_min_size_members_and_holds_requests_with_fewer() {
    let c = Cluster::up("away", 3, &["--no-respawn"]);
    c.sh("ceph osd pool create p 8 8 replicated; ceph osd pool application enable p test; rados -p p put a ceph.conf");
    c.kill("osd.2");
    c.sh("ceph osd down 2");
    wait_until("health names the OSD", 20, || {
        c.sh("ceph health detail").contains("osd.2 (root=default,host=")
    });
    c.sh("timeout 60 rados -p p put b ceph.conf; timeout 60 rados -p p get a out; cmp out ceph.conf");
    wait_until("the states tell", 20, || {
        let pgs = c.sh("ceph pg ls");
        pgs.contains("active+undersized+degraded") && !pgs.contains("peer")
    });
    // One of three is fewer than min_size.
    c.kill("osd.1");
    c.sh("ceph osd down 1");
    wait_until("the PGs do not serve", 20, || {
        c.sh("ceph pg ls").matches("undersized+degraded+peered").count() > 0
    });
    let mut held = c
        .shell("rados -p p put c ceph.conf")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        held.try_wait().unwrap().is_none(),
        "a write was acknowledged by one OSD alone"
    );
    // `up` on a running cluster starts missing daemons.
    c.start(3, &["--no-respawn"]);
    assert!(held.wait().unwrap().success());
    c.sh("for o in a b c; do rados -p p get $o out; cmp out ceph.conf; done");
    c.wait_healthy();
}

#[test]
fn our_own_clients_answer_like_the_official_ones() {
    let c = Cluster::up("own-clients", 3, &[]);
    c.sh("ceph osd pool create p 8 8 replicated; ceph osd pool application enable p test");
    let bin = binary().display().to_string();
    c.sh(&format!(
        "mkdir bin; ln -s {bin} bin/ceph; ln -s {bin} bin/rados; own=$PWD/bin
         for command in 'osd tree' 'osd pool ls detail' 'osd dump' 'fsid' 'auth ls' 'osd df' 'mon dump -f json' 'config dump'; do
             $own/ceph $command > own.out 2> own.err; ceph $command > official.out 2> official.err
             cmp own.out official.out
         done
         for bad in 'osd pool get nosuch size' 'nonsense' 'osd pool create'; do
             own_code=0; $own/ceph $bad > /dev/null 2>&1 || own_code=$?
             code=0; ceph $bad > /dev/null 2>&1 || code=$?
             [ $own_code = $code ]
         done
         $own/rados -p p put o ceph.conf; rados -p p get o out; cmp out ceph.conf
         rados -p p put q ceph.conf; $own/rados -p p get q out; cmp out ceph.conf
         [ \"$($own/rados -p p ls | sort)\" = \"$(rados -p p ls | sort)\" ]
         {bin} rados -p p rm o; [ \"$(rados -p p ls)\" = q ]
         {bin} rados bench -p p 1 write -b 4096 > /dev/null"
    ));
}

/// Runs `spirula up --detach ARGS`, which must fail before it starts anything; returns its message.
fn up_fails(args: &[&str]) -> String {
    let begun = Instant::now();
    let out = spirula().args(["up", "--detach"]).args(args).output().unwrap();
    let said = text(&out.stderr);
    assert!(!out.status.success(), "up {args:?} succeeded: {said}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{args:?}: {said}");
    said
}

#[test]
fn the_configuration_is_plain_and_that_of_earlier_versions_is_mended() {
    let c = Cluster::up("plain-conf", 1, &[]);
    // As the parsers of OpenStack and others read it: one option a line, no metavariables, plain
    // addresses.
    let keyring = "import configparser, os, sys
p = configparser.ConfigParser(strict=False, interpolation=None)
p.read(os.environ['CEPH_CONF'])
keyring, host = p['client.admin']['keyring'], p['global']['mon_host']
assert os.path.isfile(keyring) and '/' not in host, (keyring, host)
print(keyring)";
    let keyring = c.python(keyring);
    let plain = std::fs::read_to_string(c.conf()).unwrap();
    c.down();
    let admin = format!("[client.admin]\nkeyring = {}\n", keyring.trim());
    assert!(plain.contains(&admin));
    let mon_host = plain.lines().find(|l| l.starts_with("mon_host = ")).unwrap();
    let of_old = mon_host.replace(']', "/0]");
    let mine = "[client.mine]\n# a comment\n    mon host = [v2:10.0.0.9:3300/0]\n";
    let old = plain.replace(&admin, "").replace(mon_host, &of_old) + mine;
    std::fs::write(c.conf(), &old).unwrap();
    c.start(1, &[]);
    let mended = std::fs::read_to_string(c.conf()).unwrap();
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|l| !l.is_empty());
        lines.map(str::to_owned).collect()
    };
    assert_eq!(lines(&mended), lines(&(plain + mine)));
    assert_eq!(c.sh("ceph health"), "HEALTH_OK\n");
}

#[test]
fn odd_wishes_are_refused_with_a_reason() {
    let dir = std::env::temp_dir().join(format!("spirula-odd-{}", std::process::id()));
    let in_dir = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let plain = in_dir("plain");
    for (args, reason) in [
        (&["--osds", "0", "--dir", &plain][..], "--osds must be 1 to"),
        (&["--osd-size", "100M", "--dir", &plain], "at least 256 MiB"),
        (
            &["--bind", "192.0.2.1", "--dir", &plain],
            "can't listen on 192.0.2.1",
        ),
        (
            &["--bind", "0.0.0.0", "--dir", &plain],
            "one address of this machine",
        ),
        (&["--dir", &in_dir("it's")], "no place for quotes"),
        (&["--dir", &in_dir(&"x".repeat(100))], "it may have 86 bytes"),
        (&["--dir", "/proc/spirula"], "can't create /proc/spirula"),
        (&["--dir", "/etc/hostname/spirula"], "Not a directory"),
    ] {
        let said = up_fails(args);
        assert!(said.contains(reason), "{args:?}: {said}");
    }
    assert!(!dir.exists(), "something was left behind");
    let down = spirula().args(["down", "--dir", &plain]).output().unwrap();
    assert!(!down.status.success() && text(&down.stderr).contains("no cluster in"));
}

#[test]
fn odd_wishes_that_work() {
    // A directory with spaces, IPv6, stores larger than the disk, which is said.
    let c = Cluster::up("odd wishes", 2, &["--bind", "::1", "--osd-size", "1T"]);
    let again = c.shell(&format!(
        "{} up --detach --osd-size 1T --dir . 2>&1",
        binary().display()
    ));
    let said = text(&{ again }.output().unwrap().stdout);
    assert!(
        said.contains("the stores of osd.0, osd.1 may grow by 2.0"),
        "{said}"
    );
    c.sh(
        "ceph osd pool create p 8 8 replicated; ceph osd pool application enable p test
          rados -p p put a ceph.conf; rados -p p get a out; cmp out ceph.conf",
    );
    assert!(c.sh("ceph osd dump").contains("v2:[::1]:"));
    c.down();
    c.down();
}

#[test]
fn a_taken_port_is_named() {
    let c = Cluster::up("port", 1, &[]);
    let conf = std::fs::read_to_string(c.conf()).unwrap();
    let addr = conf.lines().find_map(|l| l.strip_prefix("mon_addr = ")).unwrap();
    c.down();
    let taken = std::net::TcpListener::bind(addr).unwrap();
    let said = up_fails(&["--dir", c.dir().to_str().unwrap()]);
    assert!(said.contains(addr) && said.contains("in use"), "{said}");
    drop(taken);
    c.start(1, &[]);
}

#[test]
fn up_while_down_runs_ends_with_a_running_cluster() {
    let c = Cluster::up("up-down", 3, &[]);
    for pause in [0, 30, 60] {
        let mut down = spirula().args(["down", "--dir"]).arg(c.dir()).spawn().unwrap();
        // Else `up` may be done before `down` has begun, which then stops the cluster, as it
        // should.
        let supervisor = c.dir().join("run/supervisor.pid");
        let called = Instant::now();
        while !std::fs::read_to_string(&supervisor).unwrap().contains("leaving") {
            assert!(
                called.elapsed() < Duration::from_secs(10),
                "`down` does not begin"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(pause));
        c.start(3, &[]);
        let begun = Instant::now();
        assert!(down.wait().unwrap().success());
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "`down` waited for the new cluster"
        );
        c.wait_healthy();
    }
}
