//! Monitors in quorum, as an administrator and the official tools see them.

use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::{Cluster, spirula, text};

fn wait_until(what: &str, seconds: u64, c: &Cluster, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !done() {
        assert!(
            Instant::now() < deadline,
            "{what}: not within {seconds} s\n{}",
            c.logs()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// One cluster at a time: the measured times need an otherwise idle machine.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names of the monitors in quorum, the leader's first.
fn quorum(c: &Cluster) -> (String, Vec<String>) {
    let script = "timeout 20 ceph quorum_status -f json | \
                  /usr/bin/python3 -c 'import json,sys; q=json.load(sys.stdin); \
                  print(q[\"quorum_leader_name\"], *q[\"quorum_names\"])'";
    let out = c.shell(script).output().unwrap();
    let mut words = text(&out.stdout)
        .split_whitespace()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    match words.is_empty() {
        true => (String::new(), words),
        false => (words.remove(0), words),
    }
}

fn wait_quorum(c: &Cluster, names: &str) {
    let wanted: Vec<&str> = names.split(',').collect();
    wait_until(&format!("quorum {names}"), 30, c, || quorum(c).1 == wanted);
}

/// A monitor outside of `up`'s supervision; killed when dropped.
struct Mon(Child);

impl Drop for Mon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mkfs(c: &Cluster, id: &str) {
    c.sh(&format!(
        "rm -rf mon.{id}; timeout 20 ceph mon getmap -o monmap 2> /dev/null; mkdir -p mon.{id}
         timeout 20 ceph auth get mon. 2> /dev/null > mon.{id}/keyring"
    ));
    let out = spirula()
        .args(["mon", "mkfs", "--id", id, "--monmap"])
        .arg(c.dir().join("monmap"))
        .arg("--keyring")
        .arg(c.dir().join(format!("mon.{id}/keyring")))
        .arg("--conf")
        .arg(c.conf())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
}

fn run(c: &Cluster, id: &str) -> Mon {
    let log = std::fs::File::create(c.dir().join(format!("log/mon.{id}.log"))).unwrap();
    let child = spirula()
        .args(["mon", "run", "--id", id, "--conf"])
        .arg(c.conf())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    Mon(child)
}

#[test]
fn the_leader_dies_and_hardly_anybody_notices() {
    let _turn = turn();
    let c = Cluster::up("leader", 3, &["--mons", "3", "--no-respawn"]);
    wait_quorum(&c, "a,b,c");
    c.wait_healthy();
    let status = c.sh("ceph -s");
    assert!(status.contains("mon: 3 daemons, quorum a,b,c (age "), "{status}");
    assert_eq!(c.sh("ceph mon versions -f json").matches(":3").count(), 1);
    c.sh("ceph osd pool create p 8; ceph osd pool application enable p test");
    let mut bench = c
        .shell("timeout 60 rados -p p bench 12 write -b 4096 -t 4")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let (leader, _) = quorum(&c);
    c.kill(&format!("mon.{leader}"));
    let began = Instant::now();
    c.sh("timeout 20 ceph osd pool set p size 2");
    let took = began.elapsed();
    println!("the next command took {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let left: Vec<&str> = ["a", "b", "c"].into_iter().filter(|n| *n != leader).collect();
    let health = c.sh("ceph health detail");
    let names = left.join(",");
    assert!(
        health.contains(&format!("MON_DOWN: 1/3 mons down, quorum {names}")),
        "{health}"
    );
    let line = format!("mon.{leader} (rank ");
    assert!(
        health.contains(&line) && health.contains("is down (out of quorum)"),
        "{health}"
    );
    assert!(bench.wait().unwrap().success());
    let status = c.sh("ceph -s");
    assert!(status.contains(&format!("out of quorum: {leader}")), "{status}");
    // No OSD was lost on the way, and all go on reporting.
    assert_eq!(
        c.sh("ceph osd stat -f json").matches("\"num_up_osds\":3").count(),
        1
    );
    c.start(3, &["--no-respawn"]);
    wait_quorum(&c, "a,b,c");
    c.wait_healthy();
    // Every monitor answers for itself, and has the same map.
    c.sh("for m in a b c; do ceph tell mon.$m mon_status | grep '\"name\": \"'$m'\"' >/dev/null; done");
}

#[test]
fn a_minority_answers_nothing_and_a_majority_goes_on() {
    let _turn = turn();
    let c = Cluster::up("minority", 1, &["--mons", "3", "--no-respawn"]);
    wait_quorum(&c, "a,b,c");
    let (leader, names) = quorum(&c);
    let others: Vec<&String> = names.iter().filter(|n| **n != leader).collect();
    others.iter().for_each(|n| c.kill(&format!("mon.{n}")));
    let mut waiting = c
        .shell("timeout 100 ceph osd set noout")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(7));
    assert!(
        waiting.try_wait().unwrap().is_none(),
        "a minority changed the map"
    );
    c.sh_fails("timeout 30 ceph --connect-timeout 4 -s");
    c.start(1, &["--no-respawn"]);
    assert!(waiting.wait().unwrap().success());
    wait_quorum(&c, "a,b,c");
    assert!(c.sh("timeout 20 ceph osd dump").contains("noout"));
}

#[test]
fn monitors_come_lose_their_disks_and_go() {
    let _turn = turn();
    let c = Cluster::up("members", 1, &["--mons", "3", "--no-respawn"]);
    wait_quorum(&c, "a,b,c");
    c.sh("ceph config-key set k v");
    // Its disk is lost: it is made again, and has everything from the others.
    c.kill("mon.b");
    mkfs(&c, "b");
    let b = run(&c, "b");
    wait_quorum(&c, "a,b,c");
    // More of them: one with a place in the map, one that just comes.
    let held: Vec<_> = (0..2)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports: Vec<u16> = held.iter().map(|l| l.local_addr().unwrap().port()).collect();
    drop(held);
    c.sh(&format!(
        "printf '[mon.d]\\nmon_addr = 127.0.0.1:{}\\n[mon.e]\\nmon_addr = 127.0.0.1:{}\\n' >> ceph.conf
         ceph mon add d 127.0.0.1:{} 2>&1 | grep 'adding mon.d at v2:127.0.0.1:{}/0' >/dev/null",
        ports[0], ports[1], ports[0], ports[0]
    ));
    let health = c.sh("ceph health detail");
    assert!(health.contains("1/4 mons down, quorum a,b,c"), "{health}");
    mkfs(&c, "d");
    let d = run(&c, "d");
    wait_quorum(&c, "a,b,c,d");
    mkfs(&c, "e");
    let mut e = run(&c, "e");
    wait_quorum(&c, "a,b,c,d,e");
    assert_eq!(c.sh("ceph mon dump -f json").matches("\"rank\"").count(), 5);
    // Two may die now.
    c.kill("mon.a");
    drop(d);
    wait_quorum(&c, "b,c,e");
    c.sh("ceph config-key set k2 v2");
    // A removed one ends by itself.
    c.sh("ceph mon rm a; ceph mon rm d; ceph mon rm e");
    wait_until("mon.e ends", 20, &c, || e.0.try_wait().unwrap().is_some());
    assert!(!e.0.wait().unwrap().success());
    wait_quorum(&c, "b,c");
    let (leader, _) = quorum(&c);
    let last = if leader == "b" { "c" } else { "b" };
    // The leader itself, which is one of two.
    c.sh(&format!("ceph mon rm {leader}"));
    wait_quorum(&c, last);
    let again = c.sh_fails(&format!("ceph mon rm {last}"));
    assert!(again.1.contains("refusing removal of last monitor"), "{again:?}");
    assert_eq!(c.sh("ceph config-key get k; ceph config-key get k2"), "vv2");
    c.wait_healthy();
    drop((b, e));
}
