//! The manager is a process of its own: data that it reads in pools may end it, and never the
//! monitor.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Cluster, binary, managers_of, output, process_status, spirula};

fn run(c: &Cluster, script: &str) -> String {
    let common = [
        include_str!("../data/rbd/common.sh"),
        include_str!("../data/rbd/tasks_common.sh"),
    ];
    c.sh(&format!("cd work\n{}\n{script}", common.join("\n")))
}

/// A script that names the binary under test.
fn run_with_binary(c: &Cluster, script: &str) -> String {
    run(c, &format!("SPIRULA={}\n{script}", binary().display()))
}

fn cluster(name: &str, extra: &[&str]) -> Cluster {
    let c = Cluster::up(name, 1, extra);
    c.sh("mkdir work; for pool in p q; do ceph osd pool create $pool 8 8 replicated; rbd pool init $pool; done");
    c
}

/// Kibibytes in a field of a process's status.
fn kib(pid: u32, field: &str) -> u64 {
    let value = process_status(pid, field).unwrap();
    value.trim_end_matches(" kB").parse().unwrap()
}

/// The managers of a monitor.
fn managers(c: &Cluster, mon: &str) -> Vec<u32> {
    managers_of(c.pid(mon))
}

/// Waits for something.
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The one manager of a monitor that is not among `before`.
fn manager(c: &Cluster, mon: &str, before: &[u32]) -> u32 {
    until("no manager runs", || match managers(c, mon)[..] {
        [one] if !before.contains(&one) => Some(one),
        _ => None,
    })
}

fn signal(pid: u32, signal: &str) {
    let done = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .unwrap();
    assert!(done.success());
}

