//! `MgrMap` of Ceph's `src/mon/MgrMap.h`: the active manager and its standbys.

use std::collections::{BTreeMap, BTreeSet};

use spirula_denc::{EntityAddrVec, UTime, versioned};
use spirula_maps::Epoch;

use crate::macros::message;

versioned! {
    /// An option of a manager module.
    #[derive(Eq)]
    pub struct ModuleOption("MgrMap::ModuleOption", version 1, compat 1) {
        /// The option's name.
        pub name: String;
        /// `Option::type_t`.
        pub kind: u8;
        /// `Option::level_t`.
        pub level: u8;
        /// `Option::flag_t`.
        pub flags: u32;
        /// Its default.
        pub default_value: String;
        /// Smallest value.
        pub min: String;
        /// Largest value.
        pub max: String;
        /// Allowed values.
        pub enum_allowed: BTreeSet<String>;
        /// One line of help.
        pub desc: String;
        /// More help.
        pub long_desc: String;
        /// Tags.
        pub tags: BTreeSet<String>;
        /// Related options.
        pub see_also: BTreeSet<String>;
    }
}

versioned! {
    /// A manager module.
    #[derive(Eq)]
    pub struct ModuleInfo("MgrMap::ModuleInfo", version 2, compat 1) {
        /// The module's name.
        pub name: String;
        /// Whether it can run.
        pub can_run: bool;
        /// Why not.
        pub error: String;
        /// Its options.
        pub options: BTreeMap<String, ModuleOption>, since 2;
    }
}

versioned! {
    /// A standby manager.
    #[derive(Eq)]
    pub struct StandbyInfo("MgrMap::StandbyInfo", version 4, compat 1) {
        /// Its global id.
        pub gid: u64;
        /// Its name.
        pub name: String;
        /// Its modules' names.
        pub module_names: BTreeSet<String>, since 2;
        /// Its modules.
        pub available_modules: Vec<ModuleInfo>, since 3;
        /// Its features.
        pub features: u64, since 4;
    }
}

versioned! {
    /// The managers. All fields are zero without one.
    #[derive(Eq)]
    pub struct MgrMap("MgrMap", version 12, compat 6, oldest 6) {
        /// The map's epoch.
        pub epoch: Epoch;
        /// The addresses of the active manager.
        pub active_addrs: EntityAddrVec;
        /// Its global id; 0 for none.
        pub active_gid: u64;
        /// Whether it serves.
        pub available: bool;
        /// Its name.
        pub active_name: String;
        /// The standby managers by global id.
        pub standbys: BTreeMap<u64, StandbyInfo>;
        /// Enabled modules.
        pub modules: BTreeSet<String>;
        /// Addresses of the modules' services.
        pub services: BTreeMap<String, String>;
        /// All modules.
        pub available_modules: Vec<ModuleInfo>;
        /// Since when it is active.
        pub active_change: UTime, since 7;
        /// Modules that always run, by release.
        pub always_on_modules: BTreeMap<u32, BTreeSet<String>>, since 8;
        /// The active manager's features.
        pub active_features: u64, since 9;
        /// The osdmap epoch that blocklisted the last failed manager.
        pub last_failure_osd_epoch: Epoch, since 10;
        /// Addresses of the manager's own RADOS clients.
        pub client_addrs: Vec<EntityAddrVec>, since 11;
        /// Names of the clients, in the same order.
        pub client_names: Vec<String>, since 12;
    }
}

message! {
    /// The manager map. Librados wants one before it sends any manager command.
    pub struct MMgrMap: MGR_MAP, version 1, compat 1, priority HIGH {
        /// The map.
        pub map: MgrMap,
    }
}
