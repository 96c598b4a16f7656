//! Looking things up in a map.

use std::collections::BTreeSet;
use std::net::IpAddr;

use spirula_denc::{AddrType, EntityAddr, EntityAddrVec, Fsid};

use super::OsdCounts;
use super::{OsdMap, OsdMapFlags, OsdState, WEIGHT_IN, WEIGHT_OUT};
use crate::features::release;
use crate::pool::PgPool;
use crate::types::{OsdId, PgId, PoolId};

impl OsdMap {
    /// The index of an OSD id in the map's tables.
    fn index(&self, osd: OsdId) -> Option<usize> {
        Some(osd.index()).filter(|i| *i < self.osd_state.len())
    }

    /// The state of an OSD; empty where there is none.
    pub fn state(&self, osd: OsdId) -> OsdState {
        self.index(osd).map_or(OsdState::empty(), |i| self.osd_state[i])
    }

    /// Whether the OSD exists.
    pub fn exists(&self, osd: OsdId) -> bool {
        self.state(osd).contains(OsdState::EXISTS)
    }

    /// Whether the OSD exists and runs.
    pub fn is_up(&self, osd: OsdId) -> bool {
        self.state(osd).contains(OsdState::EXISTS.with(OsdState::UP))
    }

    /// Whether the OSD does not run.
    pub fn is_down(&self, osd: OsdId) -> bool {
        !self.is_up(osd)
    }

    /// Whether the OSD exists and gets data.
    pub fn is_in(&self, osd: OsdId) -> bool {
        self.exists(osd) && self.weight(osd) != WEIGHT_OUT
    }

    /// Whether the OSD gets no data.
    pub fn is_out(&self, osd: OsdId) -> bool {
        !self.is_in(osd)
    }

    /// Whether one of the flags `noup`, `nodown`, `noin` and `noout` holds for an OSD: set for all,
    /// for itself, for a bucket that it is in, or for its device class.
    pub fn is_flagged(&self, osd: OsdId, flag: OsdState) -> bool {
        let global = [
            (OsdState::NOUP, OsdMapFlags::NOUP),
            (OsdState::NODOWN, OsdMapFlags::NODOWN),
            (OsdState::NOIN, OsdMapFlags::NOIN),
            (OsdState::NOOUT, OsdMapFlags::NOOUT),
        ];
        if global
            .iter()
            .any(|(own, all)| flag.contains(*own) && self.flags.contains(*all))
            || self.state(osd).intersects(flag)
        {
            return true;
        }
        let crush = self.crush.map();
        let class = crush.class_of(osd.item()).and_then(|c| crush.class_id(c));
        let of_class = class.and_then(|c| self.device_class_flags.get(&c));
        if of_class.is_some_and(|f| f.intersects(flag)) {
            return true;
        }
        self.crush_node_flags
            .iter()
            .any(|(node, f)| f.intersects(flag) && crush.subtree_contains(*node, osd.item()))
    }

    /// The OSD's reweight, 16.16 fixed point.
    pub fn weight(&self, osd: OsdId) -> u32 {
        self.index(osd).map_or(WEIGHT_OUT, |i| self.osd_weight[i])
    }

    /// The OSD's reweight, 0 to 1.
    pub fn weight_f64(&self, osd: OsdId) -> f64 {
        f64::from(self.weight(osd)) / f64::from(WEIGHT_IN)
    }

    /// The OSD's primary affinity, 16.16 fixed point.
    pub fn affinity(&self, osd: OsdId) -> u32 {
        match (&self.primary_affinity, self.index(osd)) {
            (Some(affinity), Some(i)) => affinity[i],
            _ => super::MAX_PRIMARY_AFFINITY,
        }
    }

