//! Types of keys: which entities get which, which may log in, and the warnings about weak ones.
//! Texts and errnos are those of Ceph 20.2.4.

use serde_json::Value;
use spirula_cephx::{CryptoKey, KeyServer, KeyType};

use super::World;
use crate::core::Monitor;

impl World {
    fn kind_of(&self, entity: &str) -> Option<KeyType> {
        Some(
            self.mon
                .view
                .state
                .auth
                .lookup(&entity.parse().unwrap())?
                .key
                .kind(),
        )
    }

    fn answer(&mut self, json: &str) -> (i32, String) {
        let ack = self.command(1, json);
        (-ack.result, ack.status)
    }

    fn json(&mut self, prefix: &str) -> Value {
        let ack = self.command(1, &format!(r#"{{"prefix":"{prefix}","format":"json"}}"#));
        assert_eq!(ack.result, 0, "{}", ack.status);
        serde_json::from_slice(&ack.output.to_bytes()).unwrap()
    }

    fn set(&mut self, name: &str, value: &str) -> (i32, String) {
        self.answer(&format!(
            r#"{{"prefix":"mon set","name":"{name}","value":"{value}"}}"#
        ))
    }

    fn checks(&self) -> Vec<(&'static str, String)> {
        let found = self.mon.view.health().into_iter();
        found
            .filter(|(code, _)| code.starts_with("AUTH_"))
            .map(|(code, check)| {
                (
                    code,
                    format!("{}: {}", check.severity.short(), check.detail.join(", ")),
                )
            })
            .collect()
    }
}

fn make(prefix: &str, entity: &str, kind: &str) -> String {
    let kind = match kind {
        "" => String::new(),
        kind => format!(r#","key_type":"{kind}""#),
    };
    format!(r#"{{"prefix":"{prefix}","entity":"{entity}"{kind}}}"#)
}

#[test]
fn new_keys_are_of_the_type_that_is_asked_for_or_preferred() {
    let mut w = World::new();
    w.admin();
    let (aes, aes256k) = (Some(KeyType::Aes), Some(KeyType::Aes256k));
    for (n, prefix) in ["auth add", "auth get-or-create", "auth get-or-create-key"]
        .iter()
        .enumerate()
    {
        for (kind, got) in [("", aes), ("aes", aes), ("aes256k", aes256k)] {
            let entity = format!("client.{kind}{n}");
            assert_eq!(w.answer(&make(prefix, &entity, kind)).0, 0);
            assert_eq!(w.kind_of(&entity), got, "{prefix} {kind}");
        }
        for bad in ["foo", "none", "AES256K"] {
            let refused = w.answer(&make(prefix, "client.bad", bad));
            assert_eq!(refused, (22, format!("invalid key type: {bad}")));
        }
    }
    assert_eq!(w.kind_of("client.bad"), None);
    // A key that is there stays as it is.
    assert_eq!(w.answer(&make("auth get-or-create", "client.0", "aes256k")).0, 0);
    assert_eq!(w.kind_of("client.0"), aes);
    assert_eq!(w.answer(&make("auth rotate", "client.0", "aes256k")).0, 0);
    assert_eq!(w.kind_of("client.0"), aes256k);
    assert_eq!(w.answer(&make("auth rotate", "client.0", "")).0, 0);
    assert_eq!(w.kind_of("client.0"), aes);
    assert_eq!(w.set("auth_preferred_cipher", "aes256k"), (0, String::new()));
    assert_eq!(w.answer(&make("auth rotate", "client.0", "")).0, 0);
    assert_eq!(w.answer(&make("auth add", "client.new", "")).0, 0);
    assert_eq!(
        (w.kind_of("client.0"), w.kind_of("client.new")),
        (aes256k, aes256k)
    );
}

#[test]
fn no_key_is_made_of_a_type_that_is_not_allowed() {
    let mut w = World::new();
    w.admin();
    let insecure = (
        22,
        "creating key with insecure key type (\"aes\") not allowed".to_owned(),
    );
    assert_eq!(w.answer(&make("auth add", "client.x", "aes256k")).0, 0);
    w.answer(r#"{"prefix":"config set","who":"mon","name":"mon_auth_allow_insecure_key","value":"false"}"#);
    for (prefix, entity) in [
        ("auth add", "client.y"),
        ("auth get-or-create", "client.y"),
        ("auth rotate", "client.x"),
    ] {
        assert_eq!(w.answer(&make(prefix, entity, "aes")), insecure);
        assert_eq!(
            w.answer(&make(prefix, entity, "")),
            insecure,
            "the preferred type"
        );
    }
    w.answer(r#"{"prefix":"config rm","who":"mon","name":"mon_auth_allow_insecure_key"}"#);
    assert_eq!(w.set("auth_allowed_ciphers", "aes256k").0, 0);
    assert_eq!(w.answer(&make("auth rotate", "client.x", "aes")), insecure);
    assert_eq!(w.set("auth_allowed_ciphers", "aes").0, 0);
    let refused = w.answer(&make("auth rotate", "client.x", "aes256k"));
    let text =
        "refusing to create key with type (aes256k) that cannot be used for auth (auth_allowed_ciphers)";
    assert_eq!(refused, (22, text.to_owned()));
    assert_eq!(
        (w.kind_of("client.x"), w.kind_of("client.y")),
        (Some(KeyType::Aes256k), None)
    );
}

#[test]
fn which_types_are_allowed_is_kept_and_whoever_sets_it_is_not_shut_out() {
    let mut w = World::new();
    w.admin();
    assert!(w.mon.view.state.auth.allows(KeyType::Aes) && w.mon.view.state.auth.allows(KeyType::Aes256k));
    for (name, value) in [
        ("auth_allowed_ciphers", "foo"),
        ("auth_allowed_ciphers", "aes,foo"),
        ("auth_preferred_cipher", "aes,aes256k"),
        ("auth_service_cipher", "none"),
    ] {
        assert_eq!(w.set(name, value).0, 22, "{name} {value}");
    }
    // Ceph takes these two, after which nobody can log in.
    assert_eq!(w.set("auth_allowed_ciphers", " , ").0, 22);
    assert_eq!(w.answer(&make("auth add", "client.admin", "aes")).0, 0);
    let (errno, text) = w.set("auth_allowed_ciphers", "aes256k");
    assert_eq!(errno, 22);
    assert_eq!(
        text,
        "client.admin could not log in any more: its key is of type aes; rotate it first"
    );
    let refused = w.answer(r#"{"prefix":"mon set","name":"auth_other","value":"aes"}"#);
    assert_eq!(refused.0, 22);
    assert_eq!(
        w.set("auth_allowed_ciphers", "aes, aes256k"),
        (0, "already set".to_owned())
    );

    assert_eq!(w.answer(&make("auth rotate", "client.admin", "aes256k")).0, 0);
    assert_eq!(w.set("auth_allowed_ciphers", "aes256k"), (0, String::new()));
    assert!(!w.mon.view.state.auth.allows(KeyType::Aes) && w.mon.view.state.auth.allows(KeyType::Aes256k));
    // The type of new keys follows; the type that is no longer allowed can't be preferred.
    assert_eq!(w.mon.view.state.auth.ciphers().preferred(), KeyType::Aes256k);
    assert_eq!(w.set("auth_preferred_cipher", "aes").0, 22);
    let again = Monitor::load(
        super::identity(),
        w.kv.clone(),
        Default::default(),
        1,
        true,
        w.now,
    )
    .unwrap();
    assert_eq!(again.view.state.auth.ciphers(), w.mon.view.state.auth.ciphers());
    // A session that may only read may not change it.
    w.open(5, "client.r".parse().unwrap(), "allow r");
    let ack = w.command(
        5,
        r#"{"prefix":"mon set","name":"auth_allowed_ciphers","value":"aes"}"#,
    );
    assert_eq!(ack.result, -13);
}

#[test]
fn the_services_type_is_that_of_new_secrets() {
    let mut w = World::new();
    w.admin();
    let kinds = |w: &World| -> Vec<KeyType> {
        let secrets = w
            .mon
            .view
            .state
            .auth
            .service_secrets()
            .of(spirula_denc::EntityType::OSD)
            .unwrap();
        secrets.secrets.values().map(|s| s.key.kind()).collect()
    };
    w.pass(std::time::Duration::from_secs(10));
    assert_eq!(kinds(&w), [KeyType::Aes256k; 3]);
    assert_eq!(w.set("auth_service_cipher", "aes").0, 0);
    w.pass(std::time::Duration::from_secs(2 * 3600 + 60));
    assert_eq!(kinds(&w).last(), Some(&KeyType::Aes));
}

#[test]
fn weak_keys_are_warned_of_once_the_stronger_type_is_preferred() {
    let mut w = World::new();
    w.admin();
    w.answer(&make("auth add", "client.a", "aes"));
    w.answer(&make("auth add", "osd.7", "aes"));
    w.answer(&make("auth add", "client.b", "aes256k"));
    w.pass(std::time::Duration::from_secs(10));
    assert_eq!(w.checks(), []);
    w.set("auth_preferred_cipher", "aes256k");
    let entity = |e: &str| format!("WRN: entity {e} using insecure key type: aes");
    let allowed = (
        "AUTH_INSECURE_KEYS_ALLOWED",
        "WRN: insecure cipher aes allowed for auth".to_owned(),
    );
    let creatable = ("AUTH_INSECURE_KEYS_CREATABLE", "WRN: ".to_owned());
    let client = ("AUTH_INSECURE_CLIENT_KEY_TYPE", entity("client.a"));
    let service = ("AUTH_INSECURE_SERVICE_KEY_TYPE", entity("osd.7"));
    assert_eq!(
        w.checks(),
        [client.clone(), allowed.clone(), creatable.clone(), service]
    );
    w.answer(&make("auth rotate", "osd.7", ""));
    assert_eq!(w.checks(), [client, allowed.clone(), creatable]);
    w.answer(&make("auth rotate", "client.a", ""));
    w.answer(r#"{"prefix":"config set","who":"mon","name":"mon_auth_allow_insecure_key","value":"false"}"#);
    assert_eq!(w.checks(), [allowed]);
    w.set("auth_allowed_ciphers", "aes256k");
    assert_eq!(w.checks(), []);
    w.set("auth_service_cipher", "aes");
    assert_eq!(
        w.checks(),
        [("AUTH_INSECURE_SERVICE_TICKETS", "ERR: ".to_owned())]
    );
    w.pass(std::time::Duration::from_secs(2 * 3600 + 60));
    w.set("auth_service_cipher", "aes256k");
    let left = w.checks();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].0, "AUTH_INSECURE_ROTATING_SERVICE_KEY_TYPE");
    assert!(
        left[0]
            .1
            .contains("rotating service keys for osd using insecure key type: aes"),
        "{left:?}"
    );
}

#[test]
fn types_of_keys_are_shown_without_the_keys() {
    let mut w = World::new();
    w.admin();
    w.answer(r#"{"prefix":"auth add","entity":"client.a","caps":["mon","allow r"],"key_type":"aes256k"}"#);
    w.pass(std::time::Duration::from_secs(10));
    let dump = w.json("mon dump");
    let keys: Vec<&String> = dump.as_object().unwrap().keys().collect();
    assert_eq!(
        keys[..4],
        [
            "epoch",
            "auth_service_cipher",
            "auth_allowed_ciphers",
            "auth_preferred_cipher"
        ]
    );
    assert_eq!(
        dump["auth_preferred_cipher"],
        serde_json::json!({"name": "aes", "value": 1})
    );
    assert_eq!(dump["auth_allowed_ciphers"][1]["name"], "aes256k");
    let text = w
        .command(1, r#"{"prefix":"mon dump"}"#)
        .output
        .to_bytes()
        .to_vec();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.ends_with(
            "auth_service_cipher aes256k\nauth_allowed_ciphers aes, aes256k\nauth_preferred_cipher aes\n"
        ),
        "{text}"
    );

    let keys = w.json("auth dump-keys");
    let secrets = keys["data"]["secrets"].as_array().unwrap();
    let a = secrets.iter().find(|s| s["entity"]["id"] == "a").unwrap();
    assert_eq!(a["auth"]["key"]["type_str"], "aes256k");
    assert_eq!(
        a["auth"]["pending_key"],
        serde_json::json!({"type": 0, "type_str": "none", "created": "0.000000"})
    );
    assert_eq!(a["auth"]["caps"][0]["access_spec"], "\u{7}\0\0\0allow r");
    let osd = &keys["data"]["rotating_secrets"][2];
    assert_eq!(
        (osd["entity"]["type_str"].as_str(), osd["entity"]["id"].as_str()),
        (Some("osd"), Some("*"))
    );
    assert_eq!(osd["secrets"]["keys"][0]["expiring_key"]["key"]["type"], 2);
    let key: &CryptoKey = &w
        .mon
        .view
        .state
        .auth
        .lookup(&"client.a".parse().unwrap())
        .unwrap()
        .key;
    assert!(!keys.to_string().contains(&key.to_base64()[20..40]));
    assert_eq!(
        w.answer(r#"{"prefix":"auth dump-keys"}"#),
        (
            22,
            "format type \"plain\" not supported by this command; try json".to_owned()
        )
    );
}
