//! OSDs that stop, die and come back, as an administrator sees it with the official tool.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Cluster, spirula};

/// Waits until a script prints `wanted`; returns how long it took.
fn wait_for(c: &Cluster, seconds: u64, script: &str, wanted: &str) -> Duration {
    let start = Instant::now();
    loop {
        let said = c
            .shell(script)
            .output()
            .map(|o| crate::common::output(&o))
            .unwrap();
        if said.contains(wanted) {
            return start.elapsed();
        }
        assert!(
            start.elapsed() < Duration::from_secs(seconds),
            "`{script}` does not say `{wanted}` within {seconds} s but {said}\n{}",
            c.logs()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn signal(c: &Cluster, daemon: &str, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &c.pid(daemon).to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// The state of one OSD, such as `down in`.
fn state(osd: u32) -> String {
    format!("timeout 20 ceph osd dump | awk '$1 == \"osd.{osd}\" {{ print \"is\", $2, $3 }}'")
}

/// A cluster with short times.
fn quick(test: &str, extra: &[&str]) -> Cluster {
    let c = Cluster::up(test, 3, extra);
    c.sh("ceph config set global osd_heartbeat_grace 4; ceph config set global osd_heartbeat_interval 1");
    c.wait_healthy();
    c
}

#[test]
fn a_stopped_osd_goes_down_and_out_and_comes_back_by_itself() {
    let c = quick("stopped", &["--no-respawn"]);
    c.sh("ceph osd pool create p 8; ceph osd pool application enable p test; ceph config set mon mon_osd_down_out_interval 3");
    c.wait_healthy();
    let dump = c.sh("ceph osd dump -f json");
    let front = c.sh("ceph osd metadata 1 | grep hb_front_addr");
    assert!(
        dump.contains("heartbeat_front_addrs") && front.contains("v2:127.0.0.1:"),
        "{front}"
    );
    c.sh("ceph osd set noout");
    signal(&c, "osd.1", "-STOP");
    let took = wait_for(&c, 30, &state(1), "is down in");
    assert!(took > Duration::from_secs(3), "{took:?}");
    let log = c.sh("ceph log last 100 debug cluster");
    assert!(log.contains("osd.1 reported failed by osd."), "{log}");
    assert!(log.contains("osd.1 failed (root=default,host="), "{log}");
    assert!(log.contains("reporters from different host after "), "{log}");
    let detail = c.sh("ceph health detail");
    assert!(
        detail.contains("OSD_DOWN") && detail.contains("osd.1 ("),
        "{detail}"
    );
    // Not out while the flag is set, and at once when it is not.
    std::thread::sleep(Duration::from_secs(5));
    assert!(c.sh(&state(1)).contains("is down in"));
    c.sh("ceph osd unset noout");
    wait_for(&c, 20, &state(1), "is down out");
    let log = c.sh("ceph log last 20 info cluster");
    assert!(log.contains("Marking osd.1 out (has been down for "), "{log}");
    // Back again: up and in, as it was marked out automatically.
    signal(&c, "osd.1", "-CONT");
    wait_for(&c, 20, &state(1), "is up in");
    let log = c.sh("ceph log last 100 debug cluster");
    assert!(
        log.contains("Monitor daemon marked osd.1 down, but it is still running"),
        "{log}"
    );
    c.sh("ceph config rm mon mon_osd_down_out_interval");
    c.wait_healthy();
    let laggy = c.sh("ceph osd dump -f json | tr ',' '\\n' | grep laggy_probability");
    assert!(laggy.contains("0.3") || laggy.contains("0.29"), "{laggy}");
}

#[test]
fn a_killed_osd_is_down_at_once_unless_a_flag_forbids_it() {
    let c = quick("killed", &["--no-respawn"]);
    c.sh("ceph osd set-group nodown osd.2");
    c.kill("osd.2");
    std::thread::sleep(Duration::from_secs(7));
    assert!(c.sh(&state(2)).contains("is up in"));
    c.sh("ceph osd unset-group nodown osd.2");
    wait_for(&c, 20, &state(2), "is down in");
    c.kill("osd.0");
    let took = wait_for(&c, 10, &state(0), "is down in");
    assert!(took < Duration::from_secs(4), "{took:?}");
    // The first to notice reports it: the monitor to which the OSD was connected, or a peer.
    let log = c.sh("ceph log last 50 info cluster");
    let failed = log
        .lines()
        .find(|l| l.contains("osd.0 failed (root=default,host="));
    let reasons = [
        "(connection lost to mon.a)",
        "(connection refused reported by osd.1)",
    ];
    assert!(
        failed.is_some_and(|l| reasons.iter().any(|r| l.ends_with(r))),
        "{log}"
    );
    c.start(3, &["--no-respawn"]);
    c.wait_healthy();
    // Nobody comes up while that is forbidden.
    c.sh("ceph osd set noup; ceph osd down 0");
    std::thread::sleep(Duration::from_secs(3));
    assert!(c.sh(&state(0)).contains("is down in"));
    c.sh("ceph osd unset noup");
    c.wait_healthy();
}

#[test]
fn an_osd_that_is_marked_down_comes_up_again_but_not_for_ever() {
    let c = quick("flapping", &[]);
    c.sh("ceph config set osd osd_max_markdown_count 2");
    for _ in 0..2 {
        c.sh("ceph osd down 1");
        wait_for(&c, 20, &state(1), "is up in");
    }
    c.sh("ceph osd down 1");
    let dead = "pgrep -F run/osd.1.pid > /dev/null 2>&1 || echo gone";
    wait_for(&c, 20, dead, "gone");
    // Nobody starts it again but the administrator.
    std::thread::sleep(Duration::from_secs(3));
    assert!(c.sh(&state(1)).contains("is down in"));
    let up = spirula()
        .args(["up", "--detach", "--dir"])
        .arg(c.dir())
        .status()
        .unwrap();
    assert!(up.success());
    c.wait_healthy();
    // It also stops when it is told to.
    c.sh("ceph osd stop 2");
    wait_for(
        &c,
        20,
        "pgrep -F run/osd.2.pid > /dev/null 2>&1 || echo gone",
        "gone",
    );
    assert!(c.sh(&state(2)).contains("is down in"));
}

#[test]
fn slow_heartbeats_are_told_of() {
    let c = Cluster::up("pings", 3, &[]);
    c.sh("ceph config set global debug_heartbeat_testing_span 1; ceph config set global osd_heartbeat_interval 1");
    c.sh("ceph config set global mon_warn_on_slow_ping_time 0.001");
    let back = wait_for(&c, 60, "timeout 20 ceph health detail", "OSD_SLOW_PING_TIME_BACK");
    assert!(back < Duration::from_secs(60));
    let detail = c.sh("ceph health detail");
    assert!(
        detail.contains("Slow OSD heartbeats on front (longest "),
        "{detail}"
    );
    assert!(
        detail.contains("    Slow OSD heartbeats on back from osd."),
        "{detail}"
    );
    let dump = c.sh("ceph daemon run/osd.0.asok dump_osd_network 0");
    for part in [
        "\"threshold\": 0",
        "\"from osd\": 0",
        "\"interface\": \"back\"",
        "\"15min\"",
        "\"last\"",
    ] {
        assert!(dump.contains(part), "{part}: {dump}");
    }
    let dump = c.sh("ceph tell mgr dump_osd_network 0");
    for from in 0..3 {
        assert!(dump.contains(&format!("\"from osd\": {from}")), "{dump}");
    }
    c.sh("ceph config rm global mon_warn_on_slow_ping_time");
    wait_for(&c, 30, "timeout 20 ceph health", "HEALTH_OK");
}
