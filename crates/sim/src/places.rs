//! Damage of single places of a disk, of every region and kind: whether scrubs find it, and whether
//! anything is left that nothing would have found.

use std::collections::BTreeMap;
use std::sync::Arc;

use spirula_maps::OsdId;
use spirula_store::device::{BlockIo, SimDisk};
use spirula_store::{Depth, fsck_on};

use crate::clock::SECOND;
use crate::contents;
use crate::setup::{Failure, Setup};
use crate::world::World;

/// The bytes of a block, and of a sector: a disk writes all of a sector or nothing.
const BLOCK: usize = 4096;
const SECTOR: usize = 512;
/// The OSD whose disk is damaged.
const FIRST: OsdId = OsdId::new(0);
/// The offset of the log, and those of the copies of the superblock.
const LOG: usize = 256 << 10;
const SUPERBLOCKS: [usize; 2] = [0, 64 << 10];
/// How often a place is chosen anew if the damage would change nothing.
const TRIES: usize = 100;

/// What lies at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Region {
    /// A copy of the superblock.
    Superblock,
    /// A copy of the index's map.
    IndexMap,
    /// The log.
    Log,
    /// A page of the index, or a table of their checksums.
    Index,
    /// Data of an object.
    Data,
    /// Anything else.
    Rest,
}

impl Region {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Superblock,
        Self::IndexMap,
        Self::Log,
        Self::Index,
        Self::Data,
        Self::Rest,
    ];
}

/// What happens to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A bit flips.
    Flipped,
    /// The last sectors of a block have what lies in another block.
    Torn,
    /// A block has what was meant for another one.
    Misdirected,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Flipped, Self::Torn, Self::Misdirected];
}

/// What became of a place after all was scrubbed and repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Something else was written there.
    Written,
    /// It is still as it was damaged, and nothing that the store keeps lies there.
    Unused,
}

/// A damaged place, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// What lay there.
    pub region: Region,
    /// What happened.
    pub kind: Kind,
    /// What became of it.
    pub fate: Fate,
}

/// A change of the disk.
struct Damage {
    region: Region,
    kind: Kind,
    at: usize,
    bytes: Vec<u8>,
}

/// The offsets of the blocks of each region.
struct Regions(BTreeMap<Region, Vec<usize>>);

impl Regions {
    fn of(disk: &SimDisk, log: usize) -> Result<Self, String> {
        // A copy, as opening a store writes to it.
        let data = contents::places(&disk.copied(1))?.into_iter();
        let data = data.filter_map(|block| Some(usize::try_from(block).ok()? * BLOCK));
        let blocks = |from: usize, len: usize| (from..from + len).step_by(BLOCK).collect();
        let maps = contents::INDEX_MAPS;
        let mut regions = BTreeMap::from([
            (Region::Superblock, SUPERBLOCKS.to_vec()),
            (Region::IndexMap, blocks(maps[0], LOG - maps[0])),
            (Region::Log, blocks(LOG, log)),
            (Region::Index, contents::index_blocks(disk).into_iter().collect()),
            (Region::Data, data.collect()),
        ]);
        let size = usize::try_from(disk.size()).unwrap_or(0);
        let known: Vec<usize> = regions.values().flatten().copied().collect();
        let rest = (0..size).step_by(BLOCK).filter(|at| !known.contains(at));
        regions.insert(Region::Rest, rest.collect());
        Ok(Self(regions))
    }
}

