//! Changes of the health in the cluster log, as the official monitor words them
//! (`Monitor::log_health`).
//!
//! The last line about each check is replicated with the log, so that a monitor that starts does
//! not repeat it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Reader, Result, UTime, Writer};
use spirula_maps::OsdId;
use spirula_proto::mon::LogPriority;

use super::{Checks, Severity};
use crate::core::{LoadError, View};
use crate::kv::Txn;
use crate::service::{Kept, Keyed, Service, Source};

/// How often the health is checked.
const EVERY: Duration = Duration::from_secs(1);
/// A monitor that starts waits for the reports of OSDs that are up, but not for longer.
const SETTLE: Duration = Duration::from_secs(15);

/// The last line of the cluster log about a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    is_error: bool,
    summary: String,
}

/// Version byte of an encoded [`Said`]. 1: the first form.
const SAID_VERSION: u8 = 1;

impl Encode for Said {
    fn encode(&self, w: &mut Writer) {
        SAID_VERSION.encode(w);
        self.is_error.encode(w);
        self.summary.encode(w);
    }
}

impl Decode for Said {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        if r.u8()? != SAID_VERSION {
            return Err(Error::Invalid("health log version"));
        }
        Ok(Self {
            is_error: r.bool()?,
            summary: r.string()?,
        })
    }
}

impl Kept for Said {
    const SERVICE: &'static str = "health_log";
    const WHAT: &'static str = "health log";
}

/// The health as last reported in the cluster log.
#[derive(Debug, Default)]
pub(crate) struct HealthLog {
    pub(crate) said: Keyed<Said>,
    /// The times of the lines that this monitor wrote.
    times: BTreeMap<String, UTime>,
    looked: UTime,
}

type Line = (LogPriority, String);

fn priority(severity: Severity) -> LogPriority {
    match severity {
        Severity::Ok => LogPriority::INFO,
        Severity::Warn => LogPriority::WARN,
        Severity::Error => LogPriority::ERROR,
    }
}

impl Service for HealthLog {
    const NAMES: &'static [&'static str] = Keyed::<Said>::NAMES;

    fn load(from: Source<'_>) -> std::result::Result<Self, LoadError> {
        Ok(Self {
            said: Keyed::load(from)?,
            ..Self::default()
        })
    }

    fn apply(&mut self, name: &str, key: &str, value: Option<&Bytes>) -> std::result::Result<(), LoadError> {
        self.said.apply(name, key, value)
    }
}

impl HealthLog {
    /// The lines to be written now. A check whose text alone changes is not mentioned again within
    /// `pause`.
    fn compare(&mut self, checks: &Checks, pause: Duration, now: UTime, txn: &mut Txn) -> Vec<Line> {
        let mut lines = Vec::new();
        for (code, check) in checks {
            let is_error = check.severity == Severity::Error;
            let what = match self.said.get(code) {
                None => "failed",
                Some(s) if s.is_error != is_error => "update",
                Some(s) if s.summary == check.summary => continue,
                Some(_) => {
                    let last = self.times.get(*code);
                    if last.is_some_and(|t| now.since(*t) < pause) {
                        continue;
                    }
                    "update"
                }
            };
            let text = format!("Health check {what}: {} ({code})", check.summary);
            lines.push((priority(check.severity), text));
            let said = Said {
                is_error,
                summary: check.summary.clone(),
            };
            Keyed::set(code, &said, txn);
            self.times.insert((*code).to_owned(), now);
        }
        for (code, said) in self.said.iter() {
            if checks.contains_key(code.as_str()) {
                continue;
            }
            let text = match code.as_str() {
                "OSD_FLAGS" => "OSD flags cleared".to_owned(),
                _ => format!("Health check cleared: {code} (was: {})", said.summary),
            };
            lines.push((LogPriority::INFO, text));
            Keyed::<Said>::remove(code, txn);
            self.times.remove(code);
        }
        if checks.is_empty() && !self.said.is_empty() {
            lines.push((LogPriority::INFO, "Cluster is now healthy".to_owned()));
        }
        lines
    }
}

