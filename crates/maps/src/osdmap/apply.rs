//! Applying an incremental to a map.

use spirula_denc::Fsid;

use super::CleanInterval;
use super::{CrushBlob, Incremental, MAX_PRIMARY_AFFINITY, OsdInfo, OsdMap, OsdMapFlags, OsdState, OsdXInfo};
use crate::features::OSDMAP_SIGNIFICANT;
use crate::types::{Epoch, OsdId};

/// The most OSD ids of a map: more than any cluster has, and few enough that a hostile incremental
/// of a few bytes costs a few megabytes.
pub const MAX_OSD_LIMIT: u32 = 16_384;

/// Why an incremental can't be applied. The map is unchanged or to be thrown away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The incremental belongs to another cluster.
    #[error("incremental of cluster {0}")]
    WrongCluster(Fsid),
    /// The incremental does not follow the map's epoch.
    #[error("incremental for epoch {found}, want {wanted}")]
    WrongEpoch {
        /// The incremental's epoch.
        found: Epoch,
        /// The epoch that comes next.
        wanted: Epoch,
    },
    /// The incremental names an OSD that the map has no room for.
    #[error("no osd.{0} in the map")]
    NoSuchOsd(OsdId),
    /// The incremental asks for too many OSDs.
    #[error("max_osd {0} is too large")]
    TooManyOsds(i32),
    /// The incremental's contents can't be decoded.
    #[error("in an incremental: {0}")]
    Malformed(#[from] spirula_denc::Error),
    /// The result has another checksum than the incremental names.
    #[error("checksum {found:#x} of the new map, the incremental says {expected:#x}")]
    Checksum {
        /// The result's.
        found: u32,
        /// The incremental's.
        expected: u32,
    },
}

type Result<T> = std::result::Result<T, ApplyError>;

impl OsdMap {
    /// Applies `inc` and checks that the map then has the checksum that `inc` names.
    ///
    /// A checksum of 0 is not checked (the writer did not know it), nor is that of a writer whose
    /// features are not [`OSDMAP_SIGNIFICANT`]: it encodes maps in another way.
    ///
    /// # Errors
    /// Any of [`ApplyError`]; after an error the map is to be thrown away.
    pub fn apply_checked(&mut self, inc: &Incremental) -> Result<()> {
        self.apply(inc)?;
        if inc.full_crc == 0 || inc.encode_features != OSDMAP_SIGNIFICANT {
            return Ok(());
        }
        let (_, found) = self.encode_with_crc();
        if found == inc.full_crc {
            Ok(())
        } else {
            Err(ApplyError::Checksum {
                found,
                expected: inc.full_crc,
            })
        }
    }

    /// Applies `inc`, which must follow the map's epoch. Cheaper than [`OsdMap::apply_checked`],
    /// which encodes the new map.
    ///
    /// # Errors
    /// Any of [`ApplyError`] but the last; after an error the map is to be thrown away.
    pub fn apply(&mut self, inc: &Incremental) -> Result<()> {
        if inc.epoch == Epoch::FIRST {
            self.fsid = inc.fsid;
        } else if inc.fsid != self.fsid {
            return Err(ApplyError::WrongCluster(inc.fsid));
        }
        let wanted = self.epoch.next();
        if inc.epoch != wanted {
            return Err(ApplyError::WrongEpoch {
                found: inc.epoch,
                wanted,
            });
        }
        if !inc.fullmap.is_empty() {
            *self = Self::decode_with_crc(&inc.fullmap)?.0;
            return Ok(());
        }
        self.epoch = inc.epoch;
        self.modified = inc.modified;
        self.apply_cluster(inc)?;
        self.apply_pools(inc);
        self.apply_weights(inc)?;
        self.apply_states(inc)?;
        self.apply_lives(inc)?;
        self.apply_mappings(inc);
        self.apply_blocklist_and_flags(inc);
        self.apply_settings(inc);
        self.apply_crush(inc)
    }

    fn apply_cluster(&mut self, inc: &Incremental) -> Result<()> {
        if inc.new_flags >= 0 {
            self.flags = OsdMapFlags(inc.new_flags.cast_unsigned());
        }
        if let Ok(max_osd) = u32::try_from(inc.new_max_osd) {
            if max_osd > MAX_OSD_LIMIT {
                return Err(ApplyError::TooManyOsds(inc.new_max_osd));
            }
            self.set_max_osd(max_osd);
        }
        // The official reader cuts it to 32 bits as well.
        if let Some(pool) = inc.new_pool_max {
            self.pool_max = pool;
        }
        Ok(())
    }

