//! `osd new`: an OSD with its keys, as `ceph-volume` makes it (`prepare_command_osd_new` of Ceph's
//! `src/mon/OSDMonitor.cc`, `validate_osd_new` of `AuthMonitor.cc` and `KVMonitor.cc`), and the
//! removal of the keys.
//!
//! An encrypted OSD has two secrets besides its own key: that of its device, which is kept with the
//! configuration keys as `dm-crypt/osd/UUID/luks`, and the key of `client.osd-lockbox.UUID`, which
//! may read just that.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use spirula_cephx::{AuthName, CryptoKey, EntityAuth, KeyServer};
use spirula_crush::is_valid_name;
use spirula_denc::{EntityType, Fsid};
use spirula_maps::OsdId;

use super::osd_change::{add_osd, id_reply, uuid, wanted_id};
use super::{Call, Done, Outcome, Reply, commands, config_key, errno, now, refuse};
use crate::core::{Turn, View};
use crate::service::Auth;

commands! {
    "osd new uuid:UUID id?:OsdName" "osd" "rw" new, "create an OSD with its secrets (-i FILE)";
}

/// The entity that may read the key of an OSD's device.
fn lockbox(uuid: &Fsid) -> AuthName {
    AuthName::new(EntityType::CLIENT, format!("osd-lockbox.{uuid}"))
}

/// The prefix of the configuration keys for an OSD's store.
fn device_keys(uuid: &Fsid) -> String {
    format!("dm-crypt/osd/{uuid}/")
}

fn device_key(uuid: &Fsid) -> String {
    device_keys(uuid) + "luks"
}

/// The service that keeps the device class of an OSD until it boots.
pub(super) const CLASS: &str = "osd_class";

/// The secrets that are given with `-i`.
#[derive(Default)]
struct Given {
    class: Option<String>,
    secrets: Option<Secrets>,
}

struct Secrets {
    cephx: CryptoKey,
    /// The lockbox's key, and that of the device.
    device: Option<(CryptoKey, String)>,
}

fn parse(input: &[u8]) -> Result<Given, Reply> {
    if input.is_empty() {
        return Ok(Given::default());
    }
    let given: Map<String, Value> = serde_json::from_slice(input)
        .map_err(|_| Reply::error(errno::EINVAL, "invalid JSON in the secrets"))?;
    let text = |name: &str| match given.get(name) {
        None => Ok(None),
        Some(Value::String(s)) => Ok(Some(s.as_str())),
        Some(_) => refuse(errno::EINVAL, format!("{name} is no text")),
    };
    let class = text("crush_device_class")?.map(str::to_owned);
    if let Some(bad) = class.as_ref().filter(|c| !is_valid_name(c)) {
        return refuse(errno::EINVAL, format!("invalid device class '{bad}'"));
    }
    let (cephx, lockbox, device) = (
        text("cephx_secret")?,
        text("cephx_lockbox_secret")?,
        text("dmcrypt_key")?,
    );
    let secrets = match (cephx, lockbox, device) {
        (None, None, None) => None,
        (cephx, lockbox, device) => Some(parse_secrets(cephx, lockbox, device)?),
    };
    Ok(Given { class, secrets })
}

fn parse_secrets(cephx: Option<&str>, lockbox: Option<&str>, device: Option<&str>) -> Result<Secrets, Reply> {
    let Some(cephx) = cephx else {
        return refuse(errno::EINVAL, "requires a cephx secret.");
    };
    let key = |text: &str, what: &str| {
        CryptoKey::from_base64(text).map_err(|_| Reply::error(errno::EINVAL, format!("invalid {what}.")))
    };
    let device = match (lockbox, device.filter(|d| !d.is_empty())) {
        (None, None) if device.is_none() => None,
        (Some(lockbox), Some(device)) => Some((lockbox, device)),
        _ => {
            let text = "requires both a cephx lockbox secret and a dm-crypt key.";
            return refuse(errno::EINVAL, text);
        }
    };
    let cephx = key(cephx, "cephx secret")?;
    let device = match device {
        None => None,
        Some((lockbox, device)) => {
            config_key::check_size(device.len())?;
            Some((key(lockbox, "cephx lockbox secret")?, device.to_owned()))
        }
    };
    Ok(Secrets { cephx, device })
}

