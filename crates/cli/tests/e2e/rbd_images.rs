//! Block images through the official `rbd`: the scripts of `data/rbd`, which real Ceph passes, too.

use crate::common::{Cluster, binary};

const COMMON: &str = include_str!("../data/rbd/common.sh");

fn run(name: &str, script: &str) {
    let c = Cluster::up(name, 3, &[]);
    c.sh("for pool in p q; do ceph osd pool create $pool 8 8 replicated; done");
    c.sh(&format!("mkdir work; cd work\n{COMMON}\n{script}"));
}

#[test]
fn images_keep_what_is_written_to_them_and_their_snapshots() {
    run("rbd-images", include_str!("../data/rbd/images.sh"));
}

#[test]
fn clones_see_their_parents() {
    run("rbd-clones", include_str!("../data/rbd/clones.sh"));
}

#[test]
fn copies_are_the_same() {
    run("rbd-copies", include_str!("../data/rbd/copies.sh"));
}

#[test]
fn images_of_the_first_format_work_and_migrate() {
    run("rbd-format1", include_str!("../data/rbd/format1.sh"));
}

/// Pools, namespaces, notes, locks and users of images, features, the trash, options, differences
/// and copies, by both tools.
#[test]
fn both_tools_administer_images_alike() {
    let scripts = [
        include_str!("../data/rbd/administration.sh"),
        include_str!("../data/rbd/changes.sh"),
        include_str!("../data/rbd/differences.sh"),
    ];
    run(
        "rbd-administration",
        &format!("SPIRULA={}\n{}", binary().display(), scripts.join("\n")),
    );
}
