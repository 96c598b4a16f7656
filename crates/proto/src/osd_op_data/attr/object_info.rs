//! An object's info (`object_info_t` in `src/osd/osd_types.{h,cc}`).

use std::collections::BTreeMap;

use spirula_denc::{
    Decode, Encode, EntityAddr, EntityName, Error, Reader, Result, UTime, Writer, at_least, flags, versioned,
};
use spirula_maps::{EVersion, HObject, ReqId, SnapId};

use crate::osd::AllocHintFlags;

flags! {
    /// Flags of an object (`object_info_t::FLAG_*`), in the order in which official tools print
    /// them.
    pub struct ObjectInfoFlags(u32), joined "|" {
        /// No copy is left of the newest version.
        LOST = 0, "lost";
        /// The object does not exist; it is kept for its clones.
        WHITEOUT = 1, "whiteout";
        /// Changed since it was flushed, in a cache tier; every object elsewhere.
        DIRTY = 2, "dirty";
        /// Obsolete.
        USES_TMAP = 8, "uses_tmap";
        /// It may have an omap.
        OMAP = 3, "omap";
        /// The digest of the data is known.
        DATA_DIGEST = 4, "data_digest";
        /// The digest of the omap is known.
        OMAP_DIGEST = 5, "omap_digest";
        /// It stays in the cache tier.
        CACHE_PIN = 6, "cache_pin";
        /// Its data is elsewhere, as its [`Manifest`] says.
        MANIFEST = 7, "manifest";
        /// The object to which it leads counts a reference.
        REDIRECT_HAS_REFERENCE = 9, "redirect_has_reference";
    }
}

versioned! {
    /// A watch of an object.
    #[derive(Copy, Eq)]
    pub struct WatchInfo("watch_info_t", version 4, compat 3, oldest 3) {
        /// The client's number of the watch.
        pub cookie: u64;
        /// Seconds without a ping after which the watch is dropped.
        pub timeout_seconds: u32;
        /// The client's address.
        pub addr: EntityAddr, since 4;
    }

    /// A part of an object that is in another one.
    #[derive(Eq)]
    pub struct ChunkInfo("chunk_info_t", version 1, compat 1) {
        /// The part's place in the other object.
        pub offset: u32;
        /// Its length in bytes.
        pub length: u32;
        /// The other object.
        pub oid: HObject;
        /// `chunk_info_t::FLAG_*`.
        pub flags: u32;
    }
}

/// The place of an object's data, if that is not in the object (`object_manifest_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Manifest {
    /// In the object.
    #[default]
    None,
    /// In this one.
    Redirect(HObject),
    /// In several others, by offset.
    Chunked(BTreeMap<u64, ChunkInfo>),
}

impl Manifest {
    /// The number of the kind (`object_manifest_t::TYPE_*`).
    pub fn kind(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Redirect(_) => 1,
            Self::Chunked(_) => 2,
        }
    }
}

impl Encode for Manifest {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| {
            w.u8(self.kind());
            match self {
                Self::None => {}
                Self::Redirect(target) => w.put(target),
                Self::Chunked(chunks) => w.put(chunks),
            }
        });
    }
}

impl Decode for Manifest {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("object_manifest_t", 1, |_, r| {
            Ok(match r.u8()? {
                0 => Self::None,
                1 => Self::Redirect(r.get()?),
                2 => Self::Chunked(r.get()?),
                _ => return Err(Error::Invalid("object_manifest_t type")),
            })
        })
    }
}

/// The key of a watch: its cookie, and the client.
pub type WatchKey = (u64, EntityName);

/// An object's info.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The object.
    pub soid: HObject,
    /// The log version of the last change.
    pub version: EVersion,
    /// The log version of the change before.
    pub prior_version: EVersion,
    /// The last request that changed the object.
    pub last_reqid: ReqId,
    /// The version that clients see and assert.
    pub user_version: u64,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change, as the client said.
    pub mtime: UTime,
    /// The time of the last change, by the primary's clock.
    pub local_mtime: UTime,
    /// What is true of the object.
    pub flags: ObjectInfoFlags,
    /// The number of CephFS's truncations.
    pub truncate_seq: u64,
    /// The size that the last truncation left.
    pub truncate_size: u64,
    /// The CRC-32C of the data, from -1 on; all bits without
    /// [`ObjectInfoFlags::DATA_DIGEST`].
    pub data_digest: u32,
    /// The CRC-32C of the omap, from -1 on; all bits without [`ObjectInfoFlags::OMAP_DIGEST`].
    pub omap_digest: u32,
    /// The hint of the object's size.
    pub expected_object_size: u64,
    /// The hint of its writes' size.
    pub expected_write_size: u64,
    /// The other hints.
    pub alloc_hint_flags: AllocHintFlags,
    /// The place of the data; encoded only with [`ObjectInfoFlags::MANIFEST`].
    pub manifest: Manifest,
    /// The watches.
    pub watchers: BTreeMap<WatchKey, WatchInfo>,
}

