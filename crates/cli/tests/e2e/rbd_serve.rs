//! `spirula rbd serve`: images through NBD clients, beside the official `rbd`.

use crate::common::{Cluster, binary};

const COMMON: &str = include_str!("../data/rbd/common.sh");
const SERVE: &str = include_str!("../data/rbd/serve.sh");

fn run(name: &str, script: &str) {
    let c = Cluster::up(name, 3, &[]);
    c.sh("ceph osd pool create p 8 8 replicated");
    let binary = binary();
    let program = format!("mkdir work; cd work\n{COMMON}\n{SERVE}\n{script}");
    let mut command = c.shell(&program);
    let out = command.env("SPIRULA", binary).output().unwrap();
    assert!(
        out.status.success(),
        "{}\n{}",
        crate::common::output(&out),
        c.shell("cat work/served")
            .output()
            .map(|o| crate::common::output(&o))
            .unwrap()
    );
}

#[test]
fn images_go_in_and_out() {
    run(
        "serve-copies",
        r#"
        rbd create --size 64M p/disk
        truncate -s 64M in
        for mib in 0 9 17 63; do dd if=/dev/urandom of=in bs=1M seek=$mib count=1 conv=notrunc status=none; done
        serve p/disk
        qemu-img convert -n -f raw -O raw in "$(uri p/disk)"
        qemu-img compare -f raw -F raw in "$(uri p/disk)"
        # Also for the others, while it is served.
        same p/disk in
        nbdcopy --connections=4 "$(uri p/disk)" out
        cmp in out
        nbdinfo --map "$(uri p/disk)" >map
        grep -q 'hole,zero' map
        end
        prints "" rbd lock ls p/disk
        says 'Watchers: none' rbd status p/disk
        rbd object-map check --no-progress p/disk
        "#,
    );
}

#[test]
fn discards_give_space_back() {
    run(
        "serve-discards",
        r#"
        rbd create --size 64M p/disk
        serve p/disk --cache 1M
        io p/disk 'write -P 1 0 32M' flush
        [ "$(objects_of p/disk)" = 8 ]
        io p/disk 'discard 0 16M' 'write -z -u 16M 8M' flush 'read -P 0 0 24M' 'read -P 1 24M 8M'
        [ "$(objects_of p/disk)" = 2 ]
        # Zeroes that have their space.
        io p/disk 'write -z 40M 4M' flush 'read -P 0 40M 4M'
        [ "$(objects_of p/disk)" = 3 ]
        # Two connections, one device.
        io p/disk 'write -P 2 0 1M' & one=$!
        qemu-io -f raw -c 'write -P 3 1M 1M' "$(uri p/disk)" >/dev/null
        wait $one
        io p/disk 'read -P 2 0 1M' 'read -P 3 1M 1M'
        end
        rbd object-map check --no-progress p/disk
        "#,
    );
}

#[test]
fn what_was_flushed_outlives_the_server() {
    run(
        "serve-kill",
        r#"
        rbd create --size 32M p/disk
        serve p/disk
        io p/disk 'write -P 7 0 4M' flush 'write -f -P 8 4M 1M'
        # Writes go on when the server dies.
        qemu-io -f raw -c 'write -P 9 8M 16M' -c 'write -P 9 8M 16M' "$(uri p/disk)" >/dev/null 2>&1 & writer=$!
        kill -9 "$server"
        wait "$server" || true
        wait "$writer" || true
        # Another client takes the lock of the dead one.
        timeout 60 /usr/bin/python3 - <<'PY'
import os, rados, rbd
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io, rbd.Image(io, 'disk') as image:
    assert image.read(0, 4 << 20) == b'\7' * (4 << 20)
    assert image.read(4 << 20, 1 << 20) == b'\10' * (1 << 20)
    image.write(b'after', 5 << 20)
PY
        serve p/disk
        io p/disk 'read -P 7 0 4M' 'read -P 8 4M 1M' 'write -P 9 0 1M'
        end
        "#,
    );
}

#[test]
fn images_are_shared_with_other_clients() {
    run(
        "serve-shared",
        r#"
        rbd create --size 32M p/disk
        serve p/disk
        io p/disk 'write -P 1 0 8M' flush
        # A snapshot by another client, while writes go on.
        (for n in $(seq 5); do io p/disk "write -P $n 16M 8M"; done) & writer=$!
        rbd snap create --no-progress p/disk@s
        wait $writer
        io p/disk 'write -P 2 0 8M' flush
        # Another client writes, and the server again.
        put p/disk 31000000 theirs
        io p/disk 'write -P 3 1M 1M' flush
        rbd export --no-progress p/disk now
        prints theirs dd if=now bs=1 skip=31000000 count=6 status=none
        # Another size is noticed.
        rbd resize --no-progress --size 40M p/disk
        prints 41943040 nbdinfo --size "$(uri p/disk)"
        io p/disk 'write -P 4 36M 4M'
        end
        rbd object-map check --no-progress p/disk
        # The snapshot is what it was, and can't be written.
        serve p/disk@s p/disk --read-only
        mode=-r
        io p/disk@s 'read -P 1 0 8M'
        io p/disk 'read -P 2 0 1M' 'read -P 3 1M 1M' 'read -P 4 36M 4M'
        fails 1 qemu-io -f raw -c 'write 0 4k' "$(uri p/disk@s)"
        fails 1 qemu-io -f raw -c 'write 0 4k' "$(uri p/disk)"
        says p/disk@s nbdinfo --list "$(uri '')"
        end
        fails 2 "$SPIRULA" rbd serve --socket sock p/nothing
        "#,
    );
}
