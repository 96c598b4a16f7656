//! Authentication: connection modes, capabilities, wrong keys.

use crate::common::Cluster;

#[test]
fn both_connection_modes_work() {
    let c = Cluster::up("modes", 3, &[]);
    c.sh("ceph osd pool create m 8 8 replicated; head -c 5000000 /dev/urandom > in");
    for mode in ["secure", "crc"] {
        c.sh(&format!(
            "args='--ms_client_mode={mode} --ms_mon_client_mode={mode}'
             ceph $args -s > /dev/null
             rados $args -p m put x in; rados $args -p m get x out; cmp in out; rados $args -p m rm x"
        ));
    }
}

#[test]
fn capabilities_are_enforced() {
    let c = Cluster::up("caps", 3, &[]);
    c.sh("ceph osd pool create x 8 8 replicated; ceph osd pool create y 8 8 replicated; echo data > in
          rados -p x put o in; rados -p y put o in
          ceph auth get-or-create client.reader mon 'allow r' osd 'allow r pool=x' > ceph.client.reader.keyring");
    assert_eq!(c.sh("rados -n client.reader -p x get o -"), "data\n");
    for script in [
        "rados -n client.reader -p x put o in",
        "rados -n client.reader -p y get o -",
    ] {
        let (_, said) = c.sh_fails(script);
        assert!(said.contains("(1) Operation not permitted"), "{said}");
    }
    let (code, said) = c.sh_fails("ceph -n client.reader osd pool create z");
    assert_eq!(code, 13);
    assert!(said.contains("EACCES"), "{said}");
}

#[test]
fn a_wrong_key_is_refused() {
    let c = Cluster::up("wrong-key", 1, &[]);
    c.sh("ceph-authtool -C bad.keyring -n client.admin --gen-key > /dev/null");
    let (_, said) = c.sh_fails("timeout 20 ceph -k bad.keyring -s");
    assert!(said.to_lowercase().contains("permission denied"), "{said}");
    let (_, said) = c.sh_fails("ceph-authtool -C nobody.keyring -n client.nobody --gen-key > /dev/null; timeout 20 ceph -n client.nobody -k nobody.keyring -s");
    assert!(said.to_lowercase().contains("permission denied"), "{said}");
}
