//! `MonMap` of Ceph's `src/mon/MonMap.h`: the monitors.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::Epoch;
use spirula_denc::{EntityAddrVec, Fsid, Reader, Result, UTime, Writer, flags, versioned};

use crate::features::release;

flags! {
    /// `mon_feature_t` bits: the features that the monitors' data and protocols require.
    pub struct MonFeatures(u64), joined "," {
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
    /// The features of a Pacific cluster. With MIMIC among them, clients wait for their
    /// configuration when they start.
    pub const PACIFIC_ALL: Self = Self(0xff);
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

spirula_denc::transparent!(ElectionStrategy);

/// A set of monitor features, in a section of its own.
mod feature_section {
    use super::*;

    pub(super) fn encode(features: &MonFeatures, w: &mut Writer) {
        w.section(1, 1, |w| w.put(features));
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<MonFeatures> {
        r.section("mon_feature_t", 1, |_, r| r.get())
    }
}

versioned! {
    /// The monitors of a cluster. Written as version 9; versions from 6 (Nautilus) on are read.
    #[derive(Eq)]
    pub struct MonMap("MonMap", version 9, compat 6, oldest 6) {
        /// The cluster.
        pub fsid: Fsid;
        /// Counts the maps.
        pub epoch: Epoch;
        /// When this map was made.
        pub last_changed: UTime;
        /// When the first was.
        pub created: UTime;
        /// Features that stay required.
        pub persistent_features: MonFeatures, via feature_section;
        /// Features that are required while configured.
        pub optional_features: MonFeatures, via feature_section;
        /// The monitors by name.
        pub mons: BTreeMap<String, MonInfo>;
        /// The monitors' names by rank.
        pub ranks: Vec<String>;
        /// The oldest release that may join.
        pub min_mon_release: u8 = release::UNKNOWN, since 7;
        /// Ranks of monitors that were removed.
        pub removed_ranks: BTreeSet<u32>, since 8;
        /// How the leader is elected.
        pub strategy: ElectionStrategy = ElectionStrategy::CLASSIC, since 8;
        /// The monitors that can't be leader.
        pub disallowed_leaders: BTreeSet<String>, since 8;
        /// Stretch mode.
        pub stretch_mode_enabled: bool, since 9;
        /// Stretch mode.
        pub tiebreaker_mon: String, since 9;
        /// Stretch mode.
        pub stretch_marked_down_mons: BTreeSet<String>, since 9;
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

    /// Removes a monitor; those of higher ranks move up.
    pub fn remove(&mut self, name: &str) {
        self.mons.remove(name);
        self.disallowed_leaders.remove(name);
        if let Some(rank) = self.rank_of(name) {
            self.ranks.remove(rank);
            self.removed_ranks.extend(u32::try_from(rank));
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
}
