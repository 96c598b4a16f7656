//! Damage in the index of an OSD's store: it is found, and made good from the other OSDs.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use crate::common::Cluster;

const BLOCK: u64 = 4096;
/// Where the copies of the index's map end, and other things begin.
const BEHIND_MAPS: u64 = 256 << 10;
/// Blocks of checksums before the pages that they are of.
const TABLES: u64 = 2;
/// Bytes of a table before its checksums.
const TABLE_HEAD: usize = 32;
/// The first byte of a page with entries.
const WITH_ENTRIES: u8 = 1;
/// An attribute of all objects: pages that have its name are of objects, and of nothing else.
const ATTRIBUTE: &str = "hue-of-the-thing";

/// The index of the store of an OSD, as it lies on the device.
struct IndexOf {
    device: std::fs::File,
    /// Offsets of the pages that were ever written, and their contents.
    pages: BTreeMap<u64, Vec<u8>>,
}

impl IndexOf {
    fn read(c: &Cluster, osd: &str) -> Self {
        let path = c.dir().join(format!("osd.{osd}")).join("block");
        let device = std::fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let len = device.metadata().unwrap().len();
        let mut block = vec![0; BLOCK as usize];
        let mut pages = BTreeMap::new();
        let mut at = BEHIND_MAPS;
        while at + BLOCK <= len {
            device.read_exact_at(&mut block, at).unwrap();
            let count = u64::from(u32::from_le_bytes(block[12..16].try_into().unwrap()));
            let first = at - at % ((count + TABLES) * BLOCK);
            if !block.starts_with(b"SPIL") || at > first + BLOCK {
                at += BLOCK;
                continue;
            }
            for i in 0..count {
                let crc = TABLE_HEAD + 4 * i as usize;
                let at = first + (TABLES + i) * BLOCK;
                if block[crc..crc + 4] != [0; 4] {
                    let mut page = vec![0; BLOCK as usize];
                    device.read_exact_at(&mut page, at).unwrap();
                    pages.insert(at, page);
                }
            }
            // The other table may know of more.
            at += BLOCK;
        }
        assert!(!pages.is_empty(), "osd.{osd} has no index");
        Self { device, pages }
    }

    /// Flips a bit in the middle of each of these pages.
    fn damage(&self, pages: impl IntoIterator<Item = u64>) -> usize {
        let mut count = 0;
        for at in pages {
            let middle = self.pages[&at][2000];
            self.device.write_at(&[middle ^ 4], at + 2000).unwrap();
            count += 1;
        }
        count
    }

    /// Pages whose entries have this in them, three times at least.
    fn with(&self, name: &str) -> Vec<u64> {
        let is_of = |page: &[u8]| {
            let found = page.windows(name.len()).filter(|w| *w == name.as_bytes());
            page[0] == WITH_ENTRIES && found.count() >= 3
        };
        let pages = self.pages.iter();
        pages.filter(|(_, page)| is_of(page)).map(|(at, _)| *at).collect()
    }
}

/// Writes objects with attributes and omaps, or checks that all are as they were written.
fn objects(c: &Cluster, round: u32, does: &str) {
    c.python(&format!(
        "
def data(pool, i):
    return (f'{{pool}} {round} {{i}} ' * 600).encode()[:5000]
for pool in ('p', 'e'):
    io = cluster.open_ioctx(pool)
    for i in range(400):
        name = f'thing.{{i:05}}'
        pairs = {{f'key {{n}}': f'{{i}} {{n}} {round} '.encode() * 20 for n in range(20)}} if i % 10 == 0 and pool == 'p' else {{}}
        if '{does}' == 'write':
            io.write_full(name, data(pool, i))
            io.set_xattr(name, '{ATTRIBUTE}', f'{{i}} {round}'.encode() * 10)
            if pairs:
                with rados.WriteOpCtx() as op:
                    io.set_omap(op, tuple(pairs), tuple(pairs.values()))
                    io.operate_write_op(op, name)
        else:
            assert io.read(name) == data(pool, i), (pool, name)
            assert io.get_xattr(name, '{ATTRIBUTE}') == f'{{i}} {round}'.encode() * 10, (pool, name)
            if pairs:
                with rados.ReadOpCtx() as op:
                    found, _ = io.get_omap_vals(op, '', '', 100)
                    io.operate_read_op(op, name)
                    assert dict(found) == pairs, (pool, name)
"
    ));
}

