//! `MonMap` of Ceph's `src/mon/MonMap.h`: the monitors.

use std::collections::{BTreeMap, BTreeSet};

use spirula_denc::{Decode, Encode, EntityAddr, EntityAddrVec, Error, Fsid, Reader, Result, UTime, Writer};

use crate::codec::{flags, versioned, write_joined};
use crate::features::release;

flags! {
    /// `mon_feature_t` bits: what the monitors' data and protocols require.
    pub struct MonFeatures(u64) {
        /// Since 11.
        KRAKEN = 0, "kraken";
        /// Since 12.
        LUMINOUS = 1, "luminous";
        /// Since 13.
        MIMIC = 2, "mimic";
        /// Old OSD maps are pruned.
        OSDMAP_PRUNE = 3, "osdmap-prune";
        /// Since 14.
        NAUTILUS = 4, "nautilus";
        /// Since 15.
        OCTOPUS = 5, "octopus";
        /// Since 16.
        PACIFIC = 6, "pacific";
        /// Monitors score their connections.
        PINGING = 7, "elector-pinging";
    }
}

impl MonFeatures {
    /// What a Pacific cluster has. With MIMIC in it, clients wait for their configuration when they start.
    pub const PACIFIC_ALL: Self = Self(0xff);
}

/// Comma-separated names.
impl std::fmt::Display for MonFeatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_joined(f, self.names(), ",")
    }
}

versioned! {
    /// `mon_info_t`: one monitor.
    #[derive(Eq)]
    pub struct MonInfo("mon_info_t", version 5, compat 1) {
        /// Its name, `a` of `mon.a`.
        pub name: String;
        /// Where clients reach it.
        pub public_addrs: EntityAddrVec;
        /// Clients prefer lower ones.
        pub priority: u16, since 2;
        /// Clients choose among equal priorities by weight.
        pub weight: u16, since 4;
        /// Its place in the CRUSH hierarchy.
        pub crush_loc: BTreeMap<String, String>, since 5;
    }
}

/// How the leader is elected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElectionStrategy(pub u8);

impl ElectionStrategy {
    /// The lowest rank wins.
    pub const CLASSIC: Self = Self(1);
    /// Some may not win.
    pub const DISALLOW: Self = Self(2);
    /// The best connected wins.
    pub const CONNECTIVITY: Self = Self(3);
}

impl Encode for ElectionStrategy {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.0);
    }
}

impl Decode for ElectionStrategy {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u8().map(Self)
    }
}

/// A set of monitor features; encoded as a section of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct FeatureSection(MonFeatures);

impl Encode for FeatureSection {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| w.put(&self.0));
    }
}

impl Decode for FeatureSection {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("mon_feature_t", 1, |_, r| r.get().map(Self))
    }
}

/// The monitors of a cluster. Written as version 9; versions from 6 (Nautilus) on are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonMap {
    /// The cluster.
    pub fsid: Fsid,
    /// Counts the maps.
    pub epoch: u32,
    /// When this map was made.
    pub last_changed: UTime,
    /// When the first was.
    pub created: UTime,
    /// Features that stay required.
    pub persistent_features: MonFeatures,
    /// Features that are required while configured.
    pub optional_features: MonFeatures,
    /// The monitors by name.
    pub mons: BTreeMap<String, MonInfo>,
    /// The monitors' names by rank.
    pub ranks: Vec<String>,
    /// The oldest release that may join.
    pub min_mon_release: u8,
    /// Ranks of monitors that were removed.
    pub removed_ranks: BTreeSet<u32>,
    /// How the leader is elected.
    pub strategy: ElectionStrategy,
    /// Who can't be leader.
    pub disallowed_leaders: BTreeSet<String>,
    /// Stretch mode.
    pub stretch_mode_enabled: bool,
    /// Stretch mode.
    pub tiebreaker_mon: String,
    /// Stretch mode.
    pub stretch_marked_down_mons: BTreeSet<String>,
}

impl Default for MonMap {
    fn default() -> Self {
        Self {
            fsid: Fsid::default(),
            epoch: 0,
            last_changed: UTime::ZERO,
            created: UTime::ZERO,
            persistent_features: MonFeatures::empty(),
            optional_features: MonFeatures::empty(),
            mons: BTreeMap::new(),
            ranks: Vec::new(),
            min_mon_release: release::UNKNOWN,
            removed_ranks: BTreeSet::new(),
            strategy: ElectionStrategy::CLASSIC,
            disallowed_leaders: BTreeSet::new(),
            stretch_mode_enabled: false,
            tiebreaker_mon: String::new(),
            stretch_marked_down_mons: BTreeSet::new(),
        }
    }
}

impl MonMap {
    /// A cluster's first map, without monitors, at Pacific's level.
    pub fn initial(fsid: Fsid, now: UTime) -> Self {
        Self {
            fsid,
            last_changed: now,
            created: now,
            persistent_features: MonFeatures::PACIFIC_ALL,
            min_mon_release: release::PACIFIC,
            ..Self::default()
        }
    }

    /// Adds a monitor with the next rank. A monitor of that name is replaced and keeps its rank.
    pub fn add(&mut self, name: &str, public_addrs: EntityAddrVec) {
        let info = MonInfo {
            name: name.to_owned(),
            public_addrs,
            ..MonInfo::default()
        };
        if self.mons.insert(name.to_owned(), info).is_none() {
            self.ranks.push(name.to_owned());
        }
    }

    /// The monitor of a rank.
    pub fn by_rank(&self, rank: usize) -> Option<&MonInfo> {
        self.mons.get(self.ranks.get(rank)?)
    }

    /// The rank of a monitor.
    pub fn rank_of(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }

    /// The monitor that has `addr` among its addresses.
    pub fn by_addr(&self, addr: &EntityAddr) -> Option<&MonInfo> {
        self.mons.values().find(|m| m.public_addrs.0.contains(addr))
    }
}

impl Encode for MonMap {
    fn encode(&self, w: &mut Writer) {
        w.section(9, 6, |w| {
            w.put(&self.fsid);
            w.u32(self.epoch);
            w.put(&self.last_changed);
            w.put(&self.created);
            w.put(&FeatureSection(self.persistent_features));
            w.put(&FeatureSection(self.optional_features));
            w.put(&self.mons);
            w.put(&self.ranks);
            w.u8(self.min_mon_release);
            w.put(&self.removed_ranks);
            w.put(&self.strategy);
            w.put(&self.disallowed_leaders);
            w.bool(self.stretch_mode_enabled);
            w.put(&self.tiebreaker_mon);
            w.put(&self.stretch_marked_down_mons);
        });
    }
}

impl Decode for MonMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("MonMap", 9, |version, r| {
            if version < 6 {
                return Err(Error::TooOld {
                    what: "MonMap",
                    version,
                });
            }
            let mut m = Self {
                fsid: r.get()?,
                epoch: r.u32()?,
                last_changed: r.get()?,
                created: r.get()?,
                persistent_features: r.get::<FeatureSection>()?.0,
                optional_features: r.get::<FeatureSection>()?.0,
                mons: r.get()?,
                ranks: r.get()?,
                ..Self::default()
            };
            if version >= 7 {
                m.min_mon_release = r.u8()?;
            }
            if version >= 8 {
                m.removed_ranks = r.get()?;
                m.strategy = r.get()?;
                m.disallowed_leaders = r.get()?;
            }
            if version >= 9 {
                m.stretch_mode_enabled = r.bool()?;
                m.tiebreaker_mon = r.get()?;
                m.stretch_marked_down_mons = r.get()?;
            }
            Ok(m)
        })
    }
}
