//! The status of mirrored images' copies, as mirror daemons report it: this cluster's daemon, and
//! those of its peers. A report holds as long as its daemon watches the object.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{AddrType, Decode, Encode, EntityAddr, EntityName, Reader, UTime, Writer};

use super::super::keys;
use super::images::{self, MirrorImage};
use super::peers::{Direction, Peer};
use crate::error::unless;
use crate::method::{Nothing, stored};
use crate::{Error, Object, Result, omap};

const PREFIX: &str = "status_global_";
const REMOTE_PREFIX: &str = "remote_status_global_";

/// A daemon: its name, and its address without the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Daemon {
    name: EntityName,
    addr: EntityAddr,
}

impl Daemon {
    fn new(name: EntityName, addr: EntityAddr) -> Self {
        Self {
            name,
            addr: addr.with_kind(AddrType::ANY),
        }
    }
}

impl Encode for Daemon {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.name);
        w.put(&self.addr);
    }
}

impl Decode for Daemon {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        Ok(Self::new(r.get()?, r.get()?))
    }
}

type Watchers = BTreeSet<Daemon>;

/// The daemons that watch the object.
pub(super) fn watchers(object: &mut dyn Object) -> Result<Watchers> {
    let all = object.watchers()?;
    Ok(all.into_iter().map(|w| Daemon::new(w.name, w.addr)).collect())
}

/// The state of a copy. Unknown values survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct CopyState(pub(crate) u8);

impl CopyState {
    pub(crate) const UNKNOWN: Self = Self(0);
    pub(crate) const ERROR: Self = Self(1);
}

spirula_denc::transparent!(CopyState);

/// The status of a copy (`MirrorImageSiteStatus`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SiteStatus {
    /// The mirror uuid of the peer with the copy; empty for the copy in this cluster.
    pub(crate) mirror_uuid: Bytes,
    pub(crate) state: CopyState,
    pub(crate) description: Bytes,
    pub(crate) last_update: UTime,
    /// Whether the reporting daemon is alive.
    pub(crate) up: bool,
}

impl SiteStatus {
    fn is_local(&self) -> bool {
        self.mirror_uuid.is_empty()
    }

    fn encode_body(&self, with_uuid: bool, w: &mut Writer) {
        if with_uuid {
            w.put(&self.mirror_uuid);
        }
        w.put(&self.state);
        w.put(&self.description);
        w.put(&self.last_update);
        w.bool(self.up);
    }
}

// By hand: only the status of a peer has the uuid, and version 2.
impl Encode for SiteStatus {
    fn encode(&self, w: &mut Writer) {
        let version = if self.is_local() { 1 } else { 2 };
        w.section(version, version, |w| self.encode_body(version >= 2, w));
    }
}

impl Decode for SiteStatus {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("MirrorImageSiteStatus", 2, |version, r| {
            Ok(Self {
                mirror_uuid: if version >= 2 { r.get()? } else { Bytes::new() },
                state: r.get()?,
                description: r.get()?,
                last_update: r.get()?,
                up: r.bool()?,
            })
        })
    }
}

/// The daemon that reported a status: the first field of a stored status
/// (`MirrorImageSiteStatusOnDisk`).
struct Origin(Daemon);

impl Encode for Origin {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| w.put(&self.0));
    }
}

impl Decode for Origin {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("MirrorImageSiteStatusOnDisk", 1, |_, r| r.get().map(Self))
    }
}

/// The status of all copies of an image: this cluster's first, if it has one (`MirrorImageStatus`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ImageStatus(Vec<SiteStatus>);

impl ImageStatus {
    fn local(&self) -> Option<&SiteStatus> {
        self.0.iter().find(|s| s.is_local())
    }

    fn remote(&self) -> impl Iterator<Item = &SiteStatus> {
        self.0.iter().filter(|s| !s.is_local())
    }
}

