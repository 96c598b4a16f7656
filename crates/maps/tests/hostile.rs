//! Decoders never panic, whatever they are given: random bytes, and real maps with bytes changed or
//! cut off.

// A test file: what fails is to panic, also in its helpers, which clippy does not take for tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use spirula_denc::{Decode, decode_all};
use spirula_maps::*;

fn decode_as_anything(bytes: &[u8]) {
    fn one<T: Decode>(bytes: &[u8]) {
        let _ = decode_all::<T>(bytes);
    }
    one::<OsdMap>(bytes);
    one::<Incremental>(bytes);
    one::<MonMap>(bytes);
    one::<PgPool>(bytes);
    one::<PgStat>(bytes);
    one::<PoolStat>(bytes);
    one::<OsdStat>(bytes);
    one::<PgHistory>(bytes);
    one::<HObject>(bytes);
    one::<ObjectLocator>(bytes);
    one::<SpgId>(bytes);
    one::<ReqId>(bytes);
    one::<SnapContext>(bytes);
    one::<IntervalSet>(bytes);
}

fn corpus() -> Vec<Vec<u8>> {
    let hex = |h: &str| {
        (0..h.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&h[i..i + 2], 16).unwrap())
            .collect()
    };
    include_str!("../testdata/corpus.txt")
        .lines()
        .skip(1)
        .filter_map(|l| Some(hex(l.split_once(' ')?.1)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        decode_as_anything(&bytes);
    }

    #[test]
    fn damaged_samples(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let corpus = corpus();
        let mut sample = corpus[which.index(corpus.len())].clone();
        for (at, byte) in damage {
            let at = at.index(sample.len());
            sample[at] = byte;
        }
        if cut {
            sample.truncate(keep.index(sample.len()));
        }
        decode_as_anything(&sample);
    }

    /// A map may say anything about its pools and still be mapped.
    #[test]
    fn strange_pools_are_mapped_somehow(
        pg_num in any::<u32>(), pgp_num in any::<u32>(), size in any::<u8>(), rule in any::<u8>(), kind in any::<u8>(),
        seed in any::<u32>(),
    ) {
        let bytes = include_bytes!("../testdata/chain-cluster.bin");
        let mut map: OsdMap = decode_all(&bytes[4..4 + u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize]).unwrap();
        map.set_max_osd(3);
        let mut pool = PgPool::replicated(size, 1, pg_num, rule);
        pool.pgp_num = pgp_num;
        pool.kind = PoolType(kind);
        map.pools.insert(PoolId::new(9), pool);
        let mut cache = MappingCache::new();
        let pg = map.raw_pg_to_pg(PgId::new(PoolId::new(9), seed)).unwrap();
        prop_assert_eq!(map.map_pg(PgId::new(PoolId::new(9), seed)), map.map_pg(pg));
        prop_assert_eq!(cache.get(&map, pg), &map.map_pg(pg));
    }
}
