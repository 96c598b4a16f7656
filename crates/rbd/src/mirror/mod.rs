//! Mirroring by snapshots on the side of the primary images: which images are mirrored, and the
//! snapshots that peers copy (Ceph's `src/librbd/mirror/snapshot`).

pub(crate) mod disable;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use spirula_classes::rbd::protection::{PROTECTED, UNPROTECTED};
use spirula_classes::rbd::{
    Features, MirrorDirection, MirrorImage, MirrorImageState, MirrorPeer, MirrorSnapshot, SnapshotNamespace,
};
use spirula_client::{IoCtx, errno};
use spirula_denc::{Encode, Fsid, Writer};
use spirula_maps::snap;

use crate::bounds::Room;
use crate::cls::{Nothing, ask, tell};
use crate::error::unless;
use crate::header::{Header, Snapshot, text};
use crate::image::{Image, Inner};
use crate::message::Task;
use crate::site::Site;
use crate::view::View;
use crate::{Error, Progress, Result, clones, directory, journal, names};

/// Images asked for at a time.
const BATCH: u64 = 1024;
/// The mode of a pool whose images are chosen one by one.
pub const MIRROR_MODE_IMAGE: u32 = 1;
/// The mode of an image that is mirrored by its journal.
pub(crate) const MIRROR_BY_JOURNAL: u8 = 0;
/// The mode of an image that is mirrored by snapshots.
pub const MIRROR_BY_SNAPSHOTS: u8 = 1;

/// The image's role at a snapshot (`MirrorSnapshotState`): primary.
const PRIMARY: u8 = 0;

/// Snapshots that a peer may still have to copy (`rbd_mirroring_max_mirroring_snapshots`).
const MAX_SNAPSHOTS: usize = 5;
/// The size of the objects that hold the state of an image at a snapshot (`rbd_default_order`).
const STATE_OBJECT: usize = 4 << 20;
/// Bytes before the state in the first object: the number of objects, as a section.
const STATE_HEADER: usize = 10;
/// Features that follow from other options.
const IMPLICIT: Features = Features::STRIPINGV2
    .with(Features::DATA_POOL)
    .with(Features::FAST_DIFF)
    .with(Features::OPERATIONS)
    .with(Features::MIGRATING)
    .with(Features::NON_PRIMARY)
    .with(Features::DIRTY_CACHE);

/// The mirroring mode of a pool or namespace; 0 where it is not mirrored.
///
/// # Errors
/// Where that can't be read.
pub async fn mirror_mode(io: &IoCtx) -> Result<u32> {
    let mode = ask(io, names::MIRRORING, "mirror_mode_get", &Nothing).await;
    Ok(unless(mode, errno::ENOENT)?.unwrap_or_default())
}

/// Fails with `EOPNOTSUPP` in a pool or namespace that is mirrored as a whole: an image that gets a
/// journal would have to be mirrored from then on.
pub(crate) async fn check_unmirrored(io: &IoCtx) -> Result<()> {
    match mirror_mode(io).await? {
        0 | MIRROR_MODE_IMAGE => Ok(()),
        _ => Err(Error::os("mirror", errno::EOPNOTSUPP)),
    }
}

/// The mirrored images of a pool and namespace, by id.
///
/// # Errors
/// Where they can't be read. `E2BIG` where there are too many.
pub async fn mirrored_images(io: &IoCtx) -> Result<BTreeMap<String, MirrorImage>> {
    let (mut images, mut room) = (BTreeMap::new(), Room::new());
    let mut after = Bytes::new();
    loop {
        let listed = ask(io, names::MIRRORING, "mirror_image_list", &(after.clone(), BATCH)).await;
        let Some(batch) = unless::<BTreeMap<Bytes, Bytes>>(listed, errno::ENOENT)? else {
            return Ok(images);
        };
        for id in batch.keys().map(text) {
            if let Some(image) = mirrored_image(io, &id).await? {
                room.take(id.len() + image.global_id.len())?;
                images.insert(id, image);
            }
        }
        match batch.keys().next_back() {
            Some(last) if batch.len() as u64 == BATCH => after = last.clone(),
            _ => return Ok(images),
        }
    }
}