// By hand: a list whose first element has another form.
impl Encode for ImageStatus {
    fn encode(&self, w: &mut Writer) {
        w.section(2, 1, |w| {
            let local = self.local();
            local.cloned().unwrap_or_default().encode_body(false, w);
            w.bool(local.is_some());
            w.count(self.remote().count());
            self.remote().for_each(|s| s.encode_body(true, w));
        });
    }
}

fn local_key(global_id: &[u8]) -> Vec<u8> {
    [PREFIX.as_bytes(), global_id].concat()
}

/// The prefix of the keys of peers' statuses of an image.
fn remote_prefix(global_id: &[u8]) -> Vec<u8> {
    [REMOTE_PREFIX.as_bytes(), global_id, b"_"].concat()
}

type Update = (Bytes, SiteStatus);

pub(crate) fn set(object: &mut dyn Object, (global_id, mut status): Update) -> Result<Nothing> {
    // An image that is no longer mirrored needs no status.
    let is_enabled = unless(images::is_enabled(object, &global_id), &[Error::EIO])?;
    if is_enabled != Some(true) {
        return Ok(Nothing);
    }
    let key = if status.is_local() {
        local_key(&global_id)
    } else {
        [&remote_prefix(&global_id)[..], &status.mirror_uuid].concat()
    };
    // The key says whose it is.
    status.mirror_uuid = Bytes::new();
    status.up = false;
    status.last_update = object.now();
    let caller = object.caller();
    let origin = Origin(Daemon::new(caller.name, caller.addr));
    keys::set(object, key, &(origin, status)).map(|()| Nothing)
}

pub(crate) fn remove(object: &mut dyn Object, global_id: Bytes) -> Result<Nothing> {
    let prefix = remote_prefix(&global_id);
    for (uuid, _) in keys::list(object, &prefix, b"", u64::MAX)? {
        keys::remove_any(object, [&prefix[..], &uuid].concat())?;
    }
    keys::remove_any(object, local_key(&global_id)).map(|()| Nothing)
}

/// A stored status in the form for clients.
fn told(mirror_uuid: Bytes, value: &Bytes, watchers: &Watchers) -> Result<SiteStatus> {
    let (Origin(origin), status): (_, SiteStatus) = stored(value)?;
    Ok(SiteStatus {
        mirror_uuid,
        up: watchers.contains(&origin),
        ..status
    })
}

/// Stored statuses of one image or all. Each page of keys that is read restarts the method, so
/// those of many images are read together.
struct Stored {
    /// Statuses of copies in this cluster by global id.
    local: BTreeMap<Bytes, Bytes>,
    /// Statuses of peers' copies by global id, `_` and the peer's mirror uuid.
    remote: BTreeMap<Bytes, Bytes>,
}

impl Stored {
    fn of_all(object: &mut dyn Object) -> Result<Self> {
        Ok(Self {
            local: local_of_all(object)?,
            remote: keys::list(object, REMOTE_PREFIX, b"", u64::MAX)?
                .into_iter()
                .collect(),
        })
    }

    fn of_one(object: &mut dyn Object, global_id: &Bytes) -> Result<Self> {
        let local = omap::find(object, &local_key(global_id))?;
        let remote = keys::list(object, remote_prefix(global_id), b"", u64::MAX)?;
        let key = |uuid: Bytes| Bytes::from([&global_id[..], b"_", &uuid].concat());
        Ok(Self {
            local: local.into_iter().map(|v| (global_id.clone(), v)).collect(),
            remote: remote.into_iter().map(|(uuid, v)| (key(uuid), v)).collect(),
        })
    }

    fn get(&self, global_id: &Bytes, watchers: &Watchers) -> Result<ImageStatus> {
        let prefix = Bytes::from([&global_id[..], b"_"].concat());
        let local = self.local.get(global_id).map(|v| (Bytes::new(), v));
        let remote = self.remote.range(prefix.clone()..);
        let remote = remote.take_while(|(key, _)| key.starts_with(&prefix));
        let remote = remote.map(|(key, v)| (key.slice(prefix.len()..), v));
        let all = local.into_iter().chain(remote);
        all.map(|(uuid, v)| told(uuid, v, watchers))
            .collect::<Result<_>>()
            .map(ImageStatus)
    }
}

