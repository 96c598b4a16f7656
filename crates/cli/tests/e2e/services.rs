//! Services that register with the manager, as gateways and mirrors do.

use crate::common::Cluster;

const SERVICE: &str = include_str!("../data/services.py");

#[test]
fn services_register_report_and_go() {
    let c = Cluster::up("services", 1, &[]);
    c.sh(&format!("/usr/bin/python3 - <<'EOF'\n{SERVICE}\nEOF"));
}
