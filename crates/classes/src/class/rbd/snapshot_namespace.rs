//! Kinds of snapshots: `SnapshotNamespace` of Ceph's `src/cls/rbd/cls_rbd_types.h`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer};
use spirula_maps::PoolId;

/// The kind of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SnapshotNamespace {
    /// A user's snapshot.
    #[default]
    User,
    /// Part of a group's snapshot.
    Group {
        /// The group's pool.
        pool: PoolId,
        /// The group.
        group_id: Bytes,
        /// The group's snapshot.
        group_snapshot_id: Bytes,
    },
    /// A removed snapshot that clones still need.
    Trash {
        /// Its former name.
        original_name: Bytes,
        /// The number of its former kind.
        original_kind: u32,
    },
    /// A mirror snapshot.
    Mirror(MirrorSnapshot),
    /// A kind that is not known here.
    Unknown,
}

/// The mirroring data of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorSnapshot {
    /// The role of the image at the snapshot: primary or not, demoted or not.
    pub state: u8,
    /// Whether the copy of the snapshot is complete.
    pub complete: bool,
    /// The mirror uuids of peers that still have to copy it.
    pub peers: BTreeSet<Bytes>,
    /// The mirror uuid of the primary image's cluster.
    pub primary_mirror_uuid: Bytes,
    /// The primary image's snapshot or, on the primary, the snapshot since which the image was not
    /// written.
    pub primary_snap_id: u64,
    /// The last object that was copied.
    pub last_copied_object_number: u64,
    /// Local snapshots by those of the primary image.
    pub snap_seqs: BTreeMap<u64, u64>,
}

impl MirrorSnapshot {
    /// Whether the snapshot is of a primary image, demoted or not.
    pub fn is_primary(&self) -> bool {
        self.state <= 1
    }
}

const USER: u32 = 0;
const GROUP: u32 = 1;
const TRASH: u32 = 2;
const MIRROR: u32 = 3;

impl SnapshotNamespace {
    /// The number of the kind.
    pub fn kind(&self) -> u32 {
        match self {
            Self::User => USER,
            Self::Group { .. } => GROUP,
            Self::Trash { .. } => TRASH,
            Self::Mirror(_) => MIRROR,
            Self::Unknown => u32::MAX,
        }
    }

    /// Whether the snapshot was removed and clones still need it.
    pub fn is_trash(&self) -> bool {
        matches!(self, Self::Trash { .. })
    }

    /// Whether snapshots of one name and these kinds are the same. Former names of removed ones do
    /// not count.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other || (self.is_trash() && other.is_trash())
    }
}

impl Encode for SnapshotNamespace {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| {
            w.u32(self.kind());
            match self {
                Self::User | Self::Unknown => {}
                Self::Group {
                    pool,
                    group_id,
                    group_snapshot_id,
                } => {
                    w.put(pool);
                    w.put(group_id);
                    w.put(group_snapshot_id);
                }
                Self::Trash {
                    original_name,
                    original_kind,
                } => {
                    w.put(original_name);
                    w.u32(*original_kind);
                }
                Self::Mirror(mirror) => {
                    w.u8(mirror.state);
                    w.bool(mirror.complete);
                    w.put(&mirror.peers);
                    w.put(&mirror.primary_mirror_uuid);
                    w.u64(mirror.primary_snap_id);
                    w.u64(mirror.last_copied_object_number);
                    w.put(&mirror.snap_seqs);
                }
            }
        });
    }
}

impl Decode for SnapshotNamespace {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("SnapshotNamespace", 1, |_, r| {
            Ok(match r.u32()? {
                USER => Self::User,
                GROUP => Self::Group {
                    pool: r.get()?,
                    group_id: r.get()?,
                    group_snapshot_id: r.get()?,
                },
                TRASH => Self::Trash {
                    original_name: r.get()?,
                    original_kind: r.u32()?,
                },
                MIRROR => Self::Mirror(MirrorSnapshot {
                    state: r.u8()?,
                    complete: r.bool()?,
                    peers: r.get()?,
                    primary_mirror_uuid: r.get()?,
                    primary_snap_id: r.u64()?,
                    last_copied_object_number: r.u64()?,
                    snap_seqs: r.get()?,
                }),
                _ => Self::Unknown,
            })
        })
    }
}
