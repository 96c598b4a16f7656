//! The conformance suites, whose expected results come from real Ceph, and a short run of the model
//! checker.

use crate::common::Cluster;

/// The repository's `conformance` directory.
pub(crate) const CONFORMANCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance");

#[test]
fn librados_cannot_tell_spirula_from_ceph() {
    let c = Cluster::up("conformance", 3, &[]);
    let said = c.sh(&format!(
        "{CONFORMANCE}/run --suite cpp --suite python --out {}/conformance",
        env!("CARGO_TARGET_TMPDIR")
    ));
    assert!(said.contains("cpp: ") && said.contains("python: "), "{said}");
}

/// Some of the cases; `spirula-mon` compares most of all in its own tests.
#[test]
fn erasure_coded_pools_look_as_on_ceph() {
    let c = Cluster::up("erasure", 3, &[]);
    let said = c.sh(&format!(
        "{CONFORMANCE}/run ec:pools ec:in_use ec:lrc_rules ec:shown"
    ));
    assert!(said.contains("ec: "), "{said}");
}

#[test]
fn random_requests_agree_with_a_model_while_daemons_die() {
    let c = Cluster::up("model", 3, &[]);
    let out = format!("{}/model", env!("CARGO_TARGET_TMPDIR"));
    c.sh(&format!("make -s -C {CONFORMANCE}/cpp OUT={out} {out}/model"));
    let said = c.sh(&format!(
        "timeout 300 {out}/model --ops 5000 --kill {}/run --every 4 --hasty 2",
        c.dir().display()
    ));
    assert!(said.contains("5000 operations without a mismatch"), "{said}");
}
