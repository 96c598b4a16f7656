//! Objects of extreme shapes, each of which a client may store: OSDs that lack them get them,
//! whatever their shape.

use std::time::{Duration, Instant};

use crate::common::Cluster;

/// Helpers of the programs: they make the objects, and digest everything about them.
const OBJECTS: &str = r#"
import hashlib
io = cluster.open_ioctx('data')
MOST = 6 * 1024 * 1024 - 65536

def scatter(name, n, distance):
    for start in range(0, n, 512):
        with rados.WriteOpCtx() as op:
            for i in range(start, min(n, start + 512)):
                op.write(b'x', i * distance)
            io.operate_write_op(op, name)

def pairs(name, keys, value):
    with rados.WriteOpCtx() as op:
        io.set_omap(op, tuple(keys), tuple(value for _ in keys))
        io.operate_write_op(op, name)

def make():
    scatter('bytes', 2048, 512)
    scatter('bytes far apart', 2048, 3000)
    scatter('bytes in old data', 2048, 512)
    scatter('n' * 2000, 1024, 512)
    io.write_full('zeros', b'd' * (2 << 20))
    with rados.WriteOpCtx() as op:
        for i in range(400):
            op.zero(i * 5000, 100)
        io.operate_write_op(op, 'zeros')
    scatter('cut', 600, 5000)
    io.trunc('cut', 100)
    io.trunc('cut', 64 << 20)
    for i in range(4):
        pairs('large pairs', ['k%d' % i], b'v' * MOST)
    pairs('pairs', ['k%04d' % i for i in range(4000)], b'v' * 1000)
    pairs('pairs', ['l'], b'w' * MOST)
    pairs('pairs', ['m'], b'x')
    for i in range(3):
        pairs('large keys', [('%d' % i) * MOST], b'v')
    io.set_xattr('attributes', 'large', b'a' * (1600 << 10))
    for i in range(2000):
        io.set_xattr('attributes', 'n%098d' % i, b'v' * 100)
    pairs('attributes', ['a%03d' % i for i in range(900)], b'v' * 1000)
    pairs('attributes', ['k'], b'v' * MOST)

def digest(name):
    h = hashlib.sha256()
    size, _ = io.stat(name)
    h.update(b'%d' % size)
    for at in range(0, size, 8 << 20):
        h.update(io.read(name, 8 << 20, at))
    for attr, value in sorted(io.get_xattrs(name)):
        h.update(attr.encode() + value)
    after = ''
    while True:
        with rados.ReadOpCtx() as op:
            it, _ = io.get_omap_vals(op, after, '', 4)
            io.operate_read_op(op, name)
            some = list(it)
        for k, v in some:
            h.update(k.encode() + v)
        if not some:
            return h.hexdigest()
        after = some[-1][0]

def digests():
    for snap in [rados.LIBRADOS_SNAP_HEAD] + list(SNAPS):
        io.set_read(snap)
        for name in sorted(o.key for o in cluster.open_ioctx('data').list_objects()):
            try:
                print(snap, name[:20], digest(name))
            except rados.ObjectNotFound:
                print(snap, name[:20], 'none')

def snapshot(snaps):
    snaps.append(io.create_self_managed_snap())
    io.set_self_managed_snap_write(list(reversed(snaps)))
"#;

struct Objects<'a> {
    c: &'a Cluster,
    /// The snapshots that were taken.
    snaps: String,
}

impl Objects<'_> {
    fn python(&self, program: &str) -> String {
        let snaps = &self.snaps;
        self.c.python(&format!("SNAPS = [{snaps}]\n{OBJECTS}\n{program}"))
    }

    fn digests(&self) -> String {
        self.python("digests()")
    }

    /// Takes snapshots, after each of which a byte of every object changes.
    fn take_snapshots(&mut self) {
        self.snaps = self
            .python(
                "snaps = []\nnames = [o.key for o in io.list_objects()]\nfor i in range(3):\n    snapshot(snaps)\n    \
                 for n in names: io.write(n, b'changed', i * 70000)\nprint(','.join(map(str, snaps)))",
            )
            .trim()
            .to_owned();
    }
}

fn wait(c: &Cluster, what: &str, script: &str, wanted: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let now = c.sh(script);
        if wanted(now.trim()) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {now}\n{}", c.logs());
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn wait_state(c: &Cluster, wanted: &str) {
    let script = "ceph pg ls-by-pool data -f json | jq -r '.pg_stats[].state'";
    wait(c, wanted, script, |state| state == wanted);
}

fn members(c: &Cluster) -> Vec<u32> {
    let list = c.sh("ceph pg ls-by-pool data -f json | jq -r '.pg_stats[0].acting[]'");
    list.lines().map(|l| l.parse().unwrap()).collect()
}

/// The content that clients read while only this member serves.
fn alone(o: &Objects<'_>, osd: u32) -> String {
    let c = o.c;
    for other in members(c).into_iter().filter(|m| *m != osd) {
        c.kill(&format!("osd.{other}"));
    }
    wait_state(c, "active+undersized+degraded");
    assert_eq!(members(c), [osd]);
    let found = o.digests();
    c.start(4, &["--no-respawn", "--osd-size", "4G"]);
    wait_state(c, "active+clean");
    found
}

#[test]
fn objects_of_any_shape_reach_osds_that_lack_them() {
    let c = Cluster::up("shapes", 4, &["--no-respawn", "--osd-size", "4G"]);
    c.sh(
        "ceph osd pool create data 1 1 replicated; ceph osd pool application enable data test; \
         ceph osd pool set data min_size 1; ceph osd pool set data pg_autoscale_mode off",
    );
    wait_state(&c, "active+clean");
    let mut o = Objects {
        c: &c,
        snaps: String::new(),
    };
    let before = members(&c);
    let spare = (0..4).find(|osd| !before.contains(osd)).unwrap();
    let away = before[2];
    // Some of them exist before, so that only their changes are copied.
    o.python(
        "for name in ['bytes in old data', 'zeros', 'large pairs']: io.write_full(name, b'old' * (1 << 20))",
    );
    c.kill(&format!("osd.{away}"));
    wait_state(&c, "active+undersized+degraded");
    o.python("make()");
    let written = o.digests();
    assert_eq!(written.lines().count(), 10, "{written}");
    c.start(4, &["--no-respawn", "--osd-size", "4G"]);
    wait_state(&c, "active+clean");
    assert_eq!(alone(&o, away), written);
    // Clones, all of which another OSD is to have.
    o.take_snapshots();
    let written = o.digests();
    assert_eq!(written.lines().count(), 40, "{written}");
    c.sh(&format!("ceph osd out {}", before[1]));
    wait(
        &c,
        "the spare is a member",
        "ceph pg ls-by-pool data -f json | jq -c '.pg_stats[0].acting'",
        |m| m.contains(&spare.to_string()),
    );
    wait_state(&c, "active+clean");
    assert_eq!(alone(&o, spare), written);
    for osd in 0..4 {
        let peak = c.peak_rss(&format!("osd.{osd}"));
        assert!(peak < 256 << 20, "osd.{osd} took {} MiB", peak >> 20);
    }
}