/// Waits until a command's output has a text.
fn wait_for(c: &Cluster, command: &str, text: &str) {
    c.sh(&format!(
        "for i in $(seq 200); do ({command}) 2>&1 | grep -- '{text}' > /dev/null && exit 0; sleep 0.2; done
        echo 'never: {text}'; ({command}); ceph -s; ceph log last 60 debug cluster; exit 1"
    ));
}

fn log_has(c: &Cluster, text: &str) {
    wait_for(c, "ceph log last 1000 debug cluster", text);
}

/// Has all PGs deep-scrubbed: no copy differs.
fn all_is_sound(c: &Cluster) {
    c.wait_healthy();
    c.sh(
        "cat > sound.py <<'P'
import json, subprocess, sys, time
def pgs():
    said = subprocess.check_output('ceph pg dump pgs -f json 2>/dev/null', shell=True)
    return {p['pgid']: p for p in json.loads(said)['pg_stats']}
before = {pg: p['last_deep_scrub_stamp'] for pg, p in pgs().items()}
for pg in before: subprocess.check_output(['ceph', 'pg', 'deep-scrub', pg], stderr=subprocess.DEVNULL)
for _ in range(150):
    after = pgs()
    left = [pg for pg in before if after[pg]['last_deep_scrub_stamp'] <= before[pg]]
    if not left: break
    time.sleep(0.2)
assert not left, left
bad = {pg: p['state'] for pg, p in after.items() if 'inconsistent' in p['state'] or p['stat_sum']['num_scrub_errors']}
assert not bad, bad
P
/usr/bin/python3 sound.py",
    );
}

fn what_is_damaged_while_it_is_stopped_is_copied_anew(c: &Cluster, flags: &[&str]) {
    objects(c, 1, "write");
    c.sh("for i in 0 1 2; do ceph tell osd.$i flush_journal; done");
    c.down();
    let index = IndexOf::read(c, "0");
    let damaged = index.damage(index.with(ATTRIBUTE).into_iter().step_by(3));
    assert!(damaged > 5, "{damaged}");
    c.start(3, flags);
    // What clients and PGs do not look at, the check of the index does.
    c.sh("ceph osd deep-scrub 0");
    log_has(c, "osd.0: the index of its store is damaged");
    log_has(
        c,
        "osd.0: damaged parts of the index were cut out: the copies of pg [0-9.]*",
    );
    objects(c, 1, "read");
    all_is_sound(c);
}

fn what_is_damaged_while_it_runs_is_found_and_made_good(c: &Cluster) {
    objects(c, 2, "write");
    c.sh("ceph tell osd.0 flush_journal");
    let pid = c.pid("osd.0");
    let before = c.sh("ceph log last 1000 debug cluster | grep -c 'were cut out' || true");
    // Clients go on all the time.
    let clients = c
        .python_command(&format!(
            "
io = cluster.open_ioctx('p')
n = 0
while not os.path.exists('{}/clients-end'):
    name = f'busy.{{n % 50}}'
    body = str(n).encode() * 100
    began = time.monotonic()
    io.write_full(name, body)
    assert io.read(name) == body
    assert time.monotonic() - began < 20, 'an op hung'
    n += 1
    time.sleep(0.01)
",
            c.dir().display()
        ))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let index = IndexOf::read(c, "0");
    assert!(index.damage(index.with(ATTRIBUTE).into_iter().step_by(4)) > 3);
    c.sh("ceph osd deep-scrub 0");
    let more = before.trim().parse::<u32>().unwrap() + 1;
    wait_for(
        c,
        "ceph log last 1000 debug cluster | grep -c 'were cut out'",
        &format!("^{more}$"),
    );
    assert_eq!(c.pid("osd.0"), pid, "the process goes on");
    wait_for(c, "ceph -s", "active+clean$");
    c.wait_healthy();
    c.sh("touch clients-end");
    let out = clients.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", crate::common::output(&out));
    objects(c, 2, "read");
    all_is_sound(c);
}

