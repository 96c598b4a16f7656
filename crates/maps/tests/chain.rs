//! Chains of maps that official monitors made: the first full map and every incremental after it.
//! Each encodes again to the same bytes, and each resulting map has the checksum that the official
//! monitor computed for it, that is, our encoding of it is the official one.
//!
//! A chain's file: for each map, its length as a little-endian u32, then its bytes.
//! - `chain-cluster.bin`: a real cluster (Ceph 16.2.15) from its creation through OSD boots, pools,
//!   snapshots, EC.
//! - `chain-commands.bin`: what the commands of `record-chain.sh` make.

// A test file: what fails is to panic, also in its helpers, which clippy does not take for tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use spirula_denc::{decode_all, encode_to_vec};
use spirula_maps::{ApplyError, Epoch, Incremental, MonMap, OsdMap};

fn split(mut chain: &[u8]) -> Vec<&[u8]> {
    let mut maps = Vec::new();
    while let Some((len, rest)) = chain.split_first_chunk() {
        let (map, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        maps.push(map);
        chain = rest;
    }
    maps
}

fn check_chain(chain: &[u8], epochs: Epoch) -> OsdMap {
    let maps = split(chain);
    let (mut map, crc) = OsdMap::decode_with_crc(maps[0]).unwrap();
    let (again, crc_again) = map.encode_with_crc();
    assert_eq!((again.as_ref(), crc_again), (maps[0], crc));
    for bytes in &maps[1..] {
        let inc: Incremental = decode_all(bytes).unwrap();
        assert!(encode_to_vec(&inc) == *bytes, "epoch {}", inc.epoch);
        assert_ne!(inc.full_crc, 0);
        map.apply_checked(&inc)
            .unwrap_or_else(|e| panic!("epoch {}: {e}\n{inc:#?}", inc.epoch));
    }
    assert_eq!(map.epoch, epochs);
    map
}

#[test]
fn the_chain_of_a_real_cluster() {
    let map = check_chain(include_bytes!("../testdata/chain-cluster.bin"), Epoch::new(84));
    assert!(map.osds().count() >= 3);
}

#[test]
fn the_chain_of_many_commands() {
    check_chain(include_bytes!("../testdata/chain-commands.bin"), Epoch::new(92));
}

#[test]
fn incrementals_apply_only_where_they_belong() {
    let maps = split(include_bytes!("../testdata/chain-cluster.bin"));
    let first: OsdMap = decode_all(maps[0]).unwrap();
    let second: Incremental = decode_all(maps[1]).unwrap();
    let third: Incremental = decode_all(maps[2]).unwrap();
    assert_eq!(
        first.clone().apply(&third),
        Err(ApplyError::WrongEpoch {
            found: Epoch::new(3),
            wanted: Epoch::new(2)
        })
    );
    let foreign = Incremental {
        fsid: spirula_denc::Fsid([1; 16]),
        ..second.clone()
    };
    assert_eq!(
        first.clone().apply(&foreign),
        Err(ApplyError::WrongCluster(foreign.fsid))
    );
    let wrong = Incremental {
        full_crc: 1,
        ..second
    };
    assert!(matches!(
        first.clone().apply_checked(&wrong),
        Err(ApplyError::Checksum { expected: 1, .. })
    ));
}

#[test]
fn a_flipped_bit_fails_the_checksum() {
    for bytes in split(include_bytes!("../testdata/chain-cluster.bin"))
        .into_iter()
        .take(5)
    {
        for at in (0..bytes.len()).step_by(7) {
            let mut bad = bytes.to_vec();
            bad[at] ^= 0x10;
            assert!(
                decode_all::<OsdMap>(&bad).is_err() && decode_all::<Incremental>(&bad).is_err(),
                "byte {at}"
            );
        }
    }
}

/// From `ceph mon getmap`.
#[test]
fn the_monmap_of_a_real_cluster() {
    let bytes = include_bytes!("../testdata/monmap.bin");
    let map: MonMap = decode_all(bytes).unwrap();
    assert_eq!(map.ranks, ["a"]);
    assert_eq!(map.persistent_features, spirula_maps::MonFeatures::PACIFIC_ALL);
    assert_eq!(encode_to_vec(&map), bytes);
}
