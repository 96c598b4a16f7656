//! The daemon's settings from its start, and the options in force.

use std::rc::Rc;

use spirula_conf::options::Values;
use spirula_denc::{EntityAddr, Micros, UTime};
use spirula_invariant::Recorder;
use spirula_maps::{OsdId, OsdInfo, OsdMap};
use spirula_msgr::recent::Transition as SessionTransition;

use super::config::OsdConfig;
use super::host::Host;
use crate::pg::config::PgConfig;

/// Where the daemon listens.
#[derive(Debug, Clone, Copy)]
pub struct Addrs {
    /// The address for clients.
    pub public: EntityAddr,
    /// The address for other OSDs.
    pub cluster: EntityAddr,
    /// The address for heartbeats on the network of the OSDs.
    pub heartbeat_back: EntityAddr,
    /// The address for heartbeats on the network of the clients.
    pub heartbeat_front: EntityAddr,
}

/// This OSD's number, addresses and machine. Only a change of an option changes it.
pub(super) struct Setup {
    pub(super) cfg: OsdConfig,
    /// Settings of the PGs that no option changes.
    pub(super) pg: PgConfig,
    pub(super) addrs: Addrs,
    /// The options in force.
    pub(super) values: Values,
    pub(super) host: Rc<dyn Host>,
    /// The endpoints' records of their sessions.
    pub(super) endpoints: Vec<Recorder<SessionTransition>>,
}

impl Setup {
    /// The OSD's number.
    pub(super) fn id(&self) -> OsdId {
        self.cfg.id
    }

    /// The time by a monotonic clock.
    pub(super) fn usec(&self) -> Micros {
        self.host.usec()
    }

    /// The time of day.
    pub(super) fn now(&self) -> UTime {
        self.host.now()
    }

    /// A map's information on this OSD.
    pub(super) fn info(&self, map: &OsdMap) -> OsdInfo {
        map.osd_info.get(self.cfg.id.index()).copied().unwrap_or_default()
    }
}
