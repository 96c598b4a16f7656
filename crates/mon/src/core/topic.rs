//! The topics that sessions subscribe to, by the names of Ceph's `MonClient::sub_want`.

use std::fmt;

use spirula_proto::mon::LogPriority;

/// Longest name of a subscription, in bytes: one of a file system's map has the file system's name.
const MAX_NAME: usize = 128;

/// Something to subscribe to. In the order of the names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The options of the subscriber.
    Config,
    /// The file systems and their daemons.
    FsMap,
    /// The names of the file systems.
    FsMapUser,
    /// Configuration keys with a prefix.
    Kv(String),
    /// The cluster log, from a level on.
    Log(LogPriority),
    /// The daemons of the default file system, or of the one with this name.
    MdsMap(Option<String>),
    /// The monitors' digest for managers.
    MgrDigest,
    /// The managers.
    MgrMap,
    /// The monitors.
    MonMap,
    /// PGs that an OSD is to make.
    OsdPgCreates,
    /// The OSDs, pools and CRUSH map.
    OsdMap,
    /// The daemons that registered as services.
    ServiceMap,
}

impl Topic {
    /// The topic of this name; `None` if it does not exist.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if name.len() > MAX_NAME {
            return None;
        }
        Some(match name {
            "config" => Self::Config,
            "fsmap" => Self::FsMap,
            "fsmap.user" => Self::FsMapUser,
            "log-debug" => Self::Log(LogPriority::DEBUG),
            "log-info" => Self::Log(LogPriority::INFO),
            "log-sec" => Self::Log(LogPriority::SEC),
            "log-warn" => Self::Log(LogPriority::WARN),
            "log-error" => Self::Log(LogPriority::ERROR),
            "mdsmap" => Self::MdsMap(None),
            "mgrdigest" => Self::MgrDigest,
            "mgrmap" => Self::MgrMap,
            "monmap" => Self::MonMap,
            "osd_pg_creates" => Self::OsdPgCreates,
            "osdmap" => Self::OsdMap,
            "servicemap" => Self::ServiceMap,
            _ => {
                if let Some(prefix) = name.strip_prefix("kv:") {
                    Self::Kv(prefix.to_owned())
                } else {
                    Self::MdsMap(Some(name.strip_prefix("mdsmap.")?.to_owned()))
                }
            }
        })
    }

    /// The service of the monitors that a subscriber must be allowed to read; `None` if no right is
    /// needed: for options, the log, the monitors, and the manager, which has capabilities of its
    /// own.
    pub(crate) fn service(&self) -> Option<&'static str> {
        match self {
            Self::Config | Self::Log(_) | Self::MonMap | Self::MgrMap => None,
            Self::OsdMap | Self::OsdPgCreates => Some("osd"),
            Self::MgrDigest => Some("mgr"),
            Self::MdsMap(_) | Self::FsMap | Self::FsMapUser => Some("mds"),
            Self::Kv(_) | Self::ServiceMap => Some("mon"),
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = |l: LogPriority| match l {
            LogPriority::DEBUG => "debug",
            LogPriority::SEC => "sec",
            LogPriority::WARN => "warn",
            LogPriority::ERROR => "error",
            _ => "info",
        };
        match self {
            Self::Config => f.write_str("config"),
            Self::FsMap => f.write_str("fsmap"),
            Self::FsMapUser => f.write_str("fsmap.user"),
            Self::Kv(prefix) => write!(f, "kv:{prefix}"),
            Self::Log(l) => write!(f, "log-{}", level(*l)),
            Self::MdsMap(None) => f.write_str("mdsmap"),
            Self::MdsMap(Some(name)) => write!(f, "mdsmap.{name}"),
            Self::MgrDigest => f.write_str("mgrdigest"),
            Self::MgrMap => f.write_str("mgrmap"),
            Self::MonMap => f.write_str("monmap"),
            Self::OsdPgCreates => f.write_str("osd_pg_creates"),
            Self::OsdMap => f.write_str("osdmap"),
            Self::ServiceMap => f.write_str("servicemap"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_unknown() {
        let names = [
            "config",
            "fsmap",
            "fsmap.user",
            "kv:a/",
            "log-debug",
            "log-error",
            "log-info",
            "log-sec",
            "log-warn",
            "mdsmap",
            "mdsmap.x",
            "mgrdigest",
            "mgrmap",
            "monmap",
            "osd_pg_creates",
            "osdmap",
            "servicemap",
        ];
        for name in names {
            assert_eq!(Topic::parse(name).map(|t| t.to_string()).as_deref(), Some(name));
        }
        for name in [
            "",
            "osdmaps",
            "log-",
            "log-x",
            "mdsmapx",
            &format!("kv:{}", "x".repeat(MAX_NAME)),
        ] {
            assert_eq!(Topic::parse(name), None, "{name}");
        }
    }
}
