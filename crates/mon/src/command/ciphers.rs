//! The allowed types of keys, as in releases from 20.2.4.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spirula_cephx::{AuthName, CryptoKey, EntityAuth, KeyServer, KeyType, RotatingSecrets};
use spirula_denc::{EntityType, encode_to_vec};

use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};
use crate::service::{Auth, Ciphers};

commands! {
    "mon set name:{auth_service_cipher|auth_allowed_ciphers|auth_preferred_cipher} value:String" "mon" "rw" set,
        "set which types of keys entities may have (allowed), new ones get (preferred), and services' secrets are of";
    "auth dump-keys" "auth" "rx" dump_keys, "show the types of all keys, without the keys (json or xml)";
}

fn cipher(name: &str) -> Result<KeyType, Reply> {
    KeyType::from_name(name).ok_or_else(|| Reply::error(errno::EINVAL, format!("invalid key type: {name}")))
}

fn set(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (what, value) = (call.args.str("name")?, call.args.str("value")?);
    let old = m.view.state.auth.ciphers();
    let new = match what.as_str() {
        "auth_allowed_ciphers" => old.allowing(allowed(m.view, call, &value)?),
        "auth_preferred_cipher" => {
            let kind = cipher(&value)?;
            if !old.allowed().contains(&kind) {
                return refuse(errno::EINVAL, format!("{kind} is not among auth_allowed_ciphers"));
            }
            old.with_preferred(kind)
        }
        _ => old.with_service(cipher(&value)?),
    };
    if new == *old {
        return now(Reply::status("already set"));
    }
    Auth::put_ciphers(&new, &mut m.changes.txn);
    committed("")
}

/// The types in a list. Ceph accepts also a list that locks all administrators out; here the
/// administrator that sets it can still log in afterwards.
fn allowed(m: &View, call: &Call<'_>, value: &str) -> Result<BTreeSet<KeyType>, Reply> {
    let names = value.split([',', ' ']).filter(|name| !name.is_empty());
    let kinds = names.map(cipher).collect::<Result<BTreeSet<_>, _>>()?;
    let asker = m.sessions.get(&call.session).map(|s| &s.name);
    if let Some((name, entity)) = asker.and_then(|name| Some((name, m.state.auth.lookup(name)?)))
        && !kinds.contains(&entity.key.kind())
    {
        let text = format!(
            "{name} could not log in any more: its key is of type {}; rotate it first",
            entity.key.kind()
        );
        return refuse(errno::EINVAL, text);
    }
    match kinds.is_empty() {
        true => refuse(errno::EINVAL, "no key type is named"),
        false => Ok(kinds),
    }
}

fn type_json(kind: KeyType) -> Value {
    json!({"name": kind.name(), "value": kind.to_wire()})
}

/// The policy in `mon dump`, after the epoch.
pub(super) fn to_json(c: &Ciphers) -> [(&'static str, Value); 3] {
    let allowed = c.allowed().iter().map(|k| type_json(*k));
    [
        ("auth_service_cipher", type_json(c.service())),
        ("auth_allowed_ciphers", allowed.collect()),
        ("auth_preferred_cipher", type_json(c.preferred())),
    ]
}

/// The policy as text, at the end of `mon dump`.
pub(super) fn to_text(c: &Ciphers) -> String {
    let allowed: Vec<_> = c.allowed().iter().map(|k| k.name()).collect();
    format!(
        "auth_service_cipher {}\nauth_allowed_ciphers {}\nauth_preferred_cipher {}\n",
        c.service(),
        allowed.join(", "),
        c.preferred()
    )
}

fn key_json(key: &CryptoKey) -> Value {
    let created = match key.is_empty() {
        true => "0.000000".to_owned(),
        false => key.created().to_string(),
    };
    json!({"type": key.kind().to_wire(), "type_str": key.kind().name(), "created": created})
}

fn entity_json(kind: EntityType, id: &str) -> Value {
    json!({"type": kind.0, "type_str": kind.name(), "id": id})
}

fn secret_json(name: &AuthName, e: &EntityAuth) -> Value {
    // The text in its encoding, as Ceph shows it.
    let spec = |text: &String| String::from_utf8_lossy(&encode_to_vec(text)).into_owned();
    let caps: Vec<Value> = e
        .caps
        .iter()
        .map(|(service, text)| json!({"service_name": service, "access_spec": spec(text)}))
        .collect();
    json!({"entity": entity_json(name.kind, &name.id),
           "auth": {"key": key_json(&e.key), "pending_key": key_json(&CryptoKey::default()), "caps": caps}})
}

fn rotating_json(service: EntityType, secrets: &RotatingSecrets) -> Value {
    let keys = secrets.secrets.iter().map(|(id, s)| {
        json!({"id": id, "expiring_key": {"key": key_json(&s.key), "expiration": s.expiration.to_string()}})
    });
    json!({"entity": entity_json(service, "*"),
           "secrets": {"max_ver": secrets.max_id, "keys": keys.collect::<Vec<_>>()}})
}

fn dump_keys(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if !call.format.is_structured() {
        let text = "format type \"plain\" not supported by this command; try json";
        return refuse(errno::EINVAL, text);
    }
    let rotating = m.view.state.auth.service_secrets();
    let v = json!({"data": {
        "rotating_version": rotating.version,
        "secrets": m.view.state.auth.entities().iter().map(|(n, e)| secret_json(n, e)).collect::<Vec<_>>(),
        "rotating_secrets": rotating.iter().map(|(s, r)| rotating_json(s, r)).collect::<Vec<_>>(),
    }});
    now(Reply::json(call.format, &v))
}
