//! Corrupted bytes of objects on disk: clients read what they wrote, and the copies are repaired.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::common::{Cluster, output, spirula};

const MIB: usize = 1 << 20;

/// Unique content: every 4 KiB name the object and the block.
pub(crate) fn content(object: &str, len: usize) -> Vec<u8> {
    let block = |i: usize| format!("{object} block {i:08} ").repeat(400).into_bytes()[..4096].to_vec();
    (0..len.div_ceil(4096)).flat_map(block).take(len).collect()
}

fn device(c: &Cluster, osd: &str) -> PathBuf {
    c.dir().join(format!("osd.{osd}")).join("block")
}

/// Flips a bit in the middle of each of these blocks of an object, all of which the OSD has.
fn damage(c: &Cluster, osd: &str, object: &str, blocks: &[usize]) {
    let found = damage_found(c, osd, object, blocks);
    assert_eq!(found, blocks.len(), "{object} is not on osd.{osd}");
}

/// Flips a bit in the middle of each of these blocks of an object that the OSD has. Returns their
/// number.
pub(crate) fn damage_found(c: &Cluster, osd: &str, object: &str, blocks: &[usize]) -> usize {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(device(c, osd))
        .unwrap();
    let mut wanted: Vec<Vec<u8>> = blocks
        .iter()
        .map(|i| format!("{object} block {i:08} ").into_bytes())
        .collect();
    let (mut at, mut buf) = (0u64, vec![0; 4 * MIB]);
    loop {
        let n = file.read_at(&mut buf, at).unwrap();
        for (i, block) in buf[..n].chunks(4096).enumerate() {
            if let Some(found) = wanted.iter().position(|w| block.starts_with(w)) {
                wanted.remove(found);
                file.write_at(&[block[2000] ^ 1], at + i as u64 * 4096 + 2000)
                    .unwrap();
            }
        }
        if n == 0 || wanted.is_empty() {
            break;
        }
        at += n as u64;
    }
    blocks.len() - wanted.len()
}

/// The OSDs that have an object, its primary first.
fn acting(c: &Cluster, object: &str) -> Vec<String> {
    let said = c.sh(&format!(
        "ceph osd map p {object} -f json | python3 -c 'import json, sys; print(*json.load(sys.stdin)[\"acting\"])'"
    ));
    said.split_whitespace().map(str::to_owned).collect()
}

pub(crate) fn repaired(c: &Cluster) -> (u64, u64) {
    c.sh("for i in 0 1 2; do ceph tell osd.$i flush_pg_stats > /dev/null; done; sleep 1");
    let said = c.sh(
        "ceph pg dump all -f json 2>/dev/null | python3 -c 'import json, sys
d = json.load(sys.stdin)[\"pg_map\"]
print(d[\"pg_stats_sum\"][\"stat_sum\"][\"num_objects_repaired\"], d[\"osd_stats_sum\"][\"num_shards_repaired\"])'",
    );
    let mut numbers = said.split_whitespace().map(|n| n.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

pub(crate) fn fsck(c: &Cluster, osd: &str) -> bool {
    let out = spirula()
        .args(["store", "fsck", "--deep"])
        .arg(device(c, osd))
        .output()
        .unwrap();
    println!("{}", output(&out));
    out.status.success()
}

/// The store of a running OSD is not checked: writes under way would look like damage.
fn in_use(c: &Cluster) {
    let out = spirula()
        .args(["store", "fsck"])
        .arg(c.dir().join("osd.0"))
        .output()
        .unwrap();
    let said = output(&out);
    let pid = c.sh("cat run/osd.0.pid");
    let expected = format!("osd.0/block is in use by process {}", pid.trim());
    assert!(!out.status.success() && said.contains(&expected), "{said}");
}

#[test]
fn what_rots_on_a_disk_is_taken_from_another() {
    let flags = ["--osd-size", "1G"];
    let c = Cluster::up("damage", 3, &flags);
    c.sh("ceph osd pool create p 8; ceph osd pool application enable p test");
    c.wait_healthy();
    for (object, len) in [("large", 4 * MIB + 100), ("small", 9000), ("hopeless", 5000)] {
        let file = c.dir().join(object);
        std::fs::write(&file, content(object, len)).unwrap();
        c.sh(&format!(
            "rados -p p put {object} {f}; rados -p p setxattr {object} name value; \
             rados -p p setomapval {object} key value",
            f = file.display()
        ));
    }
    // All of it leaves the log.
    c.sh("for i in 0 1 2; do ceph tell osd.$i flush_journal; done");
    in_use(&c);
    c.down();
    c.start(3, &flags);
    let on = |object: &str| acting(&c, object);
    let (large, small, hopeless) = (on("large"), on("small"), on("hopeless"));
    c.wait_healthy();
    c.down();
    // The primary's copy at both ends and in the middle, and a second copy elsewhere.
    damage(&c, &large[0], "large", &[0, 500, 1023]);
    damage(&c, &large[1], "large", &[7]);
    damage(&c, &small[0], "small", &[1]);
    hopeless.iter().for_each(|osd| damage(&c, osd, "hopeless", &[0]));
    assert!(!fsck(&c, &large[0]));
    c.start(3, &flags);
    c.wait_healthy();
    for object in ["large", "small"] {
        let dir = c.dir().display();
        c.sh(&format!(
            "timeout 60 rados -p p get {object} {dir}/back; cmp {dir}/back {dir}/{object}"
        ));
        let said = c.sh(&format!(
            "rados -p p getxattr {object} name; rados -p p getomapval {object} key"
        ));
        assert!(said.contains("value"), "{said}");
    }
    let (objects, shards) = repaired(&c);
    assert!(objects >= 2 && shards >= 2, "{objects} {shards}");
    assert!(c.sh("ceph log last 50").contains("missing primary copy of"));
    // A second read repairs nothing.
    let dir = c.dir().display();
    c.sh(&format!(
        "rados -p p get large {dir}/back; cmp {dir}/back {dir}/large"
    ));
    assert_eq!(repaired(&c), (objects, shards));
    // Data that is bad on all OSDs is an error that names the object.
    let (status, _) = c.sh_fails(&format!("timeout 60 rados -p p get hopeless {dir}/back"));
    assert_ne!(status, 124, "the client waits");
    repaired(&c);
    let health = c.sh("ceph health detail");
    assert!(health.contains("1/3 objects unfound"), "{health}");
    let pg = c.sh(
        "ceph osd map p hopeless -f json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"pgid\"])'",
    );
    let pg = pg.trim();
    let listed = c.sh(&format!("ceph pg {pg} list_unfound"));
    assert!(listed.contains("\"oid\": \"hopeless\""), "{listed}");
    let said = c.sh(&format!("ceph pg {pg} mark_unfound_lost delete 2>&1"));
    assert!(
        said.contains("pg has 1 objects unfound and apparently lost marking"),
        "{said}"
    );
    let said = c.sh(&format!("ceph pg {pg} mark_unfound_lost revert 2>&1"));
    assert!(said.contains("pg has no unfound objects"), "{said}");
    let (_, gone) = c.sh_fails("rados -p p stat hopeless");
    assert!(gone.contains("No such file"), "{gone}");
    c.sh(&format!(
        "rados -p p put hopeless {dir}/large; rados -p p get hopeless {dir}/back; cmp {dir}/back {dir}/large"
    ));
    c.wait_healthy();
    c.down();
    assert!(fsck(&c, &large[0]) && fsck(&c, &small[0]));
}
