//! What a scrub found: input and output of `SCRUBLS` (`src/common/scrub_types.{h,cc}`,
//! `src/include/rados/rados_types.hpp`).
//!
//! `SCRUBLS` is an operation on a PG, as listings are. Ceph's primary answers from what its last
//! scrub wrote down (`PrimaryLogPG::do_scrub_ls`, `PrimaryLogScrub::get_store_errors`):
//!
//! - `EINVAL`, if the input cannot be decoded, or the request was sent to a PG that is not this one.
//! - `EAGAIN`, if the input names an interval ([`ScrubLsArg::interval`]) and it is not the current
//!   one (`same_interval_since` of the PG's history).
//! - `ENOENT`, if no scrub began in this interval under this primary.
//! - Else 0 and a [`ScrubLsResult`], empty if the scrub found nothing. Refused requests have no
//!   output.
//!
//! Ceph begins its notes anew when a scrub begins, and adds to them while it goes on. A repair
//! leaves them empty, whether it mended everything or not.
//!
//! No client hears of `EAGAIN`: objecters, official ones too, send the request again for as long as
//! that is the answer. So the official tool hangs if an interval ends between two of its pages; and
//! it aborts if the second page has another interval than the first.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Result, Writer, encode_to_vec, flags, versioned};
use spirula_maps::{Epoch, ObjectName, PgShard, SnapId, snap};

flags! {
    /// What is wrong with one copy or shard of an object (`err_t`), in the order in which official
    /// tools print it.
    pub struct ShardErrors(u64), joined "," {
        /// The object is not there. Nothing else is told of such a copy.
        SHARD_MISSING = 1, "missing";
        /// Size and attributes cannot be read.
        SHARD_STAT_ERR = 2, "stat_error";
        /// Data or omap cannot be read.
        SHARD_READ_ERR = 3, "read_error";
        /// The data's digest is not that of the selected object info.
        DATA_DIGEST_MISMATCH_INFO = 9, "data_digest_mismatch_info";
        /// The omap's digest is not that of the selected object info.
        OMAP_DIGEST_MISMATCH_INFO = 10, "omap_digest_mismatch_info";
        /// The size is not that of the selected object info.
        SIZE_MISMATCH_INFO = 11, "size_mismatch_info";
        /// The shard's data has another hash than its hash info says.
        SHARD_EC_HASH_MISMATCH = 12, "ec_hash_error";
        /// The shard has another size than its hash info says.
        SHARD_EC_SIZE_MISMATCH = 13, "ec_size_error";
        /// There is no object info.
        INFO_MISSING = 14, "info_missing";
        /// The object info cannot be decoded.
        INFO_CORRUPTED = 15, "info_corrupted";
        /// The size is not that of the copy's own object info.
        OBJ_SIZE_INFO_MISMATCH = 18, "obj_size_info_mismatch";
        /// A head has no snap set.
        SNAPSET_MISSING = 16, "snapset_missing";
        /// A head's snap set cannot be decoded.
        SNAPSET_CORRUPTED = 17, "snapset_corrupted";
        /// An erasure-coded shard has no hash info.
        HINFO_MISSING = 19, "hinfo_missing";
        /// The hash info cannot be decoded.
        HINFO_CORRUPTED = 20, "hinfo_corrupted";
    }

    /// In which ways the copies of an object differ (`obj_err_t`), in the order in which official
    /// tools print it.
    pub struct ObjectErrors(u64), joined "," {
        /// In their object infos.
        OBJECT_INFO_INCONSISTENCY = 1, "object_info_inconsistency";
        /// In their data.
        DATA_DIGEST_MISMATCH = 4, "data_digest_mismatch";
        /// In their omaps.
        OMAP_DIGEST_MISMATCH = 5, "omap_digest_mismatch";
        /// In their sizes.
        SIZE_MISMATCH = 6, "size_mismatch";
        /// In the value of an attribute.
        ATTR_VALUE_MISMATCH = 7, "attr_value_mismatch";
        /// In which attributes there are.
        ATTR_NAME_MISMATCH = 8, "attr_name_mismatch";
        /// In their snap sets.
        SNAPSET_INCONSISTENCY = 9, "snapset_inconsistency";
        /// In their hash infos.
        HINFO_INCONSISTENCY = 10, "hinfo_inconsistency";
        /// Not at all: the object is larger than `osd_max_object_size`.
        SIZE_TOO_LARGE = 11, "size_too_large";
    }

    /// What is wrong between a head and its clones (`inconsistent_snapset_t`), in the order in
    /// which official tools print it.
    pub struct SnapSetErrors(u64), joined "," {
        /// The head has no snap set.
        SNAPSET_MISSING = 0, "snapset_missing";
        /// The head's snap set cannot be decoded.
        SNAPSET_CORRUPTED = 1, "snapset_corrupted";
        /// The object has no object info.
        INFO_MISSING = 7, "info_missing";
        /// The object info cannot be decoded.
        INFO_CORRUPTED = 8, "info_corrupted";
        /// The snap set contradicts itself.
        SNAP_ERROR = 3, "snapset_error";
        /// A clone without a head.
        HEADLESS_CLONE = 5, "headless";
        /// A clone's size is not that of the snap set, or an object's not that of its info.
        SIZE_MISMATCH = 6, "size_mismatch";
        /// There are clones of which the snap set does not know.
        EXTRA_CLONES = 9, "extra_clones";
        /// Clones of the snap set are not there.
        CLONE_MISSING = 2, "clone_missing";
    }
}

