//! An image's header: the part that never changes ([`Fixed`]), and the part that does ([`Header`]).

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_classes::rbd::{
    Features, FeaturesFound, ImageFlags, OpFeatures, ParentImageSpec, SnapshotInfo, SnapshotNamespace,
    Striping,
};
use spirula_client::{IoCtx, Layout, errno};
use spirula_denc::UTime;
use spirula_maps::{PoolId, PoolOrNone, SnapContext, snap};

use crate::cls::{self, Nothing, ask, output};
use crate::error::unless;
use crate::{Error, Result, bounds, names};

/// How often the header is read again when a snapshot vanishes in between.
const ATTEMPTS: usize = 10;

/// The part of a header that never changes.
#[derive(Debug, Clone)]
pub struct Fixed {
    /// Its id.
    pub id: String,
    /// How its bytes spread over objects.
    pub layout: Layout,
    /// The size of its objects as a power of two.
    pub order: u8,
    /// The prefix of its objects' names.
    pub prefix: String,
    /// The pool of its data, where it is another than the header's.
    pub data_pool: Option<PoolId>,
    /// When it was made.
    pub created: UTime,
}

/// A snapshot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The kind of the snapshot: a user's, a group's, mirroring's or in the trash.
    pub namespace: SnapshotNamespace,
    /// The image's size at the snapshot, in bytes.
    pub size: u64,
    /// When it was made.
    pub timestamp: UTime,
    /// The number of its clones.
    pub children: u32,
    /// Whether it is protected from removal.
    pub protected: bool,
    /// The flags of its object map.
    pub flags: ImageFlags,
    /// Bytes of the parent that it sees.
    pub parent_overlap: Option<u64>,
}

/// The snapshot that an image is a clone of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The snapshot.
    pub spec: ParentImageSpec,
    /// Bytes of the parent that the image sees: `None` where only snapshots see it.
    pub overlap: Option<u64>,
}

/// The part of a header that changes.
#[derive(Debug, Clone)]
pub struct Header {
    /// The size in bytes.
    pub size: u64,
    /// The features.
    pub features: Features,
    /// The features of operations that it takes part in, such as clones and migrations.
    pub op_features: OpFeatures,
    /// The flags of its object map.
    pub flags: ImageFlags,
    /// The newest snapshot id that there ever was.
    pub snap_seq: u64,
    /// Its snapshots by id.
    pub snapshots: BTreeMap<u64, Snapshot>,
    /// The snapshot that it is a clone of.
    pub parent: Option<Parent>,
}

/// The parent's pool.
///
/// # Errors
/// `ENOENT` where the spec names none.
pub(crate) fn pool_of(spec: &ParentImageSpec) -> Result<PoolId> {
    spec.pool_id.0.ok_or(Error::os("open pool", errno::ENOENT))
}

/// Bytes of a stored object as text.
pub(crate) fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Fixed {
    pub(crate) async fn read(io: &IoCtx, id: &str) -> Result<Self> {
        let oid = names::header(id);
        let ops = vec![
            cls::rbd("get_size", &snap::NOSNAP)?,
            cls::rbd("get_object_prefix", &Nothing)?,
            cls::rbd("get_data_pool", &Nothing)?,
            cls::rbd("get_create_timestamp", &Nothing)?,
        ];
        let reply = io.operate("open image", &oid, ops).await?;
        let (order, _): (u8, u64) = output(&reply, 0)?;
        let object_size = bounds::object_size(order)?;
        // Without the feature there is no such striping.
        let striping = unless(
            ask::<Striping>(io, &oid, "get_stripe_unit_count", &Nothing).await,
            errno::ENOEXEC,
        )?;
        let striping = striping.unwrap_or(Striping {
            unit: object_size.into(),
            count: 1,
        });
        let layout = bounds::layout(object_size, striping.unit, striping.count)?;
        let pool: PoolOrNone = output(&reply, 2)?;
        Ok(Self {
            id: id.to_owned(),
            layout,
            order,
            prefix: text(&output(&reply, 1)?),
            data_pool: pool.0,
            created: output(&reply, 3)?,
        })
    }

    /// The name of a data object.
    pub fn object(&self, number: u64) -> String {
        format!("{}.{number:016x}", self.prefix)
    }

    /// The pool of the data.
    pub(crate) async fn data_pool(&self, io: &IoCtx) -> Result<IoCtx> {
        match self.data_pool {
            None => Ok(io.clone()),
            Some(id) => {
                let data = io.rados().pool_by_id(id).await?;
                Ok(data.with_namespace(io.namespace()))
            }
        }
    }
}

