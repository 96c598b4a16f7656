//! Making daemons that don't exist yet, in the steps that an administrator would take: what all
//! kinds share here, and a file a kind.

pub(super) mod mon;
pub(super) mod osd;

use std::path::Path;

use spirula_cephx::{AuthName, CryptoKey, Env, KeyType, Keyring};
use spirula_denc::UTime;

use crate::daemon::DaemonName;
use crate::error::Error;
use crate::layout::{Layout, write_durably};

/// A daemon's directory holds this file once the daemon was made completely.
pub(super) const READY: &str = "ready";

pub(super) fn is_ready(layout: &Layout, name: &DaemonName) -> bool {
    layout.data(name).join(READY).exists()
}

fn set_ready(layout: &Layout, name: &DaemonName) -> Result<(), Error> {
    write_durably(&layout.data(name).join(READY), b"ready\n")
}

fn new_key(kind: KeyType) -> Result<CryptoKey, Error> {
    CryptoKey::generate(kind, &Env::system(UTime::now()))
        .map_err(|e| Error::Daemon(format!("no new key: {e}")))
}

/// The key of an entity in a keyring file, if both exist.
fn kept_key(path: &Path, entity: &AuthName) -> Option<CryptoKey> {
    let text = std::fs::read_to_string(path).ok()?;
    Keyring::parse(&text).ok()?.key(entity).cloned()
}

/// An entity's section of a keyring.
fn section(entity: &str, key: &str, caps: &[(&str, &str)]) -> String {
    let caps: String = caps
        .iter()
        .map(|(service, caps)| format!("\tcaps {service} = \"{caps}\"\n"))
        .collect();
    format!("[{entity}]\n\tkey = {key}\n{caps}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_as_the_tools_of_ceph_write_them() {
        assert_eq!(section("osd.0", "k", &[]), "[osd.0]\n\tkey = k\n");
        assert_eq!(
            section("mon.", "k", &[("mon", "allow *")]),
            "[mon.]\n\tkey = k\n\tcaps mon = \"allow *\"\n"
        );
    }
}