/// The entities that an OSD's secrets are for.
fn entities(osd: OsdId, uuid: &Fsid, secrets: &Secrets) -> Vec<(AuthName, EntityAuth)> {
    let with = |key: &CryptoKey, caps: &[(&str, String)]| EntityAuth {
        key: key.clone(),
        caps: caps
            .iter()
            .map(|(s, c)| ((*s).to_owned(), c.clone()))
            .collect::<BTreeMap<_, _>>(),
    };
    let own = [
        ("mon", "allow profile osd".to_owned()),
        ("mgr", "allow profile osd".to_owned()),
        ("osd", "allow *".to_owned()),
    ];
    let name = AuthName::new(EntityType::OSD, osd.to_string());
    let mut all = vec![(name, with(&secrets.cephx, &own))];
    if let Some((key, _)) = &secrets.device {
        let reads = format!(
            "allow command \"config-key get\" with key=\"{}\"",
            device_key(uuid)
        );
        all.push((lockbox(uuid), with(key, &[("mon", reads)])));
    }
    all
}

/// Whether an entity exists already. An entity of the same name with another key or other
/// capabilities is left alone.
fn is_there(m: &View, name: &AuthName, want: &EntityAuth) -> Result<bool, Reply> {
    let Some(have) = m.state.auth.lookup(name) else {
        return Ok(false);
    };
    if have.key != want.key {
        return refuse(
            errno::EEXIST,
            format!("entity {name} exists but key does not match"),
        );
    }
    if have.caps.len() != want.caps.len() {
        return refuse(
            errno::EINVAL,
            format!("entity {name} exists but caps do not match"),
        );
    }
    match want.caps.iter().find(|(s, c)| have.caps.get(*s) != Some(c)) {
        None => Ok(true),
        Some((service, _)) => refuse(
            errno::EINVAL,
            format!("entity {name} exists but cap {service} does not match"),
        ),
    }
}

fn is_device_key_there(m: &View, uuid: &Fsid, want: &str) -> Result<bool, Reply> {
    match config_key::lookup(m, &device_key(uuid))? {
        None => Ok(false),
        Some(have) if have == want.as_bytes() => Ok(true),
        Some(_) => refuse(errno::EEXIST, "dm-crypt key already exists and does not match"),
    }
}

fn new(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let Some(uuid) = uuid(call)? else {
        return refuse(errno::EINVAL, "missing required parameter uuid");
    };
    let Given { class, secrets } = parse(call.input)?;
    let (osd, known) = match wanted_id(m.view, call, Some(uuid))? {
        Err(known) => (known, true),
        Ok(osd) => (osd, false),
    };
    if let Some(secrets) = &secrets {
        let mut missing = Vec::new();
        for (name, entity) in entities(osd, &uuid, secrets) {
            if !is_there(m.view, &name, &entity)? {
                missing.push((name, entity));
            }
        }
        if known && !missing.is_empty() {
            return refuse(
                errno::EEXIST,
                format!("osd.{osd} exists but secrets do not match"),
            );
        }
        if let Some((_, device)) = &secrets.device
            && !is_device_key_there(m.view, &uuid, device)?
        {
            if known {
                let text = format!("osd.{osd} exists but dm-crypt key does not match.");
                return refuse(errno::EEXIST, text);
            }
            config_key::put(m, &device_key(&uuid), device.clone().into_bytes());
        }
        for (name, entity) in missing {
            Auth::put(&name, &entity, &mut m.changes.txn);
        }
    }
    if known {
        return now(id_reply(call, osd));
    }
    add_osd(m, osd, Some(uuid));
    if let Some(class) = class {
        m.changes.txn.put(CLASS, osd.to_string(), class.into_bytes());
    }
    Ok(Outcome::Commit(id_reply(call, osd)))
}

/// Removes the keys of an OSD that no longer exists: its own and its lockbox's, that of its device,
/// and the values that it kept for itself.
pub(super) fn remove_secrets(m: &mut Turn<'_>, osd: OsdId) -> Result<(), Reply> {
    let uuid = m.view.state.osd.map.osd_uuid.get(osd.index()).copied();
    let mut kept = vec![format!("daemon-private/osd.{osd}/")];
    let mut names = vec![AuthName::new(EntityType::OSD, osd.to_string())];
    if let Some(uuid) = uuid.filter(|u| !u.is_zero()) {
        kept.push(device_keys(&uuid));
        names.push(lockbox(&uuid));
    }
    for prefix in kept {
        config_key::remove_all(m, &prefix)?;
    }
    for name in names {
        Auth::remove(&name, &mut m.changes.txn);
    }
    Ok(())
}

impl View {
    /// The device class that `osd new` has given to an OSD.
    pub(crate) fn given_class(&self, osd: OsdId) -> Option<String> {
        let kept = self.kv.get(CLASS, &osd.to_string()).ok().flatten()?;
        // Earlier versions kept whatever was given.
        String::from_utf8(kept.to_vec())
            .ok()
            .filter(|class| is_valid_name(class))
    }
}