impl Header {
    pub(crate) async fn read(io: &IoCtx, id: &str) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            // A snapshot that is gone means that the header has changed.
            if let Some(header) = Self::read_once(io, id).await? {
                return Ok(header);
            }
        }
        Err(Error::os("read header", errno::ESTALE))
    }

    async fn read_once(io: &IoCtx, id: &str) -> Result<Option<Self>> {
        let oid = names::header(id);
        let ops = vec![
            cls::rbd("get_size", &snap::NOSNAP)?,
            cls::rbd("get_features", &(snap::NOSNAP, false))?,
            cls::rbd("get_flags", &snap::NOSNAP)?,
            cls::rbd("get_snapcontext", &Nothing)?,
            cls::rbd("parent_get", &Nothing)?,
            cls::rbd("parent_overlap_get", &snap::NOSNAP)?,
            cls::rbd("op_features_get", &Nothing)?,
        ];
        let reply = io.operate("read header", &oid, ops).await?;
        let (_, size): (u8, u64) = output(&reply, 0)?;
        let features: FeaturesFound = output(&reply, 1)?;
        let (snap_seq, ids): (u64, Vec<u64>) = output(&reply, 3)?;
        let spec: ParentImageSpec = output(&reply, 4)?;
        let overlap = output(&reply, 5)?;
        if ids.len() > bounds::MAX_SNAPSHOTS {
            return Err(Error::os("snapshots", errno::E2BIG));
        }
        let (mut snapshots, mut room) = (BTreeMap::new(), bounds::MAX_SNAPSHOT_BYTES);
        for id in ids {
            match unless(Snapshot::read(io, &oid, id, &mut room).await, errno::ENOENT)? {
                Some(snapshot) => snapshots.insert(id, snapshot),
                None => return Ok(None),
            };
        }
        Ok(Some(Self {
            size: bounds::size(size)?,
            features: features.all,
            op_features: output(&reply, 6)?,
            flags: output(&reply, 2)?,
            snap_seq,
            snapshots,
            parent: spec.pool_id.0.is_some().then_some(Parent { spec, overlap }),
        }))
    }

    /// Whether the image has all of these features.
    pub fn has(&self, features: Features) -> bool {
        self.features.contains(features)
    }

    /// Whether the object map exists and can be relied on.
    pub fn has_valid_map(&self) -> bool {
        self.has(Features::OBJECT_MAP) && !self.flags.contains(ImageFlags::OBJECT_MAP_INVALID)
    }

    /// The snapshots in the order that writes send to OSDs.
    pub(crate) fn snap_context(&self) -> SnapContext {
        SnapContext {
            seq: self.snap_seq,
            snaps: self.snapshots.keys().rev().copied().collect(),
        }
    }

    /// A user's snapshot by its name.
    pub fn user_snapshot(&self, name: &str) -> Option<&Snapshot> {
        self.snapshot(name, &SnapshotNamespace::User)
    }

    /// The users' snapshots, oldest first.
    pub fn user_snapshots(&self) -> impl Iterator<Item = &Snapshot> {
        let is_user = |s: &&Snapshot| s.namespace == SnapshotNamespace::User;
        self.snapshots.values().filter(is_user)
    }

    /// A snapshot by its name and kind.
    pub(crate) fn snapshot(&self, name: &str, namespace: &SnapshotNamespace) -> Option<&Snapshot> {
        // All mirroring snapshots count as one kind, whatever details they hold.
        let are_mirrors = |other: &SnapshotNamespace| {
            matches!(
                (namespace, other),
                (SnapshotNamespace::Mirror(_), SnapshotNamespace::Mirror(_))
            )
        };
        let is_same = |s: &Snapshot| namespace.is_same(&s.namespace) || are_mirrors(&s.namespace);
        let is_it = |s: &&Snapshot| s.name == name && is_same(s);
        self.snapshots.values().find(is_it)
    }

    /// The size of the image or of a snapshot.
    pub(crate) fn size_at(&self, snap: Option<u64>) -> Result<u64> {
        match snap {
            None => Ok(self.size),
            Some(id) => self.at(id).map(|s| s.size),
        }
    }

    /// Bytes of the parent that the image or a snapshot sees.
    pub(crate) fn overlap_at(&self, snap: Option<u64>) -> Result<u64> {
        let overlap = match snap {
            None => self.parent.as_ref().and_then(|p| p.overlap),
            Some(id) => self.at(id)?.parent_overlap,
        };
        Ok(overlap.unwrap_or_default())
    }

    /// Whether the image or a snapshot sees anything of the parent.
    pub(crate) fn parent_is_seen(&self) -> bool {
        let by_head = self.parent.as_ref().is_some_and(|p| p.overlap.is_some());
        by_head || self.snapshots.values().any(|s| s.parent_overlap.is_some())
    }

    fn at(&self, id: u64) -> Result<&Snapshot> {
        self.snapshots
            .get(&id)
            .ok_or(Error::os("snapshot", errno::ENOENT))
    }
}

impl Snapshot {
    /// Reads a snapshot's record. All records together must fit into `room` bytes.
    async fn read(io: &IoCtx, oid: &str, id: u64, room: &mut usize) -> Result<Self> {
        let ops = vec![
            cls::rbd("snapshot_get", &id)?,
            cls::rbd("get_flags", &id)?,
            cls::rbd("get_protection_status", &id)?,
            cls::rbd("parent_overlap_get", &id)?,
        ];
        let reply = io.operate("read snapshot", oid, ops).await?;
        let bytes = reply.outs.iter().map(|(_, out)| out.len()).sum();
        let left = room.checked_sub(bytes);
        *room = left.ok_or(Error::os("snapshots", errno::E2BIG))?;
        let info: SnapshotInfo = output(&reply, 0)?;
        let protection: u8 = output(&reply, 2)?;
        Ok(Self {
            id,
            name: text(&info.name),
            namespace: info.namespace,
            size: bounds::size(info.image_size)?,
            timestamp: info.timestamp,
            children: info.child_count,
            protected: protection != 0,
            flags: output(&reply, 1)?,
            parent_overlap: output(&reply, 3)?,
        })
    }
}
