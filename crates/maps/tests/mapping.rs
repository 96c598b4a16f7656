//! The mapping from PG to OSDs, compared with the official `osdmaptool --test-map-pgs-dump-all`.
//!
//! `generated` makes maps at random: hierarchies, device classes, replicated and erasure-coded
//! pools, OSDs that are down, out or reweighted, primary affinities, upmaps, temporary members and
//! primaries. `testdata/mappings.bin` holds such maps and what the official tool said of them; it
//! was recorded by
//! `SPIRULA_RECORD_MAPPINGS=crates/maps/testdata/mappings.bin cargo test -p spirula-maps --test mapping`.
//! Where `osdmaptool` is installed, more maps are made and compared at once.

// A test file: what fails is to panic, also in its helpers, which clippy does not take for tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use spirula_crush::{CrushMap, Location, RULE_ERASURE, RULE_REPLICATED, RuleMode, SimpleRule};
use spirula_denc::{Fsid, decode_all, encode_to_vec};
use spirula_maps::{
    Epoch, Incremental, MappingCache, OsdId, OsdMap, OsdMapFlags, OsdState, PgId, PgPool, PoolId, PoolType,
    Positions, UpmapItem, release,
};
use spirula_random::Rng;

/// The mapping of one PG: raw set, up set and its primary, acting set and its primary.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    pg: PgId,
    raw: Positions,
    up: (Positions, Option<OsdId>),
    acting: (Positions, Option<OsdId>),
}

fn our_rows(map: &OsdMap) -> Vec<Row> {
    let mut cache = MappingCache::new();
    let row = |pg| {
        let m = cache.get(map, pg);
        assert_eq!(*m, map.map_pg(pg));
        let (up, acting) = ((m.up.clone(), m.up_primary), (m.acting.clone(), m.acting_primary));
        Row {
            pg,
            raw: map.map_pg_raw(pg),
            up,
            acting,
        }
    };
    map.pgs().map(row).collect()
}

/// Parses `1.2a raw ([1,0], p1) up ([1,0], p1) acting ([1,0], p1)`.
fn parse_row(line: &str) -> Option<Row> {
    let mut parts = line.split(" ([");
    let pg = parts.next()?.strip_suffix(" raw")?.parse().ok()?;
    let mut set = || {
        let (osds, rest) = parts.next()?.split_once("], p")?;
        let osds = osds
            .split(',')
            .filter(|o| !o.is_empty())
            .map(|o| OsdId::of_item(o.parse().unwrap()))
            .collect();
        Some((osds, OsdId::of_item(rest.split_once(')')?.0.parse().unwrap())))
    };
    let (raw, up, acting): ((Positions, _), _, _) = (set()?, set()?, set()?);
    let raw = raw.0;
    Some(Row { pg, raw, up, acting })
}

fn temp_file(bytes: &[u8], name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("spirula-maps-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// `None` where `osdmaptool` is not installed.
fn osdmaptool(map: &[u8], arg: &str) -> Option<String> {
    let path = temp_file(map, arg.trim_start_matches('-'));
    let out = Command::new("osdmaptool").arg(&path).arg(arg).output();
    std::fs::remove_file(&path).unwrap();
    let out = out.ok()?;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8(out.stdout).unwrap())
}

/// The same maps on every machine.
struct Random(Rng);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0.below(n.into()) as u32
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}

fn crush(r: &mut Random, osds: u32) -> CrushMap {
    let mut crush = CrushMap::with_default_root("osd").unwrap();
    let hosts = 2 + r.below(6);
    for osd in 0..osds {
        let location: Location = CrushMap::parse_location([
            "root=default",
            &format!("rack=r{}", osd % hosts % 3),
            &format!("host=h{}", osd % hosts),
        ])
        .unwrap();
        let weight = 0x4000 + r.below(0x20000);
        crush
            .insert_item(osd.cast_signed(), weight, &format!("osd.{osd}"), &location)
            .unwrap();
        crush
            .set_device_class(osd.cast_signed(), if r.chance(70) { "hdd" } else { "ssd" })
            .unwrap();
    }
    let ec = (RuleMode::Indep, RULE_ERASURE);
    let replicated = (RuleMode::Firstn, RULE_REPLICATED);
    for (number, (name, failure_domain, device_class, (mode, rule_type))) in [
        ("by-host", "host", None, replicated),
        ("hdd", "", Some("hdd"), replicated),
        ("ec-osd", "", None, ec),
        ("ec-host", "host", None, ec),
    ]
    .into_iter()
    .enumerate()
    {
        let number = Some(number as u32 + 1);
        let root = "default";
        let rule = SimpleRule {
            name,
            root,
            failure_domain,
            device_class,
            mode,
            rule_type,
            number,
        };
        crush.add_simple_rule(&rule).unwrap();
    }
    crush
}

