//! Entities, their keys and capabilities.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spirula_cephx::{AuthName, CryptoKey, EntityAuth, Env, KeyServer, KeyType, Keyring};

use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};
use crate::service::Auth;

commands! {
    "auth export entity?:String" "auth" "rx" export, "give an entity's keyring, or that of all";
    "auth get entity:String" "auth" "rx" get, "give an entity's keyring";
    "auth get-key entity:String" "auth" "rx" get_key, "show an entity's key";
    "auth print-key entity:String" "auth" "rx" get_key, "show an entity's key";
    "auth print_key entity:String" "auth" "rx" get_key, "show an entity's key";
    "auth list" "auth" "rx" ls, "list the entities";
    "auth ls" "auth" "rx" ls, "list the entities";
    "auth import" "auth" "rwx" import, "take over the entities of a keyring (-i FILE)";
    "auth add entity:String caps?:String... key_type?:String" "auth" "rwx" add, "add an entity with a random key, or that of -i FILE";
    "auth get-or-create-key entity:String caps?:String... key_type?:String" "auth" "rwx" get_or_create_key,
        "show an entity's key; add it where it is missing";
    "auth get-or-create entity:String caps?:String... key_type?:String" "auth" "rwx" get_or_create,
        "give an entity's keyring; add it where it is missing";
    "auth caps entity:String caps:String..." "auth" "rwx" caps, "replace an entity's capabilities";
    "auth rotate entity:String key_type?:String" "auth" "rwx" rotate, "replace an entity's key by a new one; its capabilities stay";
    "auth del entity:String" "auth" "rwx" rm, "remove an entity";
    "auth rm entity:String" "auth" "rwx" rm, "remove an entity";
}

/// As [`entity`], for commands whose official refusal is worded differently.
fn named(call: &Call<'_>) -> Result<AuthName, Reply> {
    entity(call).map_err(|e| e.with_status("bad entity name"))
}

fn entity(call: &Call<'_>) -> Result<AuthName, Reply> {
    let text = call.args.str("entity")?;
    text.parse()
        .map_err(|_| Reply::error(errno::EINVAL, format!("invalid entity_auth {text}")))
}

fn find(m: &View, name: &AuthName) -> Result<EntityAuth, Reply> {
    let missing = || Reply::error(errno::ENOENT, format!("failed to find {name} in keyring"));
    m.state.auth.lookup(name).ok_or_else(missing)
}

/// One entity as JSON.
fn entity_json(name: &AuthName, e: &EntityAuth) -> Value {
    json!({"entity": name.to_string(), "key": e.key.to_base64(), "caps": e.caps})
}

/// Keyring text of some entities.
fn keyring(entries: impl IntoIterator<Item = (AuthName, EntityAuth)>) -> String {
    Keyring {
        entries: entries.into_iter().collect(),
    }
    .to_string()
}

fn show(call: &Call<'_>, name: &AuthName, e: EntityAuth) -> Reply {
    if call.format.is_structured() {
        return Reply::json(call.format, &json!([entity_json(name, &e)]));
    }
    Reply::text(keyring([(name.clone(), e)]))
}

/// The order of the official listing: by type number.
fn ordered(m: &View) -> Vec<(AuthName, EntityAuth)> {
    let mut all: Vec<_> = m
        .state
        .auth
        .entities()
        .iter()
        .map(|(n, e)| (n.clone(), e.clone()))
        .collect();
    all.sort_by(|(a, _), (b, _)| (a.kind.0, &a.id).cmp(&(b.kind.0, &b.id)));
    all.retain(|(n, _)| *n != AuthName::monitors());
    all
}

fn export(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if call.args.opt_str("entity").is_none() {
        return now(
            Reply::text(keyring(m.view.state.auth.entities().clone())).with_status("exported master keyring")
        );
    }
    let name = entity(call)?;
    let Some(e) = m.view.state.auth.lookup(&name) else {
        return refuse(errno::ENOENT, format!("no key for {name}"));
    };
    now(show(call, &name, e).with_status(format!("exported keyring for {name}")))
}

fn get(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = entity(call)?;
    let e = find(m.view, &name)?;
    now(show(call, &name, e).with_status(format!("exported keyring for {name}")))
}

