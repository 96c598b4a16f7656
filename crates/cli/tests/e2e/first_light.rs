//! The first tour: every command of the official `rados` tool that users begin with, and
//! python3-rados.

use crate::common::Cluster;

#[test]
fn the_rados_tool_works() {
    let c = Cluster::up("rados-tool", 3, &[]);
    let status = c.sh("ceph -s");
    assert!(
        status.contains("HEALTH_OK") && status.contains("3 osds: 3 up"),
        "{status}"
    );
    for size in 1..=3 {
        c.sh(&format!("ceph osd pool create p{size} 8 8 replicated"));
        c.sh("ceph config set global mon_allow_pool_size_one true");
        c.sh(&format!(
            "ceph osd pool set p{size} size {size} --yes-i-really-mean-it"
        ));
    }
    c.sh("ceph osd pool set p2 min_size 1");
    let pools = c.sh("rados lspools");
    assert_eq!(pools.lines().collect::<Vec<_>>(), ["p1", "p2", "p3"]);
    for pool in ["p1", "p2", "p3"] {
        c.sh(&format!(
            "printf hello > in; rados -p {pool} put greeting in; rados -p {pool} get greeting out; cmp in out
             [ \"$(rados -p {pool} stat greeting | grep -o 'size 5')\" = 'size 5' ]
             rados -p {pool} append greeting in; rados -p {pool} get greeting - | grep -x hellohello >/dev/null
             rados -p {pool} truncate greeting 3; [ \"$(rados -p {pool} get greeting -)\" = hel ]
             rados -p {pool} setxattr greeting colour blue; [ \"$(rados -p {pool} getxattr greeting colour)\" = blue ]
             [ \"$(rados -p {pool} listxattr greeting)\" = colour ]
             rados -p {pool} rmxattr greeting colour; [ -z \"$(rados -p {pool} listxattr greeting)\" ]
             [ \"$(rados -p {pool} ls)\" = greeting ]
             rados -p {pool} rm greeting; [ -z \"$(rados -p {pool} ls)\" ]"
        ));
        let (code, said) = c.sh_fails(&format!("rados -p {pool} get greeting out"));
        assert_eq!(code, 1);
        assert!(said.contains("(2) No such file or directory"), "{said}");
    }
    let df = c.sh("rados df");
    assert!(df.contains("POOL_NAME") && df.contains("total_objects"), "{df}");
}

#[test]
fn a_gibibyte_comes_back_as_it_went() {
    let c = Cluster::up("gibibyte", 3, &[]);
    c.sh("ceph osd pool create big 16 16 replicated");
    // By default an object has at most 128 MiB, here as with Ceph.
    c.sh("head -c 1073741824 /dev/urandom > in");
    let (_, said) = c.sh_fails("rados -p big put o in");
    assert!(said.contains("(27) File too large"), "{said}");
    c.sh("ceph config set osd osd_max_object_size 2147483648; sleep 1
          rados -p big put o in; rados -p big get o out
          [ \"$(sha256sum < in)\" = \"$(sha256sum < out)\" ]");
}

#[test]
fn namespaces_are_apart() {
    let c = Cluster::up("namespaces", 3, &[]);
    c.sh("ceph osd pool create ns 8 8 replicated
          echo one > a; echo two > b
          rados -p ns -N left put x a; rados -p ns -N right put x b; rados -p ns put y a
          [ \"$(rados -p ns -N left get x -)\" = one ]
          [ \"$(rados -p ns -N right get x -)\" = two ]
          [ \"$(rados -p ns ls)\" = y ]
          [ \"$(rados -p ns -N left ls)\" = x ]
          [ $(rados -p ns ls --all | wc -l) = 3 ]");
}

#[test]
fn benches_and_load_generator_run() {
    let c = Cluster::up("benches", 3, &[]);
    c.sh("ceph osd pool create bench 16 16 replicated");
    for size in ["4096", "4194304"] {
        c.sh(&format!(
            "rados bench -p bench 2 write -b {size} -t 16 --no-cleanup"
        ));
        for read in ["seq", "rand"] {
            let said = c.sh(&format!("rados bench -p bench 2 {read} -t 16"));
            assert!(said.contains("Total reads made"), "{said}");
        }
        c.sh("rados -p bench cleanup");
        assert_eq!(c.sh("rados -p bench ls"), "");
    }
    c.sh("rados -p bench load-gen --num-objects 50 --min-object-size 1000 --max-object-size 100000 --max-ops 8 --run-length 3");
}

#[test]
fn python_rados_works_synchronously_and_asynchronously() {
    let c = Cluster::up("python", 3, &[]);
    c.sh("ceph osd pool create py 8 8 replicated");
    c.python(
        r#"
io = cluster.open_ioctx('py')
io.write_full('o', b'abcdef')
assert io.read('o') == b'abcdef'
io.write('o', b'XY', 2)
assert io.read('o') == b'abXYef'
assert io.stat('o')[0] == 6
io.set_xattr('o', 'k', b'v')
assert io.get_xattr('o', 'k') == b'v'
assert dict(io.get_xattrs('o')) == {'k': b'v'}
v1 = io.get_last_version()
io.append('o', b'!')
assert io.get_last_version() > v1
try:
    io.read('missing')
    raise SystemExit('read of a missing object succeeded')
except rados.ObjectNotFound:
    pass
done = []
comps = [io.aio_write_full('a%d' % i, b'x' * (i + 1), oncomplete=lambda c, i=i: done.append(i)) for i in range(500)]
for comp in comps:
    comp.wait_for_complete_and_cb()
    assert comp.get_return_value() == 0
assert sorted(done) == list(range(500))
seen = {}
def got(comp, data, i):
    seen[i] = data
comps = [io.aio_read('a%d' % i, 1000, 0, lambda c, d, i=i: got(c, d, i)) for i in range(500)]
for comp in comps:
    comp.wait_for_complete_and_cb()
assert all(seen[i] == b'x' * (i + 1) for i in range(500))
assert sorted(o.key for o in io.list_objects()) == sorted(['o'] + ['a%d' % i for i in range(500)])
with rados.WriteOpCtx() as op:
    op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
    op.write_full(b'z')
    io.operate_write_op(op, 'excl')
try:
    with rados.WriteOpCtx() as op:
        op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
        io.operate_write_op(op, 'excl')
    raise SystemExit('exclusive create succeeded twice')
except rados.ObjectExists:
    pass
io.remove_object('o')
io.close()
assert cluster.get_fsid()
assert cluster.get_cluster_stats()['kb'] > 0
cluster.shutdown()
"#,
    );
}
