//! Checks of the daemons themselves: the monitor's disk, versions, risky settings.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use spirula_denc::UTime;
use spirula_maps::OsdId;
use spirula_text::size;

use super::{Check, Checks, Severity, error, warn};
use crate::core::View;

/// The monitor's disk, as the daemon sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// The file system's size in bytes.
    pub total: u64,
    /// The bytes that this daemon could still write.
    pub available: u64,
    /// The bytes of the monitor's own store.
    pub store: u64,
}

impl DiskUse {
    /// The free share in whole percents, rounded down.
    pub fn percent_available(&self) -> i64 {
        match u128::from(self.available) * 100 / u128::from(self.total.max(1)) {
            p if self.total > 0 => i64::try_from(p).unwrap_or(100).min(100),
            _ => 100,
        }
    }
}

/// Checks for OSDs that had more than `most` objects repaired since they started.
fn too_many_repairs(repaired: impl Iterator<Item = (OsdId, u64)>, most: u64) -> Option<Check> {
    let detail: Vec<String> = repaired
        .filter(|(_, n)| *n > most)
        .map(|(osd, n)| format!("osd.{osd} had {n} reads repaired"))
        .collect();
    let n = detail.len();
    (n > 0).then(|| warn(format!("Too many repaired reads on {n} OSDs"), n, detail))
}

/// The versions of the daemons, and since when they differ. Not replicated: a new leader counts
/// anew.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    by_version: BTreeMap<Release, Vec<String>>,
    differ_since: Option<UTime>,
}

/// A version, in the order of versions: numbers in it compare as numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Release(String);

impl Release {
    /// The part that distinguishes two builds: `16.2.15 (spirula 0.1.0)` of `ceph version 16.2.15
    /// (spirula 0.1.0) pacific …`.
    fn of(long: &str) -> Self {
        let text = long.strip_prefix("ceph version ").unwrap_or(long);
        let end = text.find(')').map_or(text.len(), |at| at + 1);
        Self(text[..end].to_owned())
    }

    fn parts(&self) -> impl Iterator<Item = (u64, &str)> {
        let words = self.0.split(|c: char| !c.is_ascii_alphanumeric());
        words
            .filter(|w| !w.is_empty())
            .map(|w| (w.parse().unwrap_or(u64::MAX), w))
    }
}

