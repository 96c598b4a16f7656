//! `ServiceMap` of Ceph's `src/mgr/ServiceMap.h`: services such as gateways that registered
//! themselves.

use std::collections::BTreeMap;

use spirula_denc::{EntityAddr, UTime, versioned};
use spirula_maps::Epoch;

use crate::macros::message;

versioned! {
    /// One daemon of a service.
    #[derive(Eq)]
    pub struct ServiceDaemon("ServiceMap::Daemon", version 2, compat 1) {
        /// Its global id.
        pub gid: u64;
        /// Its address.
        pub addr: EntityAddr;
        /// The map's epoch when it started.
        pub start_epoch: Epoch;
        /// When it started.
        pub start_stamp: UTime;
        /// Metadata that it reports about itself.
        pub metadata: BTreeMap<String, String>;
        /// Its running tasks.
        pub task_status: BTreeMap<String, String>, since 2;
    }
}

versioned! {
    /// A service.
    #[derive(Eq)]
    pub struct Service("ServiceMap::Service", version 1, compat 1) {
        /// Its daemons.
        pub daemons: BTreeMap<String, ServiceDaemon>;
        /// Its line in `ceph -s`, if that is not made from the daemons.
        pub summary: String;
    }
}

versioned! {
    /// All registered services.
    #[derive(Eq)]
    pub struct ServiceMap("ServiceMap", version 1, compat 1) {
        /// The map's epoch.
        pub epoch: Epoch;
        /// When it changed.
        pub modified: UTime;
        /// The services by name.
        pub services: BTreeMap<String, Service>;
    }
}

message! {
    /// The service map.
    pub struct MServiceMap: SERVICE_MAP, version 1, compat 1 {
        /// The map.
        pub map: ServiceMap,
    }
}
