//! The space below the stores: removed data frees it, and a full file system stops writes and
//! nothing else.

use std::path::PathBuf;
use std::process::Command;

use crate::common::{Cluster, skip, text};

const MIB: u64 = 1 << 20;
const DAEMONS: [&str; 4] = ["mon.a", "osd.0", "osd.1", "osd.2"];

/// Bytes that the stores of the OSDs occupy, their logs aside.
fn occupied(c: &Cluster) -> u64 {
    let said = c.sh("stat -c %b osd.?/block | awk '{ n += $1 } END { print n * 512 }'");
    said.trim().parse().unwrap()
}

fn raw_used(c: &Cluster) -> u64 {
    let said = c.sh("ceph df -f json | python3 -c 'import json, sys
print(json.load(sys.stdin)[\"stats\"][\"total_used_raw_bytes\"])'");
    said.trim().parse().unwrap()
}

#[test]
fn what_is_removed_comes_back() {
    let c = Cluster::up("space-back", 3, &["--osd-size", "10G"]);
    c.wait_healthy();
    let (empty, used) = (occupied(&c), raw_used(&c));
    assert!(
        empty < 200 * MIB && used < 64 * MIB,
        "empty stores occupy {empty} and count {used} as used"
    );
    c.sh(
        "ceph osd pool create p 16; ceph osd pool application enable p test
          head -c 4194304 /dev/urandom > in; rados -p p put kept in",
    );
    for _ in 0..5 {
        c.sh(
            "rados bench -p p 60 write -b 4194304 --max-objects 37 --no-cleanup > /dev/null
              rados -p p cleanup > /dev/null",
        );
    }
    // Five times three copies of 148 MiB.
    let most = occupied(&c);
    assert!(most < empty + 1400 * MIB, "{most} after {empty}");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    let limit = empty + 250 * MIB;
    while occupied(&c) > limit {
        let now = std::time::Instant::now();
        assert!(
            now < deadline,
            "still {} of {most}, {empty} at first",
            occupied(&c)
        );
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    c.sh("rados -p p get kept out; cmp in out");
    c.down();
    for osd in 0..3 {
        c.sh(&format!(
            "{} store fsck --deep osd.{osd}",
            crate::common::binary().display()
        ));
    }
}

/// A small file system for the directory of a cluster of that name.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(test: &str, size: &str) -> Option<Self> {
        let at = std::env::temp_dir().join(format!("spirula-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&at).unwrap();
        let options = format!("size={size},mode=0700");
        let out = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "none"])
            .arg(&at)
            .output();
        match out {
            Ok(out) if out.status.success() => Some(Self(at)),
            Ok(out) => {
                skip(&format!(
                    "nothing can be mounted here: {}",
                    text(&out.stderr).trim()
                ));
                None
            }
            Err(e) => {
                skip(&format!("nothing can be mounted here: {e}"));
                None
            }
        }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_full_file_system_stops_writes_and_nothing_else() {
    let Some(_below) = Tmpfs::mount("space-below", "900m") else {
        return;
    };
    let c = Cluster::up("space-below", 3, &["--osd-size", "10G"]);
    // The clients' files lie elsewhere.
    let out = std::env::temp_dir().join(format!("spirula-space-out-{}", std::process::id()));
    std::fs::create_dir_all(&out).unwrap();
    let sh = |script: &str| c.sh(&format!("D={}\n{script}", out.display()));
    let pids = || DAEMONS.map(|d| c.pid(d));
    let before = pids();
    c.sh("ceph osd pool create f 8 8 replicated; ceph osd pool application enable f test");
    c.wait_healthy();
    // Three stores of 10G on the rest of 900 MiB.
    let avail: u64 = c
        .sh("ceph df -f json | python3 -c 'import json, sys
print(json.load(sys.stdin)[\"stats\"][\"total_avail_bytes\"])'")
        .trim()
        .parse()
        .unwrap();
    assert!((200 * MIB..800 * MIB).contains(&avail), "{avail} bytes available");
    sh("for i in $(seq 0 7); do head -c 4194304 /dev/urandom > $D/in$i; done");
    let written: u32 = sh("i=0
             while timeout 10 rados -p f put o$i $D/in$((i % 8)) 2> $D/err; do i=$((i+1)); [ $i -lt 300 ]; done; echo $i")
        .trim()
        .parse()
        .unwrap();
    assert!((20..200).contains(&written), "{written} objects of 4 MiB");
    sh(
        "for i in $(seq 100); do ceph health detail > $D/h; grep -q OSD_FULL $D/h && break; sleep 0.1; done
          grep OSD_FULL $D/h > /dev/null",
    );
    // Somebody else takes the rest.
    c.sh("cat /dev/zero > filler 2> /dev/null || true; ! head -c 1000000 /dev/zero > another 2> /dev/null; rm another");
    let compare = |from: u32, to: u32| {
        sh(&format!(
            "for i in $(seq {from} {to}); do rados -p f get o$i $D/back; cmp $D/back $D/in$((i % 8)); done"
        ))
    };
    compare(0, written - 1);
    // The configuration still changes: the monitor has room of its own.
    c.sh("for i in $(seq 20); do ceph config set osd osd_max_backfills $((1 + i % 2)); done; ceph config rm osd osd_max_backfills");
    let half = written / 2;
    c.sh(&format!(
        "for i in $(seq 0 {}); do timeout 20 rados -p f rm o$i --force-full; done",
        half - 1
    ));
    assert_eq!(before, pids(), "a daemon ended: {}", c.logs());
    compare(half, written - 1);
    c.sh("rm filler");
    c.wait_healthy();
    sh(
        "for i in $(seq 0 4); do timeout 30 rados -p f put n$i $D/in$i; rados -p f get n$i $D/back; cmp $D/back $D/in$i; done",
    );
    compare(half, written - 1);
    assert_eq!(before, pids(), "a daemon ended: {}", c.logs());
    std::fs::remove_dir_all(&out).unwrap();
}