/// The stored statuses of all copies in this cluster, by global id.
pub(super) fn local_of_all(object: &mut dyn Object) -> Result<BTreeMap<Bytes, Bytes>> {
    Ok(keys::list(object, PREFIX, b"", u64::MAX)?.into_iter().collect())
}

/// The status of an image; ENOENT where no daemon reported one.
pub(crate) fn get(object: &mut dyn Object, global_id: Bytes) -> Result<ImageStatus> {
    let watchers = watchers(object)?;
    let status = Stored::of_one(object, &global_id)?.get(&global_id, &watchers)?;
    match status.0.is_empty() {
        true => Err(Error::ENOENT),
        false => Ok(status),
    }
}

type Listing = (BTreeMap<Bytes, MirrorImage>, BTreeMap<Bytes, ImageStatus>);

/// Images by id, and the status of those that have a decodable one.
pub(crate) fn list(object: &mut dyn Object, (after, max): (Bytes, u64)) -> Result<Listing> {
    let watchers = watchers(object)?;
    let statuses = Stored::of_all(object)?;
    let (mut found, mut told) = Listing::default();
    for (id, image) in images::read(object, &after, max)? {
        let status = unless(statuses.get(&image.global_id, &watchers), &[Error::EIO])?;
        if let Some(status) = status.filter(|s| !s.0.is_empty()) {
            told.insert(id.clone(), status);
        }
        found.insert(id, image);
    }
    Ok((found, told))
}

/// Input of `mirror_image_status_get_summary`: the peers; older clients send none.
pub(crate) struct Peers(Vec<Peer>);

impl Decode for Peers {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        match r.is_empty() {
            true => Ok(Self(Vec::new())),
            false => r.get().map(Self),
        }
    }
}

impl Peers {
    /// The direction of mirroring with all peers together.
    fn direction(&self) -> Direction {
        let fetching = self.0.iter().filter(|p| p.direction != Direction::RX);
        let first = self.0.first().map_or(Direction::RX, |p| p.direction);
        fetching.fold(
            first,
            |all, p| {
                if all == p.direction { all } else { Direction::RX_TX }
            },
        )
    }

    /// The mirror uuids of the peers that fetch.
    fn fetching(&self) -> BTreeSet<&Bytes> {
        let fetching = self.0.iter().filter(|p| p.direction != Direction::RX);
        fetching.map(|p| &p.mirror_uuid).collect()
    }
}

/// The number of images in each state.
pub(crate) fn get_summary(object: &mut dyn Object, peers: Peers) -> Result<BTreeMap<CopyState, i32>> {
    let watchers = watchers(object)?;
    let (direction, fetching) = (peers.direction(), peers.fetching());
    let statuses = Stored::of_all(object)?;
    let mut states = BTreeMap::<_, i32>::new();
    for (_, image) in images::read(object, b"", u64::MAX)? {
        let status = statuses.get(&image.global_id, &watchers)?;
        let count = states.entry(summary(direction, &fetching, &status)).or_default();
        *count = count.saturating_add(1);
    }
    Ok(states)
}