/// The mirroring record of an image; `None` where it is not mirrored.
///
/// # Errors
/// Where that can't be read.
pub async fn mirrored_image(io: &IoCtx, id: &str) -> Result<Option<MirrorImage>> {
    let image = ask(io, names::MIRRORING, "mirror_image_get", &id.to_owned()).await;
    unless(image, errno::ENOENT)
}

/// Whether an image that is mirrored by snapshots is the primary one.
///
/// # Errors
/// `ENOENT` where it is gone.
pub async fn is_mirror_primary(io: &IoCtx, id: &str) -> Result<bool> {
    Ok(is_primary(&Header::read(io, id).await?))
}

impl Image {
    /// The mirroring record of the image, and whether the image is primary; `None` if it is not
    /// mirrored.
    ///
    /// # Errors
    /// Where that can't be read.
    pub async fn mirroring(&self) -> Result<Option<(MirrorImage, bool)>> {
        let (io, id) = (self.pool(), &self.fixed().id);
        let Some(image) = mirrored_image(io, id).await? else {
            return Ok(None);
        };
        let is_primary = match image.mode {
            MIRROR_BY_JOURNAL => journal::is_primary(io, id).await?,
            _ => is_primary(&self.header()),
        };
        Ok(Some((image, is_primary)))
    }
}

fn mirror_snapshots(header: &Header) -> impl DoubleEndedIterator<Item = (&Snapshot, &MirrorSnapshot)> {
    let mirror = |s: &'_ Snapshot| matches!(s.namespace, SnapshotNamespace::Mirror(_));
    let of_mirroring = header.snapshots.values().filter(move |s| mirror(s));
    of_mirroring.filter_map(|s| match &s.namespace {
        SnapshotNamespace::Mirror(m) => Some((s, m)),
        _ => None,
    })
}

fn is_primary(header: &Header) -> bool {
    let newest = mirror_snapshots(header).next_back();
    newest.is_some_and(|(_, m)| m.state == PRIMARY)
}

/// A snapshot that a peer need not copy any more, and the peer: a snapshot that was never
/// completed, or that belongs to no peer, or the last but one of too many.
fn superfluous(header: &Header, peers: &BTreeSet<Bytes>) -> Option<(u64, Bytes)> {
    for peer in peers {
        let mut all = mirror_snapshots(header);
        let broken = |m: &MirrorSnapshot| m.peers.contains(peer) && m.is_primary() && !m.complete;
        if let Some((snap, _)) = all.find(|(_, m)| m.peers.is_empty() || broken(m)) {
            return Some((snap.id, peer.clone()));
        }
    }
    for peer in peers {
        // Those since the image became the primary one count.
        let mut linked = Vec::new();
        for (snap, mirror) in mirror_snapshots(header) {
            if mirror.state != PRIMARY {
                linked.clear();
            } else if mirror.peers.contains(peer) {
                linked.push(snap.id);
            }
        }
        if linked.len() > MAX_SNAPSHOTS {
            return Some((linked[MAX_SNAPSHOTS - 1], peer.clone()));
        }
    }
    None
}

/// The name of an object that holds the state of an image at a snapshot.
fn state_object(image: &str, snap: u64, number: usize) -> String {
    format!("rbd_mirror_snapshot.{image}.{snap}.{number}")
}