impl ShardErrors {
    /// The errors that a scrub finds without reading data and omap.
    pub const SHALLOW: Self = Self(
        Self::SHARD_MISSING.0
            | Self::SHARD_STAT_ERR.0
            | Self::SIZE_MISMATCH_INFO.0
            | Self::INFO_MISSING.0
            | Self::INFO_CORRUPTED.0
            | Self::SNAPSET_MISSING.0
            | Self::SNAPSET_CORRUPTED.0
            | Self::OBJ_SIZE_INFO_MISMATCH.0
            | Self::HINFO_MISSING.0
            | Self::HINFO_CORRUPTED.0,
    );

    /// The errors that only a deep scrub finds.
    pub const DEEP: Self = Self(
        Self::SHARD_READ_ERR.0
            | Self::DATA_DIGEST_MISMATCH_INFO.0
            | Self::OMAP_DIGEST_MISMATCH_INFO.0
            | Self::SHARD_EC_HASH_MISMATCH.0
            | Self::SHARD_EC_SIZE_MISMATCH.0,
    );
}

impl ObjectErrors {
    /// The differences that only a deep scrub finds. All others are shallow.
    pub const DEEP: Self = Self(Self::DATA_DIGEST_MISMATCH.0 | Self::OMAP_DIGEST_MISMATCH.0);
}

versioned! {
    /// An object, or a clone of one.
    #[derive(Eq, Hash)]
    pub struct ObjectId("object_id_t", version 1, compat 1) {
        /// Its name.
        pub name: ObjectName;
        /// Its namespace.
        pub nspace: ObjectName;
        /// Its locator key.
        pub locator: ObjectName;
        /// The clone; [`snap::NOSNAP`] for the head.
        pub snap: SnapId;
    }

    /// Input of `SCRUBLS`.
    #[derive(Eq)]
    pub struct ScrubLsArg("scrub_ls_arg_t", version 1, compat 1) {
        /// The interval in which the listing began, as the first [`ScrubLsResult`] told it; none
        /// to begin one.
        pub interval: Epoch;
        /// Whether [`InconsistentSnapSet`]s are wanted, not [`InconsistentObject`]s.
        pub get_snapsets: bool, via number;
        /// The last object of the page before; begin where its name is empty. The locator is not
        /// sent.
        pub start_after: ObjectId, via without_locator;
        /// Most entries wanted. Clients ask for 32, and go on if they get as many.
        pub max_return: u64;
    }

    /// Output of `SCRUBLS`.
    #[derive(Eq)]
    pub struct ScrubLsResult("scrub_ls_result_t", version 1, compat 1) {
        /// The PG's interval: the epoch in which it began.
        pub interval: Epoch;
        /// [`InconsistentObject`]s or [`InconsistentSnapSet`]s, each encoded, in the order of
        /// [`ObjectId::listing_key`].
        pub vals: Vec<Bytes>;
    }

    /// An object whose copies are not as they should be.
    #[derive(Eq)]
    pub struct InconsistentObject("inconsistent_obj_t", version 2, compat 2, oldest 2) {
        /// How the copies differ.
        pub errors: ObjectErrors;
        /// The object.
        pub object: ObjectId;
        /// The user version of the selected copy; 0 if none could be selected.
        pub version: u64;
        /// All copies or shards.
        pub shards: BTreeMap<PgShard, ShardInfo>;
        /// The errors of all of them.
        pub union_shards: ShardErrors;
    }

    /// A head that does not fit its clones, or a clone that does not fit its head.
    #[derive(Eq)]
    pub struct InconsistentSnapSet("inconsistent_snapset_t", version 2, compat 1) {
        /// What is wrong.
        pub errors: SnapSetErrors;
        /// The object.
        pub object: ObjectId;
        /// With [`SnapSetErrors::EXTRA_CLONES`]: the clones of which the snap set does not know.
        pub clones: Vec<SnapId>;
        /// With [`SnapSetErrors::CLONE_MISSING`]: the clones that are not there.
        pub missing: Vec<SnapId>;
        /// A head's encoded [`SnapSet`](super::attr::SnapSet); empty if there is none.
        pub ss_bl: Bytes, since 2;
    }
}

