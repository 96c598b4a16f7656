//! The key-value store that operators and modules use.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};
pub(super) use crate::crashes::SERVICE;

/// Largest value (`mon_config_key_max_entry_size`).
const MAX_VALUE: usize = 64 << 10;

commands! {
    "config-key get key:String" "config-key" "r" get, "show a value";
    "config-key set key:String val?:String" "config-key" "rw" set, "store a value";
    "config-key put key:String val?:String" "config-key" "rw" set, "store a value";
    "config-key del key:String" "config-key" "rw" rm, "remove a value";
    "config-key rm key:String" "config-key" "rw" rm, "remove a value";
    "config-key exists key:String" "config-key" "r" exists, "tell whether there is a value";
    "config-key list" "config-key" "r" ls, "list the keys";
    "config-key ls" "config-key" "r" ls, "list the keys";
    "config-key dump key?:String" "config-key" "r" dump, "show all values, or those whose key starts with a text";
}

pub(super) fn io(e: &crate::kv::KvError) -> Reply {
    tracing::error!("{e}");
    Reply::error(errno::EIO, e.to_string())
}

/// A key's value.
pub(super) fn lookup(m: &View, key: &str) -> Result<Option<Bytes>, Reply> {
    m.kv.get(SERVICE, key).map_err(|e| io(&e))
}

/// Sets a key with the next commit.
pub(super) fn put(m: &mut Turn<'_>, key: &str, value: impl Into<Bytes>) {
    m.changes.txn.put(SERVICE, key, value);
}

/// Removes all keys with this prefix with the next commit.
pub(super) fn remove_all(m: &mut Turn<'_>, prefix: &str) -> Result<(), Reply> {
    for (key, _) in m.view.kv.scan(SERVICE).map_err(|e| io(&e))? {
        if key.starts_with(prefix) {
            m.changes.txn.remove(SERVICE, key);
        }
    }
    Ok(())
}

/// Refuses a value that is too large.
pub(super) fn check_size(bytes: usize) -> Result<(), Reply> {
    if bytes <= MAX_VALUE {
        return Ok(());
    }
    refuse(
        errno::EFBIG,
        format!(
            "error: entry size limited to {MAX_VALUE} bytes. Use 'mon config key max entry size' to manually adjust"
        ),
    )
}

fn get(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    match lookup(m.view, &call.args.str("key")?)? {
        Some(v) => now(Reply::data(v)),
        None => refuse(errno::ENOENT, ""),
    }
}

fn set(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let key = call.args.str("key")?;
    let value = call
        .args
        .opt_str("val")
        .map_or_else(|| call.input.clone(), |v| v.into_bytes().into());
    check_size(value.len())?;
    put(m, &key, value);
    committed(format!("set {key}"))
}

fn rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let key = call.args.str("key")?;
    if lookup(m.view, &key)?.is_none() {
        // The official monitor does not tell either.
        return now(Reply::status("key deleted"));
    }
    m.changes.txn.remove(SERVICE, &key);
    committed("key deleted")
}

fn exists(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let key = call.args.str("key")?;
    match lookup(m.view, &key)? {
        Some(_) => now(Reply::status(format!("key '{key}' exists"))),
        None => refuse(errno::ENOENT, format!("key '{key}' doesn't exist")),
    }
}

fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let keys: Vec<String> = m
        .view
        .kv
        .scan(SERVICE)
        .map_err(|e| io(&e))?
        .into_iter()
        .map(|(k, _)| k)
        .collect();
    now(Reply::json(call.format.or_pretty(), &json!(keys)))
}

fn dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let prefix = call.args.opt_str("key").unwrap_or_default();
    let all = m.view.kv.scan(SERVICE).map_err(|e| io(&e))?;
    let out: Map<String, Value> = all
        .into_iter()
        .filter(|(k, _)| k.starts_with(&prefix))
        .map(|(k, v)| {
            let text = match std::str::from_utf8(&v) {
                Ok(s) => s.to_owned(),
                Err(_) => format!("<<< binary blob of length {} >>>", v.len()),
            };
            (k, json!(text))
        })
        .collect();
    now(Reply::json(call.format.or_pretty(), &Value::Object(out)))
}