/// The bytes of a disk.
fn read(disk: &SimDisk, at: usize, len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; len];
    let at = u64::try_from(at).map_err(|e| e.to_string())?;
    disk.read_at(at, &mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// Runs the cluster of a seed without faults, then damages as many `places` of one OSD's disk at
/// once, while that OSD runs or after it was killed. Reads all, scrubs and repairs all. At the end
/// all copies are equal, and a check of the damaged store finds nothing.
///
/// # Errors
/// A broken guarantee, as of [`crate::run`]; a place that is damaged and in use, and was not mended.
pub fn damage(seed: u64, setup: &Setup, places: usize) -> Result<Vec<Place>, Failure> {
    World::new(seed, setup)?.suffer(places)
}

impl World {
    fn suffer(&mut self, places: usize) -> Result<Vec<Place>, Failure> {
        self.come_up()?;
        self.weather.begun = true;
        self.weather.working = true;
        self.begin_work();
        self.run(self.setup.seconds * SECOND, |_| false)?;
        self.weather.working = false;
        self.heal()?;
        let is_killed = self.rng.one_in(2);
        if is_killed {
            self.kill_osd(FIRST);
        }
        let damages = self.damages(places).map_err(|e| self.failure(e))?;
        self.revive_osd(FIRST);
        self.last_reads()?;
        self.heal()?;
        // A daemon that starts anew, to have its index mended, forgets what was ordered.
        self.check_indexes(true)?;
        self.scrub_all(true)?;
        self.heal()?;
        self.last_scrubs()?;
        self.last_reads()?;
        self.check_histories()?;
        self.check_copies()?;
        let told = |d: &Damage| format!("{:?} {:?} at {}", d.region, d.kind, d.at);
        let told: Vec<String> = damages.iter().map(told).collect();
        let told = format!(
            "{}{}",
            told.join(", "),
            if is_killed { ", of a killed OSD" } else { "" }
        );
        self.fates(damages)
            .map_err(|e| self.failure(format!("{e}\nafter damage: {told}")))
    }

    /// Chooses places and damages them. Of two copies one stays whole.
    fn damages(&mut self, places: usize) -> Result<Vec<Damage>, String> {
        let disk = match self.osds.get(&FIRST) {
            Some(n) => n.disk.clone(),
            None => return Err("there is no first OSD".to_owned()),
        };
        let regions = Regions::of(&disk, self.setup.log)?;
        let mut damages: Vec<Damage> = Vec::new();
        for _ in 0..TRIES * places {
            if damages.len() == places {
                break;
            }
            let region = Region::ALL[self.rng.index(Region::ALL.len())];
            let kind = Kind::ALL[self.rng.index(Kind::ALL.len())];
            let has_copy = matches!(region, Region::Superblock | Region::IndexMap);
            if has_copy && damages.iter().any(|d| d.region == region) {
                continue;
            }
            let blocks = &regions.0[&region];
            let all = usize::try_from(disk.size()).unwrap_or(0) / BLOCK;
            let (Some(block), other) = (self.rng.pick(blocks).copied(), self.rng.index(all) * BLOCK) else {
                continue;
            };
            let before = read(&disk, block, BLOCK)?;
            let (from, bytes) = match kind {
                Kind::Flipped => {
                    let at = self.rng.index(BLOCK);
                    (at, vec![before[at] ^ (1 << self.rng.below(8))])
                }
                Kind::Torn => {
                    let at = SECTOR * (1 + self.rng.index(BLOCK / SECTOR - 1));
                    (at, read(&disk, other + at, BLOCK - at)?)
                }
                Kind::Misdirected => (0, read(&disk, other, BLOCK)?),
            };
            if before[from..from + bytes.len()] == bytes {
                continue;
            }
            let at = block + from;
            disk.overwrite(at, &bytes);
            damages.push(Damage {
                region,
                kind,
                at,
                bytes,
            });
        }
        Ok(damages)
    }

    /// What became of each place, once no process uses the disk.
    fn fates(&self, damages: Vec<Damage>) -> Result<Vec<Place>, String> {
        let Some(n) = self.osds.get(&FIRST) else {
            return Err("there is no first OSD".to_owned());
        };
        let main: Arc<dyn BlockIo> = Arc::new(n.disk.copied(1));
        let report = fsck_on(&main, None, Depth::Deep);
        if !report.is_clean() {
            return Err(format!("the store is still damaged:\n{report}"));
        }
        let fate = |d: Damage| {
            let is_same = read(&n.disk, d.at, d.bytes.len())? == d.bytes;
            Ok(Place {
                region: d.region,
                kind: d.kind,
                fate: if is_same { Fate::Unused } else { Fate::Written },
            })
        };
        damages.into_iter().map(fate).collect()
    }
}
