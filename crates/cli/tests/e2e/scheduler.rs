//! Several clients at once, with the official tools: they take turns, large data goes to the disks
//! ahead of its change, and none of it is lost where an OSD dies meanwhile.

use serde_json::Value;

use crate::common::Cluster;

fn json(c: &Cluster, command: &str) -> Value {
    serde_json::from_str(&c.sh(command)).unwrap()
}

/// The bytes that all stores have got ahead of transactions.
fn placed(c: &Cluster) -> u64 {
    let of = |osd| json(c, &format!("ceph tell osd.{osd} perf dump"))["store"]["placed_bytes"].as_u64();
    (0..3).map(|osd| of(osd).unwrap()).sum()
}

/// Writes large and small objects at the same time, and looks at the turns meanwhile.
fn write_together(c: &Cluster, run: &str) {
    c.sh(&format!(
        "rados bench -p p 4 write -b 4194304 -t 16 --no-cleanup --run-name {run}-large > large.{run} & large=$!
        rados bench -p p 4 write -b 4096 -t 4 --no-cleanup --run-name {run}-small > small.{run} & small=$!
        for i in $(seq 40); do
            ceph tell osd.0 dump_op_pq_state > turns.{run}
            grep -q '\"client_count\": [2-9]' turns.{run} && break
        done
        wait $large && wait $small || {{ cat large.{run} small.{run}; exit 1; }}"
    ));
    let turns = json(c, &format!("cat turns.{run}"));
    let queue = &turns["OSD:ShardedOpWQ:0"];
    assert!(
        queue["mClockClients"]["client_count"].as_u64() >= Some(2),
        "{turns}"
    );
    assert!(queue["queue_sizes"]["scheduler"].is_u64(), "{turns}");
}

/// Each OSD begins as many requests of a client in a second as an operator's own profile says.
fn a_client_keeps_to_its_limit(c: &Cluster) {
    c.sh("ceph config set osd osd_mclock_scheduler_client_lim 50; ceph config set osd osd_mclock_profile custom; sleep 1");
    let writes =
        c.sh("rados bench -p p 4 write -b 4096 -t 32 --run-name limited | grep '^Total writes made'");
    let writes: u32 = writes.split_whitespace().last().unwrap().parse().unwrap();
    assert!((300..=3 * 50 * 5 + 32).contains(&writes), "{writes}");
    c.sh(
        "ceph config rm osd osd_mclock_scheduler_client_lim; ceph config rm osd osd_mclock_profile; sleep 1",
    );
    let more = c.sh("rados bench -p p 1 write -b 4096 -t 32 --run-name free | grep '^Total writes made'");
    let more: u32 = more.split_whitespace().last().unwrap().parse().unwrap();
    assert!(more > writes, "{more} after {writes}");
}

#[test]
fn clients_take_turns_and_large_data_goes_ahead() {
    let c = Cluster::up("scheduler", 3, &["--no-respawn"]);
    c.sh("ceph osd pool create p 16 16 replicated; ceph osd pool application enable p test");
    c.sh("rados bench -p p 1 write -b 4194304 -t 4 --run-name alone > /dev/null");
    assert_eq!(placed(&c), 0, "nobody waits for a client alone");
    a_client_keeps_to_its_limit(&c);
    write_together(&c, "calm");
    assert!(placed(&c) > 64 << 20);
    // With options that are set meanwhile.
    c.sh("ceph config set osd osd_mclock_profile high_recovery_ops");
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(1));
            c.kill("osd.2");
        });
        write_together(&c, "deadly");
    });
    c.start(3, &["--no-respawn"]);
    c.wait_healthy();
    for run in ["calm", "deadly"] {
        for size in ["large", "small"] {
            c.sh(&format!(
                "rados bench -p p 60 seq -t 16 --run-name {run}-{size} > read; ! grep -i 'error\\|mismatch' read || {{ cat read; exit 1; }}"
            ));
        }
    }
    // All copies are the same, and whole.
    c.sh(
        "ceph osd pool deep-scrub p
        for pg in $(ceph pg ls-by-pool p -f json | python3 -c 'import json, sys
print(*[p[\"pgid\"] for p in json.load(sys.stdin)[\"pg_stats\"]])'); do
            for i in $(seq 300); do ceph log last 1000 debug cluster | grep -q \"$pg deep-scrub ok\" && break; sleep 0.2; done
            ceph log last 1000 debug cluster | grep \"$pg deep-scrub ok\" > /dev/null || { ceph log last 100 debug cluster; exit 1; }
        done",
    );
    let largest = (0..3).map(|osd| c.peak_rss(&format!("osd.{osd}"))).max();
    println!("largest OSD: {largest:?} bytes");
    assert!(largest < Some(128 << 20));
    c.down();
}
