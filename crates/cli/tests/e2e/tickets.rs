//! Sessions outlive their tickets: clients and daemons renew them without an interruption.

use crate::common::Cluster;

/// Seconds that a ticket lives in this test.
const LIFE: u32 = 12;

#[test]
fn a_session_older_than_its_ticket_goes_on_working() {
    let c = Cluster::up("tickets", 3, &[]);
    c.sh(&format!(
        "ceph osd pool create t 8 8 replicated; ceph osd pool application enable t test; \
         ceph config set mon auth_service_ticket_ttl {LIFE}; ceph config set mon auth_mon_ticket_ttl {LIFE}"
    ));
    // The daemons' tickets from before the change still live long: all start anew with short ones.
    // (The secrets that these are sealed with keep their hour; their rotation is tested with
    // cephx.)
    c.down();
    c.start(3, &[]);
    let program = format!(
        "io = cluster.open_ioctx('t')\n\
         end = time.time() + 3 * {LIFE} + 2\n\
         n = 0\n\
         while time.time() < end:\n\
         \x20   name = 'o%d' % (n % 50)\n\
         \x20   io.write_full(name, b'%d' % n)\n\
         \x20   assert io.read(name) == b'%d' % n\n\
         \x20   n += 1\n\
         \x20   time.sleep(0.05)\n\
         \x20   if n % 100 == 0:\n\
         \x20       other = rados.Rados(conffile=os.environ['CEPH_CONF'])\n\
         \x20       other.connect(timeout=5)\n\
         \x20       assert other.open_ioctx('t').read(name) == b'%d' % (n - 1)\n\
         \x20       other.shutdown()\n\
         r, out, err = cluster.mon_command(json.dumps({{'prefix': 'fsid'}}), b'')\n\
         assert r == 0, err\n\
         print(n)\n"
    );
    let done: u32 = c.python(&program).trim().parse().unwrap();
    assert!(done > 200, "only {done} writes in three lives of a ticket");
    c.sh("rados -p t put new ceph.conf; rados -p t get new out; cmp ceph.conf out");
    c.wait_healthy();
}
