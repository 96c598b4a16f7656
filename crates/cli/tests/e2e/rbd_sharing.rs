//! Images that `spirula rbd` and the official clients use in turns and at the same time.

use crate::common::Cluster;

const COMMON: &str = include_str!("../data/rbd/common.sh");

fn run(name: &str, script: &str) {
    let c = Cluster::up(name, 1, &[]);
    c.sh("for pool in p q; do ceph osd pool create $pool 8 8 replicated; done");
    let setup = format!(
        "mkdir work bin; ln -s {} bin/rbd; cd work
         printf '#!/bin/sh\nexec ../bin/rbd \"$@\"\n' >../bin/ours; chmod +x ../bin/ours; PATH=$PATH:$PWD/../bin",
        crate::common::binary().display()
    );
    c.sh(&format!("{setup}\n{COMMON}\n{script}"));
}

#[test]
fn images_are_shared_with_the_official_tool() {
    run("rbd-sharing", include_str!("../data/rbd/sharing.sh"));
}

/// A client that dies with the lock is put on the blocklist, and the next one goes on. Watches of
/// dead clients end after 30 s.
#[test]
fn the_lock_of_the_dead_is_taken_by_either() {
    let script = "
        rbd create --size 64 p/ours; rbd create --size 64 p/theirs
        ours bench --io-type write --io-size 4K --io-total 1G p/ours >/dev/null 2>&1 & ours=$!
        rbd bench --io-type write --io-size 4K --io-total 1G p/theirs >/dev/null 2>&1 & theirs=$!
        for image in ours theirs; do until rbd lock ls p/$image | grep auto >/dev/null; do sleep 0.1; done; done
        kill -9 $ours $theirs
        wait $ours $theirs || true
        rbd bench --io-type write --io-size 4K --io-total 64K p/ours >/dev/null 2>&1 & ours=$!
        ours bench --io-type write --io-size 4K --io-total 64K p/theirs
        wait $ours
        test \"$(ceph osd blocklist ls 2>/dev/null | wc -l)\" -ge 2
        for image in ours theirs; do rbd object-map check --no-progress p/$image; done
    ";
    run("rbd-dead", script);
}

/// A client that holds the lock and does not pass it on, as virtual machines may, runs the
/// operations on the whole image that others ask for.
#[test]
fn holders_that_keep_the_lock_do_what_they_are_asked() {
    let (serve, holder) = (
        include_str!("../data/rbd/serve.sh"),
        include_str!("../data/rbd/holder.sh"),
    );
    let spirula = crate::common::binary();
    run(
        "rbd-holder",
        &format!("SPIRULA={}\n{serve}\n{holder}", spirula.display()),
    );
}

/// Images with journals are written in turns, by clients of which some die.
#[test]
fn journals_tell_what_either_has_done() {
    run("rbd-journals", include_str!("../data/rbd/journals.sh"));
}

/// The next owner would do the rename again while the former one still does it.
#[test]
fn a_rename_has_ended_when_the_lock_is_passed_on() {
    let c = Cluster::up("rbd-rename", 2, &[]);
    c.sh("ceph config set global mon_allow_pool_size_one true
          ceph osd pool create n 32 32 replicated
          ceph osd pool set n size 1 --yes-i-really-mean-it
          rbd pool init n
          ceph osd set nodown");
    let (spirula, run) = (crate::common::binary(), c.dir().join("run"));
    let paths = format!("spirula, run = {spirula:?}, {run:?}");
    c.python(&format!("{paths}\n{}", include_str!("../data/rbd/rename.py")));
}
