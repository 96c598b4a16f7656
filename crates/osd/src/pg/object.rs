//! The metadata that is stored with an object: the object info, and the attributes.
//!
//! The contents follow Ceph's `object_info_t` (`src/osd/osd_types.h`); the encoding is ours.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Reader, Result, UTime, Writer, decode_all, flags};
use spirula_maps::{EVersion, Epoch, SnapId};
use spirula_proto::osd::AllocHintFlags;

use super::digests::Digests;
use super::number::{number, put_number, small};
use super::snaps::set::{SnapSet, decode_ids, encode_ids};
use super::txn::ObjectOp;
use super::watch::watchers::Watchers;

/// Version of the encoding of [`ObjectInfo`], its first byte.
///
/// 1: a versioned section with fields of fixed width. 2: numbers in seven-bit groups, least first,
/// without a section: every object in the store's index has one, and most fields are small or zero.
/// 3: what was 0 or 1 for hints that are or are not there is a byte of bits, one for each part that
/// few objects have; [`WHITEOUT`] may be added to the version. A reader refuses parts that it does not
/// know: release 0.1.0 knows those up to a clone's snapshots, and is sent no others
/// ([`ObjectInfo::without_digests`]).
const VERSION: u8 = 3;

/// Added to the version of a whiteout's info.
const WHITEOUT: u8 = 0x80;

flags! {
    /// The parts that few objects have, in the order in which they follow.
    struct InfoParts(u8), joined ", " {
        /// Truncation and allocation hints.
        HINTS = 0, "hints";
        /// Watchers.
        WATCHERS = 1, "watchers";
        /// A head's clones.
        SNAP_SET = 2, "snap set";
        /// A clone's snapshots.
        SNAPS = 3, "snaps";
        /// The digest of the data.
        DATA_DIGEST = 4, "data digest";
        /// The digest of the omap.
        OMAP_DIGEST = 5, "omap digest";
    }

    /// Flags of an object (`object_info_t::FLAG_*`).
    pub struct ObjectFlags(u32), joined "|" {
        /// The object may have an omap; without the flag there is none.
        OMAP = 3, "omap";
    }
}

impl InfoParts {
    /// All known parts.
    const ALL: Self = Self(0x3f);
}

/// An object's attributes by name.
pub type Attrs = BTreeMap<Bytes, Bytes>;

/// An object as the store has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredObject {
    /// The encoded object info.
    pub info: Bytes,
    /// Its attributes.
    pub attrs: Attrs,
    /// The bytes of data that the store has of it.
    pub size: u64,
}

impl StoredObject {
    /// The bytes that it takes.
    pub(super) fn len(&self) -> usize {
        self.info.len() + self.attrs.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>()
    }
}

/// A client's hint for an object's allocation (`SETALLOCHINT`). It is kept, but not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocHint {
    /// The expected size of the object, in bytes.
    pub object_size: u64,
    /// The expected size of its writes, in bytes.
    pub write_size: u64,
    /// What else is expected.
    pub flags: AllocHintFlags,
}

/// An object's info.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectInfo {
    /// The object's size in bytes.
    pub size: u64,
    /// When the object was last changed, as the client said.
    pub mtime: UTime,
    /// When the object was last changed, by the primary's clock.
    pub local_mtime: UTime,
    /// The log version of the last change.
    pub version: EVersion,
    /// The log version of the change before.
    pub prior_version: EVersion,
    /// The version that clients see and assert.
    pub user_version: u64,
    /// The number of CephFS's truncations.
    pub truncate_seq: u32,
    /// The size that the last truncation left.
    pub truncate_size: u64,
    /// The flags.
    pub flags: ObjectFlags,
    /// The clients' allocation hint.
    pub hint: AllocHint,
    /// The object's watchers.
    pub watchers: Watchers,
    /// The clones, of a head.
    pub snap_set: SnapSet,
    /// The snapshots that a clone stands for. The head's `SnapSet` has them too; here they are for
    /// code that has only the clone.
    pub snaps: Vec<SnapId>,
    /// Whether the object is removed, and only kept for its clones.
    pub whiteout: bool,
    /// What data and omap are to be like.
    pub digests: Digests,
}

