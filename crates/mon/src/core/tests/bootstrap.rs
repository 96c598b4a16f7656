//! Bootstrap keys: they work for their purpose, and for nothing else.

use spirula_cephx::KeyServer;
use spirula_maps::{OsdId, OsdState};

use super::World;

const EACCES: i32 = -13;
const EINVAL: i32 = -22;

/// A session under a profile.
const HOLDER: u64 = 7;

impl World {
    fn holder(&mut self, caps: &str) {
        self.open(HOLDER, "client.holder".parse().unwrap(), caps);
    }

    /// `auth get-or-create` by the holder, with these capabilities and, behind them, more JSON.
    fn create(&mut self, entity: &str, caps: &[&str], more: &str) -> i32 {
        let caps = serde_json::to_string(caps).unwrap();
        let json = format!(r#"{{"prefix":"auth get-or-create","entity":"{entity}","caps":{caps}{more}}}"#);
        self.command(HOLDER, &json).result
    }

    fn caps_of(&self, entity: &str) -> Option<Vec<(String, String)>> {
        let entity = self.mon.view.state.auth.lookup(&entity.parse().unwrap())?;
        Some(entity.caps.into_iter().collect())
    }
}

/// By profile, an entity that it may make, with its capabilities.
const HONEST: &[(&str, &str, &[&str])] = &[
    (
        "mds",
        "mds.x",
        &["mon", "allow profile mds", "osd", "allow rwx", "mds", "allow"],
    ),
    (
        "mgr",
        "mgr.x",
        &["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"],
    ),
    ("rgw", "client.rgw.x", &["mon", "allow rw", "osd", "allow rwx"]),
    (
        "rbd",
        "client.x",
        &["mon", "profile rbd", "osd", "profile rbd pool=p"],
    ),
    (
        "rbd",
        "client.x",
        &[
            "mon",
            "profile rbd",
            "osd",
            "profile rbd pool=p namespace=n, profile rbd-read-only pool='a b'",
            "mgr",
            "profile rbd pool=p",
        ],
    ),
    (
        "rbd-mirror",
        "client.x",
        &["mon", "profile rbd-mirror", "osd", "profile rbd"],
    ),
];

#[test]
fn a_bootstrap_key_makes_what_it_is_for() {
    for (profile, entity, caps) in HONEST {
        let mut w = World::new();
        w.holder(&format!("allow profile bootstrap-{profile}"));
        assert_eq!(w.create(entity, caps, ""), 0, "{profile} {caps:?}");
        let made: Vec<String> = w
            .caps_of(entity)
            .unwrap()
            .into_iter()
            .flat_map(|(s, c)| [s, c])
            .collect();
        let mut wanted = caps.chunks(2).map(<[_]>::to_vec).collect::<Vec<_>>();
        wanted.sort();
        assert_eq!(made, wanted.concat());
        assert_eq!(w.create(entity, caps, ""), 0, "the same again");
    }
}

#[test]
fn a_bootstrap_key_makes_nothing_else() {
    for (profile, entity, caps) in HONEST {
        let mut w = World::new();
        w.holder(&format!("allow profile bootstrap-{profile}"));
        let admin = [
            "mon", "allow *", "osd", "allow *", "mds", "allow *", "mgr", "allow *",
        ];
        let says: String = caps
            .chunks(2)
            .map(|p| format!(r#","caps_{}":"{}""#, p[0], p[1]))
            .collect();
        assert_eq!(
            w.create("client.evil", &admin, &says),
            EINVAL,
            "{profile}: caps_… of its own"
        );
        assert_eq!(
            w.create(entity, &admin, &says),
            EINVAL,
            "{profile}: caps_… of its own"
        );
        let twice = format!(r#","caps":{}"#, serde_json::to_string(&admin).unwrap());
        assert_eq!(w.create(entity, caps, &twice), EINVAL, "{profile}: a second list");
        assert_eq!(
            w.create(entity, caps, r#","entity":"client.evil""#),
            EINVAL,
            "{profile}: a second name"
        );
        let with = |more: &[&'static str]| [caps, more].concat();
        let refused = [
            (entity, admin.to_vec(), "an administrator"),
            (entity, with(&["mgr", "allow *"]), "more at the manager"),
            (entity, with(&["mds", "allow rw"]), "more at metadata servers"),
            (entity, with(&["mon", "allow *"]), "the monitor twice"),
            (
                entity,
                [&["mon", "allow *"][..], caps].concat(),
                "the monitor twice",
            ),
            (entity, with(&["osd", "allow *, allow *"]), "more at the OSDs"),
            (entity, with(&["osd"]), "half a pair"),
            (&"osd.0", caps.to_vec(), "another kind"),
            (entity, Vec::new(), "nothing"),
            (
                entity,
                vec!["mon", "profile rbd", "osd", "profile rbd pool=p;allow *"],
                "a pool's name that is none",
            ),
            (
                entity,
                vec!["mon", "profile rbd", "osd", "profile rbd;allow\t*"],
                "a profile's name that is none",
            ),
            (
                entity,
                vec!["mon", "profile rbd, allow *", "osd", "profile rbd"],
                "more at the monitor",
            ),
        ];
        for (entity, caps, what) in refused {
            let result = w.create(entity, &caps, "");
            assert!(matches!(result, EACCES | EINVAL), "{profile}: {what}: {result}");
        }
        for command in [
            "auth caps",
            "auth add",
            "auth get",
            "auth ls",
            "auth get-or-create-key",
            "auth rm",
        ] {
            let caps = serde_json::to_string(caps).unwrap();
            let json = format!(r#"{{"prefix":"{command}","entity":"{entity}","caps":{caps}}}"#);
            assert_eq!(w.command(HOLDER, &json).result, EACCES, "{profile}: {command}");
        }
        assert!(w.caps_of(entity).is_none() && w.caps_of("client.evil").is_none());
    }
}

#[test]
fn a_bootstrap_key_does_not_give_out_keys_of_the_mightier() {
    let mut w = World::new();
    let admin = w.admin();
    for entity in [
        r#""client.root","caps":["mon","allow *"]"#,
        r#""client.more","caps":["mon","profile rbd","osd","profile rbd","mgr","allow *"]"#,
    ] {
        let ack = w.command(
            admin,
            &format!(r#"{{"prefix":"auth get-or-create","entity":{entity}}}"#),
        );
        assert_eq!(ack.result, 0);
    }
    w.holder("profile bootstrap-rbd");
    let caps = ["mon", "profile rbd", "osd", "profile rbd"];
    for entity in ["client.root", "client.more"] {
        assert_eq!(w.create(entity, &caps, ""), EINVAL, "{entity}");
    }
    // A session that may do it anyway need not name all of them.
    let ask = r#"{"prefix":"auth get-or-create","entity":"client.more"}"#;
    assert_eq!(w.command(admin, ask).result, 0);
}

/// All other profiles make no keys, but those that are to.
#[test]
fn no_other_profile_makes_keys() {
    for profile in [
        "read-only",
        "read-write",
        "osd",
        "mds",
        "bootstrap-osd",
        "fs-client",
        "simple-rados-client",
        "simple-rados-client-with-blocklist",
        "rbd-mirror",
        "rbd-mirror-peer",
        "rbd",
        "rbd-read-only",
        "crash",
        "cephfs-mirror",
    ] {
        for (_, entity, caps) in HONEST {
            let mut w = World::new();
            w.holder(&format!("profile {profile}"));
            assert_eq!(w.create(entity, caps, ""), EACCES, "{profile}");
        }
    }
}

const SECRET: &str = "AQDvIBxl6CDnKhAAbbVmDVGWBwLDzDJOlLdsVA==";
const OTHER: &str = "AQDvIBxl6CDnKhAAbbVmDVGWBwLDzDJOlLdsVQ==";
/// The id of osd.0's store in these tests.
const UUID: &str = "01010101-0101-0101-0101-010101010101";

impl World {
    fn osd_new(&mut self, more: &str, secrets: &str) -> (i32, String) {
        let json = format!(r#"{{"prefix":"osd new","uuid":"{UUID}"{more}}}"#);
        let ack = self.command_with(HOLDER, &json, secrets.to_owned().leak().as_bytes());
        let out = String::from_utf8(ack.output.to_bytes().to_vec()).unwrap();
        (ack.result, out.trim().to_owned() + &ack.status)
    }

    fn config_keys(&self) -> Vec<String> {
        let all = self.mon.view.kv.scan("config-key").unwrap();
        all.into_iter().map(|(k, _)| k).collect()
    }
}

#[test]
fn a_new_osd_gets_its_keys_and_takes_them_with_it() {
    let mut w = World::new();
    let admin = w.admin();
    w.holder("allow profile bootstrap-osd");
    let (lockbox, luks) = (
        format!("client.osd-lockbox.{UUID}"),
        format!("dm-crypt/osd/{UUID}/luks"),
    );
    let with = |cephx: &str, lockbox: &str, luks: &str| {
        format!(
            r#"{{"cephx_secret":"{cephx}","cephx_lockbox_secret":"{lockbox}","dmcrypt_key":"{luks}","crush_device_class":"nvme"}}"#
        )
    };
    for (secrets, text) in [
        (
            format!(r#"{{"cephx_lockbox_secret":"{SECRET}","dmcrypt_key":"k"}}"#),
            "requires a cephx secret.",
        ),
        (
            format!(r#"{{"cephx_secret":"{SECRET}","dmcrypt_key":"k"}}"#),
            "requires both a cephx lockbox secret and a dm-crypt key.",
        ),
        (with("x", SECRET, "k"), "invalid cephx secret."),
        (with(SECRET, "x", "k"), "invalid cephx lockbox secret."),
    ] {
        assert_eq!(w.osd_new("", &secrets), (EINVAL, text.to_owned()));
    }
    assert!(w.config_keys().is_empty() && w.caps_of("osd.0").is_none());
    let secrets = with(SECRET, OTHER, "the device's key");
    for _ in 0..2 {
        assert_eq!(w.osd_new("", &secrets), (0, "0".to_owned()), "also again");
    }
    assert_eq!(w.config_keys(), std::slice::from_ref(&luks));
    let reads = format!(r#"allow command "config-key get" with key="{luks}""#);
    assert_eq!(w.caps_of(&lockbox).unwrap(), [("mon".to_owned(), reads.clone())]);
    for (secrets, code, text) in [
        (
            with(OTHER, OTHER, "the device's key"),
            -17,
            "entity osd.0 exists but key does not match",
        ),
        (
            with(SECRET, OTHER, "another"),
            -17,
            "dm-crypt key already exists and does not match",
        ),
    ] {
        assert_eq!(w.osd_new("", &secrets), (code, text.to_owned()));
    }
    // The lockbox's key opens just that.
    w.open(8, lockbox.parse().unwrap(), &reads);
    let mut get = |key: &str, command: &str| {
        let ack = w.command(
            8,
            &format!(r#"{{"prefix":"config-key {command}","key":"{key}"}}"#),
        );
        (ack.result, ack.output.to_bytes())
    };
    assert_eq!(get(&luks, "get"), (0, "the device's key".into()));
    for (key, command) in [
        (luks.as_str(), "rm"),
        (luks.as_str(), "dump"),
        ("other", "get"),
        ("dm-crypt/", "ls"),
    ] {
        assert_eq!(get(key, command).0, EACCES, "{command} {key}");
    }
    // Its class is the given one, whatever it finds.
    w.boot(0);
    assert_eq!(w.mon.view.state.osd.map.crush.map().class_of(0), Some("nvme"));
    let purge = r#"{"prefix":"osd purge-new","id":"0","yes_i_really_mean_it":true}"#;
    assert_eq!(w.command(HOLDER, purge).result, -16, "it is up");
    w.command(admin, r#"{"prefix":"osd down","ids":["0"]}"#);
    assert_eq!(w.command(HOLDER, purge).result, -1, "it is not new");
    assert!(w.caps_of("osd.0").is_some());
    for command in ["osd purge", "osd rm", "osd destroy", "osd lost"] {
        let json = format!(r#"{{"prefix":"{command}","id":"0","ids":["0"],"yes_i_really_mean_it":true}}"#);
        assert_eq!(w.command(HOLDER, &json).result, EACCES, "{command}");
    }
}

#[test]
fn keys_go_with_an_osd_that_is_purged_or_destroyed() {
    for how in ["osd purge-new", "osd purge-actual", "osd destroy-actual"] {
        let mut w = World::new();
        let admin = w.admin();
        w.holder("allow profile bootstrap-osd");
        let secrets =
            format!(r#"{{"cephx_secret":"{SECRET}","cephx_lockbox_secret":"{OTHER}","dmcrypt_key":"k"}}"#);
        assert_eq!(w.osd_new("", &secrets).0, 0);
        w.command(
            admin,
            r#"{"prefix":"config-key set","key":"daemon-private/osd.0/x","val":"v"}"#,
        );
        w.command(
            admin,
            r#"{"prefix":"config-key set","key":"daemon-private/osd.01/x","val":"v"}"#,
        );
        assert!(
            w.mon
                .view
                .state
                .osd
                .map
                .state(OsdId::new(0))
                .contains(OsdState::NEW)
        );
        let who = if how.ends_with("new") { HOLDER } else { admin };
        let json = format!(r#"{{"prefix":"{how}","id":"0","yes_i_really_mean_it":true}}"#);
        assert_eq!(w.command(who, &json).result, 0, "{how}");
        assert_eq!(w.config_keys(), ["daemon-private/osd.01/x"], "{how}");
        assert!(w.caps_of("osd.0").is_none() && w.caps_of(&format!("client.osd-lockbox.{UUID}")).is_none());
        // Another store in its place.
        assert_eq!(w.osd_new(r#","id":"0""#, &secrets).0, 0, "{how}");
    }
}

#[test]
fn a_bootstrap_key_takes_no_osd_over() {
    let mut w = World::new();
    w.boot(1);
    let admin = w.admin();
    w.holder("allow profile bootstrap-osd");
    let secrets = format!(r#"{{"cephx_secret":"{SECRET}"}}"#);
    assert_eq!(
        w.osd_new(r#","id":"1""#, &secrets).0,
        EINVAL,
        "it has another store"
    );
    // Its key is there before it is.
    w.command(
        admin,
        r#"{"prefix":"auth get-or-create","entity":"osd.0","caps":["osd","allow *"]}"#,
    );
    assert_eq!(w.osd_new(r#","id":"0""#, &secrets).0, -17);
    assert_eq!(w.caps_of("osd.0").unwrap().len(), 1);
}
