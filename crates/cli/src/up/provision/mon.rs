//! Making monitors.

use spirula_cephx::{AuthName, CryptoKey, Keyring};
use spirula_denc::EntityType;

use super::{is_ready, kept_key, new_key, section, set_ready};
use crate::daemon::{self, Kind};
use crate::error::Error;
use crate::layout::{Layout, Spec, write_durably};

/// The administrator's capabilities.
const ADMIN_CAPS: [(&str, &str); 4] = [
    ("mds", "allow *"),
    ("mgr", "allow *"),
    ("mon", "allow *"),
    ("osd", "allow *"),
];

/// Makes the missing monitors. All have the same key of `mon.`; with the first monitor this key and
/// that of `client.admin` are made.
pub(in crate::up) async fn make(layout: &Layout, spec: &Spec) -> Result<(), Error> {
    let names = spec.daemons(Kind::Mon);
    let (ready, missing): (Vec<_>, Vec<_>) = names.iter().partition(|n| is_ready(layout, n));
    let Some(first) = missing.first() else {
        return Ok(());
    };
    let shared = ready
        .iter()
        .find_map(|n| kept_key(&layout.keyring(n), &AuthName::monitors()));
    let admin = AuthName::new(EntityType::CLIENT, "admin");
    let admin = shared
        .as_ref()
        .and_then(|_| kept_key(&layout.admin_keyring(), &admin));
    let kind = spec.key_type()?;
    let key = |kept: Option<CryptoKey>| kept.map_or_else(|| new_key(kind), Ok);
    let own = key(shared)?.to_base64();
    let own = section(&first.entity(), &own, Kind::Mon.caps());
    let admin = section("client.admin", &key(admin)?.to_base64(), &ADMIN_CAPS);
    if ready.is_empty() {
        write_durably(&layout.admin_keyring(), admin.as_bytes())?;
    }
    let initial = Keyring::parse(&format!("{own}{admin}"))
        .map_err(|e| Error::Daemon(format!("initial keyring: {e}")))?;
    for name in missing {
        let data = layout.data(name);
        if data.exists() {
            // A crash in the middle of making it: nothing in it was ever used.
            std::fs::remove_dir_all(&data).map_err(|e| Error::path("remove", &data, e))?;
        }
        spirula_files::directory(&data)?;
        write_durably(&layout.keyring(name), own.as_bytes())?;
        daemon::mon_mkfs_for(&layout.conf(), name.id(), initial.clone(), kind).await?;
    }
    // All at once: had some been made with other keys, they would never find each other.
    names.iter().try_for_each(|name| set_ready(layout, name))
}
