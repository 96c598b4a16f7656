//! `spirula up` reports at once why a daemon does not start, and `up`, `down` and `status` report
//! the actual state.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Cluster, output, spirula, text};

/// More than a known reason takes: `up` gives up after a minute if it knows none.
const AT_ONCE: Duration = Duration::from_secs(40);

fn up(c: &Cluster, args: &[&str]) -> Output {
    // The daemons inherit `up`'s output, so that a pipe would never end.
    let log = c.dir().with_extension("said");
    let file = std::fs::File::create(&log).unwrap();
    let begun = Instant::now();
    let mut command = spirula();
    command.args(["up", "--detach", "--dir"]).arg(c.dir()).args(args);
    let status = command.stdin(Stdio::null()).stderr(file).status().unwrap();
    assert!(begun.elapsed() < AT_ONCE, "{args:?} took {:?}", begun.elapsed());
    let stderr = std::fs::read(&log).unwrap();
    let _ = std::fs::remove_file(log);
    Output {
        status,
        stdout: Vec::new(),
        stderr,
    }
}

/// `up` must fail, and print `why`.
fn up_fails(c: &Cluster, why: &[&str]) -> String {
    let out = up(c, &[]);
    let said = text(&out.stderr);
    assert!(!out.status.success(), "up succeeded: {said}");
    for why in why {
        assert!(said.contains(why), "no {why:?} in {said}");
    }
    said
}

fn status(c: &Cluster) -> serde_json::Value {
    let mut command = spirula();
    command.args(["status", "--format", "json", "--dir"]).arg(c.dir());
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", output(&out));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn what_keeps_a_daemon_from_starting_is_said_at_once() {
    let c = Cluster::up("says-why", 3, &["--encrypt"]);
    c.sh("ceph osd pool create p 8 8 replicated; ceph osd pool application enable p test; cp ceph.conf sample; rados -p p put a sample");
    c.down();
    let file = |name: &str| c.dir().join(name);
    let aside = file("aside");

    // A line that is no configuration: nothing is started.
    let conf = std::fs::read_to_string(c.conf()).unwrap();
    std::fs::write(c.conf(), conf.replacen('\n', "\nnonsense\n", 1)).unwrap();
    up_fails(&c, &[&format!("{}:2: an option without =", c.conf().display())]);
    assert_eq!(status(&c)["state"], "stopped");
    std::fs::write(c.conf(), &conf).unwrap();

    // A file that only one OSD lacks: the others serve, and the reason is printed.
    let away = |name: &str| std::fs::rename(file(name), &aside).unwrap();
    let back = |name: &str| std::fs::rename(&aside, file(name)).unwrap();
    let goes_on = |why: &[&str]| {
        up_fails(&c, &[&["osd.1 does not start: "], why].concat());
        c.sh("timeout 60 rados -p p put b sample; timeout 60 rados -p p get a out; cmp out sample");
        let status = status(&c);
        let osd = &status["daemons"][2];
        assert_eq!(osd["name"], "osd.1", "{status}");
        let problem = osd["problem"].as_str().unwrap();
        assert!(why.iter().all(|w| problem.contains(w)), "{status}");
        c.down();
    };
    for lacking in ["osd.1/keyring", "osd.1/block"] {
        away(lacking);
        goes_on(&[file(lacking).to_str().unwrap(), "No such file"]);
        back(lacking);
    }
    away("osd.1/lockbox.keyring");
    goes_on(&["osd.1: no key for its encrypted store"]);
    back("osd.1/lockbox.keyring");
    away("osd.1/block");
    std::fs::write(file("osd.1/block"), "something else").unwrap();
    goes_on(&["osd.1/block"]);
    std::fs::remove_file(file("osd.1/block")).unwrap();
    back("osd.1/block");
    // An option that only this daemon refuses.
    std::fs::write(c.conf(), format!("{conf}\n[osd.1]\nms_cluster_mode = secur\n")).unwrap();
    let line = conf.lines().count() + 3;
    goes_on(&[&format!("ceph.conf:{line}: "), "secur is no connection mode"]);
    std::fs::write(c.conf(), &conf).unwrap();

    // Without the monitor, or the administrator's key, nothing goes.
    away("mon.a/store.db");
    up_fails(
        &c,
        &["mon.a does not start: ", "without a monitor there is no cluster"],
    );
    c.down();
    back("mon.a/store.db");
    away("ceph.client.admin.keyring");
    let said = up_fails(&c, &["ceph.client.admin.keyring", "auth get client.admin"]);
    // The suggested command works.
    let command = said.split('`').nth(1).unwrap();
    c.sh(command);
    let is_there = file("ceph.client.admin.keyring").exists();
    assert!(is_there, "{command}");
    std::fs::remove_file(&aside).unwrap();
    c.start(3, &[]);
    c.wait_healthy();
    c.sh("for o in a b; do rados -p p get $o out; cmp out sample; done");
}