impl Encode for ObjectInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(if self.whiteout {
            VERSION | WHITEOUT
        } else {
            VERSION
        });
        put_number(w, self.size);
        w.put(&self.mtime);
        w.put(&self.local_mtime);
        for v in [self.version, self.prior_version] {
            put_number(w, v.version);
            put_number(w, u64::from(v.epoch));
        }
        put_number(w, self.user_version);
        let hints = [
            u64::from(self.truncate_seq),
            self.truncate_size,
            u64::from(self.flags.0),
            self.hint.object_size,
            self.hint.write_size,
            u64::from(self.hint.flags.0),
        ];
        let has_hints = hints.iter().any(|n| *n != 0);
        let mut parts = InfoParts::empty();
        if has_hints {
            parts.insert(InfoParts::HINTS);
        }
        if !self.watchers.is_empty() {
            parts.insert(InfoParts::WATCHERS);
        }
        if !self.snap_set.is_empty() {
            parts.insert(InfoParts::SNAP_SET);
        }
        if !self.snaps.is_empty() {
            parts.insert(InfoParts::SNAPS);
        }
        let digests = [
            (InfoParts::DATA_DIGEST, self.digests.data),
            (InfoParts::OMAP_DIGEST, self.digests.omap),
        ];
        for (part, _) in digests.iter().filter(|(_, digest)| digest.is_some()) {
            parts.insert(*part);
        }
        w.put(&parts);
        if has_hints {
            hints.iter().for_each(|n| put_number(w, *n));
        }
        if !self.watchers.is_empty() {
            self.watchers.encode(w);
        }
        if !self.snap_set.is_empty() {
            w.put(&self.snap_set);
        }
        if !self.snaps.is_empty() {
            encode_ids(w, &self.snaps);
        }
        digests
            .iter()
            .filter_map(|(_, digest)| *digest)
            .for_each(|d| w.u32(d));
    }
}

impl Decode for ObjectInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.clone().u8()? {
            1 => Self::decode_v1(r),
            version if matches!(version & !WHITEOUT, 2 | VERSION) => {
                r.u8()?;
                Ok(Self {
                    whiteout: version & WHITEOUT != 0,
                    ..Self::decode_compact(r)?
                })
            }
            compat => Err(Error::TooNew {
                what: "object info",
                compat,
                known: VERSION,
            }),
        }
    }
}

impl ObjectInfo {
    fn decode_compact(r: &mut Reader<'_>) -> Result<Self> {
        let version = |r: &mut Reader<'_>| {
            let version = number(r)?;
            Ok(EVersion::new(Epoch::new(small(r)?), version))
        };
        let mut info = Self {
            size: number(r)?,
            mtime: r.get()?,
            local_mtime: r.get()?,
            version: version(r)?,
            prior_version: version(r)?,
            user_version: number(r)?,
            ..Self::default()
        };
        let parts: InfoParts = r.get()?;
        if !InfoParts::ALL.contains(parts) {
            return Err(Error::Invalid("parts of an object info"));
        }
        if parts.contains(InfoParts::HINTS) {
            info.truncate_seq = small(r)?;
            info.truncate_size = number(r)?;
            info.flags = ObjectFlags(small(r)?);
            info.hint.object_size = number(r)?;
            info.hint.write_size = number(r)?;
            info.hint.flags = AllocHintFlags(small(r)?);
        }
        if parts.contains(InfoParts::WATCHERS) {
            info.watchers = Watchers::decode(r)?;
        }
        if parts.contains(InfoParts::SNAP_SET) {
            info.snap_set = r.get()?;
        }
        if parts.contains(InfoParts::SNAPS) {
            info.snaps = decode_ids(r)?;
        }
        if parts.contains(InfoParts::DATA_DIGEST) {
            info.digests.data = Some(r.u32()?);
        }
        if parts.contains(InfoParts::OMAP_DIGEST) {
            info.digests.omap = Some(r.u32()?);
        }
        Ok(info)
    }

    fn decode_v1(r: &mut Reader<'_>) -> Result<Self> {
        r.section("object info", 1, |_, r| {
            Ok(Self {
                size: r.u64()?,
                mtime: r.get()?,
                local_mtime: r.get()?,
                version: r.get()?,
                prior_version: r.get()?,
                user_version: r.u64()?,
                truncate_seq: r.u32()?,
                truncate_size: r.u64()?,
                flags: r.get()?,
                hint: AllocHint {
                    object_size: r.u64()?,
                    write_size: r.u64()?,
                    flags: r.get()?,
                },
                ..Self::default()
            })
        })
    }
}

impl ObjectInfo {
    /// Whether there may be an omap.
    pub fn has_omap(&self) -> bool {
        self.flags.contains(ObjectFlags::OMAP)
    }

    /// An encoded info as release 0.1.0 understands it.
    pub fn without_digests(info: &Bytes) -> Bytes {
        match decode_all::<Self>(info) {
            Ok(known) if known.digests != Digests::default() => Self {
                digests: Digests::default(),
                ..known
            }
            .to_bytes(),
            _ => info.clone(),
        }
    }

    /// The encoded info.
    pub fn to_bytes(&self) -> Bytes {
        let mut w = Writer::with_capacity(48);
        w.put(self);
        w.into_vec().into()
    }
}

/// The ops that remove an object of a copy, with the records of a clone.
pub(super) fn removal(info: &[u8]) -> Vec<ObjectOp> {
    let mut ops = vec![ObjectOp::Remove];
    ops.extend(forget_clone(info));
    ops
}

