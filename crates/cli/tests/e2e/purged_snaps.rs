//! Snapshots that are removed and trimmed everywhere, and a client that has not heard of it.

use crate::common::Cluster;

/// Makes objects and two snapshots, and removes one of these until no map names it. Prints their
/// ids.
const PREPARE: &str = "
io = cluster.open_ioctx('data')
kept, gone = io.create_self_managed_snap(), io.create_self_managed_snap()
for n in range(2):
    io.write_full('written%d' % n, b'old')
    io.write_full('removed%d' % n, b'old')
io.remove_self_managed_snap(gone)
def queue():
    return json.loads(cluster.mon_command('{\"prefix\":\"osd dump\",\"format\":\"json\"}', b'')[1])['removed_snaps_queue']
while queue():
    time.sleep(0.1)
print(kept, gone)
";

/// Writes and removes under a snapshot context with both.
const STALE: &str = "
import subprocess
io = cluster.open_ioctx('data')
def clones(name):
    done = subprocess.run(['rados', '-p', 'data', 'listsnaps', name, '--format', 'json'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return [[s['id'] for s in c['snapshots']] for c in json.loads(done.stdout)['clones'] if c['id'] != 'head'] if done.stdout else None
io.set_self_managed_snap_write([GONE])
io.remove_object('removed#')
assert clones('removed#') is None, clones('removed#')
io.set_self_managed_snap_write([GONE, KEPT])
io.write_full('written#', b'new')
assert clones('written#') == [[KEPT]], clones('written#')
io.set_read(KEPT)
assert io.read('written#') == b'old'
";

#[test]
fn a_client_that_was_away_leaves_no_clones() {
    let c = Cluster::up("purged-snaps", 3, &[]);
    c.sh("ceph osd pool create data 8; ceph osd pool application enable data app");
    let ids = c.python(PREPARE);
    let (kept, gone) = ids.trim().split_once(' ').unwrap();
    let stale = |n: &str| {
        let program = STALE.replace("KEPT", kept).replace("GONE", gone).replace('#', n);
        c.python(&program)
    };
    stale("0");
    // OSDs that were away too are told by a monitor.
    (0..3).for_each(|o| c.kill(&format!("osd.{o}")));
    std::thread::sleep(std::time::Duration::from_secs(1));
    c.wait_healthy();
    stale("1");
}
