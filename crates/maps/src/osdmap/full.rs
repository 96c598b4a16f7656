//! The encoding of a full map: a section for clients, one for OSDs, and a checksum over both.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, EntityAddr, Error, Reader, Result, UTime, Writer, encode_to_vec};

use super::{CrushBlob, OsdMap, OsdMapFlags};
use crate::codec::{CrcHole, check_crc};
use crate::features::release;
use std::collections::BTreeMap;

/// The meta-encoding around both sections.
pub(super) const OUTER_VERSION: u8 = 8;
pub(super) const OUTER_COMPAT: u8 = 7;
const CLIENT_VERSION: u8 = 9;
const OSD_VERSION: u8 = 9;
/// Nautilus: the oldest sections that have everything which is needed.
const OLDEST_CLIENT: u8 = 8;
const OLDEST_OSD: u8 = 7;

/// Writes a map by address in the order of the official encoder: that of the bytes of type, nonce and socket
/// address in memory.
pub(super) fn encode_by_addr(w: &mut Writer, map: &BTreeMap<EntityAddr, UTime>) {
    // Marker and section header, type, nonce, the length of the socket address; then the socket address.
    const TYPE_AT: usize = 7;
    const LENGTH_AT: usize = TYPE_AT + 8;
    let mut entries: Vec<_> = map
        .iter()
        .map(|(addr, until)| (encode_to_vec(addr), until))
        .collect();
    entries.sort_by(|(a, _), (b, _)| {
        let key = |e: &[u8]| (e[TYPE_AT..LENGTH_AT].to_vec(), e[LENGTH_AT + 4..].to_vec());
        key(a).cmp(&key(b))
    });
    w.count(entries.len());
    for (addr, until) in entries {
        w.bytes(&addr);
        w.put(until);
    }
}

/// Encodes a full map.
impl OsdMap {
    /// The encoded map and its checksum.
    pub fn encode_with_crc(&self) -> (Bytes, u32) {
        let mut w = Writer::with_capacity(4096 + self.crush.raw().len());
        let crc = self.encode_into(&mut w);
        (w.into_vec().into(), crc)
    }

    fn encode_into(&self, w: &mut Writer) -> u32 {
        let start = w.len();
        let mut hole = None;
        w.section(OUTER_VERSION, OUTER_COMPAT, |w| {
            w.section(CLIENT_VERSION, 1, |w| self.encode_client(w));
            w.section(OSD_VERSION, 1, |w| self.encode_osd(w));
            hole = Some(CrcHole::leave(w, start));
        });
        // Only now the outer length, which the checksum covers, is known.
        hole.map_or(0, |hole| hole.fill(w))
    }

    fn encode_client(&self, w: &mut Writer) {
        w.put(&self.fsid);
        w.u32(self.epoch);
        w.put(&self.created);
        w.put(&self.modified);
        w.put(&self.pools);
        w.put(&self.pool_names);
        w.i32(self.pool_max);
        w.put(&self.flags);
        w.u32(self.max_osd);
        w.put(&self.osd_state);
        w.put(&self.osd_weight);
        w.put(&self.client_addrs);
        w.put(&self.pg_temp);
        w.put(&self.primary_temp);
        w.put(self.primary_affinity.as_deref().unwrap_or_default());
        w.put(self.crush.raw());
        w.put(&self.erasure_code_profiles);
        w.put(&self.pg_upmap);
        w.put(&self.pg_upmap_items);
        w.u32(self.crush_version);
        w.put(&self.new_removed_snaps);
        w.put(&self.new_purged_snaps);
        w.put(&self.last_up_change);
        w.put(&self.last_in_change);
    }