fn a_ruined_store_is_made_anew_once_nobody_needs_it(c: &Cluster) {
    objects(c, 3, "write");
    c.sh("for i in 0 1 2; do ceph tell osd.$i flush_journal; done; ceph osd set noout");
    let (first, second) = (c.pid("osd.1"), c.pid("osd.2"));
    // Both are down: no PG is active.
    c.sh(&format!("kill -STOP {first} {second}; ceph osd down 1 2"));
    ruin(c, "1");
    wait_for(c, "ceph pg stat | grep -c active || true", "^0$");
    c.kill("osd.1");
    log_has(
        c,
        "osd.1: the store is ruined.*; it keeps what it has, as 6 pgs can.t do without what it has: 1.0 (not active)",
    );
    wait_for(c, "ceph health detail", "OSD_STORE_DAMAGED");
    wait_for(
        c,
        "ceph health detail",
        "osd.1 .*: the store is ruined.*: it does not serve, and keeps what it has until 6 pgs, one of them 1.0, can",
    );
    // It asks again and again.
    c.sh("sleep 12; ! ceph log last 1000 debug cluster | grep 'osd.1.* made anew'");
    c.sh(&format!("kill -CONT {second}; ceph osd unset noout"));
    log_has(
        c,
        "osd.1: every pg is active without it as of e[0-9]*: its store is made anew",
    );
    log_has(
        c,
        "osd.1: its store was ruined and is made anew, empty: pgs are copied to it",
    );
    objects(c, 3, "read");
    all_is_sound(c);
    // What it has now is what the others had.
    c.sh("ceph osd set noout");
    c.sh(&format!("kill -STOP {second}; ceph osd down 2"));
    objects(c, 3, "read");
    c.sh(&format!("kill -CONT {second}; ceph osd unset noout"));
    c.wait_healthy();
}

/// Damages all pages of the index of an OSD that does not run.
fn ruin(c: &Cluster, osd: &str) {
    let index = IndexOf::read(c, osd);
    assert!(index.damage(index.pages.keys().copied()) > 20);
}

fn an_option_keeps_a_ruined_store(c: &Cluster) {
    c.sh("ceph config set osd spirula_osd_refill false");
    c.sh(&format!("kill -STOP {}", c.pid("osd.2")));
    ruin(c, "2");
    c.kill("osd.2");
    wait_for(
        c,
        "cat log/osd.2.log",
        "the store is ruined.*spirula_osd_refill is off",
    );
    c.sh("ceph config rm osd spirula_osd_refill");
}

#[test]
fn a_damaged_index_is_made_good_from_other_osds() {
    let flags = ["--osd-size", "1G"];
    let c = Cluster::up("damaged_index", 3, &flags);
    c.sh(
        "ceph osd pool create p 4; ceph osd erasure-code-profile set k2 k=2 m=1 crush-failure-domain=osd
        ceph osd pool create e 2 2 erasure k2
        for p in p e; do ceph osd pool application enable $p test; done",
    );
    c.wait_healthy();
    what_is_damaged_while_it_is_stopped_is_copied_anew(&c, &flags);
    what_is_damaged_while_it_runs_is_found_and_made_good(&c);
    a_ruined_store_is_made_anew_once_nobody_needs_it(&c);
    an_option_keeps_a_ruined_store(&c);
}
