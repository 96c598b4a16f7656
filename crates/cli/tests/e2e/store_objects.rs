//! `spirula store object`: single objects of a stopped OSD's store are shown, changed and removed.

use std::process::{Command, Stdio};

use crate::common::{Cluster, output, spirula, text};

/// Calls `spirula store object osd.0 ARGS` with this standard input.
fn tool(c: &Cluster, args: &[&str], input: &str) -> Command {
    let file = c.dir().join("input");
    std::fs::write(&file, input).unwrap();
    let mut command = spirula();
    command
        .args(["store", "object"])
        .arg(c.dir().join("osd.0"))
        .args(args);
    command.stdin(Stdio::from(std::fs::File::open(file).unwrap()));
    command
}

fn does(c: &Cluster, args: &[&str], input: &str) -> String {
    let out = tool(c, args, input).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", output(&out));
    text(&out.stdout)
}

fn refuses(c: &Cluster, args: &[&str], why: &str) {
    let out = tool(c, args, "").output().unwrap();
    let said = output(&out);
    assert!(!out.status.success() && said.contains(why), "{args:?}: {said}");
}

/// The line of a snapshot of the object, or of its head, in a listing.
fn line(listed: &str, snap: i64) -> String {
    let mut lines = listed.lines();
    let found = lines.find(|l| l.contains("\"oid\":\"obj\"") && l.contains(&format!("\"snapid\":{snap},")));
    found.unwrap().to_owned()
}

#[test]
fn objects_of_a_stopped_osd_are_shown_and_changed() {
    let flags = ["--osd-size", "1G"];
    let c = Cluster::up("store-objects", 1, &flags);
    c.sh("ceph osd pool create p 1; ceph osd pool application enable p test
        echo -n first | rados -p p put obj -; rados -p p mksnap s
        echo -n later | rados -p p put obj -
        rados -p p setxattr obj colour blue; rados -p p setxattr obj taste sweet
        rados -p p setomapval obj one 1; rados -p p setomapval obj two 2; rados -p p setomapheader obj head
        echo -n other | rados -p p put other -");
    refuses(&c, &["list"], "is in use by process");
    c.down();

    let listed = does(&c, &["list"], "");
    let pg = listed.split('"').nth(1).unwrap();
    assert_eq!(does(&c, &["list", "--pg", pg], ""), listed);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let (head, clone) = (line(&listed, -2), line(&listed, 1));
    refuses(&c, &["get-bytes", pg, "obj"], "has 2 objects obj");
    refuses(&c, &["get-bytes", pg, "nothing"], "has no object nothing");
    refuses(&c, &["list", "--pg", "77.0"], "no copy of PG 77.0");

    assert_eq!(does(&c, &["get-bytes", pg, &clone], ""), "first");
    assert_eq!(does(&c, &["get-bytes", pg, "other"], ""), "other");
    let names = does(&c, &["list-attrs", pg, &head], "");
    assert_eq!(names, "_\n_colour\n_taste\n");
    assert_eq!(does(&c, &["get-attr", pg, &head, "_colour"], ""), "blue");
    assert_eq!(does(&c, &["list-omap", pg, &head], ""), "one\ntwo\n");
    assert_eq!(does(&c, &["get-omap", pg, &head, "one"], ""), "1");
    assert_eq!(does(&c, &["get-omaphdr", pg, &head], ""), "head");
    let about = does(&c, &["dump", pg, &head], "");
    let about: serde_json::Value = serde_json::from_str(&about).unwrap();
    assert_eq!(about["info"]["snapset"]["clones"][0]["size"], 5);
    assert_eq!(
        (&about["stat"]["size"], &about["id"]["snapid"]),
        (&5.into(), &(-2).into())
    );

    does(&c, &["set-bytes", pg, &head], "wrong");
    does(&c, &["set-attr", pg, &head, "_colour"], "red");
    does(&c, &["rm-attr", pg, &head, "_taste"], "");
    refuses(&c, &["rm-attr", pg, &head, "_taste"], "has no _taste");
    refuses(&c, &["set-attr", pg, &head, "colour"], "colour is no attribute");
    does(&c, &["set-omap", pg, &head, "one"], "eins");
    does(&c, &["rm-omap", pg, &head, "two"], "");
    does(&c, &["set-omaphdr", pg, &head], "body");
    does(&c, &["remove", pg, &clone], "");
    // The info of an object and its bytes are changed apart from each other.
    let info = c.dir().join("info");
    let kept = tool(&c, &["get-attr", pg, "other", "_"], "").output().unwrap();
    std::fs::write(&info, kept.stdout).unwrap();
    does(&c, &["set-attr", pg, "other", "_"], "no info");
    let about = does(&c, &["dump", pg, "other"], "");
    assert!(about.contains("\"info\": null"), "{about}");
    does(&c, &["set-attr", pg, "other", "_", info.to_str().unwrap()], "");
    does(&c, &["set-bytes", pg, "other"], &"x".repeat(300_000));
    let back = c.dir().join("back");
    does(&c, &["get-bytes", pg, "other", back.to_str().unwrap()], "");
    assert_eq!(std::fs::read(&back).unwrap(), "x".repeat(300_000).as_bytes());
    assert_eq!(does(&c, &["list"], "").lines().count(), 2);
    c.sh(&format!(
        "{} store fsck --deep osd.0",
        crate::common::binary().display()
    ));

    c.start(1, &flags);
    let said = c.sh(
        "rados -p p get obj -; echo; rados -p p getxattr obj colour; echo; rados -p p listxattr obj
        rados -p p listomapkeys obj; rados -p p getomapheader obj; rados -p p get other -",
    );
    let wanted = ["wrong", "red", "colour", "one"]
        .map(|l| format!("{l}\n"))
        .concat();
    assert!(said.starts_with(&wanted), "{said}");
    // What clients are told of the size is the info's.
    assert!(said.contains("body") && said.ends_with("xxxxx"), "{said}");
    assert!(!said.contains("xxxxxx"), "{said}");
}