fn pool(r: &mut Random) -> PgPool {
    let pg_num = [1, 12, 64, 100, 256, 300, 512, 1000][r.below(8) as usize];
    let erasure = r.chance(50);
    let (size, rule) = if erasure {
        (3 + r.below(6) as u8, 3 + r.below(2) as u8)
    } else {
        (1 + r.below(4) as u8, r.below(3) as u8)
    };
    let mut pool = PgPool::replicated(size, 1, pg_num, rule);
    if erasure {
        pool.kind = PoolType::ERASURE;
        pool.erasure_code_profile = "default".to_owned();
    }
    if r.chance(20) {
        pool.pgp_num = (pg_num / 2).max(1);
    }
    if r.chance(10) {
        pool.flags = spirula_maps::PoolFlags::empty();
    }
    pool
}

/// States, weights and affinities of the OSDs.
fn change_osds(r: &mut Random, inc: &mut Incremental, osds: u32) {
    for osd in OsdId::below(osds) {
        let state = match r.below(10) {
            0 => OsdState::EXISTS,
            1 if r.chance(30) => continue,
            _ => OsdState::EXISTS.with(OsdState::UP),
        };
        inc.new_state.insert(osd, state);
        let weight = match r.below(8) {
            0 => 0,
            1 => r.below(0x10000),
            _ => 0x10000,
        };
        if weight != 0 || r.chance(80) {
            inc.new_weight.insert(osd, weight);
        }
        if inc.epoch.number().is_multiple_of(2) && r.chance(40) {
            inc.new_primary_affinity.insert(osd, r.below(0x10001));
        }
    }
}

/// Exceptions for some PGs.
fn except_pgs(r: &mut Random, inc: &mut Incremental, map: &OsdMap, osds: u32) {
    for pg in map.pgs() {
        let size = u32::from(map.pool_of(pg).unwrap().size);
        let some = |r: &mut Random, n: u32| -> Positions {
            (0..n).map(|_| OsdId::new(r.below(osds) as u16)).collect()
        };
        match r.below(60) {
            0 => drop(inc.new_pg_upmap.insert(pg, some(r, size))),
            1 | 2 => {
                let n = 1 + r.below(2);
                let (raw, to) = (map.map_pg_raw(pg), some(r, n));
                let items: Vec<_> = raw
                    .osds()
                    .zip(to.slots())
                    .map(|(from, to)| UpmapItem { from, to: *to })
                    .collect();
                inc.new_pg_upmap_items.insert(pg, items);
            }
            3 => {
                let mut osds = some(r, size);
                if map.pool_of(pg).unwrap().is_erasure() {
                    osds.slots_mut()
                        .iter_mut()
                        .filter(|_| r.chance(25))
                        .for_each(|slot| *slot = None);
                }
                drop(inc.new_pg_temp.insert(pg, osds));
            }
            4 => drop(inc.new_primary_temp.insert(pg, some(r, 1).first().into())),
            _ => {}
        }
    }
}