impl View {
    /// Whether the statistics are complete enough to judge. Only changes are worth a line, and
    /// after a start nothing is known yet.
    fn is_settled(&self) -> bool {
        let map = &self.state.osd.map;
        let reported = |o: OsdId| !map.is_up(o) || self.state.stats.osds.contains_key(&o);
        self.now.since(self.started) >= SETTLE || map.osds().all(reported)
    }

    /// Reports in the cluster log how the health has changed. Only if nothing else changes.
    pub(crate) fn log_health(&mut self, txn: &mut Txn) {
        let wanted = self.values.flag("mon_health_to_clog");
        if !wanted || self.now.since(self.state.health_log.looked) < EVERY || !self.is_settled() {
            return;
        }
        let now = self.now;
        self.state.health_log.looked = now;
        let checks = self.health();
        let pause = Duration::from_secs(self.values.uint("mon_health_log_update_period"));
        let lines = self.state.health_log.compare(&checks, pause, now, txn);
        for (priority, text) in lines {
            self.log_event(priority, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::encode_to_vec;

    use super::*;
    use crate::health::{error, warn};

    /// Applies what `compare` prepared, as a commit does.
    fn say(log: &mut HealthLog, checks: &Checks, at: u32) -> Vec<String> {
        let mut txn = Txn::default();
        let pause = Duration::from_secs(5);
        let lines = log.compare(checks, pause, UTime::from_secs(at), &mut txn);
        for op in txn.ops {
            assert!(HealthLog::NAMES.contains(&op.service.as_str()));
            log.apply(&op.service, &op.key, op.value.as_ref()).unwrap();
        }
        let text = |(p, t): Line| format!("{p} {t}");
        lines.into_iter().map(text).collect()
    }

    #[test]
    fn changes_are_told_as_the_official_monitor_does() {
        let mut log = HealthLog::default();
        let down = |n| warn(format!("{n} osds down"), n, Vec::new());
        let mut checks = Checks::from([("OSD_DOWN", down(1))]);
        assert_eq!(
            say(&mut log, &checks, 100),
            ["[WRN] Health check failed: 1 osds down (OSD_DOWN)"]
        );
        checks.insert("OSD_DOWN", down(2));
        assert!(
            say(&mut log, &checks, 104).is_empty(),
            "too soon after the last one"
        );
        assert_eq!(
            say(&mut log, &checks, 105),
            ["[WRN] Health check update: 2 osds down (OSD_DOWN)"]
        );
        assert!(say(&mut log, &checks, 200).is_empty());
        // A check that becomes worse is reported at once.
        checks.insert("OSD_DOWN", error("2 osds down".into(), 2, Vec::new()));
        checks.insert("OSD_FLAGS", warn("x".into(), 1, Vec::new()));
        assert_eq!(
            say(&mut log, &checks, 201),
            [
                "[ERR] Health check update: 2 osds down (OSD_DOWN)",
                "[WRN] Health check failed: x (OSD_FLAGS)"
            ]
        );
        assert_eq!(
            say(&mut log, &Checks::new(), 202),
            [
                "[INF] Health check cleared: OSD_DOWN (was: 2 osds down)",
                "[INF] OSD flags cleared",
                "[INF] Cluster is now healthy"
            ]
        );
        assert!(say(&mut log, &Checks::new(), 203).is_empty());
    }

    #[test]
    fn what_was_said_round_trips() {
        let said = Said {
            is_error: true,
            summary: "s".into(),
        };
        assert_eq!(
            spirula_denc::decode_all::<Said>(&encode_to_vec(&said)).unwrap(),
            said
        );
        assert!(spirula_denc::decode_all::<Said>(&[2]).is_err());
    }
}
