//! The cluster's maps.

use bytes::Bytes;
use spirula_crush::{CrushMap, Workspace};
use spirula_denc::{Decode, Encode, EntityAddr, EntityAddrVec, Fsid, Reader, encode_to_vec};
use spirula_maps::pool::PoolOptions;
use spirula_maps::{
    HObject, Incremental, MonMap, ObjectLocator, ObjectName, ObjectStatCollection, ObjectStatSum, OsdInfo,
    OsdMap, OsdStat, OsdState, OsdXInfo, PgHistory, PgPool, PgStat, PoolId, PoolStat, ReqId, SnapContext,
    SpgId, StoreStatfs,
};
use spirula_proto::mgr::{MgrMap, ServiceMap};

use crate::crush::DRAWS;
use crate::input::Input;

/// The most OSDs that an incremental may add to a map: a monitor chooses the size of their tables.
const MAX_OSD: i32 = 512;

/// Ceph's CRC-32C, without the inversions before and after, of all but the four bytes at `hole`.
fn crc_around(buf: &[u8], hole: usize) -> u32 {
    !crc32c::crc32c_append(crc32c::crc32c(&buf[..hole]), &buf[hole + 4..])
}

/// Sets the checksum behind the two inner sections of a full map or an incremental, if the input
/// has that form.
fn fix_checksum(buf: &mut [u8]) {
    let section = |at: usize| -> Option<usize> {
        let len = buf.get(at + 2..at + 6)?.first_chunk().copied()?;
        at.checked_add(6)?
            .checked_add(usize::try_from(u32::from_le_bytes(len)).ok()?)
    };
    let Some(end) = section(0).filter(|&end| end <= buf.len()) else {
        return;
    };
    let hole = section(6).and_then(section);
    let Some(hole) = hole.filter(|&h| h.checked_add(4).is_some_and(|h| h <= end)) else {
        return;
    };
    let crc = crc_around(&buf[..end], hole);
    buf[hole..hole + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Places objects by a map, and makes the queries of daemons.
fn use_map(map: &OsdMap) {
    let mut ws = Workspace::with_max_draws(DRAWS);
    for pg in map.pgs().take(24) {
        let found = map.map_pg_with(&mut ws, pg);
        for osd in found.up.osds().chain(found.acting.osds()) {
            let _ = (map.client_addrs(osd), map.cluster_addrs(osd), map.weight_f64(osd));
        }
    }
    let name = ObjectName::from("object".as_bytes());
    for id in map.pools.keys().take(8) {
        let locator = ObjectLocator {
            pool: Some(*id),
            ..ObjectLocator::default()
        };
        let _ = (map.object_to_pg(&name, &locator), map.pool_name(*id));
    }
    let _ = (
        map.counts(),
        map.is_blocklisted(&EntityAddr::default()),
        map.min_compat_client(),
    );
}

/// An input is a map whose checksum need not fit.
pub(crate) fn osdmap(data: &[u8]) {
    let mut raw = data.to_vec();
    fix_checksum(&mut raw);
    let Ok((map, _)) = OsdMap::decode_with_crc(&raw) else {
        return;
    };
    let (encoded, crc) = map.encode_with_crc();
    match OsdMap::decode_with_crc(&encoded) {
        Ok((again, found)) => assert!(found == crc && again.encode_with_crc().0 == encoded),
        Err(e) => assert!(e.to_string().is_empty(), "a map does not encode: {e}"),
    }
    use_map(&map);
}

/// A map of four OSDs on two hosts and a pool.
fn base_map() -> OsdMap {
    let mut crush = CrushMap::with_default_root("osd").unwrap_or_default();
    for osd in 0..4 {
        let host = if osd < 2 { "host=a" } else { "host=b" };
        if let Ok(at) = CrushMap::parse_location(["root=default", host]) {
            let _ = crush.insert_item(osd, 0x10000, &format!("osd.{osd}"), &at);
        }
    }
    let mut map = OsdMap::new(Fsid::default(), crush);
    map.set_max_osd(4);
    for osd in 0..4 {
        map.osd_state[osd] = OsdState::EXISTS.with(OsdState::UP);
        map.osd_weight[osd] = 0x10000;
    }
    map.pools.insert(PoolId::new(1), PgPool::replicated(3, 2, 8, 0));
    map.pool_names.insert(PoolId::new(1), "p".into());
    map
}

/// An input is an incremental whose checksum need not fit, and that applies to a map just before
/// it.
pub(crate) fn incremental(data: &[u8]) {
    let mut raw = data.to_vec();
    fix_checksum(&mut raw);
    let mut r = Reader::new(&raw);
    let Ok(mut inc) = Incremental::decode(&mut r) else {
        return;
    };
    let encoded = encode_to_vec(&inc);
    let again = spirula_denc::decode_all::<Incremental>(&encoded);
    assert!(
        again.as_ref().is_ok_and(|i| encode_to_vec(i) == encoded),
        "an incremental does not encode: {:?}",
        again.err()
    );
    if inc.new_max_osd > MAX_OSD {
        inc.new_max_osd %= MAX_OSD;
    }
    let mut full = inc.fullmap.to_vec();
    fix_checksum(&mut full);
    inc.fullmap = full.into();
    let mut map = base_map();
    map.fsid = inc.fsid;
    map.epoch = inc.epoch.before(1);
    if map.apply(&inc).is_ok() {
        let (encoded, _) = map.encode_with_crc();
        let again = OsdMap::decode_with_crc(&encoded);
        assert!(
            again.is_ok(),
            "an incremental makes a map that nobody reads: {:?}",
            again.err()
        );
        use_map(&map);
    }
}

fn twice<T: Decode + Encode>(data: &[u8]) -> Option<T> {
    let first: T = Reader::new(data).get().ok()?;
    let encoded = encode_to_vec(&first);
    let again = spirula_denc::decode_all::<T>(&encoded);
    // Numbers that are not equal to themselves are equal in their encoding.
    assert!(
        again.as_ref().is_ok_and(|v| encode_to_vec(v) == encoded),
        "{} does not encode: {:?}",
        std::any::type_name::<T>(),
        again.err()
    );
    Some(first)
}

fn check<T: Decode + Encode>(data: &[u8]) {
    let _ = twice::<T>(data);
}

fn pool(data: &[u8]) {
    if let Some(pool) = twice::<PgPool>(data) {
        let pg = pool.raw_pg_to_pg(spirula_maps::PgId {
            pool: PoolId::new(1),
            seed: u32::MAX,
        });
        let _ = (pool.placement_seed(pg), pool.hash_object(b"name", b"", b"ns"));
    }
}

macro_rules! small_maps {
    ($($name:literal => $check:expr,)*) => {
        /// The kinds of the target `small_maps` by the first byte of its input, with their official
        /// names.
        pub(crate) const SMALL: &[(&str, fn(&[u8]))] = &[$(($name, $check),)*];
    };
}

small_maps! {
    "MonMap" => check::<MonMap>,
    "MgrMap" => check::<MgrMap>,
    "pg_pool_t" => pool,
    "pool_opts_t" => check::<PoolOptions>,
    "osd_info_t" => check::<OsdInfo>,
    "osd_xinfo_t" => check::<OsdXInfo>,
    "pg_stat_t" => check::<PgStat>,
    "pg_history_t" => check::<PgHistory>,
    "pool_stat_t" => check::<PoolStat>,
    "osd_stat_t" => check::<OsdStat>,
    "object_stat_sum_t" => check::<ObjectStatSum>,
    "object_stat_collection_t" => check::<ObjectStatCollection>,
    "store_statfs_t" => check::<StoreStatfs>,
    "hobject_t" => check::<HObject>,
    "object_locator_t" => check::<ObjectLocator>,
    "osd_reqid_t" => check::<ReqId>,
    "spg_t" => check::<SpgId>,
    "SnapContext" => check::<SnapContext>,
    "ServiceMap" => check::<ServiceMap>,
    "entity_addrvec_t" => check::<EntityAddrVec>,
    "CRUSH blob" => |data| drop(spirula_maps::CrushBlob::decode(Bytes::copy_from_slice(data))),
}

pub(crate) fn small(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = usize::from(input.u8()) % SMALL.len();
    SMALL[kind].1(input.rest());
}
