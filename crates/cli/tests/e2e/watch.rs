//! Watches, notifications and fencing, through the official client library and tools.

use crate::common::Cluster;

#[test]
fn watchers_hear_what_is_said_and_are_listed() {
    let c = Cluster::up("watch", 3, &[]);
    c.sh("ceph osd pool create p 8 8 replicated");
    c.python(
        r#"
import datetime, subprocess
io = cluster.open_ioctx('p')
io.write_full('o', b'x')
before = io.get_last_version()
heard, errors = [], []
def hear(notify_id, notifier, watch_id, data):
    heard.append((notifier == cluster.get_instance_id(), data))
    return 'heard ' + (data or b'').decode()
w = io.watch('o', hear, lambda watch_id, error: errors.append(error))
assert io.get_last_version() == before
for said in ['', 'hello', 'x' * 100000]:
    assert io.notify('o', said, 5000)
assert [d or b'' for _, d in heard] == [b'', b'hello', b'x' * 100000] and all(me for me, _ in heard)
assert w.check() < datetime.timedelta(seconds=30)
def tool(*args):
    return subprocess.run(args, capture_output=True, text=True, check=True).stdout
listed = tool('rados', '-p', 'p', 'listwatchers', 'o')
assert listed.startswith('watcher=127.0.0.1:0/'), listed
assert ' client.%d cookie=' % cluster.get_instance_id() in listed, listed
said = tool('rados', '-p', 'p', 'notify', 'o', 'from the tool')
assert not heard[-1][0] and heard[-1][1].endswith(b'from the tool'), heard[-1]
try:
    io.watch('nothing', hear)
    raise SystemExit('a watch of nothing')
except rados.ObjectNotFound:
    pass
io.remove_object('o')
for _ in range(50):
    if errors:
        break
    time.sleep(0.1)
assert errors == [-107], errors
w.close()
io.close()
"#,
    );
}

#[test]
fn a_client_that_is_shut_out_changes_nothing_more() {
    let c = Cluster::up("fence", 3, &[]);
    c.sh("ceph osd pool create p 8 8 replicated");
    c.python(
        r#"
import subprocess
def connect():
    other = rados.Rados(conffile=os.environ['CEPH_CONF'])
    other.connect()
    return other, other.open_ioctx('p')
keeper, kept = connect()
def fenced(by):
    client, io = connect()
    io.write_full('o', b'before')
    io.watch('o', lambda *a: None)
    by(client.get_addrs())
    keeper.wait_for_latest_osdmap()
    kept.write_full('other', b'')
    for late in (lambda: io.write_full('o', b'late'), lambda: io.read('o')):
        try:
            late()
            raise SystemExit('not refused')
        except rados.Error as e:
            assert e.errno == 108, e
    assert kept.read('o') == b'before'
def ceph(*args):
    subprocess.run(('ceph', 'osd', 'blocklist') + args, check=True, capture_output=True)
fenced(lambda addr: keeper.blocklist_add(addr, 60))
fenced(lambda addr: ceph('add', addr))
ceph('clear')
time.sleep(2)
watchers = subprocess.run(['rados', '-p', 'p', 'listwatchers', 'o'], capture_output=True, text=True).stdout
assert watchers == '', watchers
"#,
    );
    // Networks and whole hosts can be blocked as well; such entries expire.
    c.sh("ceph osd blocklist range add 10.1.0.0/16 60
          ceph osd blocklist add 10.2.0.1 1
          ceph osd dump | grep 'range blocklist cidr:10.1.0.0:0/16 expires' >/dev/null
          ceph osd getmap -o map; osdmaptool map --print | grep 'range blocklist cidr:10.1.0.0:0/16' >/dev/null
          for i in 1 2 3 4 5 6 7 8 9 10; do ceph osd blocklist ls | grep 10.2.0.1 >/dev/null || break; sleep 1; done
          ! ceph osd blocklist ls | grep 10.2.0.1
          ceph osd blocklist range rm 10.1.0.0/16
          [ -z \"$(ceph osd blocklist ls 2>/dev/null)\" ]");
}
