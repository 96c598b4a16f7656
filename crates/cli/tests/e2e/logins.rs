//! Logins that are refused, and keys that are replaced.

use crate::common::Cluster;

/// Lines of the monitor's log that hold `text`.
fn logged(c: &Cluster, text: &str) -> usize {
    let log = std::fs::read_to_string(c.dir().join("log/mon.a.log")).unwrap();
    log.lines().filter(|l| l.contains(text)).count()
}

#[test]
fn refused_logins_are_logged_with_name_and_address_but_not_each() {
    let c = Cluster::up("refused", 1, &[]);
    c.sh(
        "ceph-authtool -C bad.keyring -n client.admin --gen-key > /dev/null
          for n in 1 2 3; do timeout 20 ceph -k bad.keyring -s 2> /dev/null && exit 1; done; true",
    );
    // Each `ceph` makes several attempts, all within the time of one line or two.
    let lines = logged(&c, "authentication refused: client.admin from 127.0.0.1:");
    assert!((1..=4).contains(&lines), "{lines} lines\n{}", c.logs());
    assert_eq!(logged(&c, "wrong answer to the challenge"), lines);
}

#[test]
fn a_rotated_key_replaces_the_old_one() {
    let c = Cluster::up("rotate", 1, &[]);
    c.sh(
        "ceph auth get-or-create client.r mon 'allow r' osd 'allow rw pool=p' > old.keyring
          ceph -n client.r -k old.keyring -s > /dev/null
          ceph auth rotate client.r > new.keyring
          ceph auth get client.r 2> /dev/null | diff - new.keyring
          ceph -n client.r -k new.keyring -s > /dev/null
          grep -F \"allow rw pool=p\" new.keyring > /dev/null
          test \"$(ceph auth get-key client.r)\" != \"$(ceph-authtool -p -n client.r old.keyring)\"
          test \"$(ceph auth get-key client.r)\" = \"$(ceph-authtool -p -n client.r new.keyring)\"",
    );
    let (_, said) = c.sh_fails("timeout 20 ceph -n client.r -k old.keyring -s");
    assert!(said.to_lowercase().contains("permission denied"), "{said}");
    assert_eq!(c.sh_fails("ceph auth rotate client.nobody").0, 2);
    assert_eq!(c.sh_fails("ceph auth rotate mon.").0, 22);
    assert_eq!(
        c.sh_fails("ceph -n client.r -k new.keyring auth rotate client.admin")
            .0,
        13
    );
}