#[test]
fn what_runs_and_what_does_not_is_told() {
    // Small stores: one that may outgrow its file system is a problem that is told.
    let c = Cluster::up("told", 2, &["--osd-size", "1G"]);
    let dir = c.dir().display().to_string();
    let again = text(&up(&c, &[]).stderr);
    assert!(
        again.contains(&format!("The cluster in {dir} is already running (supervisor ")),
        "{again}"
    );
    let up = status(&c);
    assert_eq!(up["state"], "running");
    assert_eq!(up["health"]["status"], "HEALTH_OK");
    assert_eq!(up["problems"], serde_json::json!([]));
    for (n, name) in ["mon.a", "osd.0", "osd.1"].into_iter().enumerate() {
        let daemon = &up["daemons"][n];
        assert_eq!(
            (daemon["name"].as_str(), daemon["state"].as_str()),
            (Some(name), Some("running"))
        );
        assert_eq!(daemon["pid"], c.pid(name));
        assert!(daemon["bytes_on_disk"].as_u64().unwrap() > 0);
    }
    assert_eq!(up["daemons"][1]["bytes"], 1_u64 << 30);
    let shown = |format: &[&str]| {
        let mut command = spirula();
        let out = command
            .args(["status", "--dir", &dir])
            .args(format)
            .output()
            .unwrap();
        assert!(out.status.success());
        text(&out.stdout)
    };
    let plain = shown(&[]);
    for part in [
        up["fsid"].as_str().unwrap(),
        "HEALTH_OK",
        "osd.1",
        "running",
        " 1 GiB",
    ] {
        assert!(plain.contains(part), "no {part} in {plain}");
    }
    let down = || {
        let out = spirula().args(["down", "--dir", &dir]).output().unwrap();
        assert!(out.status.success());
        text(&out.stderr)
    };
    assert_eq!(down(), format!("The cluster in {dir} is stopped\n"));
    assert_eq!(down(), format!("The cluster in {dir} was not running\n"));
    assert!(shown(&[]).contains("stopped"));
    assert_eq!(status(&c)["daemons"][0]["pid"], serde_json::Value::Null);
}

#[test]
fn two_that_make_the_same_cluster_at_once_make_one() {
    for round in 0..3 {
        let dir: PathBuf = std::env::temp_dir().join(format!("spirula-twice-{round}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let mut both: Vec<_> = (0..2)
            .map(|_| {
                let mut up = spirula();
                up.args(["up", "--detach", "--osds", "1", "--dir"]).arg(&dir);
                up.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
            })
            .collect();
        let ended: Vec<bool> = both.iter_mut().map(|up| up.wait().unwrap().success()).collect();
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        let spec: serde_json::Value = serde_json::from_str(&read("cluster.json")).unwrap();
        let conf = read("ceph.conf");
        let cluster = Cluster::of(&dir);
        let asked = cluster.sh("ceph fsid; ceph health");
        assert_eq!(ended, [true, true]);
        let fsid = spec["fsid"].as_str().unwrap();
        assert!(conf.contains(&format!("fsid = {fsid}\n")), "{conf}");
        assert_eq!(asked, format!("{fsid}\nHEALTH_OK\n"));
    }
}