impl Inner {
    /// Takes a mirror snapshot, and drops those that peers do not need any more.
    async fn create_mirror_snapshot(self: &Rc<Self>) -> Result<()> {
        self.view.refresh().await?;
        let refused = || Error::os("mirror snapshot", errno::EINVAL);
        let image = mirrored_image(&self.site.io, &self.site.fixed.id)
            .await?
            .ok_or_else(refused)?;
        let is_enabled = image.state == MirrorImageState::ENABLED && image.mode == MIRROR_BY_SNAPSHOTS;
        if !is_enabled || !is_primary(&self.view.header()) {
            return Err(refused());
        }
        let pool = self.site.io.clone().with_namespace("");
        let peers: Vec<MirrorPeer> = ask(&pool, names::MIRRORING, "mirror_peer_list", &Nothing).await?;
        let sent_to = peers.into_iter().filter(|p| p.direction != MirrorDirection::RX);
        let peers: BTreeSet<Bytes> = sent_to.map(|p| p.uuid).collect();
        if peers.is_empty() {
            return Err(refused());
        }
        let name = format!(".mirror.primary.{}.{}", text(&image.global_id), random_uuid()?);
        let namespace = SnapshotNamespace::Mirror(MirrorSnapshot {
            state: PRIMARY,
            complete: false,
            peers: peers.clone(),
            primary_mirror_uuid: Bytes::new(),
            primary_snap_id: snap::NOSNAP,
            last_copied_object_number: 0,
            snap_seqs: BTreeMap::new(),
        });
        let create = Task::SnapCreate { name, namespace };
        self.perform_or_ask(&create, &Progress::untold()).await?;
        self.view.refresh().await?;
        while let Some((snap, peer)) = superfluous(&self.view.header(), &peers) {
            if let Err(e) = self.unlink_peer(snap, peer).await {
                tracing::warn!("mirror snapshot {snap} of image {}: {e}", self.site.fixed.id);
                break;
            }
        }
        Ok(())
    }

    /// Notes that a peer does not need a snapshot any more. Without peers the snapshot is removed,
    /// as there is a newer one.
    async fn unlink_peer(self: &Rc<Self>, snap: u64, peer: Bytes) -> Result<()> {
        let header = self.view.header();
        let gone = || Error::os("mirror snapshot", errno::ENOENT);
        let snapshot = header.snapshots.get(&snap).ok_or_else(gone)?;
        let SnapshotNamespace::Mirror(mirror) = &snapshot.namespace else {
            return Err(Error::os("mirror snapshot", errno::EINVAL));
        };
        let is_last = mirror.peers.iter().all(|p| *p == peer);
        let has_newer = mirror_snapshots(&header).any(|(s, _)| s.id > snap);
        if is_last && has_newer {
            let remove = Task::SnapRemove {
                name: snapshot.name.clone(),
                namespace: snapshot.namespace.clone(),
            };
            return self.perform_or_ask(&remove, &Progress::untold()).await;
        }
        if !mirror.peers.contains(&peer) {
            return Err(gone());
        }
        let unlink = "mirror_image_snapshot_unlink_peer";
        tell(&self.site.io, self.site.header_oid(), unlink, &(snap, peer)).await?;
        self.view.header_changed().await
    }
}

impl View {
    /// Stores the image's state at a new primary snapshot, after which peers may copy it.
    pub(crate) async fn complete_mirror_snapshot(&self, snap: u64) -> Result<()> {
        let state = self.mirror_state().await?;
        let objects = 1 + (STATE_HEADER + state.len()) / STATE_OBJECT;
        let count = u32::try_from(objects).map_err(|_| Error::os("mirror snapshot", errno::EINVAL))?;
        let mut w = Writer::new();
        w.section(1, 1, |w| w.u32(count));
        let whole = Bytes::from([w.as_slice(), &state].concat());
        // The first one, which tells how many there are, comes last.
        for number in (0..objects).rev() {
            let from = number * STATE_OBJECT;
            let part = whole.slice(from..whole.len().min(from + STATE_OBJECT));
            let oid = state_object(&self.site.fixed.id, snap, number);
            self.site.io.write_full(oid, part).await?;
        }
        let done = (snap, (true, 0_u64));
        let set = "mirror_image_snapshot_set_copy_progress";
        tell(&self.site.io, self.site.header_oid(), set, &done).await
    }

    /// The state of the image: name, features, snapshots, metadata (`ImageState`).
    async fn mirror_state(&self) -> Result<Vec<u8>> {
        let header = self.header();
        let name = directory::image_name(&self.site.io, &self.site.fixed.id).await?;
        let limit: u64 = ask(
            &self.site.io,
            self.site.header_oid(),
            "snapshot_get_limit",
            &Nothing,
        )
        .await?;
        let metadata = clones::metadata(&self.site.io, &self.site.header_oid()).await?;
        let snapshots: Vec<&Snapshot> = header.user_snapshots().collect();
        let mut w = Writer::new();
        w.section(1, 1, |w| {
            w.string(&name);
            w.put(&header.features.without(IMPLICIT));
            w.u64(limit);
            w.count(snapshots.len());
            for s in snapshots {
                w.u64(s.id);
                w.section(1, 1, |w| {
                    s.namespace.encode(w);
                    w.string(&s.name);
                    w.u8(if s.protected { PROTECTED } else { UNPROTECTED });
                });
            }
            w.put(&metadata);
        });
        Ok(w.into_vec())
    }
}

