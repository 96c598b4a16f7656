//! A session with the manager: open, configure, report, close.

use std::collections::BTreeMap;

use crate::macros::{message, packed};
use crate::{Blob, Body, MsgType, Payload, RawMessage, Rest};
use bytes::Bytes;
use spirula_denc::{Reader, Result, versioned};

/// Opens a session with the manager.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MMgrOpen {
    /// The daemon's or service instance's name.
    pub daemon_name: String,
    /// The service; empty for daemons, whose kind tells it.
    pub service_name: String,
    /// Metadata and status of a service daemon that registers itself.
    pub service: Option<ServiceRegistration>,
    /// An encoded map of the configuration.
    pub config: Blob,
    /// An encoded map of the built-in defaults.
    pub config_defaults: Blob,
}

packed! {
    /// The registration of a service daemon.
    pub struct ServiceRegistration {
        /// Constant properties.
        pub metadata: BTreeMap<String, String>,
        /// Status at start.
        pub status: BTreeMap<String, String>,
    }
}

impl Payload for MMgrOpen {
    const TYPE: MsgType = MsgType::MGR_OPEN;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    const OLDEST: u16 = 3;

    fn encode(&self, out: &mut Body) {
        let w = &mut out.front;
        w.string(&self.daemon_name);
        w.string(&self.service_name);
        w.put(&self.service);
        w.put(&self.config);
        w.put(&self.config_defaults);
    }

    fn decode(r: &mut Reader<'_>, _: &RawMessage) -> Result<Self> {
        Ok(Self {
            daemon_name: r.string()?,
            service_name: r.string()?,
            service: r.get()?,
            config: r.get()?,
            config_defaults: r.get()?,
        })
    }
}

message! {
    /// The manager tells how often to report.
    pub struct MMgrConfigure: MGR_CONFIGURE, version 4, compat 1, oldest 2 {
        /// Seconds between reports.
        pub stats_period: u32,
        /// Priority below which counters are left out.
        pub stats_threshold: u32,
        /// Queries for per-object statistics; see [`MMgrConfigure::NO_QUERIES`].
        pub queries: Rest,
    }
}

impl MMgrConfigure {
    /// No query at all: an empty map and an absent message.
    pub const NO_QUERIES: Rest = Rest(Bytes::from_static(&[0; 5]));
}

versioned! {
    /// Declares a performance counter.
    #[derive(Eq)]
    pub struct PerfCounterType("PerfCounterType", version 3, compat 1) {
        /// `subsystem.counter`.
        pub path: String;
        /// What it counts.
        pub description: String;
        /// A short name.
        pub nick: String;
        /// `perfcounter_type_d`: bit 0 time, 1 u64, 2 average, 3 counter, 4 histogram.
        pub kind: u8;
        /// The counter's priority (`PerfCountersBuilder::PRIO_*`).
        pub priority: u8, since 2;
        /// 0 none, 1 bytes.
        pub unit: u8, since 3;
    }
}

versioned! {
    /// A metric behind a health warning: 0 slow ops, 1 PGs being created.
    #[derive(Eq)]
    pub struct DaemonHealthMetric("DaemonHealthMetric", version 1, compat 1) {
        /// The kind of metric.
        pub kind: u8;
        /// The count (low half) and the age in seconds (high half).
        pub value: u64;
    }
}

message! {
    /// Performance counters and status.
    pub struct MMgrReport: MGR_REPORT, version 9, compat 1, oldest 7 {
        /// The daemon's name.
        pub daemon_name: String,
        /// Counters reported from now on.
        pub declare_types: Vec<PerfCounterType>,
        /// The values of all declared counters, in the order of their paths.
        pub packed: Blob,
        /// Counters no longer reported.
        pub undeclare_types: Vec<String>,
        /// The service; empty for daemons.
        pub service_name: String,
        /// Changed status of a service daemon.
        pub daemon_status: Option<BTreeMap<String, String>>,
        /// The metrics behind health warnings.
        pub health_metrics: Vec<DaemonHealthMetric>,
        /// An encoded map of the configuration.
        pub config: Blob,
        /// Per-object statistics and task status; see [`MMgrReport::NO_PERF_REPORTS`].
        pub perf_reports: Rest,
    }
}

impl MMgrReport {
    /// No per-object statistics and no task: an empty map and two absent values.
    pub const NO_PERF_REPORTS: Rest = Rest(Bytes::from_static(&[0; 6]));

    /// The status of a service daemon's tasks, by task; `None` if it is unchanged, or if statistics
    /// stand before it, which only OSDs send.
    ///
    /// # Errors
    /// Where it is malformed.
    pub fn task_status(&self) -> crate::Result<Option<BTreeMap<String, String>>> {
        let mut r = Reader::new(&self.perf_reports.0);
        let read = |r: &mut Reader<'_>| {
            if r.is_empty() || r.u32()? > 0 || r.is_empty() {
                return Ok(None);
            }
            r.get()
        };
        read(&mut r).map_err(|source| crate::Error::Field {
            kind: Self::TYPE,
            source,
        })
    }
}

message! {
    /// Ends a session with the manager; it answers with the same.
    pub struct MMgrClose: MGR_CLOSE, version 1, compat 1 {
        /// The daemon's name.
        pub daemon_name: String,
        /// The service; empty for daemons.
        pub service_name: String,
    }
}
