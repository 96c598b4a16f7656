//! Every sample of the official object corpus decodes, and encodes again to the same bytes.

// A test file: what fails is to panic, also in its helpers, which clippy does not take for tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use spirula_denc::{Decode, Encode, decode_all, encode_to_vec};
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