    fn encode_osd(&self, w: &mut Writer) {
        w.put(&self.hb_back_addrs);
        w.put(&self.osd_info);
        encode_by_addr(w, &self.blocklist);
        w.put(&self.cluster_addrs);
        w.u32(self.cluster_snapshot_epoch);
        w.put(&self.cluster_snapshot);
        w.put(&self.osd_uuid);
        w.put(&self.osd_xinfo);
        w.put(&self.hb_front_addrs);
        w.f32(self.nearfull_ratio);
        w.f32(self.full_ratio);
        w.f32(self.backfillfull_ratio);
        w.u8(self.require_min_compat_client);
        w.u8(self.require_osd_release);
        w.put(&self.removed_snaps_queue);
        w.put(&self.crush_node_flags);
        w.put(&self.device_class_flags);
    }
}

impl Encode for OsdMap {
    fn encode(&self, w: &mut Writer) {
        self.encode_into(w);
    }
}

impl OsdMap {
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
        let mut whole = r.clone();
        let before = r.remaining();
        let mut hole = 0;
        let (map, crc) = r.section("OSDMap", OUTER_VERSION, |version, r| {
            if version < OUTER_VERSION {
                return Err(Error::TooOld {
                    what: "OSDMap",
                    version,
                });
            }
            let mut map = r.section("OSDMap for clients", CLIENT_VERSION, Self::decode_client)?;
            r.section("OSDMap for OSDs", OSD_VERSION, |version, r| {
                map.decode_osd(version, r)
            })?;
            // The inner reader began after version, compat and length.
            hole = r.position() + 6;
            Ok((map, r.u32()?))
        })?;
        check_crc(whole.bytes(before - r.remaining())?, hole, crc)?;
        Ok((map, crc))
    }

    fn decode_client(version: u8, r: &mut Reader<'_>) -> Result<Self> {
        if version < OLDEST_CLIENT {
            return Err(Error::TooOld {
                what: "OSDMap for clients",
                version,
            });
        }
        let mut m = Self::new(r.get()?, spirula_crush::CrushMap::default());
        m.epoch = r.u32()?;
        m.created = r.get()?;
        m.modified = r.get()?;
        m.pools = r.get()?;
        m.pool_names = r.get()?;
        m.pool_max = r.i32()?;
        m.flags = r.get()?;
        m.max_osd = r.u32()?;
        m.osd_state = r.get()?;
        m.osd_weight = r.get()?;
        m.client_addrs = r.get()?;
        m.pg_temp = r.get()?;
        m.primary_temp = r.get()?;
        let affinity: Vec<u32> = r.get()?;
        m.primary_affinity = (!affinity.is_empty()).then_some(affinity);
        m.crush = CrushBlob::decode(r.get()?)?;
        m.erasure_code_profiles = r.get()?;
        m.pg_upmap = r.get()?;
        m.pg_upmap_items = r.get()?;
        m.crush_version = r.u32()?;
        m.new_removed_snaps = r.get()?;
        m.new_purged_snaps = r.get()?;
        if version >= 9 {
            m.last_up_change = r.get()?;
            m.last_in_change = r.get()?;
        }
        Ok(m)
    }

    fn decode_osd(&mut self, version: u8, r: &mut Reader<'_>) -> Result<()> {
        if version < OLDEST_OSD {
            return Err(Error::TooOld {
                what: "OSDMap for OSDs",
                version,
            });
        }
        self.hb_back_addrs = r.get()?;
        self.osd_info = r.get()?;
        self.blocklist = r.get()?;
        self.cluster_addrs = r.get()?;
        self.cluster_snapshot_epoch = r.u32()?;
        self.cluster_snapshot = r.get()?;
        self.osd_uuid = r.get()?;
        self.osd_xinfo = r.get()?;
        self.hb_front_addrs = r.get()?;
        self.nearfull_ratio = r.f32()?;
        self.full_ratio = r.f32()?;
        self.backfillfull_ratio = r.f32()?;
        self.require_min_compat_client = r.u8()?;
        self.require_osd_release = r.u8()?;
        self.removed_snaps_queue = r.get()?;
        if version >= 8 {
            self.crush_node_flags = r.get()?;
        }
        if version >= 9 {
            self.device_class_flags = r.get()?;
        }
        self.require_release_flags();
        self.check_lengths()
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

impl Decode for OsdMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Self::decode_from(r).map(|(map, _)| map)
    }
}
