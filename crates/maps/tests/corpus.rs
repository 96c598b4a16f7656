//! Every sample of the official object corpus decodes, and encodes again to the same bytes.

// A test file: what fails is to panic, also in its helpers, which clippy does not take for tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use spirula_denc::{Decode, Encode, Reader, Result, UTime, decode_all, encode_to_vec};
use spirula_maps::fsmap::{EmptyFsMap, NullMdsMap};
use spirula_maps::pool::{HitSetParams, PgMergeMeta, PoolOptions, PoolSnap};
use spirula_maps::stats::Pow2Hist;
use spirula_maps::*;

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
        .collect()
}

fn samples(of: &str) -> Vec<Vec<u8>> {
    let lines = include_str!("../testdata/corpus.txt").lines();
    let samples: Vec<_> = lines
        .filter_map(|l| l.split_once(' '))
        .filter(|(t, _)| *t == of)
        .map(|(_, hex)| from_hex(hex))
        .collect();
    assert!(!samples.is_empty(), "{of}");
    samples
}

fn same_bytes<T: Decode + Encode + std::fmt::Debug>(of: &str) {
    for (i, sample) in samples(of).into_iter().enumerate() {
        let value: T = decode_all(&sample).unwrap_or_else(|e| panic!("{of} {i}: {e}"));
        assert!(encode_to_vec(&value) == sample, "{of} {i}: {value:?}");
    }
}

/// Samples that an old writer encoded in an older form: they keep their meaning.
fn same_value<T: Decode + Encode + std::fmt::Debug + PartialEq>(of: &str) {
    for (i, sample) in samples(of).into_iter().enumerate() {
        let value: T = decode_all(&sample).unwrap_or_else(|e| panic!("{of} {i}: {e}"));
        assert_eq!(
            decode_all::<T>(&encode_to_vec(&value)).as_ref(),
            Ok(&value),
            "{of} {i}"
        );
    }
}

#[test]
fn identifiers() {
    same_bytes::<PgId>("pg_t");
    same_bytes::<SpgId>("spg_t");
    same_bytes::<EVersion>("eversion_t");
    same_bytes::<ReqId>("osd_reqid_t");
    same_bytes::<SnapContext>("SnapContext");
    same_bytes::<ObjectLocator>("object_locator_t");
    same_bytes::<HObject>("hobject_t");
}

#[test]
fn pools() {
    same_bytes::<PgPool>("pg_pool_t");
    same_bytes::<PoolSnap>("pool_snap_info_t");
    same_bytes::<PgMergeMeta>("pg_merge_meta_t");
    same_bytes::<PoolOptions>("pool_opts_t");
    same_bytes::<HitSetParams>("HitSet::Params");
}

#[test]
fn osd_maps() {
    same_bytes::<OsdInfo>("osd_info_t");
    same_bytes::<OsdXInfo>("osd_xinfo_t");
    same_bytes::<OsdMap>("OSDMap");
    same_bytes::<Incremental>("OSDMap::Incremental");
}

#[test]
fn other_maps() {
    same_bytes::<MonInfo>("mon_info_t");
    same_bytes::<MonMap>("MonMap");
    same_bytes::<MgrModule>("MgrMap::ModuleInfo");
    same_bytes::<MgrMap>("MgrMap");
}

#[test]
fn statistics() {
    same_bytes::<ObjectStatSum>("object_stat_sum_t");
    same_bytes::<ObjectStatCollection>("object_stat_collection_t");
    same_bytes::<StoreStatfs>("store_statfs_t");
    same_bytes::<Pow2Hist>("pow2_hist_t");
    same_bytes::<PgHistory>("pg_history_t");
    same_bytes::<PgStat>("pg_stat_t");
    same_bytes::<PoolStat>("pool_stat_t");
    same_value::<OsdStat>("osd_stat_t");
}

/// The first map of a cluster, before it has file systems and metadata servers.
#[test]
fn the_empty_fsmap_is_the_official_one() {
    let first = samples("FSMap")
        .into_iter()
        .find(|s| s[6..10] == [1, 0, 0, 0])
        .unwrap();
    assert_eq!(encode_to_vec(&EmptyFsMap { epoch: 1 }), first);
    for sample in samples("FSMap") {
        decode_all::<EmptyFsMap>(&sample).unwrap();
    }
}

/// Reads an `MDSMap` without daemons; what it says of epoch, session timeout, metadata pool and name.
fn walk_mds_map(r: &mut Reader<'_>) -> Result<(u32, u32, i64, String)> {
    r.section("MDSMap", 5, |_, r| {
        let epoch = r.u32()?;
        r.skip(4 + 4 + 4)?;
        let session_timeout = r.u32()?;
        r.skip(4 + 8 + 4)?;
        assert_eq!(r.u32()?, 0, "daemons");
        r.get::<Vec<i64>>()?;
        r.skip(8)?;
        assert_eq!(r.u16()?, 16);
        for _ in 0..3 {
            r.u64()?;
            r.get::<Vec<(u64, String)>>()?;
        }
        let metadata_pool = r.i64()?;
        r.get::<(UTime, UTime)>()?;
        r.skip(4)?;
        for _ in 0..5 {
            assert_eq!(r.u32()?, 0, "ranks");
        }
        r.skip(4 + 4)?;
        let name = r.string()?;
        assert_eq!(r.u32()?, 0, "damaged ranks");
        assert_eq!(r.string()?, "", "balancer");
        assert_eq!(r.i32()?, -1, "standby count");
        r.skip(4 + 1)?;
        assert_eq!(r.u32()?, 0, "required client features");
        r.clone().finish()?;
        Ok((epoch, session_timeout, metadata_pool, name))
    })
}

#[test]
fn the_null_mdsmap_is_laid_out_as_the_official_one() {
    let sample = &samples("MDSMap")[0];
    let official = walk_mds_map(&mut Reader::new(sample)).unwrap();
    assert_eq!((official.2, official.3.as_str()), (1, "cephfs"));
    let ours = encode_to_vec(&NullMdsMap { epoch: 7 });
    assert_eq!(
        walk_mds_map(&mut Reader::new(&ours)),
        Ok((7, 60, -1, String::new()))
    );
}
