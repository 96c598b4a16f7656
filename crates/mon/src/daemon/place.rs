//! The address of a monitor, as its store has it.

use std::net::SocketAddr;
use std::path::Path;

use super::seed::{Seed, has_state};
use super::{Error, STORE};
use crate::raft::Store;
use crate::service::MonMaps;

/// The address that the monitor map in a monitor's store gives it; before it is a member, that in
/// what `mkfs` left. `None` where there is no store, or the map does not name it yet.
///
/// # Errors
/// Where the store can't be read.
pub fn known_address(data: &Path, name: &str) -> Result<Option<SocketAddr>, Error> {
    let path = data.join(STORE);
    if !path.exists() {
        return Ok(None);
    }
    let store = Store::open(&path)?;
    let map = match has_state(&store)? {
        true => Some(MonMaps::read(&store)?.map),
        false => Seed::load(&store)?.map(|s| s.monmap),
    };
    let info = map.as_ref().and_then(|m| m.mons.get(name));
    Ok(info.and_then(|i| i.public_addrs.v2()).and_then(|a| a.socket))
}
