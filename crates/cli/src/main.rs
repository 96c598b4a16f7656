//! A Ceph-compatible storage cluster in one small binary.
fn main() {}