impl Site {
    /// Removes the stored state of the image at a removed snapshot.
    pub(crate) async fn forget_mirror_state(&self, snap: u64) -> Result<()> {
        for number in 0.. {
            let removed = self.io.remove(state_object(&self.fixed.id, snap, number)).await;
            if unless(removed.map_err(Error::from), errno::ENOENT)?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

fn random_uuid() -> Result<String> {
    let mut id = [0; 16];
    spirula_random::fill(&mut id).map_err(|_| Error::os("random number", errno::EIO))?;
    // Version 4, variant 1.
    (id[6], id[8]) = (id[6] & 0x0f | 0x40, id[8] & 0x3f | 0x80);
    Ok(Fsid(id).to_string())
}

impl Image {
    /// Takes a mirror snapshot of the image, for the peers to copy.
    ///
    /// # Errors
    /// `EINVAL` where the image is not mirrored so, is not the primary one, or there are no peers.
    pub async fn create_mirror_snapshot(&self) -> Result<()> {
        let create = |inner: Rc<Inner>| async move { inner.create_mirror_snapshot().await };
        self.inner.start(create).await
    }
}

#[cfg(test)]
mod tests {
    use spirula_classes::rbd::{ImageFlags, OpFeatures};

    use super::*;

    const PRIMARY_DEMOTED: u8 = 1;

    fn header(snapshots: &[(u64, u8, bool, &[&'static str])]) -> Header {
        let snapshot = |&(id, state, complete, peers): &(u64, u8, bool, &[&'static str])| {
            let mirror = MirrorSnapshot {
                state,
                complete,
                peers: peers.iter().map(|p| Bytes::from(*p)).collect(),
                primary_mirror_uuid: Bytes::new(),
                primary_snap_id: snap::NOSNAP,
                last_copied_object_number: 0,
                snap_seqs: BTreeMap::new(),
            };
            let snapshot = Snapshot {
                id,
                name: format!("s{id}"),
                namespace: SnapshotNamespace::Mirror(mirror),
                size: 0,
                timestamp: Default::default(),
                children: 0,
                protected: false,
                flags: ImageFlags::empty(),
                parent_overlap: None,
            };
            (id, snapshot)
        };
        Header {
            size: 0,
            features: Features::empty(),
            op_features: OpFeatures::empty(),
            flags: ImageFlags::empty(),
            snap_seq: 0,
            snapshots: snapshots.iter().map(snapshot).collect(),
            parent: None,
        }
    }

    #[test]
    fn the_newest_snapshot_of_mirroring_says_whether_the_image_is_primary() {
        assert!(!is_primary(&header(&[])));
        assert!(is_primary(&header(&[
            (1, 2, true, &[]),
            (2, PRIMARY, true, &["p"])
        ])));
        assert!(!is_primary(&header(&[
            (1, PRIMARY, true, &["p"]),
            (2, PRIMARY_DEMOTED, true, &["p"])
        ])));
    }

    #[test]
    fn peers_let_go_of_what_is_broken_and_of_too_many() {
        let peers: BTreeSet<Bytes> = [Bytes::from("p")].into();
        let found = |h: &Header| superfluous(h, &peers).map(|(id, _)| id);
        let full = |n: u64| -> Vec<(u64, u8, bool, &[&'static str])> {
            (1..=n).map(|id| (id, PRIMARY, true, &["p"][..])).collect()
        };
        assert_eq!(found(&header(&full(5))), None);
        assert_eq!(found(&header(&full(6))), Some(5));
        let mut broken = full(3);
        broken[1].2 = false;
        assert_eq!(found(&header(&broken)), Some(2));
        let mut unlinked = full(3);
        unlinked[0].3 = &[];
        assert_eq!(found(&header(&unlinked)), Some(1));
        let mut demoted = full(8);
        demoted[4].1 = PRIMARY_DEMOTED;
        assert_eq!(found(&header(&demoted)), None);
    }
}
