//! The peers of a pool: clusters from or to which it is mirrored.

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use super::super::arguments::arguments;
use super::super::keys;
use crate::method::{Nothing, stored};
use crate::{Error, Object, Result};

const PREFIX: &str = "mirror_peer_";

/// The direction of mirroring. Unknown values survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Direction(pub u8);

impl Direction {
    /// From the peer.
    pub const RX: Self = Self(0);
    /// To the peer.
    pub const TX: Self = Self(1);
    /// Both ways.
    pub const RX_TX: Self = Self(2);
}

spirula_denc::transparent!(Direction);

versioned! {
    /// A cluster from or to which a pool is mirrored.
    #[derive(Eq)]
    pub struct Peer("MirrorPeer", version 2, compat 1) {
        /// The peer's uuid in this cluster.
        pub uuid: Bytes;
        /// The peer's site name.
        pub site_name: Bytes;
        /// The user in the peer's cluster that fetches images.
        pub client_name: Bytes;
        /// Obsolete, -1.
        pub pool_id: i64;
        /// The direction of mirroring.
        pub direction: Direction = Direction::RX_TX, since 2;
        /// The mirror uuid of the peer's pool, once known.
        pub mirror_uuid: Bytes, since 2;
        /// When the peer last sent a ping.
        pub last_seen: UTime, since 2;
    }
}

impl Peer {
    fn is_valid(&self) -> bool {
        let can_connect = match self.direction {
            Direction::TX => true,
            Direction::RX | Direction::RX_TX => !self.client_name.is_empty(),
            _ => false,
        };
        can_connect && !self.uuid.is_empty() && !self.site_name.is_empty()
    }
}

fn key(uuid: &[u8]) -> Vec<u8> {
    [PREFIX.as_bytes(), uuid].concat()
}

/// All peers in the order of their ids.
pub(super) fn read_all(object: &mut dyn Object) -> Result<Vec<Peer>> {
    let found = keys::list(object, PREFIX, b"", u64::MAX)?;
    found.iter().map(|(_, peer)| stored(peer)).collect()
}

fn write(object: &mut dyn Object, mut peer: Peer) -> Result<Nothing> {
    peer.pool_id = -1;
    keys::set(object, key(&peer.uuid), &peer).map(|()| Nothing)
}

fn require_enabled(object: &mut dyn Object) -> Result<()> {
    match super::is_enabled(object)? {
        true => Ok(()),
        false => Err(Error::EINVAL),
    }
}

pub(crate) fn list(object: &mut dyn Object, _: Nothing) -> Result<Vec<Peer>> {
    let mut peers = read_all(object)?;
    peers.iter_mut().for_each(|peer| peer.pool_id = -1);
    Ok(peers)
}

pub(crate) fn add(object: &mut dyn Object, peer: Peer) -> Result<Nothing> {
    require_enabled(object)?;
    if !peer.is_valid() {
        return Err(Error::EINVAL);
    }
    if peer.uuid == super::uuid(object)? || peer.direction == Direction::TX {
        return Err(Error::EINVAL);
    }
    for other in read_all(object)? {
        if other.uuid == peer.uuid {
            return Err(Error::ESTALE);
        }
        let same_pool = !peer.mirror_uuid.is_empty() && other.mirror_uuid == peer.mirror_uuid;
        if other.site_name == peer.site_name || same_pool {
            return Err(Error::EEXIST);
        }
    }
    write(object, peer)
}

pub(crate) fn remove(object: &mut dyn Object, uuid: Bytes) -> Result<Nothing> {
    keys::remove_any(object, key(&uuid)).map(|()| Nothing)
}

/// Changes the record of a peer.
fn update(object: &mut dyn Object, uuid: &[u8], change: impl FnOnce(&mut Peer)) -> Result<Nothing> {
    let mut peer = keys::require(object, key(uuid))?;
    change(&mut peer);
    write(object, peer)
}

pub(crate) fn set_client(object: &mut dyn Object, (uuid, client): (Bytes, Bytes)) -> Result<Nothing> {
    update(object, &uuid, |peer| peer.client_name = client)
}

pub(crate) fn set_direction(
    object: &mut dyn Object,
    (uuid, direction): (Bytes, Direction),
) -> Result<Nothing> {
    update(object, &uuid, |peer| peer.direction = direction)
}

pub(crate) fn set_cluster(object: &mut dyn Object, (uuid, site): (Bytes, Bytes)) -> Result<Nothing> {
    let (of_uuid, others): (Vec<_>, Vec<_>) = read_all(object)?.into_iter().partition(|p| p.uuid == uuid);
    if others.iter().any(|p| p.site_name == site) {
        return Err(Error::EEXIST);
    }
    let mut peer = of_uuid.into_iter().next_back().ok_or(Error::ENOENT)?;
    peer.site_name = site;
    write(object, peer)
}

arguments! {
    /// Input of `mirror_peer_ping`: the peer that fetches images from here.
    pub(crate) struct Ping {
        pub(super) site_name: Bytes,
        pub(super) mirror_uuid: Bytes,
        pub(super) direction: Direction,
    }
}

/// Notes a peer's ping. An unknown peer is added as one that only fetches.
pub(crate) fn ping(object: &mut dyn Object, op: Ping) -> Result<Nothing> {
    if op.direction != Direction::TX {
        return Err(Error::EINVAL);
    }
    require_enabled(object)?;
    if op.site_name.is_empty() || op.mirror_uuid.is_empty() {
        return Err(Error::EINVAL);
    }
    let mut peer = match known_as(read_all(object)?, &op) {
        Some(mut peer) => {
            if peer.direction == Direction::RX {
                peer.direction = Direction::RX_TX;
            }
            peer
        }
        None => Peer {
            uuid: unused_uuid(object)?,
            site_name: op.site_name,
            direction: Direction::TX,
            mirror_uuid: op.mirror_uuid,
            ..Peer::default()
        },
    };
    peer.last_seen = object.now();
    if !peer.is_valid() {
        return Err(Error::EINVAL);
    }
    write(object, peer)
}

/// The peer of a ping, as its record is from now on.
fn known_as(peers: Vec<Peer>, op: &Ping) -> Option<Peer> {
    let by_site = peers.iter().find(|p| p.site_name == op.site_name);
    let is_of_site = by_site.is_some_and(|p| p.mirror_uuid.is_empty() || p.mirror_uuid == op.mirror_uuid);
    let by_uuid = peers
        .iter()
        .find(|p| !is_of_site && p.mirror_uuid == op.mirror_uuid);
    let mut peer = by_uuid.or(by_site)?.clone();
    if by_uuid.is_none() {
        peer.mirror_uuid = op.mirror_uuid.clone();
    } else if by_site.is_none() {
        // The site was given another name.
        peer.site_name = op.site_name.clone();
    }
    Some(peer)
}

/// A new random UUID (version 4) that no peer has.
fn unused_uuid(object: &mut dyn Object) -> Result<Bytes> {
    loop {
        let mut uuid = [0; 16];
        object.random(&mut uuid);
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let uuid = Bytes::from(spirula_denc::Fsid(uuid).to_string());
        if !keys::has(object, key(&uuid))? {
            return Ok(uuid);
        }
    }
}
