//! Ceph's own gateway: S3 and Swift.

use crate::common::Cluster;
use crate::memory::assert_within_budget;

const CLIENTS: &str = include_str!("../data/radosgw.py");

#[test]
fn ceph_s_gateway_runs_unmodified() {
    let c = Cluster::up("radosgw", 3, &[]);
    let program = c.dir().join("radosgw.py");
    std::fs::write(&program, CLIENTS).unwrap();
    print!("{}", c.sh(&format!("/usr/bin/python3 {}", program.display())));
    assert_within_budget(&c, 3);
}
