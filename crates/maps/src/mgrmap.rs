//! `MgrMap` of Ceph's `src/mon/MgrMap.h`: the manager daemon.

use std::collections::{BTreeMap, BTreeSet};

use spirula_denc::{EntityAddrVec, UTime, versioned};

versioned! {
    /// `MgrMap::ModuleOption`: a setting of a manager module.
    #[derive(Eq)]
    pub struct MgrModuleOption("MgrMap::ModuleOption", version 1, compat 1) {
        /// Its name.
        pub name: String;
        /// Its type (`Option::type_t`).
        pub kind: u8;
        /// The kind of user that should change it (`Option::level_t`).
        pub level: u8;
        /// `Option::flag_t`.
        pub flags: u32;
        /// Its default.
        pub default_value: String;
        /// Its least value.
        pub min: String;
        /// Its greatest value.
        pub max: String;
        /// Its values, where they are few.
        pub enum_allowed: BTreeSet<String>;
        /// A short description.
        pub desc: String;
        /// A long description.
        pub long_desc: String;
        /// Its subjects.
        pub tags: BTreeSet<String>;
        /// Other settings.
        pub see_also: BTreeSet<String>;
    }
}

versioned! {
    /// `MgrMap::ModuleInfo`: a manager module.
    #[derive(Eq)]
    pub struct MgrModule("MgrMap::ModuleInfo", version 2, compat 1) {
        /// Its name.
        pub name: String;
        /// Whether it could run.
        pub can_run: bool = true;
        /// Why not.
        pub error_string: String;
        /// Its settings.
        pub module_options: BTreeMap<String, MgrModuleOption>, since 2;
    }
}

versioned! {
    /// `MgrMap::StandbyInfo`: a manager that waits.
    #[derive(Eq)]
    pub struct MgrStandby("MgrMap::StandbyInfo", version 4, compat 1) {
        /// Its global id.
        pub gid: u64;
        /// Its name.
        pub name: String;
        /// The names of its modules.
        pub old_available_modules: BTreeSet<String>, since 2;
        /// Its modules.
        pub available_modules: Vec<MgrModule>, since 3;
        /// Its features.
        pub mgr_features: u64, since 4;
    }
}

versioned! {
    /// The managers. Written as version 11, which is 16.2.0's; 6 and later are read.
    #[derive(Eq)]
    pub struct MgrMap("MgrMap", version 11, compat 6, oldest 6) {
        /// Counts the maps.
        pub epoch: u32;
        /// Where the active manager listens.
        pub active_addrs: EntityAddrVec;
        /// The active manager's global id; 0 for none.
        pub active_gid: u64;
        /// Whether it serves.
        pub available: bool;
        /// Its name.
        pub active_name: String;
        /// The managers that would take over.
        pub standbys: BTreeMap<u64, MgrStandby>;
        /// Modules that are enabled.
        pub modules: BTreeSet<String>;
        /// Addresses at which modules serve.
        pub services: BTreeMap<String, String>;
        /// Modules that exist.
        pub available_modules: Vec<MgrModule>;
        /// When the active manager last changed.
        pub active_change: UTime, since 7;
        /// Modules that can't be disabled, by release.
        pub always_on_modules: BTreeMap<u32, BTreeSet<String>>, since 8;
        /// The active manager's features.
        pub active_mgr_features: u64, since 9;
        /// The OSDMap epoch that blocklisted the last one that failed.
        pub last_failure_osd_epoch: u32, since 10;
        /// The addresses of the active manager's own clients.
        pub clients: Vec<EntityAddrVec>, since 11;
    }
}