/// An object without any information.
impl Default for ObjectInfo {
    fn default() -> Self {
        Self {
            soid: HObject::min(),
            version: EVersion::ZERO,
            prior_version: EVersion::ZERO,
            last_reqid: ReqId::default(),
            user_version: 0,
            size: 0,
            mtime: UTime::ZERO,
            local_mtime: UTime::ZERO,
            flags: ObjectInfoFlags::empty(),
            truncate_seq: 0,
            truncate_size: 0,
            data_digest: NO_DIGEST,
            omap_digest: NO_DIGEST,
            expected_object_size: 0,
            expected_write_size: 0,
            alloc_hint_flags: AllocHintFlags::empty(),
            manifest: Manifest::None,
            watchers: BTreeMap::new(),
        }
    }
}

const NO_DIGEST: u32 = u32::MAX;

impl ObjectInfo {
    /// Notes the digest of the data.
    pub fn set_data_digest(&mut self, digest: u32) {
        self.flags.insert(ObjectInfoFlags::DATA_DIGEST);
        self.data_digest = digest;
    }

    /// Notes the digest of the omap.
    pub fn set_omap_digest(&mut self, digest: u32) {
        self.flags.insert(ObjectInfoFlags::OMAP_DIGEST);
        self.omap_digest = digest;
    }

    /// The object's locator, as old readers want it.
    fn encode_locator(&self, w: &mut Writer) {
        w.section(6, 3, |w| {
            w.i64(self.soid.pool);
            // Once the preferred OSD.
            w.i32(-1);
            w.put(&self.soid.key);
            w.put(&self.soid.nspace);
            // The PG's hash: none.
            w.i64(-1);
        });
    }

    /// The watches, by client alone: the first of each client, in the order of cookies.
    fn encode_old_watchers(&self, w: &mut Writer) {
        let mut old: BTreeMap<EntityName, WatchInfo> = BTreeMap::new();
        for ((_, name), watch) in &self.watchers {
            old.entry(*name).or_insert(*watch);
        }
        w.put(&old);
    }

    fn decode_fields(version: u8, r: &mut Reader<'_>) -> Result<Self> {
        let mut info = Self {
            soid: r.get()?,
            ..Self::default()
        };
        r.section("object_locator_t", 6, |_, _| Ok(()))?;
        // Once the category.
        r.blob()?;
        info.version = r.get()?;
        info.prior_version = r.get()?;
        info.last_reqid = r.get()?;
        info.size = r.u64()?;
        info.mtime = r.get()?;
        if info.soid.is_head() {
            r.get::<ReqId>()?;
        } else {
            r.get::<Vec<SnapId>>()?;
        }
        info.truncate_seq = r.u64()?;
        info.truncate_size = r.u64()?;
        // Whether it is lost, and the old form of the watchers: newer fields follow.
        r.bool()?;
        r.get::<BTreeMap<EntityName, WatchInfo>>()?;
        info.user_version = r.get::<EVersion>()?.version;
        let uses_tmap = r.bool()?;
        info.watchers = r.get()?;
        info.flags = r.get()?;
        if uses_tmap {
            info.flags.insert(ObjectInfoFlags::USES_TMAP);
        }
        info.local_mtime = r.get()?;
        if version >= 15 {
            info.data_digest = r.u32()?;
            info.omap_digest = r.u32()?;
        } else {
            let digests = ObjectInfoFlags::DATA_DIGEST.with(ObjectInfoFlags::OMAP_DIGEST);
            info.flags.remove(digests);
        }
        if version >= 16 {
            info.expected_object_size = r.u64()?;
            info.expected_write_size = r.u64()?;
            info.alloc_hint_flags = r.get()?;
        }
        if version >= 17 && info.flags.contains(ObjectInfoFlags::MANIFEST) {
            info.manifest = r.get()?;
        }
        Ok(info)
    }
}

impl Encode for ObjectInfo {
    fn encode(&self, w: &mut Writer) {
        w.section(17, 8, |w| {
            w.put(&self.soid);
            self.encode_locator(w);
            // Once the category.
            w.u32(0);
            w.put(&self.version);
            w.put(&self.prior_version);
            w.put(&self.last_reqid);
            w.u64(self.size);
            w.put(&self.mtime);
            // Once the holder of a lock, and a clone's snapshots.
            if self.soid.is_head() {
                w.put(&ReqId::default());
            } else {
                w.u32(0);
            }
            w.u64(self.truncate_seq);
            w.u64(self.truncate_size);
            w.bool(self.flags.contains(ObjectInfoFlags::LOST));
            self.encode_old_watchers(w);
            w.put(&EVersion {
                version: self.user_version,
                ..EVersion::ZERO
            });
            w.bool(self.flags.contains(ObjectInfoFlags::USES_TMAP));
            w.put(&self.watchers);
            w.put(&self.flags);
            w.put(&self.local_mtime);
            w.u32(self.data_digest);
            w.u32(self.omap_digest);
            w.u64(self.expected_object_size);
            w.u64(self.expected_write_size);
            w.put(&self.alloc_hint_flags);
            if self.flags.contains(ObjectInfoFlags::MANIFEST) {
                w.put(&self.manifest);
            }
        });
    }
}

/// Versions from Firefly on are read.
impl Decode for ObjectInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("object_info_t", 17, |version, r| {
            at_least("object_info_t", version, 14)?;
            Self::decode_fields(version, r)
        })
    }
}
