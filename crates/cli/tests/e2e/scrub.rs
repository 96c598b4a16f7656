//! Scrubs with the official tools: when they begin, what they find, and repairs.

use std::collections::BTreeSet;

use crate::common::{Cluster, binary, output, spirula};
use crate::damage::{content, damage_found};

const MIB: usize = 1 << 20;

/// Changes an object in the store of a stopped OSD.
fn change(c: &Cluster, osd: &str, args: &[&str]) {
    let out = spirula()
        .args(["store", "object"])
        .arg(c.dir().join(format!("osd.{osd}")))
        .args(args)
        .output()
        .unwrap();
    assert!(out.status.success(), "{args:?}: {}", output(&out));
}

/// The PG of an object and its acting OSDs, the primary first.
fn place(c: &Cluster, pool: &str, object: &str) -> (String, Vec<String>) {
    let said = c.sh(&format!(
        "ceph osd map {pool} {object} -f json | python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d[\"pgid\"], *d[\"acting\"])'"
    ));
    let mut words = said.split_whitespace().map(str::to_owned);
    (words.next().unwrap(), words.collect())
}

/// Waits until a command's output has a text.
fn wait_for(c: &Cluster, command: &str, text: &str) {
    c.sh(&format!(
        "for i in $(seq 300); do ({command}) 2>&1 | grep -- '{text}' > /dev/null && exit 0; sleep 0.2; done
        ({command}); ceph log last 100 debug cluster; exit 1"
    ));
}

/// Has a PG scrubbed and waits until the cluster log has its end.
fn scrub(c: &Cluster, what: &str, pg: &str, end: &str) {
    let before = c.sh(&format!(
        "ceph log last 1000 debug cluster | grep -c '{pg} {what} {end}' || true"
    ));
    c.sh(&format!("ceph pg {what} {pg}"));
    let count = format!("ceph log last 1000 debug cluster | grep -c '{pg} {what} {end}'");
    let more = before.trim().parse::<u32>().unwrap() + 1;
    wait_for(c, &count, &format!("^{more}$"));
}

fn damages_are_found_and_repaired(c: &Cluster, flags: &[&str]) {
    let dir = c.dir().display().to_string();
    for (pool, object, len) in [
        ("p", "rotten", MIB),
        ("p", "changed", 9000),
        ("p", "gone", 5000),
        ("e", "coded", MIB),
    ] {
        std::fs::write(c.dir().join(object), content(object, len)).unwrap();
        c.sh(&format!(
            "rados -p {pool} put {object} {dir}/{object}; rados -p {pool} setxattr {object} colour blue"
        ));
    }
    c.sh("rados -p p setomapval changed one 1; rados -p p mksnap s; rados -p p setomapval rotten two 2");
    c.sh("for i in 0 1 2; do ceph tell osd.$i flush_journal; done");
    let places: Vec<_> = [("p", "rotten"), ("p", "changed"), ("p", "gone"), ("e", "coded")]
        .map(|(pool, object)| place(c, pool, object))
        .into();
    let [rotten, changed, gone, coded] = &places[..] else {
        unreachable!()
    };
    let pgs: BTreeSet<&String> = places.iter().map(|(pg, _)| pg).collect();
    for pg in &pgs {
        scrub(c, "deep-scrub", pg, "ok");
    }
    c.down();
    assert_eq!(damage_found(c, &rotten.1[0], "rotten", &[3, 200]), 2);
    let fragments = ["0", "1", "2"].map(|osd| damage_found(c, osd, "coded", &[20, 30, 40]));
    assert!(fragments.iter().sum::<usize>() >= 3, "{fragments:?}");
    change(c, &changed.1[1], &["rm-attr", &changed.0, "changed", "_colour"]);
    change(c, &gone.1[2], &["remove", &gone.0, "gone"]);
    c.start(3, flags);
    c.wait_healthy();
    // Without reading contents it finds what is missing.
    scrub(c, "scrub", &gone.0, "[0-9]* errors");
    for pg in &pgs {
        scrub(c, "deep-scrub", pg, "[0-9]* errors");
    }
    wait_for(c, "ceph health detail", "OSD_SCRUB_ERRORS");
    // The monitors' summary follows the log by a report of the primary.
    for pg in &pgs {
        wait_for(
            c,
            "ceph health detail",
            &format!("pg {pg} is active+clean+inconsistent"),
        );
        wait_for(
            c,
            "rados list-inconsistent-pg p; rados list-inconsistent-pg e",
            &format!("\"{pg}\""),
        );
        wait_for(c, "ceph pg ls inconsistent", &format!("^{pg} "));
    }
    let listed = |pg: &str| {
        let official = c.sh(&format!("rados list-inconsistent-obj {pg} --format json-pretty"));
        let ours = c.sh(&format!(
            "{} rados list-inconsistent-obj {pg} --format json-pretty",
            binary().display()
        ));
        assert_eq!(official, ours);
        official
    };
    let found = [&rotten.0, &changed.0, &gone.0, &coded.0].map(|pg| listed(pg));
    for (found, error) in found
        .iter()
        .zip(["read_error", "attr_name_mismatch", "missing", "read_error"])
    {
        assert!(found.contains(&format!("\"{error}\"")), "{error}: {found}");
    }
    // What was found outlives the daemons.
    c.down();
    c.start(3, flags);
    wait_for(c, "ceph -s", "active+clean+inconsistent");
    assert!(listed(&gone.0).contains("\"missing\""));
    for pg in &pgs {
        scrub(c, "repair", pg, "[0-9]* errors, [0-9]* fixed");
    }
    c.wait_healthy();
    for pg in &pgs {
        scrub(c, "deep-scrub", pg, "ok");
        assert!(!listed(pg).contains("\"name\""));
    }
    for (pool, object) in [("p", "rotten"), ("p", "changed"), ("p", "gone"), ("e", "coded")] {
        c.sh(&format!(
            "rados -p {pool} get {object} {dir}/back; cmp {dir}/back {dir}/{object}; \
            test \"$(rados -p {pool} getxattr {object} colour)\" = blue"
        ));
    }
}

