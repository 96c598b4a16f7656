//! The kinds of daemons that `spirula up` makes and runs, with everything in which starting,
//! stopping and showing them differs. Making one is in [`crate::up`]'s `provision`, a file a kind.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use spirula_maps::OsdId;

/// A kind of daemon, in the order in which they start: each needs those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A monitor.
    Mon,
    /// An object storage daemon.
    Osd,
}

impl Kind {
    /// All kinds in the order of their start. They stop in reverse order, so that each can still
    /// report its end to the monitors.
    pub(crate) const ALL: [Self; 2] = [Self::Mon, Self::Osd];

    /// The first part of the daemons' names, directories and sections, and this program's command
    /// for them.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mon => "mon",
            Self::Osd => "osd",
        }
    }

    /// What people call `n` of its daemons.
    pub(crate) fn count(self, n: usize) -> String {
        let noun = match self {
            Self::Mon => "monitor",
            Self::Osd => "OSD",
        };
        format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
    }

    /// Whether the cluster can't start without one of these daemons; a failed daemon of another
    /// kind does not stop the others.
    pub(crate) const fn is_vital(self) -> bool {
        match self {
            Self::Mon => true,
            Self::Osd => false,
        }
    }

    /// Whether the monitors decide which daemons of this kind exist: a daemon with data here may
    /// have been removed from the cluster.
    pub(crate) const fn is_on_the_roll(self) -> bool {
        match self {
            Self::Mon => false,
            Self::Osd => true,
        }
    }

    /// The option that names a daemon's directory.
    pub(crate) const fn data_option(self) -> &'static str {
        match self {
            Self::Mon => "mon_data",
            Self::Osd => "osd_data",
        }
    }

    /// The file or device in a daemon's directory `data` whose length is the limit of the daemon's
    /// growth.
    pub(crate) fn store(self, data: &Path) -> Option<PathBuf> {
        match self {
            Self::Mon => None,
            Self::Osd => Some(data.join("block")),
        }
    }

    /// The capabilities in the keyring of a daemon's directory; for other kinds only the monitors
    /// have them.
    pub(crate) const fn caps(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Mon => &[("mon", "allow *")],
            Self::Osd => &[],
        }
    }

    /// The lines of the kind's section in `ceph.conf` that no other kind has; `root` is the
    /// cluster's directory.
    pub(crate) fn options(self, root: &Path) -> String {
        let root = root.display();
        match self {
            Self::Mon => format!(
                "\
mon_data = {root}/$name
# The disk has other users too: warn where it gets tight, not where less than a third of it is free.
mon_data_avail_warn = 2
mon_data_avail_crit = 1
"
            ),
            Self::Osd => format!(
                "\
osd_data = {root}/$name
# The log in a file of its own: flushing it never waits for the file system to allocate room for data.
osd_log_device = {root}/$name/log
"
            ),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A daemon's name: `osd.0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct DaemonName {
    kind: Kind,
    id: String,
}

impl DaemonName {
    /// The daemon `id` of this kind.
    pub(crate) fn new(kind: Kind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into() }
    }

    /// A monitor.
    pub(crate) fn mon(id: impl Into<String>) -> Self {
        Self::new(Kind::Mon, id)
    }

    /// An OSD.
    pub(crate) fn osd(n: OsdId) -> Self {
        Self::new(Kind::Osd, n.to_string())
    }

    /// The daemon's kind.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The daemon's id among its kind: `0` of `osd.0`.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The OSD's number; `None` where it is another kind of daemon.
    pub(crate) fn osd_number(&self) -> Option<OsdId> {
        match self.kind {
            Kind::Osd => self.id.parse().ok(),
            Kind::Mon => None,
        }
    }

    /// The entity under which it logs in. All monitors are one, `mon.`.
    pub(crate) fn entity(&self) -> String {
        match self.kind {
            Kind::Mon => "mon.".to_owned(),
            Kind::Osd => self.to_string(),
        }
    }

    /// The arguments with which this program becomes the daemon, but for the configuration file's
    /// name behind them.
    pub(crate) fn command_line(&self) -> [&str; 5] {
        [self.kind.name(), "run", "--id", &self.id, "--conf"]
    }
}

impl fmt::Display for DaemonName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.id)
    }
}

/// A name of no kind of daemon that this version knows.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no daemon's name")]
pub(crate) struct NotADaemon(String);

impl FromStr for DaemonName {
    type Err = NotADaemon;

    fn from_str(text: &str) -> Result<Self, NotADaemon> {
        let (kind, id) = text.split_once('.').unwrap_or((text, ""));
        let kind = Kind::ALL.into_iter().find(|k| k.name() == kind);
        match kind {
            Some(kind) if !id.is_empty() => Ok(Self::new(kind, id)),
            _ => Err(NotADaemon(text.to_owned())),
        }
    }
}

impl From<DaemonName> for String {
    fn from(name: DaemonName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for DaemonName {
    type Error = NotADaemon;

    fn try_from(text: String) -> Result<Self, NotADaemon> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [DaemonName::mon("a"), DaemonName::osd(OsdId::new(10))] {
            assert_eq!(name.to_string().parse::<DaemonName>().ok(), Some(name));
        }
        for text in ["supervisor", "osd", "osd.", "mds.a"] {
            assert!(text.parse::<DaemonName>().is_err(), "{text}");
        }
        assert_eq!(DaemonName::osd(OsdId::new(7)).osd_number(), Some(OsdId::new(7)));
        assert_eq!(DaemonName::mon("7").osd_number(), None);
        assert_eq!(
            (
                DaemonName::mon("a").entity(),
                DaemonName::osd(OsdId::new(1)).entity()
            ),
            ("mon.".into(), "osd.1".into())
        );
    }

    #[test]
    fn kinds_start_in_the_order_in_which_they_are_compared() {
        assert!(Kind::ALL.is_sorted());
        // A cluster begins with the kind that decides which others there are.
        assert!(Kind::ALL[0].is_vital() && !Kind::ALL[0].is_on_the_roll());
    }
}