fn key_reply(call: &Call<'_>, e: &EntityAuth) -> Reply {
    let key = e.key.to_base64();
    if call.format.is_structured() {
        Reply::json(call.format, &json!({"key": key}))
    } else {
        Reply::text(key)
    }
}

fn get_key(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = entity(call)?;
    match m.view.state.auth.lookup(&name) {
        Some(e) => now(key_reply(call, &e)),
        None => refuse(errno::ENOENT, format!("don't have {name}")),
    }
}

fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let all = ordered(m.view);
    if call.format.is_structured() {
        let v: Vec<Value> = all.iter().map(|(n, e)| entity_json(n, e)).collect();
        return now(Reply::json(
            call.format,
            &Value::Object(Map::from_iter([("auth_dump".to_owned(), json!(v))])),
        ));
    }
    let mut text = String::new();
    for (n, e) in all {
        text.push_str(&format!("{n}\n\tkey: {}\n", e.key.to_base64()));
        for (service, caps) in &e.caps {
            text.push_str(&format!("\tcaps: [{service}] {caps}\n"));
        }
    }
    now(Reply::text(text).with_status("installed auth entries:\n"))
}

/// Reads `service caps service caps …` and checks the grammars.
fn parse_caps(words: &[String]) -> Result<BTreeMap<String, String>, Reply> {
    if !words.len().is_multiple_of(2) {
        return refuse(errno::EINVAL, "bad capabilities request; odd number of arguments");
    }
    let mut out = BTreeMap::new();
    for pair in words.chunks(2) {
        spirula_cephx::caps::validate(&pair[0], &pair[1])
            .map_err(|e| Reply::error(errno::EINVAL, e.to_string()))?;
        if out.insert(pair[0].clone(), pair[1].clone()).is_some() {
            return refuse(
                errno::EINVAL,
                format!("capabilities for {} are given twice", pair[0]),
            );
        }
    }
    Ok(out)
}

fn input_keyring(call: &Call<'_>) -> Result<Keyring, Reply> {
    let text = String::from_utf8_lossy(call.input);
    Keyring::parse(&text).map_err(|e| Reply::error(errno::EINVAL, format!("error decoding keyring: {e}")))
}

/// The type that a command names for a new key, or the preferred one.
fn key_type(m: &View, call: &Call<'_>) -> Result<KeyType, Reply> {
    let Some(name) = call.args.opt_str("key_type") else {
        return Ok(m.state.auth.ciphers().preferred());
    };
    KeyType::from_name(&name).ok_or_else(|| Reply::error(errno::EINVAL, format!("invalid key type: {name}")))
}

/// A new key of a type with which its owner can log in.
fn new_key(m: &View, kind: KeyType) -> Result<CryptoKey, Reply> {
    let allowed = m.state.auth.allows(kind);
    if kind.is_insecure() && !(allowed && m.values.flag("mon_auth_allow_insecure_key")) {
        let text = format!("creating key with insecure key type (\"{kind}\") not allowed");
        return refuse(errno::EINVAL, text);
    }
    if !allowed {
        let text = format!(
            "refusing to create key with type ({kind}) that cannot be used for auth (auth_allowed_ciphers)"
        );
        return refuse(errno::EINVAL, text);
    }
    CryptoKey::generate(kind, &Env::system(m.now)).map_err(|e| Reply::error(errno::EIO, e.to_string()))
}

fn import(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if call.input.is_empty() {
        return refuse(errno::EINVAL, "auth import: no data supplied");
    }
    for (name, e) in input_keyring(call)?.entries {
        for (service, caps) in &e.caps {
            spirula_cephx::caps::validate(service, caps)
                .map_err(|x| Reply::error(errno::EINVAL, x.to_string()))?;
        }
        Auth::put(&name, &e, &mut m.changes.txn);
    }
    committed("imported keyring")
}