/// A truth value in the place of a `u32`.
mod number {
    use super::{Reader, Result, Writer};

    pub(super) fn encode(flag: &bool, w: &mut Writer) {
        w.u32(u32::from(*flag));
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<bool> {
        Ok(r.u32()? != 0)
    }
}

/// The fields of an object id but its locator, without a section.
mod without_locator {
    use super::{ObjectId, ObjectName, Reader, Result, Writer};

    pub(super) fn encode(id: &ObjectId, w: &mut Writer) {
        w.put(&id.name);
        w.put(&id.nspace);
        w.u64(id.snap);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<ObjectId> {
        Ok(ObjectId {
            name: r.get()?,
            nspace: r.get()?,
            locator: ObjectName::EMPTY,
            snap: r.u64()?,
        })
    }
}

impl ObjectId {
    /// The key under which Ceph's primary notes the object, after a prefix that all objects of a PG
    /// share (`to_object_key` and `to_snap_key` in `src/osd/scrubber/ScrubStore.cc`,
    /// `hobject_t::to_str`). Entries are listed in the order of their keys: clones before heads,
    /// by the hexadecimal text of their ids, and then by name, locator and namespace. A listing
    /// goes on behind the key of [`ScrubLsArg::start_after`].
    pub fn listing_key(&self) -> Vec<u8> {
        let mut key = snap::Display(self.snap).to_string().into_bytes();
        for part in [&self.name, &self.locator, &self.nspace] {
            key.push(b'.');
            for byte in part.as_bytes() {
                match byte {
                    b'%' => key.extend(b"%p"),
                    b'.' => key.extend(b"%e"),
                    b'_' => key.extend(b"%u"),
                    byte => key.push(*byte),
                }
            }
        }
        key
    }
}

impl ScrubLsResult {
    /// The answer that holds these entries.
    pub fn new<T: Encode>(interval: Epoch, found: &[T]) -> Self {
        Self {
            interval,
            vals: found.iter().map(|v| encode_to_vec(v).into()).collect(),
        }
    }