/// The op that removes the records of the snapshots that a clone with this encoded info stands for;
/// `None` if there are none.
pub(super) fn forget_clone(info: &[u8]) -> Option<ObjectOp> {
    let remove = decode_all::<ObjectInfo>(info).unwrap_or_default().snaps;
    let add = Vec::new();
    (!remove.is_empty()).then_some(ObjectOp::NoteSnaps { add, remove })
}

#[cfg(test)]
mod tests {
    use spirula_denc::{EntityName, EntityType, decode_all};

    use super::*;
    use crate::pg::watch::watchers::Watcher;

    fn infos() -> [ObjectInfo; 9] {
        let usual = ObjectInfo {
            size: 4096,
            mtime: UTime {
                sec: 1_700_000_000,
                nsec: 5,
            },
            local_mtime: UTime {
                sec: 1_700_000_001,
                nsec: 6,
            },
            version: EVersion::new(Epoch::new(12), 3456),
            user_version: 3456,
            ..ObjectInfo::default()
        };
        let extreme = ObjectInfo {
            size: u64::MAX,
            prior_version: EVersion::new(Epoch::MAX, u64::MAX),
            truncate_seq: u32::MAX,
            truncate_size: u64::MAX,
            flags: ObjectFlags(1),
            hint: AllocHint {
                object_size: 1 << 63,
                write_size: 127,
                flags: AllocHintFlags(128),
            },
            ..usual.clone()
        };
        let mut watched = usual.clone();
        let name = |n| EntityName::new(EntityType::CLIENT, n);
        for (cookie, n) in [(1, 4100), (u64::MAX, 1), (1, i64::MAX)] {
            let addr = "v2:10.0.0.1:0/77".parse().unwrap();
            watched
                .watchers
                .insert((cookie, name(n)), Watcher { addr, timeout: 30 });
        }
        let clone = ObjectInfo {
            snaps: vec![7, 3],
            ..usual.clone()
        };
        let whiteout = ObjectInfo {
            whiteout: true,
            snap_set: SnapSet {
                seq: 7,
                ..SnapSet::default()
            },
            ..usual.clone()
        };
        let with = |data, omap| ObjectInfo {
            digests: Digests { data, omap },
            ..clone.clone()
        };
        let digests = [(Some(7), None), (None, Some(u32::MAX)), (Some(0), Some(1))].map(|(d, o)| with(d, o));
        let [data, omap, both] = digests;
        let usual = [ObjectInfo::default(), usual, extreme, watched, clone, whiteout];
        let mut all = usual.into_iter().chain([data, omap, both]);
        std::array::from_fn(|_| all.next().unwrap())
    }

    #[test]
    fn infos_round_trip_are_short_and_cut_ones_are_refused() {
        for info in infos() {
            let bytes = info.to_bytes();
            assert_eq!(decode_all::<ObjectInfo>(&bytes).unwrap(), info);
            for cut in 0..bytes.len() {
                assert!(decode_all::<ObjectInfo>(&bytes[..cut]).is_err());
            }
        }
        assert!(infos()[1].to_bytes().len() < 32);
        let too_long = [[2].as_slice(), &[0xff; 10]].concat();
        assert!(decode_all::<ObjectInfo>(&too_long).is_err());
    }

    #[test]
    fn the_second_version_is_read_and_unknown_parts_are_refused() {
        for info in &infos()[..3] {
            let mut bytes = info.to_bytes().to_vec();
            bytes[0] = 2;
            assert_eq!(decode_all::<ObjectInfo>(&bytes).as_ref(), Ok(info));
        }
        let mut bytes = infos()[0].to_bytes().to_vec();
        *bytes.last_mut().unwrap() = 0x40;
        assert!(decode_all::<ObjectInfo>(&bytes).is_err());
    }

    #[test]
    fn the_release_before_gets_no_digests() {
        for info in infos() {
            let bytes = ObjectInfo::without_digests(&info.to_bytes());
            let digests = Digests::default();
            assert_eq!(
                decode_all::<ObjectInfo>(&bytes),
                Ok(ObjectInfo { digests, ..info })
            );
        }
        let unsound = Bytes::from_static(b"?");
        assert_eq!(ObjectInfo::without_digests(&unsound), unsound);
    }

    #[test]
    fn the_first_version_is_read() {
        let info = infos()[2].clone();
        let mut w = Writer::new();
        w.section(1, 1, |w| {
            w.u64(info.size);
            w.put(&info.mtime);
            w.put(&info.local_mtime);
            w.put(&info.version);
            w.put(&info.prior_version);
            w.u64(info.user_version);
            w.u32(info.truncate_seq);
            w.u64(info.truncate_size);
            w.put(&info.flags);
            w.u64(info.hint.object_size);
            w.u64(info.hint.write_size);
            w.put(&info.hint.flags);
        });
        assert_eq!(decode_all::<ObjectInfo>(w.as_slice()).unwrap(), info);
    }
}
