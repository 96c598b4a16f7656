//! OSDs with encrypted stores: the content of their files, and the keys that open them.

use std::path::Path;

use crate::common::{Cluster, binary, output};

/// How often the marker is in a file.
fn marks(path: &Path) -> usize {
    let raw = std::fs::read(path).unwrap();
    raw.windows(9).filter(|w| *w == b"MARK-7341").count()
}

fn marks_of(c: &Cluster, osd: u32) -> usize {
    let dir = c.dir().join(format!("osd.{osd}"));
    marks(&dir.join("block")) + marks(&dir.join("log"))
}

/// Runs `spirula ARGS`, which must fail, and returns its message.
fn refused(c: &Cluster, args: &str) -> String {
    let said = c
        .shell(&format!("{} {args}", binary().display()))
        .output()
        .unwrap();
    assert!(!said.status.success(), "{args} succeeded");
    output(&said)
}

const WRITE: &str = "
    ceph osd pool create p 8 8 replicated; ceph osd pool application enable p test
    for i in $(seq 60); do head -c 3000 < <(yes MARK-7341) > in; rados -p p put MARK-7341-$i in; done
    head -c 5000000 < <(yes MARK-7341) > large; rados -p p put large large
    rados -p p setxattr large MARK-7341 MARK-7341; rados -p p setomapval large MARK-7341 MARK-7341";

const READ: &str = "
    rados -p p get MARK-7341-60 out; cmp in out; rados -p p get large out; cmp large out
    rados -p p getxattr large MARK-7341 | grep MARK-7341 > /dev/null
    rados -p p getomapval large MARK-7341 | grep MARK-7341 > /dev/null";

#[test]
fn up_encrypts_new_osds_with_keys_that_the_monitors_keep() {
    let c = Cluster::up("encrypt", 2, &["--encrypt", "--no-respawn", "--osd-size", "1G"]);
    let bin = binary().display().to_string();
    c.sh(WRITE);
    // Killed, and opened again with the key that the monitors have.
    c.kill("osd.0");
    c.kill("osd.1");
    c.down();
    c.start(2, &["--no-respawn", "--osd-size", "1G"]);
    c.sh(READ);
    let uuids = [0, 1].map(|n| {
        let text = std::fs::read_to_string(c.dir().join(format!("osd.{n}/fsid"))).unwrap();
        text.trim().to_owned()
    });
    // A lockbox gives its own OSD's key, and does nothing else.
    let [own, other] = uuids.clone();
    let lockbox = format!("-n client.osd-lockbox.{own} -k osd.0/lockbox.keyring");
    c.sh(&format!(
        "ceph {lockbox} config-key get dm-crypt/osd/{own}/luks > old; ceph config-key ls | grep dm-crypt/osd/{other}/luks > /dev/null
         [ $(stat -c %a osd.0/lockbox.keyring) = 600 ]
         head -c 64 < <(yes new-key) > new; head -c 64 < <(yes not-the-key) > wrong"
    ));
    for denied in [
        format!("config-key get dm-crypt/osd/{other}/luks"),
        format!("config-key set dm-crypt/osd/{own}/luks x"),
        "config-key ls".to_owned(),
        "osd dump".to_owned(),
    ] {
        let (code, said) = c.sh_fails(&format!("ceph {lockbox} {denied}"));
        assert!(code == 13 && said.contains("EACCES"), "{denied}: {said}");
    }
    // Keys are changed while the OSD is down; each step leaves it with a key that opens it.
    c.kill("osd.0");
    let change = format!("{bin} osd encryption-key");
    let args = "-c ceph.conf -i 0";
    c.sh(&format!(
        "{change} add {args} new; ceph config-key set dm-crypt/osd/{own}/luks -i new; {change} retire {args}"
    ));
    let said = refused(
        &c,
        "store fsck --log osd.0/log osd.0/block --encryption-key-file old",
    );
    assert!(said.contains("the key is not its key"), "{said}");
    c.down();
    c.start(2, &["--no-respawn", "--osd-size", "1G"]);
    c.sh(READ);
    c.down();

    for osd in [0, 1] {
        assert_eq!(marks_of(&c, osd), 0, "osd.{osd} has data in the clear");
    }
    let said = c.sh(&format!(
        "{bin} store fsck --deep --log osd.0/log --encryption-key-file /dev/stdin osd.0/block < new"
    ));
    assert!(said.contains("clean"), "{said}");
    let listed = c.sh(&format!(
        "{bin} store dump --log osd.0/log --encryption-key-file new osd.0/block"
    ));
    assert!(listed.contains("MARK-7341-60"), "{listed}");
    refusals(&c);
}