fn scheduled_ones_keep_to_flags_and_hours(c: &Cluster) {
    let stamps = || {
        c.sh(
            "ceph pg dump pgs -f json 2>/dev/null | python3 -c 'import json, sys
print(sorted(p[\"last_scrub_stamp\"] for p in json.load(sys.stdin)[\"pg_stats\"]))'",
        )
    };
    let all_newer = |than: &str| {
        c.sh(&format!(
            "cat > oldest.py <<'P'
import json, subprocess, sys, time
old = max({than})
for _ in range(300):
    pgs = json.loads(subprocess.check_output('ceph pg dump pgs -f json 2>/dev/null', shell=True))['pg_stats']
    if min(p['last_scrub_stamp'] for p in pgs) > old: sys.exit(0)
    time.sleep(0.2)
sys.exit(str([p['last_scrub_stamp'] for p in pgs]))
P
/usr/bin/python3 oldest.py"
        ));
    };
    c.sh("ceph osd set noscrub; ceph osd set nodeep-scrub
        ceph config set osd osd_scrub_load_threshold 1000; ceph config set osd osd_scrub_interval_randomize_ratio 0
        ceph config set global osd_scrub_min_interval 1; sleep 2");
    let before = stamps();
    c.sh("sleep 3");
    assert_eq!(stamps(), before, "the flags hold");
    c.sh("ceph osd unset noscrub");
    all_newer(&before);
    // Hours that are over, and those that come.
    c.sh(
        "h=$(date +%-H); ceph config set osd osd_scrub_begin_hour $(( (h + 2) % 24 ))
        ceph config set osd osd_scrub_end_hour $(( (h + 3) % 24 )); sleep 4",
    );
    let before = stamps();
    c.sh("sleep 3");
    assert_eq!(stamps(), before, "the hours hold");
    c.sh("ceph config rm osd osd_scrub_begin_hour; ceph config rm osd osd_scrub_end_hour");
    all_newer(&before);
    let said = c.sh("ceph tell osd.0 dump_scrubs; ceph tell osd.0 dump_scrub_reservations");
    assert!(
        said.contains("\"sched_time\"") && said.contains("\"osd_max_scrubs\": 1"),
        "{said}"
    );
    c.sh("ceph config rm global osd_scrub_min_interval; ceph osd unset nodeep-scrub");
}

/// What is under way shows with the time that it takes, and what limits scrubs before they are late.
fn they_say_when_they_are_done(c: &Cluster) {
    let dir = c.dir().display().to_string();
    std::fs::write(c.dir().join("mib"), content("mib", MIB)).unwrap();
    c.sh(&format!(
        "for i in $(seq 40); do rados -p p put mib.$i {dir}/mib || exit 1; done"
    ));
    // All OSDs have everything: they measure how fast they read.
    c.sh("ceph osd pool deep-scrub p");
    wait_for(
        c,
        "for i in 0 1 2; do ceph tell osd.$i dump_scrub_outlook; done | grep -c bytes_per_second",
        "^3$",
    );
    c.sh("ceph config set osd osd_scrub_chunk_max 1; ceph config set osd osd_scrub_sleep 0.5");
    c.sh("ceph osd pool deep-scrub p");
    wait_for(c, "ceph -s", "^    Deep scrub of [1-4] PGs* in 1 pool ([0-9]*s)");
    wait_for(c, "ceph -s", r"^      \[[=.]\{28\}\] (remaining: [0-9]*s)");
    let event = c.sh("ceph -s -f json | python3 -c 'import json, sys
e, = json.load(sys.stdin)[\"progress_events\"].values()
print(sorted(e), e[\"add_to_ceph_s\"], 0 <= e[\"progress\"] <= 1, e[\"message\"].split(\" of \")[0])'");
    assert_eq!(
        event.trim(),
        "['add_to_ceph_s', 'message', 'progress'] True True Deep scrub"
    );
    c.sh("ceph config rm osd osd_scrub_chunk_max; ceph config rm osd osd_scrub_sleep");
    wait_for(c, "ceph -s | grep -c progress: || true", "^0$");
    // It is foretold from what was seen in a seventh of the interval.
    c.sh("ceph config set osd osd_scrub_load_threshold 1000
        h=$(date +%-H); ceph config set osd osd_scrub_begin_hour $(( (h + 2) % 24 ))
        ceph config set osd osd_scrub_end_hour $(( (h + 3) % 24 ))
        ceph config set global osd_deep_scrub_interval 60");
    // Each OSD looks ahead when its own time comes.
    let late = "3 osds will not have deep-scrubbed their data in time: osd.0, osd.1, osd.2";
    wait_for(c, "ceph health detail", late);
    wait_for(
        c,
        "ceph health detail",
        "osd.2: at this pace done .* late: permitted are 1 of 24 hours (osd_scrub_begin_hour, osd_scrub_end_hour)",
    );
    let said = c.sh("ceph health detail; ceph health mute OSD_SCRUB_TOO_SLOW 1h; ceph health detail");
    for (line, times) in [
        (format!("[WRN] OSD_SCRUB_TOO_SLOW: {late}"), 2),
        ("(MUTED".to_owned(), 1),
    ] {
        assert_eq!(said.matches(&line).count(), times, "{line}: {said}");
    }
    c.sh(
        "for o in begin_hour end_hour load_threshold; do ceph config rm osd osd_scrub_$o; done
        ceph config rm global osd_deep_scrub_interval",
    );
    wait_for(
        c,
        "ceph health detail | grep -c OSD_SCRUB_TOO_SLOW || true",
        "^0$",
    );
    // The pool has snapshots, one of which goes.
    c.sh("rados -p p rmsnap s");
    let before = c.sh("ceph log last 1000 debug cluster | grep -c 'scrub ok'");
    c.sh("for i in 0 1 2; do ceph tell osd.$i scrub_purged_snaps || exit 1; done");
    let more = before.trim().parse::<u32>().unwrap() + 4;
    let count =
        format!("test $(ceph log last 1000 debug cluster | grep -c 'scrub ok') -ge {more} && echo scrubbed");
    wait_for(c, &count, "^scrubbed$");
}

#[test]
fn scrubs_find_tell_and_repair() {
    let flags = ["--osd-size", "1G"];
    let c = Cluster::up("scrub", 3, &flags);
    c.sh(
        "ceph osd pool create p 4; ceph osd erasure-code-profile set k2 k=2 m=1 crush-failure-domain=osd
        ceph osd pool create e 2 2 erasure k2
        for p in p e; do ceph osd pool application enable $p test; done",
    );
    c.wait_healthy();
    damages_are_found_and_repaired(&c, &flags);
    they_say_when_they_are_done(&c);
    scheduled_ones_keep_to_flags_and_hours(&c);
    for osd in 0..3 {
        let peak = c.peak_rss(&format!("osd.{osd}"));
        println!("osd.{osd}: {} MiB RSS at most", peak >> 20);
        assert!(peak < 128 << 20);
    }
}