    fn apply_pools(&mut self, inc: &Incremental) {
        for (id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            pool.last_change = self.epoch;
            self.pools.insert(*id, pool);
        }
        self.new_removed_snaps.clone_from(&inc.new_removed_snaps);
        self.new_purged_snaps.clone_from(&inc.new_purged_snaps);
        for (pool, snaps) in &inc.new_removed_snaps {
            self.removed_snaps_queue.entry(*pool).or_default().union(snaps);
        }
        for (pool, snaps) in &inc.new_purged_snaps {
            if let Some(queue) = self.removed_snaps_queue.get_mut(pool) {
                queue.subtract(snaps);
                if queue.is_empty() {
                    self.removed_snaps_queue.remove(pool);
                }
            }
        }
        for (id, name) in &inc.new_pool_names {
            self.pool_names.insert(*id, name.clone());
        }
        for id in &inc.old_pools {
            self.pools.remove(id);
            self.pool_names.remove(id);
        }
    }

    /// The index of an OSD in the map's tables.
    fn osd_index(&self, osd: OsdId) -> Result<usize> {
        Some(osd.index())
            .filter(|i| *i < self.osd_state.len())
            .ok_or(ApplyError::NoSuchOsd(osd))
    }

    fn apply_weights(&mut self, inc: &Incremental) -> Result<()> {
        for (osd, weight) in &inc.new_weight {
            let i = self.osd_index(*osd)?;
            self.osd_weight[i] = *weight;
            if *weight != 0 {
                // The OSD is in, for whatever reason: its earlier state does not matter any more.
                self.osd_state[i].insert(OsdState::EXISTS);
                self.osd_state[i].remove(OsdState::AUTOOUT.with(OsdState::NEW));
                self.osd_xinfo[i].old_weight = 0;
            }
        }
        for (osd, affinity) in &inc.new_primary_affinity {
            self.osd_index(*osd)?;
            self.set_primary_affinity(*osd, *affinity);
        }
        for name in &inc.old_erasure_code_profiles {
            self.erasure_code_profiles.remove(name);
        }
        for (name, profile) in &inc.new_erasure_code_profiles {
            self.erasure_code_profiles.insert(name.clone(), profile.clone());
        }
        Ok(())
    }

    fn apply_states(&mut self, inc: &Incremental) -> Result<()> {
        for (osd, state) in &inc.new_state {
            let i = self.osd_index(*osd)?;
            let flip = if *state == OsdState::empty() {
                OsdState::UP
            } else {
                *state
            };
            let now = self.osd_state[i];
            if now.contains(OsdState::UP) && flip.contains(OsdState::UP) {
                self.osd_info[i].down_at = self.epoch;
                self.osd_xinfo[i].down_stamp = self.modified;
            }
            if now.contains(OsdState::EXISTS) && flip.contains(OsdState::EXISTS) {
                self.forget_osd(*osd, i);
            } else {
                self.osd_state[i] = OsdState(now.0 ^ flip.0);
            }
        }
        for (osd, addrs) in &inc.new_up_client {
            let i = self.osd_index(*osd)?;
            self.osd_state[i].insert(OsdState::EXISTS.with(OsdState::UP));
            self.osd_state[i].remove(OsdState::STOP);
            self.client_addrs[i].clone_from(addrs);
            self.hb_back_addrs[i] = inc.new_hb_back_up.get(osd).cloned().unwrap_or_default();
            self.hb_front_addrs[i] = inc.new_hb_front_up.get(osd).cloned().unwrap_or_default();
            self.osd_info[i].up_from = self.epoch;
        }
        for (osd, addrs) in &inc.new_up_cluster {
            let i = self.osd_index(*osd)?;
            self.cluster_addrs[i].clone_from(addrs);
        }
        Ok(())
    }

    /// Clears all that is known of an OSD which no longer exists.
    fn forget_osd(&mut self, osd: OsdId, i: usize) {
        self.osd_uuid[i] = Fsid::default();
        self.osd_info[i] = OsdInfo::default();
        self.osd_xinfo[i] = OsdXInfo::default();
        self.set_primary_affinity(osd, MAX_PRIMARY_AFFINITY);
        for addrs in [
            &mut self.client_addrs,
            &mut self.cluster_addrs,
            &mut self.hb_back_addrs,
            &mut self.hb_front_addrs,
        ] {
            addrs[i] = spirula_denc::EntityAddrVec::default();
        }
        self.osd_state[i] = OsdState::empty();
    }

