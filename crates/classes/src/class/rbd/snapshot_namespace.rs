//! Whose a snapshot is: `SnapshotNamespace` of Ceph's `src/cls/rbd/cls_rbd_types.h`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer};

/// Whose a snapshot is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SnapshotNamespace {
    /// A user's.
    #[default]
    User,
    /// A group's.
    Group {
        /// The group's pool.
        pool: i64,
        /// The group.
        group_id: Bytes,
        /// Its snapshot, of which this is a part.
        group_snapshot_id: Bytes,
    },
    /// Nobody's but its clones': it was removed.
    Trash {
        /// What it was called.
        original_name: Bytes,
        /// The number of the kind that it was.
        original_kind: u32,
    },
    /// That of mirroring.
    Mirror(MirrorSnapshot),
    /// Unknown here.
    Unknown,
}

/// What mirroring knows of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorSnapshot {
    /// Whether the image is the primary one, and is no more.
    pub state: u8,
    /// Whether it was copied as a whole.
    pub complete: bool,
    /// The peers that have yet to copy it.
    pub peers: BTreeSet<Bytes>,
    /// The cluster of the primary image.
    pub primary_mirror_uuid: Bytes,
    /// The primary image's snapshot or, on the primary, the one since which nothing was written.
    pub primary_snap_id: u64,
    /// How far the copy is.
    pub last_copied_object_number: u64,
    /// The primary image's snapshots and those that they are here.
    pub snap_seqs: BTreeMap<u64, u64>,
}

impl MirrorSnapshot {
    /// Whether it is one of the primary image, demoted or not.
    pub fn is_primary(&self) -> bool {
        self.state <= 1
    }
}

const USER: u32 = 0;
const GROUP: u32 = 1;
const TRASH: u32 = 2;
const MIRROR: u32 = 3;

impl SnapshotNamespace {
    /// The number of its kind.
    pub fn kind(&self) -> u32 {
        match self {
            Self::User => USER,
            Self::Group { .. } => GROUP,
            Self::Trash { .. } => TRASH,
            Self::Mirror(_) => MIRROR,
            Self::Unknown => u32::MAX,
        }
    }

    /// Whether it was removed and clones keep it.
    pub fn is_trash(&self) -> bool {
        matches!(self, Self::Trash { .. })
    }

    /// Whether two snapshots of one name in these are the same. What removed ones were called does not count.
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
                    w.i64(*pool);
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
                    pool: r.i64()?,
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