/// One state for all copies of an image: the least one; unknown if that of a copy is missing. A
/// peer's error takes precedence over that, even if its daemon is gone.
fn summary(direction: Direction, fetching: &BTreeSet<&Bytes>, status: &ImageStatus) -> CopyState {
    let mut all = None;
    if direction == Direction::RX || direction == Direction::RX_TX {
        all = status.local().filter(|s| s.up).map(|s| s.state);
    }
    let mut missing = 0;
    if direction == Direction::TX || direction == Direction::RX_TX {
        missing = fetching.len();
        for remote in status.remote() {
            missing -= usize::from(fetching.contains(&remote.mirror_uuid));
            let state = if remote.up {
                remote.state
            } else {
                CopyState::UNKNOWN
            };
            all = Some(match all {
                _ if remote.state == CopyState::ERROR => CopyState::ERROR,
                Some(CopyState::ERROR) => CopyState::ERROR,
                Some(all) => all.min(state),
                None => state,
            });
        }
    }
    all.filter(|_| missing == 0).unwrap_or(CopyState::UNKNOWN)
}

/// Removes the statuses of daemons that are gone.
pub(crate) fn remove_down(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    let watchers = watchers(object)?;
    for prefix in [PREFIX, REMOTE_PREFIX] {
        for (rest, status) in keys::list(object, prefix, b"", u64::MAX)? {
            let Origin(origin) = stored(&status)?;
            if !watchers.contains(&origin) {
                keys::remove(object, [prefix.as_bytes(), &rest].concat())?;
            }
        }
    }
    Ok(Nothing)
}

/// The daemon that copies an image to this cluster.
pub(super) fn copied_by(object: &mut dyn Object, global_id: &[u8], watchers: &Watchers) -> Result<Daemon> {
    origin(&omap::get(object, &local_key(global_id))?, watchers)
}

/// The daemon that reported a stored status; ESTALE where it is gone.
pub(super) fn origin(value: &Bytes, watchers: &Watchers) -> Result<Daemon> {
    let (Origin(origin), _): (_, SiteStatus) = stored(value)?;
    match watchers.contains(&origin) {
        true => Ok(origin),
        false => Err(Error::ESTALE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(direction: Direction, mirror_uuid: &'static str) -> Peer {
        Peer {
            direction,
            mirror_uuid: mirror_uuid.into(),
            ..Peer::default()
        }
    }

    #[test]
    fn peers_mirror_both_ways_together_where_one_does_or_they_differ() {
        use Direction as D;
        for (directions, want) in [
            (&[][..], D::RX),
            (&[D::RX, D::RX], D::RX),
            (&[D::TX, D::TX], D::TX),
            (&[D::TX, D::RX], D::TX),
            (&[D::RX, D::TX], D::RX_TX),
            (&[D::TX, D::RX_TX], D::RX_TX),
            (&[D::RX_TX, D::TX], D::RX_TX),
        ] {
            let peers = Peers(directions.iter().map(|d| peer(*d, "u")).collect());
            assert_eq!(peers.direction(), want, "{directions:?}");
        }
    }

    #[test]
    fn the_summary_is_the_least_state_but_errors_stand_out() {
        let site = |uuid: &'static str, state, up| SiteStatus {
            mirror_uuid: uuid.into(),
            state: CopyState(state),
            up,
            ..SiteStatus::default()
        };
        let (a, b) = (Bytes::from("a"), Bytes::from("b"));
        let of = |direction, fetching: &[&Bytes], all: &[SiteStatus]| {
            let fetching = fetching.iter().copied().collect();
            summary(direction, &fetching, &ImageStatus(all.to_vec())).0
        };
        let all = [site("", 4, true), site("a", 6, true), site("b", 1, false)];
        assert_eq!(of(Direction::RX, &[], &all), 4);
        assert_eq!(of(Direction::RX, &[], &[site("", 4, false)]), 0);
        assert_eq!(of(Direction::RX, &[&a], &[]), 0);
        assert_eq!(of(Direction::TX, &[&a], &all[..2]), 6);
        assert_eq!(of(Direction::RX_TX, &[&a], &all[..2]), 4);
        assert_eq!(of(Direction::RX_TX, &[&a, &b], &all[..2]), 0);
        assert_eq!(of(Direction::RX_TX, &[&a, &b], &all), 1);
        assert_eq!(of(Direction::TX, &[], &[site("c", 4, false)]), 0);
    }
}
