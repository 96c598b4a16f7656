//! The encoding of a full map.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Fsid, Reader, Result, Writer};

use super::frame::{self, by_addr};
use super::{CrushBlob, OsdMap, OsdMapFlags};
use crate::codec::section_of;
use crate::features::release;
use crate::types::PoolId;

// Nautilus' sections are the oldest that have everything which is needed.

section_of! {
    impl OsdMap("OSDMap for clients", version 9, compat 1, oldest 8) {
        fn encode_client, fn decode_client;
        fsid;
        epoch;
        created;
        modified;
        pools;
        pool_names;
        pool_max, via largest_pool;
        flags;
        max_osd;
        osd_state;
        osd_weight;
        client_addrs;
        pg_temp;
        primary_temp;
        primary_affinity, via affinity;
        crush, via crush_blob;
        erasure_code_profiles;
        pg_upmap;
        pg_upmap_items;
        crush_version;
        new_removed_snaps;
        new_purged_snaps;
        last_up_change, since 9;
        last_in_change, since 9;
    }
}

section_of! {
    impl OsdMap("OSDMap for OSDs", version 9, compat 1, oldest 7) {
        fn encode_osd, fn decode_osd;
        hb_back_addrs;
        osd_info;
        blocklist, via by_addr;
        cluster_addrs;
        cluster_snapshot_epoch;
        cluster_snapshot;
        osd_uuid;
        osd_xinfo;
        hb_front_addrs;
        nearfull_ratio;
        full_ratio;
        backfillfull_ratio;
        require_min_compat_client;
        require_osd_release;
        removed_snaps_queue;
        crush_node_flags, since 8;
        device_class_flags, since 9;
    }
    if has_later_parts, version 11 {
        stretch, since 10;
        range_blocklist, since 11;
    }
}

impl OsdMap {
    /// Whether there is something that official daemons write only where they need it, as older
    /// ones can't read it.
    fn has_later_parts(&self) -> bool {
        self.stretch.enabled || !self.range_blocklist.is_empty()
    }
}

/// Primary affinities: an empty table where none was ever set.
mod affinity {
    use super::*;

    pub(super) fn encode(table: &Option<Vec<u32>>, w: &mut Writer) {
        w.put(table.as_deref().unwrap_or_default());
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Option<Vec<u32>>> {
        let table: Vec<u32> = r.get()?;
        Ok((!table.is_empty()).then_some(table))
    }
}

/// The CRUSH map inside a byte string.
mod crush_blob {
    use super::*;

    pub(super) fn encode(crush: &CrushBlob, w: &mut Writer) {
        w.put(crush.raw());
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<CrushBlob> {
        CrushBlob::decode(r.get()?)
    }
}

impl OsdMap {
    /// The encoded map and its checksum.
    pub fn encode_with_crc(&self) -> (Bytes, u32) {
        let mut w = Writer::with_capacity(4096 + self.crush.raw().len());
        let crc = self.encode_into(&mut w);
        (w.into_vec().into(), crc)
    }

    fn encode_into(&self, w: &mut Writer) -> u32 {
        let sections = |w: &mut Writer| {
            self.encode_client(w);
            self.encode_osd(w);
        };
        frame::encode(w, sections, |_| ())
    }

    /// Decodes a full map and gives its checksum, which was verified.
    ///
    /// # Errors
    /// On malformed maps, wrong checksums, and maps from before Nautilus.
    pub fn decode_with_crc(buf: &[u8]) -> Result<(Self, u32)> {
        let mut r = Reader::new(buf);
        let found = Self::decode_from(&mut r)?;
        r.finish()?;
        Ok(found)
    }

    fn decode_from(r: &mut Reader<'_>) -> Result<(Self, u32)> {
        let sections = |r: &mut Reader<'_>| {
            let mut map = Self::new(Fsid::default(), spirula_crush::CrushMap::default());
            map.decode_client(r)?;
            map.decode_osd(r)?;
            map.require_release_flags();
            map.check_lengths()?;
            Ok(map)
        };
        frame::decode("OSDMap", r, sections, |_, _| Ok(()))
    }

    /// The flags that a release implies.
    pub(super) fn require_release_flags(&mut self) {
        if self.require_osd_release >= release::LUMINOUS {
            self.flags.remove(OsdMapFlags::LEGACY_REQUIRE);
            self.flags.insert(OsdMapFlags::RECOVERY_DELETES);
        }
        if self.require_osd_release >= release::NAUTILUS {
            self.flags.insert(OsdMapFlags::PGLOG_HARDLIMIT);
        }
    }

    /// Everything that is kept for each OSD must be there for each: look-ups rely on it.
    fn check_lengths(&self) -> Result<()> {
        let n = self.max_osd as usize;
        let lengths = [
            self.osd_state.len(),
            self.osd_weight.len(),
            self.client_addrs.len(),
            self.hb_back_addrs.len(),
            self.osd_info.len(),
            self.cluster_addrs.len(),
            self.osd_uuid.len(),
            self.osd_xinfo.len(),
            self.hb_front_addrs.len(),
            self.primary_affinity.as_ref().map_or(n, Vec::len),
        ];
        if lengths.iter().all(|l| *l == n) {
            Ok(())
        } else {
            Err(Error::Invalid("length of an OSDMap's OSD table"))
        }
    }
}

/// The largest pool id, in 32 bits.
mod largest_pool {
    use super::*;

    pub(super) fn encode(pool: &PoolId, w: &mut Writer) {
        w.i32(i32::try_from(pool.signed()).unwrap_or(i32::MAX));
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<PoolId> {
        PoolId::try_from(i64::from(r.i32()?))
    }
}

impl Encode for OsdMap {
    fn encode(&self, w: &mut Writer) {
        self.encode_into(w);
    }
}

impl Decode for OsdMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Self::decode_from(r).map(|(map, _)| map)
    }
}
