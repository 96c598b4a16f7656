//! The manager: its map, the service map, and the sessions of daemons and services with it.

mod map;
mod service;
mod session;

pub use map::{MMgrMap, MgrMap, ModuleInfo, ModuleOption, StandbyInfo};
pub use service::{MServiceMap, Service, ServiceDaemon, ServiceMap};
pub use session::{
    DaemonHealthMetric, MMgrClose, MMgrConfigure, MMgrOpen, MMgrReport, PerfCounterType, ServiceRegistration,
};
