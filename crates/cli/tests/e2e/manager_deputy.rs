//! Tenants that try to use the manager's rights: it works with the rights of the pool where a task
//! lies, and of the user that asked for the task.

use crate::common::Cluster;

fn cluster(name: &str, osds: u32) -> Cluster {
    let c = Cluster::up(name, osds, &[]);
    c.sh("mkdir work; for pool in a b; do ceph osd pool create $pool 8 8 replicated; rbd pool init $pool; done");
    c
}

fn run(c: &Cluster, script: &str) -> String {
    let common = [
        include_str!("../data/rbd/common.sh"),
        include_str!("../data/rbd/tasks_common.sh"),
        include_str!("../data/rbd/deputy.sh"),
    ];
    c.sh(&format!("cd work\n{}\n{script}", common.join("\n")))
}

#[test]
fn planted_tasks_do_nothing_elsewhere() {
    let c = cluster("deputy-planted", 1);
    run(&c, include_str!("../data/rbd/deputy_planted.sh"));
}

#[test]
fn tasks_have_the_rights_of_whoever_asked() {
    let c = cluster("deputy-asked", 1);
    run(&c, include_str!("../data/rbd/deputy_asked.sh"));
}