    /// The ids of all OSDs.
    pub fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        OsdId::below(self.max_osd).filter(|osd| self.exists(*osd))
    }

    /// The OSDs at or below an item of the CRUSH map, whether they exist or not.
    pub fn osds_below(&self, item: i32) -> BTreeSet<OsdId> {
        let devices = self.crush.map().devices_below(item);
        devices.into_iter().filter_map(OsdId::of_item).collect()
    }

    /// The numbers of OSDs.
    pub fn counts(&self) -> OsdCounts {
        let mut n = OsdCounts::default();
        for osd in self.osds() {
            n.all += 1;
            n.up += usize::from(self.is_up(osd));
            n.inside += usize::from(self.is_in(osd));
        }
        n
    }

    /// Where clients reach an OSD, if it exists and has an address.
    pub fn client_addrs(&self, osd: OsdId) -> Option<&EntityAddrVec> {
        self.index(osd)
            .map(|i| &self.client_addrs[i])
            .filter(|a| self.exists(osd) && !a.is_blank())
    }

    /// Where other OSDs reach an OSD, if it exists and has an address.
    pub fn cluster_addrs(&self, osd: OsdId) -> Option<&EntityAddrVec> {
        self.index(osd)
            .map(|i| &self.cluster_addrs[i])
            .filter(|a| self.exists(osd) && !a.is_blank())
    }

    /// The OSD with an id of its own.
    pub fn osd_by_uuid(&self, uuid: &Fsid) -> Option<OsdId> {
        self.osds()
            .find(|osd| self.index(*osd).is_some_and(|i| self.osd_uuid[i] == *uuid))
    }

    /// A pool by its id.
    pub fn pool(&self, id: PoolId) -> Option<&PgPool> {
        self.pools.get(&id)
    }

    /// A pool's id by its name.
    pub fn pool_id(&self, name: &str) -> Option<PoolId> {
        self.pool_names
            .iter()
            .find(|(_, n)| *n == name)
            .map(|(id, _)| *id)
    }

    /// A pool's name.
    pub fn pool_name(&self, id: PoolId) -> Option<&str> {
        self.pool_names.get(&id).map(String::as_str)
    }

    /// The pools that are for an application, and their names.
    pub fn pools_for(&self, application: &str) -> impl Iterator<Item = (PoolId, &str)> {
        let of_it = self
            .pools
            .iter()
            .filter(move |(_, p)| p.application_metadata.contains_key(application));
        of_it.filter_map(|(id, _)| Some((*id, self.pool_name(*id)?)))
    }

    /// The raw bytes that one byte of data takes in a pool (`OSDMap::pool_raw_used_rate`, in single
    /// precision too): its copies, or the chunks of a stripe for each one with data.
    pub fn raw_used_rate(&self, id: PoolId) -> f32 {
        let Some(pool) = self.pool(id) else { return 0.0 };
        if !pool.is_erasure() {
            return f32::from(pool.size);
        }
        let profile = self.erasure_code_profiles.get(&pool.erasure_code_profile);
        let number = |name| profile?.get(name)?.trim().parse::<u8>().ok();
        match (number("k"), number("m")) {
            (Some(k @ 1..), Some(m)) => (f32::from(k) + f32::from(m)) / f32::from(k),
            _ => 0.0,
        }
    }

    /// The pool that a PG belongs to.
    pub fn pool_of(&self, pg: PgId) -> Option<&PgPool> {
        self.pool(pg.pool)
    }

    /// Whether there is such a PG, which a raw one need not be.
    pub fn has_pg(&self, pg: PgId) -> bool {
        self.pool_of(pg).is_some_and(|pool| pg.seed < pool.pg_num)
    }

    /// Every PG of every pool, by pool and seed.
    pub fn pgs(&self) -> impl Iterator<Item = PgId> + '_ {
        self.pools
            .iter()
            .flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId { pool: *id, seed }))
    }

    /// Whether an address is refused: this instance, everything on its host, or its network.
    /// Entries are of type [`AddrType::ANY`], so the protocol does not matter.
    pub fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        if self.blocklist.is_empty() && self.range_blocklist.is_empty() {
            return false;
        }
        let mut wanted = addr.with_kind(AddrType::ANY);
        if self.blocklist.contains_key(&wanted) {
            return true;
        }
        let Some(socket) = &mut wanted.socket else {
            return false;
        };
        socket.set_port(0);
        let ip = socket.ip();
        wanted.nonce = 0;
        self.blocklist.contains_key(&wanted) || self.range_blocklist.keys().any(|r| is_in_network(ip, r))
    }

    /// The oldest release whose clients understand the map.
    pub fn min_compat_client(&self) -> u8 {
        if !self.pg_upmap.is_empty() || !self.pg_upmap_items.is_empty() {
            return release::LUMINOUS;
        }
        let crush =
            release::from_name(self.crush.map().minimum_required_version()).unwrap_or(release::UNKNOWN);
        let affine = self
            .primary_affinity
            .iter()
            .flatten()
            .any(|a| *a != super::MAX_PRIMARY_AFFINITY);
        if affine {
            crush.max(release::FIREFLY)
        } else {
            crush
        }
    }
}