fn add(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = named(call)?;
    let kind = key_type(m.view, call)?;
    let mut caps = parse_caps(&call.args.list("caps"))?;
    let mut key = None;
    if !call.input.is_empty() {
        let ring = input_keyring(call)?;
        let Some(e) = ring.entries.get(&name) else {
            return refuse(
                errno::EINVAL,
                format!("key for {name} not found in provided keyring"),
            );
        };
        if !caps.is_empty() && !e.caps.is_empty() {
            return refuse(
                errno::EINVAL,
                "caps cannot be specified both in keyring and in command",
            );
        }
        if caps.is_empty() {
            caps = e.caps.clone();
        }
        key = Some(e.key.clone());
    }
    if let Some(old) = m.view.state.auth.lookup(&name) {
        let same_key = key.as_ref().is_none_or(|k| *k == old.key);
        if same_key && old.caps == caps {
            return now(Reply::status(""));
        }
        let what = if same_key { "caps do not" } else { "key does not" };
        return refuse(errno::EINVAL, format!("entity {name} exists but {what} match"));
    }
    let key = match key {
        Some(k) => k,
        None => new_key(m.view, kind)?,
    };
    Auth::put(&name, &EntityAuth { key, caps }, &mut m.changes.txn);
    committed(format!("added key for {name}"))
}

fn get_or_create_with(
    m: &mut Turn<'_>,
    call: &Call<'_>,
    show: impl Fn(&Call<'_>, &AuthName, EntityAuth) -> Reply,
) -> Done {
    let name = named(call)?;
    let kind = key_type(m.view, call)?;
    let caps = parse_caps(&call.args.list("caps"))?;
    if let Some(e) = m.view.state.auth.lookup(&name) {
        if let Some((service, _)) = caps.iter().find(|(s, c)| e.caps.get(*s) != Some(c)) {
            return refuse(
                errno::EINVAL,
                format!("key for {name} exists but cap {service} does not match"),
            );
        }
        // A bootstrap key may fetch a key that it could have made itself: one with just these
        // capabilities.
        if e.caps != caps && !m.view.may(call.session, "auth", "rwx") {
            return refuse(
                errno::EINVAL,
                format!("key for {name} exists but caps do not match"),
            );
        }
        return now(show(call, &name, e));
    }
    let e = EntityAuth {
        key: new_key(m.view, kind)?,
        caps,
    };
    Auth::put(&name, &e, &mut m.changes.txn);
    // A new keyring is shown without its capabilities, as the official monitor does.
    let shown = EntityAuth {
        caps: BTreeMap::new(),
        ..e
    };
    Ok(super::Outcome::Commit(show(call, &name, shown)))
}

fn get_or_create(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    get_or_create_with(m, call, |call, name, e| {
        show(
            call,
            name,
            EntityAuth {
                caps: if call.format.is_structured() {
                    e.caps
                } else {
                    BTreeMap::new()
                },
                ..e
            },
        )
    })
}

fn get_or_create_key(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    get_or_create_with(m, call, |call, _, e| key_reply(call, &e))
}

fn caps(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = entity(call)?;
    let caps = parse_caps(&call.args.list("caps"))?;
    let Some(e) = m.view.state.auth.lookup(&name) else {
        return refuse(errno::ENOENT, format!("couldn't find entry {name}"));
    };
    Auth::put(&name, &EntityAuth { caps, ..e }, &mut m.changes.txn);
    committed(format!("updated caps for {name}"))
}

/// As in releases from 20.2. Established sessions go on; issued tickets are valid until they
/// expire.
fn rotate(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = named(call)?;
    if name == AuthName::monitors() {
        // A monitor that is down meanwhile could not greet the others any more.
        return refuse(errno::EINVAL, "the key of mon. can not be rotated");
    }
    let Some(e) = m.view.state.auth.entities().get(&name).cloned() else {
        return refuse(errno::ENOENT, format!("entity {name} does not exist"));
    };
    let e = EntityAuth {
        key: new_key(m.view, key_type(m.view, call)?)?,
        ..e
    };
    Auth::put(&name, &e, &mut m.changes.txn);
    Ok(super::Outcome::Commit(show(call, &name, e)))
}

fn rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = named(call)?;
    if m.view.state.auth.lookup(&name).is_none() {
        return now(Reply::status(format!("entity {name} does not exist")));
    }
    Auth::remove(&name, &mut m.changes.txn);
    committed("updated")
}