    /// The decoded entries: of the kind that was asked for.
    ///
    /// # Errors
    /// Where an entry is none of this kind.
    pub fn entries<T: Decode>(&self) -> Result<Vec<T>> {
        self.vals.iter().map(|v| Reader::new(v).get()).collect()
    }
}

impl InconsistentObject {
    /// Notes a copy with its errors.
    pub fn insert(&mut self, member: PgShard, shard: ShardInfo) {
        self.union_shards.insert(shard.errors);
        self.shards.insert(member, shard);
    }
}

/// One copy or shard of an inconsistent object (`shard_info_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardInfo {
    /// What is wrong with it. With [`ShardErrors::SHARD_MISSING`] only this and `primary` are
    /// encoded.
    pub errors: ShardErrors,
    /// Whether the primary has it.
    pub primary: bool,
    /// All its attributes, under the names of [`attr`](super::attr).
    pub attrs: BTreeMap<Bytes, Bytes>,
    /// Its size in bytes.
    pub size: u64,
    /// The CRC-32C of its omap, from -1 on, if the scrub was deep.
    pub omap_digest: Option<u32>,
    /// The CRC-32C of its data, from -1 on, if the scrub was deep.
    pub data_digest: Option<u32>,
    /// Whether its object info is the one to which all copies are held.
    pub selected_oi: bool,
}

impl Default for ShardInfo {
    fn default() -> Self {
        Self {
            errors: ShardErrors::empty(),
            primary: false,
            attrs: BTreeMap::new(),
            size: u64::MAX,
            omap_digest: None,
            data_digest: None,
            selected_oi: false,
        }
    }
}

impl ShardInfo {
    fn is_missing(&self) -> bool {
        self.errors.contains(ShardErrors::SHARD_MISSING)
    }
}

/// A digest behind whether there is one.
fn encode_digest(w: &mut Writer, digest: Option<u32>) {
    w.bool(digest.is_some());
    w.u32(digest.unwrap_or_default());
}

fn decode_digest(r: &mut Reader<'_>) -> Result<Option<u32>> {
    let (present, digest) = (r.bool()?, r.u32()?);
    Ok(present.then_some(digest))
}

impl Encode for ShardInfo {
    fn encode(&self, w: &mut Writer) {
        w.section(3, 3, |w| {
            w.put(&self.errors);
            w.bool(self.primary);
            if self.is_missing() {
                return;
            }
            w.put(&self.attrs);
            w.u64(self.size);
            encode_digest(w, self.omap_digest);
            encode_digest(w, self.data_digest);
            w.bool(self.selected_oi);
        });
    }
}

impl Decode for ShardInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("shard_info_t", 3, |_, r| {
            let shard = Self {
                errors: r.get()?,
                primary: r.bool()?,
                ..Self::default()
            };
            if shard.is_missing() {
                return Ok(shard);
            }
            Ok(Self {
                attrs: r.get()?,
                size: r.u64()?,
                omap_digest: decode_digest(r)?,
                data_digest: decode_digest(r)?,
                selected_oi: r.bool()?,
                ..shard
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::decode_all;
    use spirula_maps::OsdId;

    use super::*;

    fn object(name: &'static str, nspace: &'static str, locator: &'static str, snap: SnapId) -> ObjectId {
        let [name, nspace, locator] = [name, nspace, locator].map(ObjectName::from_static);
        ObjectId {
            name,
            nspace,
            locator,
            snap,
        }
    }

    /// As an OSD of 16.2.15 listed them.
    #[test]
    fn objects_are_listed_in_the_official_order() {
        let clones = [1, 17, 9, 15].map(|id| [object("a", "", "", id), object("bc", "", "", id)]);
        let heads = [
            ("B", "", ""),
            ("a", "", ""),
            ("a", "z", ""),
            ("b c", "", ""),
            ("b.c", "", ""),
            ("b%c", "", ""),
            ("b_c", "", ""),
            ("bc", "", ""),
            ("bc", "a", ""),
            ("b~c", "", ""),
            ("ml1", "", "l1"),
            ("ml2", "", "l2"),
        ];
        let heads = heads.map(|(name, nspace, locator)| object(name, nspace, locator, snap::NOSNAP));
        let keys = clones.iter().flatten().chain(&heads).map(ObjectId::listing_key);
        assert!(keys.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn of_a_missing_copy_nothing_else_is_told() {
        let shard = ShardInfo {
            errors: ShardErrors::SHARD_MISSING,
            primary: true,
            attrs: [(super::super::attr::SNAP_SET, Bytes::from("set"))].into(),
            ..ShardInfo::default()
        };
        let told = ShardInfo {
            attrs: BTreeMap::new(),
            ..shard.clone()
        };
        assert_eq!(decode_all(&encode_to_vec(&shard)), Ok(told));
        let mut object = InconsistentObject::default();
        let member = |osd| PgShard {
            osd: OsdId::new(osd),
            shard: -1,
        };
        object.insert(member(1), shard);
        let digest = ShardInfo {
            errors: ShardErrors::DATA_DIGEST_MISMATCH_INFO,
            ..ShardInfo::default()
        };
        object.insert(member(0), digest);
        assert_eq!(
            object.union_shards.to_string(),
            "missing,data_digest_mismatch_info"
        );
    }
}