fn generated(seed: u64) -> OsdMap {
    let mut r = Random(Rng::new(seed));
    let osds = 4 + r.below(28);
    let mut map = OsdMap::new(Fsid([7; 16]), crush(&mut r, osds));
    let mut inc = Incremental::new(Fsid([7; 16]), Epoch::new(1));
    inc.new_max_osd = osds.cast_signed();
    inc.new_flags = OsdMapFlags::NEW_CLUSTER.0.cast_signed();
    inc.new_require_osd_release = Some(release::PACIFIC);
    inc.new_require_min_compat_client = Some(release::LUMINOUS);
    for id in 1..=5 {
        inc.new_pools.insert(PoolId::new(id), pool(&mut r));
        inc.new_pool_names.insert(PoolId::new(id), format!("pool-{id}"));
    }
    inc.new_pool_max = Some(PoolId::new(5));
    inc.new_erasure_code_profiles
        .insert("default".into(), BTreeMap::from([("k".into(), "2".into())]));
    map.apply(&inc).unwrap();
    let mut inc = Incremental::new(map.fsid, Epoch::new(2 + r.below(2)));
    change_osds(&mut r, &mut inc, osds);
    except_pgs(&mut r, &mut inc, &map, osds);
    inc.epoch = Epoch::new(2);
    map.apply(&inc).unwrap();
    map
}

fn write_osd(osd: Option<OsdId>) -> u8 {
    osd.map_or(255, |o| u8::try_from(o.item()).unwrap())
}

fn write_osds(out: &mut Vec<u8>, osds: &Positions) {
    out.push(u8::try_from(osds.slots().len()).unwrap());
    out.extend(osds.slots().iter().copied().map(write_osd));
}

/// A golden row: the raw set, the up set (254: the same), its primary (255: none), the acting set
/// (254: as up) and its primary. A set is its length and an OSD per byte, 255 for a hole.
fn write_row(out: &mut Vec<u8>, row: &Row) {
    write_osds(out, &row.raw);
    for (set, before) in [(&row.up, &row.raw), (&row.acting, &row.up.0)] {
        if set.0 == *before {
            out.push(254)
        } else {
            write_osds(out, &set.0)
        }
        out.push(write_osd(set.1));
    }
}

#[test]
fn maps_are_mapped_as_recorded_from_osdmaptool() {
    let golden = include_bytes!("../testdata/mappings.bin");
    let mut rest = golden.as_slice();
    let mut pgs = 0;
    let take = |rest: &mut &[u8]| {
        let (len, tail) = rest.split_first_chunk()?;
        let (data, tail) = tail.split_at(u32::from_le_bytes(*len) as usize);
        *rest = tail;
        Some(data.to_vec())
    };
    while let Some(encoded) = take(&mut rest) {
        let rows = take(&mut rest).unwrap();
        let map: OsdMap = decode_all(&encoded).unwrap();
        assert_eq!(encode_to_vec(&map), encoded);
        let mut ours = Vec::new();
        for row in our_rows(&map) {
            let at = ours.len();
            write_row(&mut ours, &row);
            assert!(rows[at..].starts_with(&ours[at..]), "{row:?}");
            pgs += 1;
        }
        assert_eq!(ours, rows);
    }
    assert!(pgs >= 20_000, "{pgs}");
}

#[test]
fn osdmaptool_reads_our_maps_and_maps_them_alike() {
    let recording = std::env::var_os("SPIRULA_RECORD_MAPPINGS");
    let mut golden = Vec::new();
    let seeds = if recording.is_some() { 1..21 } else { 1000..1006 };
    for seed in seeds {
        let map = generated(seed);
        let encoded = encode_to_vec(&map);
        let Some(text) = osdmaptool(&encoded, "--test-map-pgs-dump-all") else {
            eprintln!("osdmaptool is not installed: nothing compared");
            return;
        };
        let theirs: Vec<Row> = text.lines().filter_map(parse_row).collect();
        let ours = our_rows(&map);
        assert_eq!(theirs.len(), ours.len());
        for (t, o) in theirs.iter().zip(&ours) {
            assert_eq!(t, o, "theirs, ours; seed {seed}, pool {:?}", map.pool_of(t.pg));
        }
        let printed = osdmaptool(&encoded, "--print").unwrap();
        assert!(printed.contains(&format!("\nflags {}\n", map.flags)), "{printed}");
        for (id, pool) in &map.pools {
            assert!(
                printed.contains(&format!("pool {id} 'pool-{id}' {pool}")),
                "{pool}\n{printed}"
            );
        }
        let mut rows = Vec::new();
        theirs.iter().for_each(|row| write_row(&mut rows, row));
        for part in [&encoded, &rows] {
            golden.extend((part.len() as u32).to_le_bytes());
            golden.extend(part);
        }
    }
    if let Some(path) = recording {
        std::fs::write(path, golden).unwrap();
    }
}
