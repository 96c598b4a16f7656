//! OSDs on raw block devices. Needs loop devices and thus root, and is skipped without.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Cluster, binary, skip, spirula, text};

/// A loop device on a sparse file; both go when it is dropped.
struct Loop {
    file: PathBuf,
    device: String,
}

impl Loop {
    fn new(name: &str, size: u64) -> Option<Self> {
        let file = std::env::temp_dir().join(format!("spirula-{name}-{}.img", std::process::id()));
        std::fs::File::create(&file).unwrap().set_len(size).unwrap();
        let out = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&file)
            .output();
        let said = match out {
            Ok(out) if out.status.success() => {
                let device = text(&out.stdout).trim().to_owned();
                return Some(Self { file, device });
            }
            Ok(out) => text(&out.stderr),
            Err(e) => e.to_string(),
        };
        let _ = std::fs::remove_file(&file);
        skip(&format!("no loop devices here: {}", said.trim()));
        None
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
        let _ = std::fs::remove_file(&self.file);
    }
}

fn devices(test: &str) -> Option<(Loop, Loop)> {
    let block = Loop::new(&format!("{test}-block"), 1 << 30)?;
    Some((block, Loop::new(&format!("{test}-log"), 128 << 20)?))
}

fn link(dir: &Path, block: &Loop, log: &Loop) {
    std::fs::create_dir_all(dir).unwrap();
    std::os::unix::fs::symlink(&block.device, dir.join("block")).unwrap();
    std::os::unix::fs::symlink(&log.device, dir.join("log")).unwrap();
}

/// Runs `spirula ARGS`, which must fail, and returns its message.
fn refused(args: &[&str]) -> String {
    let out = spirula().args(args).output().unwrap();
    assert!(!out.status.success(), "{args:?} succeeded: {}", text(&out.stdout));
    text(&out.stderr)
}

fn assert_clean(block: &Loop, log: &Loop) {
    let out = spirula()
        .args(["store", "fsck", "--deep", "--log", &log.device, &block.device])
        .output()
        .unwrap();
    let said = crate::common::output(&out);
    assert!(out.status.success() && said.contains("clean"), "{said}");
}

const BENCH: &str = "rados bench -p p 30 write -b 65536 -t 16 --max-objects 2000 --no-cleanup > /dev/null";

#[test]
fn up_uses_the_devices_that_it_finds_linked() {
    let Some((block, log)) = devices("raw-up") else {
        return;
    };
    let c = Cluster::up("raw-up", 1, &[]);
    link(&c.dir().join("osd.1"), &block, &log);
    // Somebody's file system is not overwritten, and nothing is left half-done.
    c.sh(&format!("mkfs.ext4 -q {}", block.device));
    let dir = c.dir().to_str().unwrap();
    c.down();
    let said = refused(&["up", "--detach", "--osds", "2", "--dir", dir]);
    assert!(
        said.contains("ext4 file system") && said.contains(&block.device),
        "{said}"
    );
    c.sh(&format!(
        "fsck.ext4 -fn {} > /dev/null; dd if=/dev/zero of={0} bs=1M count=10 status=none",
        block.device
    ));
    c.start(2, &[]);
    let space: serde_json::Value = serde_json::from_str(&c.sh("ceph osd df -f json")).unwrap();
    assert_eq!(
        space["nodes"][1]["kb"],
        (1 << 20) - (1 << 15),
        "the whole device is used, and a part of it kept for the index: {space}"
    );

    c.sh("ceph osd pool create p 8 8 replicated; ceph osd pool set p size 2; ceph osd pool application enable p test");
    c.sh(&format!(
        "{BENCH}; head -c 5000000 /dev/urandom > in; rados -p p put o in"
    ));
    // Killed during writes; acknowledged data is there afterwards.
    let mut load = c
        .shell("rados bench -p p 10 write -b 4096 -t 16 --no-cleanup --run-name second > /dev/null")
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    c.kill("osd.1");
    assert!(load.wait().unwrap().success());
    c.wait_healthy();
    c.sh("rados bench -p p 30 seq -t 16 > /dev/null; rados bench -p p 30 seq -t 16 --run-name second > /dev/null");
    for daemon in ["supervisor", "osd.1", "osd.0", "mon.a"] {
        c.kill(daemon);
    }
    assert_clean(&block, &log);
    c.start(2, &[]);
    c.sh("rados -p p get o out; cmp in out; rados bench -p p 30 seq -t 16 > /dev/null");
    discards(&c, &block);
    c.down();
    assert_clean(&block, &log);
}

/// Removed data is discarded: the file behind the device gets holes.
fn discards(c: &Cluster, block: &Loop) {
    let occupied = || block.file.metadata().unwrap().blocks() * 512;
    c.sh("rados bench -p p 30 write -b 4194304 --max-objects 40 --no-cleanup --run-name large > /dev/null");
    let full = occupied();
    c.sh("rados -p p cleanup --run-name large > /dev/null");
    let deadline = Instant::now() + Duration::from_secs(60);
    while occupied() + (100 << 20) > full {
        assert!(Instant::now() < deadline, "{} of {full} bytes", occupied());
        std::thread::sleep(Duration::from_millis(300));
    }
    c.sh("rados -p p get o out; cmp in out");
}

#[test]
fn an_administrator_makes_an_osd_by_hand() {
    let Some((block, log)) = devices("raw-hand") else {
        return;
    };
    let c = Cluster::up("raw-hand", 1, &[]);
    let dir = c.dir().join("osd.1");
    link(&dir, &block, &log);
    c.sh("ceph osd new $(uuidgen | tee osd.1/fsid) 1
          ceph auth get-or-create osd.1 mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' > osd.1/keyring",
    );
    assert_eq!(c.sh("ceph osd ls"), "0\n1\n");
    let bin = binary().display().to_string();
    let mkfs = format!("{bin} osd mkfs --id 1 --conf ceph.conf --osd-uuid $(cat osd.1/fsid)");
    let (_, said) = c.sh_fails(&format!("head -c 4096 /dev/urandom > {}; {mkfs}", block.device));
    assert!(said.contains("--force"), "{said}");
    c.sh(&format!("{mkfs} --force"));
    let mut osd = c
        .shell(&format!("exec {bin} osd run --id 1 --conf ceph.conf"))
        .spawn()
        .unwrap();
    c.sh("for i in $(seq 100); do ceph osd stat | grep '2 osds: 2 up' >/dev/null && break; sleep 0.1; done; ceph osd stat | grep '2 up'");
    // Its device is in use now, which `--force` does not override.
    let ids = [
        "--fsid",
        "11111111-1111-1111-1111-111111111111",
        "--osd-uuid",
        "11111111-1111-1111-1111-111111111111",
    ];
    let taken = [&["store", "mkfs", "--force", &block.device][..], &ids].concat();
    assert!(refused(&taken).contains("in use"));
    c.sh("ceph osd pool create p 8 8 replicated; ceph osd pool set p size 2; ceph osd pool application enable p test");
    c.sh(BENCH);
    c.kill("osd.1");
    osd.wait().unwrap();
    // `up` takes it over as it is.
    c.start(2, &[]);
    c.sh("rados bench -p p 30 seq -t 16 > /dev/null");
    c.down();
    assert_clean(&block, &log);
    let other = [&["store", "mkfs", &block.device][..], &ids].concat();
    assert!(refused(&other).contains("the store of osd.1 of cluster"));
}