    fn apply_lives(&mut self, inc: &Incremental) -> Result<()> {
        for (osd, epoch) in &inc.new_up_thru {
            let i = self.osd_index(*osd)?;
            self.osd_info[i].up_thru = *epoch;
        }
        for (osd, CleanInterval { begin, end }) in &inc.new_last_clean_interval {
            let i = self.osd_index(*osd)?;
            self.osd_info[i].last_clean_begin = *begin;
            self.osd_info[i].last_clean_end = *end;
        }
        for (osd, epoch) in &inc.new_lost {
            let i = self.osd_index(*osd)?;
            self.osd_info[i].lost_at = *epoch;
        }
        for (osd, xinfo) in &inc.new_xinfo {
            let i = self.osd_index(*osd)?;
            self.osd_xinfo[i] = *xinfo;
        }
        for (osd, uuid) in &inc.new_uuid {
            let i = self.osd_index(*osd)?;
            self.osd_uuid[i] = *uuid;
        }
        Ok(())
    }

    fn apply_mappings(&mut self, inc: &Incremental) {
        for (pg, osds) in &inc.new_pg_temp {
            if osds.is_empty() {
                self.pg_temp.remove(pg);
            } else {
                self.pg_temp.insert(*pg, osds.clone());
            }
        }
        for (pg, osd) in &inc.new_primary_temp {
            match osd.0 {
                Some(osd) => self.primary_temp.insert(*pg, osd),
                None => self.primary_temp.remove(pg),
            };
        }
        self.pg_upmap
            .extend(inc.new_pg_upmap.iter().map(|(pg, osds)| (*pg, osds.clone())));
        self.pg_upmap.retain(|pg, _| !inc.old_pg_upmap.contains(pg));
        self.pg_upmap_items.extend(
            inc.new_pg_upmap_items
                .iter()
                .map(|(pg, items)| (*pg, items.clone())),
        );
        self.pg_upmap_items
            .retain(|pg, _| !inc.old_pg_upmap_items.contains(pg));
    }

    fn apply_blocklist_and_flags(&mut self, inc: &Incremental) {
        for (addr, until) in &inc.new_blocklist {
            // As the official readers do: an entry that is already there keeps its time.
            self.blocklist.entry(*addr).or_insert(*until);
        }
        for addr in &inc.old_blocklist {
            self.blocklist.remove(addr);
        }
        for (addr, until) in &inc.new_range_blocklist {
            self.range_blocklist.entry(*addr).or_insert(*until);
        }
        for addr in &inc.old_range_blocklist {
            self.range_blocklist.remove(addr);
        }
        if inc.new_stretch.change {
            self.stretch = inc.new_stretch.mode;
        }
        for (flags, new) in [
            (&mut self.crush_node_flags, &inc.new_crush_node_flags),
            (&mut self.device_class_flags, &inc.new_device_class_flags),
        ] {
            for (id, value) in new {
                if *value == OsdState::empty() {
                    flags.remove(id);
                } else {
                    flags.insert(*id, *value);
                }
            }
        }
    }

    fn apply_settings(&mut self, inc: &Incremental) {
        self.cluster_snapshot_epoch = if inc.cluster_snapshot.is_empty() {
            Epoch::NONE
        } else {
            inc.epoch
        };
        self.cluster_snapshot.clone_from(&inc.cluster_snapshot);
        for (ratio, new) in [
            (&mut self.nearfull_ratio, inc.new_nearfull_ratio),
            (&mut self.full_ratio, inc.new_full_ratio),
            (&mut self.backfillfull_ratio, inc.new_backfillfull_ratio),
        ] {
            if new >= 0.0 {
                *ratio = new;
            }
        }
        for (stamp, new) in [
            (&mut self.last_up_change, inc.new_last_up_change),
            (&mut self.last_in_change, inc.new_last_in_change),
        ] {
            if !new.is_zero() {
                *stamp = new;
            }
        }
        if let Some(release) = inc.new_require_min_compat_client.filter(|r| *r > 0) {
            self.require_min_compat_client = release;
        }
        if let Some(release) = inc.new_require_osd_release {
            self.require_osd_release = release;
            self.require_release_flags();
        }
    }

    fn apply_crush(&mut self, inc: &Incremental) -> Result<()> {
        if !inc.crush.is_empty() {
            self.crush = CrushBlob::decode(inc.crush.clone())?;
            self.crush_version = self.crush_version.wrapping_add(1);
            let classes = &self.crush.map().class_names;
            self.device_class_flags
                .retain(|class, _| classes.contains_key(class));
        }
        Ok(())
    }
}