/// Whether an address lies in a network of the blocklist.
fn is_in_network(ip: IpAddr, network: &EntityAddr) -> bool {
    let same = |bits: u32, a: u128, b: u128| {
        let rest = bits.saturating_sub(network.nonce);
        (a ^ b).checked_shr(rest).unwrap_or(0) == 0
    };
    match (network.socket.map(|s| s.ip()), ip) {
        (Some(IpAddr::V4(n)), IpAddr::V4(a)) => same(32, n.to_bits().into(), a.to_bits().into()),
        (Some(IpAddr::V6(n)), IpAddr::V6(a)) => same(128, n.to_bits(), a.to_bits()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_hold_for_all_for_an_osd_a_bucket_or_a_class() {
        let mut crush = spirula_crush::CrushMap::with_default_root("host").unwrap();
        for o in 0..2 {
            let at = [
                ("root".into(), "default".into()),
                ("host".into(), format!("h{o}")),
            ];
            crush
                .insert_item(o, 0x10000, &format!("osd.{o}"), &at.into_iter().collect())
                .unwrap();
        }
        crush.set_device_class(1, "ssd").unwrap();
        let (host, class) = (crush.item_id("h0").unwrap(), crush.class_id("ssd").unwrap());
        let plain = {
            let mut map = OsdMap::new(Fsid::default(), crush);
            map.set_max_osd(2);
            map
        };
        let flagged = |map: &OsdMap, flag| [0, 1].map(|o| map.is_flagged(OsdId::new(o), flag));
        assert_eq!(flagged(&plain, OsdState::NOOUT), [false; 2]);
        let mut map = plain.clone();
        map.flags.insert(OsdMapFlags::NOOUT);
        assert_eq!(flagged(&map, OsdState::NOOUT), [true; 2]);
        assert_eq!(flagged(&map, OsdState::NOIN), [false; 2]);
        let mut map = plain.clone();
        map.osd_state[1] = OsdState::NODOWN;
        assert_eq!(flagged(&map, OsdState::NODOWN), [false, true]);
        let mut map = plain.clone();
        map.crush_node_flags.insert(host, OsdState::NOUP);
        map.device_class_flags.insert(class, OsdState::NOIN);
        assert_eq!(flagged(&map, OsdState::NOUP), [true, false]);
        assert_eq!(flagged(&map, OsdState::NOIN), [false, true]);
    }

    #[test]
    fn a_blocklist_entry_matches_whatever_the_protocol_and_one_without_port_the_whole_host() {
        let mut map = OsdMap::new(Fsid::default(), spirula_crush::CrushMap::default());
        let addr = |s: &str| s.parse::<EntityAddr>().unwrap();
        map.blocklist
            .insert(addr("10.0.0.1:6800/42"), spirula_denc::UTime::ZERO);
        map.blocklist
            .insert(addr("10.0.0.2:0/0"), spirula_denc::UTime::ZERO);
        assert!(map.is_blocklisted(&addr("v2:10.0.0.1:6800/42")));
        assert!(map.is_blocklisted(&addr("v1:10.0.0.1:6800/42")));
        assert!(!map.is_blocklisted(&addr("v2:10.0.0.1:6800/43")));
        for (network, bits) in [("10.1.2.128", 25), ("fd00:1::", 32), ("0.0.0.7", 32)] {
            let mut range = addr(network).with_kind(AddrType::CIDR);
            range.nonce = bits;
            map.range_blocklist.insert(range, spirula_denc::UTime::ZERO);
        }
        for (text, refused) in [
            ("v2:10.1.2.129:6800/1", true),
            ("v1:10.1.2.255:0/1", true),
            ("v2:10.1.2.127:6800/1", false),
            ("v2:[fd00:1:2::3]:1/1", true),
            ("v2:[fd00:2::3]:1/1", false),
            ("v2:0.0.0.7:1/1", true),
            ("v2:0.0.0.6:1/1", false),
        ] {
            assert_eq!(map.is_blocklisted(&addr(text)), refused, "{text}");
        }
        let (bytes, crc) = map.encode_with_crc();
        let (back, crc_back) = OsdMap::decode_with_crc(&bytes).unwrap();
        assert_eq!(
            (back.range_blocklist, crc_back),
            (map.range_blocklist.clone(), crc)
        );
        assert!(!map.is_blocklisted(&addr("v2:10.0.0.1:6801/42")));
        assert!(map.is_blocklisted(&addr("v2:10.0.0.2:6801/7")));
    }
}