impl Ord for Release {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(other.parts()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Release {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Versions {
    /// Sets the daemons with their versions in `ceph … metadata`.
    pub(crate) fn set(&mut self, daemons: impl Iterator<Item = (String, String)>, now: UTime) {
        self.by_version.clear();
        for (daemon, version) in daemons {
            self.by_version
                .entry(Release::of(&version))
                .or_default()
                .push(daemon);
        }
        self.differ_since = match self.by_version.len() {
            0 | 1 => None,
            _ => self.differ_since.or(Some(now)),
        };
    }

    fn check(&self, now: UTime, delay: Duration) -> Option<Check> {
        if now.since(self.differ_since?) < delay {
            return None;
        }
        let old = self.by_version.len() - 1;
        let daemons: usize = self.by_version.values().take(old).map(Vec::len).sum();
        let who = if daemons == 1 {
            "is a daemon"
        } else {
            "are daemons"
        };
        let what = if old > 1 {
            "multiple old versions"
        } else {
            "an older version"
        };
        let detail = self.by_version.iter().take(old).map(|(version, names)| {
            let verb = if names.len() == 1 { "is" } else { "are" };
            format!(
                "{} {verb} running an older version of ceph: {}",
                names.join(" "),
                version.0
            )
        });
        Some(Check {
            severity: if old > 1 { Severity::Error } else { Severity::Warn },
            summary: format!("There {who} running {what} of ceph"),
            count: old,
            detail: detail.collect(),
        })
    }
}

impl View {
    /// Monitors that are not in quorum.
    pub(super) fn mons_down(&self, out: &mut Checks) {
        let down = self.out_of_quorum();
        // Nobody is in quorum only until a new leader has counted.
        if down.is_empty() || self.quorum.names.is_empty() {
            return;
        }
        let map = &self.state.monmap.map;
        let detail = down.iter().map(|name| {
            let rank = map.rank_of(name).unwrap_or(0);
            let addrs = map.mons.get(*name).map(|i| i.public_addrs.to_string());
            let addrs = addrs.unwrap_or_default();
            format!("mon.{name} (rank {rank}) addr {addrs} is down (out of quorum)")
        });
        let (n, all, quorum) = (down.len(), map.mons.len(), self.quorum.names.join(","));
        let summary = format!("{n}/{all} mons down, quorum {quorum}");
        out.insert("MON_DOWN", warn(summary, n, detail.collect()));
    }

    pub(super) fn daemons(&self, out: &mut Checks) {
        self.disk_space(out);
        let name = &self.me.name;
        let v = &self.values;
        if v.flag("mon_warn_on_osd_down_out_interval_zero") && v.int("mon_osd_down_out_interval") == 0 {
            let text = format!("mon.{name} has mon_osd_down_out_interval set to 0");
            let summary = format!("mon {name} has mon_osd_down_out_interval set to 0");
            out.insert("OSD_NO_DOWN_OUT_INTERVAL", warn(summary, 1, vec![text]));
        }
        if v.flag("mon_warn_on_insecure_global_id_reclaim_allowed")
            && v.flag("auth_allow_insecure_global_id_reclaim")
        {
            let text = format!("mon.{name} has auth_allow_insecure_global_id_reclaim set to true");
            let summary = "mon is allowing insecure global_id reclaim".to_owned();
            out.insert(
                "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED",
                warn(summary, 1, vec![text]),
            );
        }
        let delay = Duration::from_secs(v.uint("mon_warn_older_version_delay"));
        if v.flag("mon_warn_on_older_version")
            && let Some(check) = self.versions.check(self.now, delay)
        {
            out.insert("DAEMON_OLD_VERSION", check);
        }
        let repaired = self
            .state
            .stats
            .osds
            .iter()
            .map(|(o, s)| (*o, s.num_shards_repaired));
        if let Some(check) = too_many_repairs(repaired, v.uint("mon_osd_warn_num_repaired")) {
            out.insert("OSD_TOO_MANY_REPAIRS", check);
        }
    }

    /// The disks of the monitors in quorum, by name.
    fn disks(&self) -> Vec<(&String, DiskUse)> {
        let own = self.disk.map(|d| (&self.me.name, d));
        let peers = self.peers.iter().filter_map(|(name, p)| Some((name, p.disk?)));
        let seen = peers.filter(|(name, _)| self.quorum.names.contains(name));
        let mut all: Vec<_> = own.into_iter().chain(seen).collect();
        all.sort_by_key(|(name, _)| *name);
        all
    }

    fn disk_space(&self, out: &mut Checks) {
        let (crit, low) = (
            self.values.int("mon_data_avail_crit"),
            self.values.int("mon_data_avail_warn"),
        );
        let limit = self.values.uint("mon_data_size_warn");
        let mut found: BTreeMap<&'static str, Vec<(&String, String)>> = BTreeMap::new();
        for (name, disk) in self.disks() {
            let percent = disk.percent_available();
            let line = format!("mon.{name} has {percent}% avail");
            if percent <= crit {
                found.entry("MON_DISK_CRIT").or_default().push((name, line));
            } else if percent <= low {
                found.entry("MON_DISK_LOW").or_default().push((name, line));
            }
            if disk.store >= limit {
                let line = format!(
                    "mon.{name} is {} >= mon_data_size_warn ({})",
                    size::bytes(disk.store),
                    size::bytes(limit)
                );
                found.entry("MON_DISK_BIG").or_default().push((name, line));
            }
        }
        for (code, lines) in found {
            let names: Vec<&str> = lines.iter().map(|(n, _)| n.as_str()).collect();
            let (plural, verb) = match names.len() {
                1 => ("", "is"),
                _ => ("s", "are"),
            };
            let who = format!("mon{plural} {} {verb}", names.join(","));
            let detail = lines.iter().map(|(_, line)| line.clone()).collect();
            let check = match code {
                "MON_DISK_CRIT" => error(format!("{who} very low on available space"), names.len(), detail),
                "MON_DISK_LOW" => warn(format!("{who} low on available space"), names.len(), detail),
                _ => warn(format!("{who} using a lot of disk space"), names.len(), detail),
            };
            out.insert(code, check);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(spirula: &str) -> String {
        format!("ceph version 16.2.15 (spirula {spirula}) pacific (stable)")
    }

    #[test]
    fn older_versions_are_told_after_a_while() {
        let mut v = Versions::default();
        let (start, week) = (UTime::from_secs(1000), Duration::from_secs(604_800));
        let daemons = [("mon.a", "0.10.0"), ("osd.0", "0.9.0"), ("osd.1", "0.10.0")];
        let daemons = daemons.map(|(d, r)| (d.to_owned(), long(r)));
        v.set(daemons.clone().into_iter(), start);
        assert!(v.check(start.plus(week / 2), week).is_none());
        let check = v.check(start.plus(week), week).unwrap();
        assert_eq!(
            (check.severity, check.count, check.summary.as_str()),
            (
                Severity::Warn,
                1,
                "There is a daemon running an older version of ceph"
            )
        );
        assert_eq!(
            check.detail,
            ["osd.0 is running an older version of ceph: 16.2.15 (spirula 0.9.0)"]
        );
        let third = ("osd.2".to_owned(), long("0.8.1"));
        v.set(daemons.into_iter().chain([third]), start);
        let check = v.check(start.plus(week), week).unwrap();
        assert_eq!(
            (check.severity, check.summary.as_str()),
            (
                Severity::Error,
                "There are daemons running multiple old versions of ceph"
            )
        );
        v.set([("mon.a".to_owned(), long("0.10.0"))].into_iter(), start);
        assert!(v.check(start.plus(week), week).is_none());
    }

    #[test]
    fn osds_whose_reads_are_often_repaired_are_named() {
        let repaired = || {
            [(0, 10), (1, 11), (3, 500)]
                .into_iter()
                .map(|(n, count)| (OsdId::new(n), count))
        };
        assert!(too_many_repairs(repaired(), 500).is_none());
        let check = too_many_repairs(repaired(), 10).unwrap();
        assert_eq!(
            (check.summary.as_str(), check.count),
            ("Too many repaired reads on 2 OSDs", 2)
        );
        assert_eq!(
            check.detail,
            ["osd.1 had 11 reads repaired", "osd.3 had 500 reads repaired"]
        );
    }

    #[test]
    fn free_space_is_rounded_down() {
        let disk = |total, available| DiskUse {
            total,
            available,
            store: 0,
        };
        assert_eq!(disk(1000, 309).percent_available(), 30);
        assert_eq!(disk(0, 0).percent_available(), 100);
        assert_eq!(disk(u64::MAX, u64::MAX).percent_available(), 100);
    }
}