/// The rights that the process has given up, and that it ends with its monitor.
#[test]
fn the_manager_is_confined_and_ends_with_its_monitor() {
    let c = cluster("manager-confined", &["--no-respawn"]);
    run(&c, "ready");
    let pid = manager(&c, "mon.a", &[]);
    assert_eq!(process_status(pid, "NoNewPrivs:").unwrap(), "1");
    assert_eq!(
        process_status(pid, "Uid:"),
        process_status(c.pid("mon.a"), "Uid:")
    );
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(limit("Max data size"), (192 << 20).to_string());
    assert_eq!(limit("Max core file size"), "0");
    // Files of the monitor's, and its sockets, are none of its.
    for fd in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let target = std::fs::read_link(fd.path()).unwrap_or_default();
        let inside = target.starts_with(c.dir()) && target != c.dir().join("log/mon.a.log");
        assert!(!inside, "{}", target.display());
    }
    // The limit counts used memory, not what the allocator reserves.
    println!(
        "idle: {} KiB resident, {} KiB of data",
        kib(pid, "VmRSS:"),
        kib(pid, "VmData:")
    );
    assert!(
        kib(pid, "VmData:") < 48 << 10,
        "{} KiB of data",
        kib(pid, "VmData:")
    );
    // Nobody else starts it.
    for input in ["/dev/null", "/proc/version"] {
        let file = std::fs::File::open(input).unwrap();
        let refused = spirula().arg("manager").stdin(file).output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            output(&refused).contains("a monitor starts the manager"),
            "{}",
            output(&refused)
        );
    }
    c.kill("mon.a");
    until("the manager outlives its monitor", || {
        (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
}

/// Images that exist before the tasks: a parent with data, and clones with data of their own.
const CLONES: &str = "
    rbd create --size 256 --object-size 64K p/parent
    rbd bench --io-type write --io-size 1M --io-total 256M p/parent >/dev/null
    rbd snap create --no-progress p/parent@s; rbd snap protect p/parent@s
    rbd clone p/parent@s p/one; rbd clone p/parent@s q/two
    rbd export --no-progress p/one before";

#[test]
fn tasks_go_on_when_the_manager_is_killed() {
    let c = cluster("manager-killed", &[]);
    run(
        &c,
        &format!(
            "ready\n{CLONES}\nceph rbd task add flatten p/one; ceph rbd task add flatten q/two\nin_progress"
        ),
    );
    let mon = c.pid("mon.a");
    let quorum = || {
        c.sh("ceph quorum_status -f json | /usr/bin/python3 -c 'import json, sys; v = json.load(sys.stdin); print(v[\"election_epoch\"], v[\"quorum_names\"])'")
    };
    let before = quorum();
    let mut killed = Vec::new();
    for _ in 0..2 {
        let pid = manager(&c, "mon.a", &killed);
        signal(pid, "-9");
        killed.push(pid);
        run(&c, "ready");
    }
    let last = manager(&c, "mon.a", &killed);
    run(
        &c,
        "for image in p/one q/two; do
             while rbd info $image | grep parent: >/dev/null; do sleep 0.2; done
         done
         idle; same p/one before; same q/two before
         ceph log last 100 warn | grep \"manager's modules ended and start again: its process ended: signal: 9\" >/dev/null
         ceph health detail | grep MGR_MODULE_ERROR && exit 1; true",
    );
    assert_eq!((c.pid("mon.a"), quorum()), (mon, before));
    println!("the manager took {} KiB at most", kib(last, "VmHWM:"));
}

/// A hanging manager is killed; one that ends again and again is reported, and restarted less and
/// less often.
#[test]
fn a_manager_that_is_silent_or_dies_again_and_again_is_told_of() {
    let c = cluster("manager-silent", &[]);
    run(&c, "ready; ceph config set mon spirula_manager_silence 2");
    let mon = c.pid("mon.a");
    let mut gone = vec![manager(&c, "mon.a", &[])];
    // The one that is there was started before.
    signal(gone[0], "-9");
    let silent = manager(&c, "mon.a", &gone);
    run(&c, "ready");
    gone.push(silent);
    let begun = Instant::now();
    signal(silent, "-STOP");
    gone.push(manager(&c, "mon.a", &gone));
    assert!(begun.elapsed() >= Duration::from_secs(1), "it was killed before");
    run(
        &c,
        "ready; ceph log last 100 warn | grep 'was silent for 2 seconds and was killed' >/dev/null",
    );
    let third = *gone.last().unwrap();
    signal(third, "-9");
    run(
        &c,
        "says \"Module 'rbd_support' has failed: its process ended: signal: 9\" ceph health detail
         says MGR_MODULE_ERROR ceph health detail
         ready",
    );
    // It comes back after a pause all the same.
    manager(&c, "mon.a", &gone);
    assert_eq!(c.pid("mon.a"), mon);
}

/// An image whose header names another pool's data is not written, whoever asks.
#[test]
fn images_that_lie_about_their_data_are_not_written() {
    let c = cluster("manager-liar", &[]);
    run_with_binary(&c, include_str!("../data/rbd/liar.sh"));
}

#[test]
fn what_lies_in_pools_ends_neither_the_monitor_nor_the_manager() {
    let c = cluster("manager-hostile", &[]);
    let mon = c.pid("mon.a");
    run_with_binary(&c, include_str!("../data/rbd/manager_hostile.sh"));
    assert_eq!(c.pid("mon.a"), mon);
    let log = std::fs::read_to_string(c.dir().join("log/mon.a.log")).unwrap_or_default();
    assert!(!log.contains("memory allocation"), "{log}");
    // It was told to begin anew once, and never ended by itself.
    run(
        &c,
        "if ceph log last 200 warn | grep 'modules ended'; then exit 1; fi",
    );
    let manager = manager(&c, "mon.a", &[]);
    let (peak, of_monitor) = (kib(manager, "VmHWM:"), c.peak_rss("mon.a") >> 10);
    println!("the manager took {peak} KiB at most, the monitor {of_monitor} KiB");
    assert!(peak < 64 << 10);
}

/// Objects of 32 MiB, which are copied in one piece: one image at a time.
#[test]
fn large_objects_are_copied_in_turn() {
    let c = cluster("manager-large", &[]);
    run(
        &c,
        "ready
         ceph osd pool create r 8 8 replicated; rbd pool init r
         for pool in p q r; do
             rbd create --size 640 --object-size 32M $pool/parent
             rbd bench --io-type write --io-size 4M --io-total 640M $pool/parent >/dev/null
             rbd snap create --no-progress $pool/parent@s; rbd snap protect $pool/parent@s
             rbd clone --object-size 32M $pool/parent@s $pool/clone
         done",
    );
    let before = manager(&c, "mon.a", &[]);
    run(
        &c,
        "for pool in p q r; do ceph rbd task add flatten $pool/clone >/dev/null; done
         for _ in $(seq 300); do
             under_way=$(ceph rbd task list | grep -c '\"in_progress\": true' || true)
             test \"$under_way\" -lt 3 || break
             test \"$(ceph rbd task list)\" != '[]' || { echo 'never three at a time' >&2; exit 1; }
         done
         for _ in $(seq 600); do test \"$(ceph rbd task list)\" != '[]' || break; sleep 0.5; done
         idle
         for pool in p q r; do
             test -z \"$(rbd info $pool/clone | grep parent:)\"
             rbd export --no-progress $pool/clone copied
             rbd export --no-progress $pool/parent@s before
             cmp copied before
             rm copied before
         done",
    );
    // Still the same one.
    assert_eq!(manager(&c, "mon.a", &[]), before);
    let peak = kib(before, "VmHWM:");
    println!("the manager took {peak} KiB at most");
    assert!(peak < 128 << 10);
}