/// A key that does not open a store is reported, and changes nothing.
fn refusals(c: &Cluster) {
    let before = c.sh("md5sum osd.0/block osd.0/log");
    let said = refused(c, "store fsck --log osd.0/log osd.0/block");
    assert!(
        said.contains("osd.0 is encrypted, and no key was given"),
        "{said}"
    );
    let said = refused(c, "osd run -c ceph.conf -i 0 --encryption-key-file wrong");
    assert!(
        said.contains("the store of osd.0 is encrypted, and the key is not its key"),
        "{said}"
    );
    let said = refused(c, "osd run -c ceph.conf -i 0 --encryption-key-file missing");
    assert!(said.contains("missing"), "{said}");
    c.sh("mv osd.0/lockbox.keyring lockbox");
    let said = refused(c, "osd run -c ceph.conf -i 0");
    assert!(
        said.contains("osd.0: no key for its encrypted store") && said.contains("lockbox.keyring"),
        "{said}"
    );
    assert_eq!(before, c.sh("md5sum osd.0/block osd.0/log"));
}

#[test]
fn a_key_file_encrypts_a_store() {
    let c = Cluster::up("key-file", 1, &["--osd-size", "1G"]);
    let bin = binary().display().to_string();
    c.sh(WRITE);
    c.sh("head -c 64 < <(yes key) > key; echo short > short");
    let uuid = c.sh("uuidgen").trim().to_owned();
    let mkfs = format!("osd mkfs -c ceph.conf -i 1 --osd-uuid {uuid} --size 1G");
    let said = refused(&c, &format!("{mkfs} --encrypt --encryption-key-file short"));
    assert!(said.contains("at least 32 random bytes"), "{said}");
    let said = refused(&c, &format!("{mkfs} --encrypt"));
    assert!(said.contains("no key for its encrypted store"), "{said}");
    // An OSD made by hand, with a key file named in the configuration.
    c.sh(&format!(
        "mkdir osd.1; echo '[osd.1]
spirula_osd_encryption_key_file = '$PWD/key >> ceph.conf
         ceph osd new {uuid} 1
         ceph auth get-or-create osd.1 mon 'allow profile osd' osd 'allow *' > osd.1/keyring
         {bin} {mkfs} --encrypt
         ({bin} osd run -c ceph.conf -i 1 > osd.1.log 2>&1 &)
         for i in $(seq 100); do ceph osd stat | grep '2 up' > /dev/null && break; sleep 0.2; done
         ceph osd out 0
         for i in $(seq 300); do ceph pg stat | grep ' active+clean;' > /dev/null && break; sleep 0.2; done
         {READ}"
    ));
    let said = refused(&c, &format!("{mkfs} --force"));
    assert!(said.contains("in use"), "{said}");
    let pid = c.sh("cat run/osd.1.pid").trim().to_owned();
    c.sh(&format!(
        "kill {pid}; while kill -0 {pid} 2> /dev/null; do sleep 0.1; done"
    ));
    let said = refused(&c, &mkfs);
    assert!(
        said.contains("osd.1 is encrypted, and no key was given"),
        "{said}"
    );
    assert_eq!(marks_of(&c, 1), 0, "data in the clear");
    assert!(
        marks_of(&c, 0) > 100,
        "the search finds nothing where nothing is encrypted"
    );
}
