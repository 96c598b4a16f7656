//! Reported crashes, as Ceph's module `crash` keeps them (`src/pybind/mgr/crash/module.py`), and
//! the health check about them: for those of the last two weeks (`mgr/crash/warn_recent_interval`)
//! that nobody has looked at.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};
use spirula_denc::UTime;
use spirula_text::{one_line, time};

use crate::core::{LoadError, View};
use crate::kv::Txn;
use crate::options;
use crate::service::{Service, Source};

/// The service that keeps configuration keys.
pub(crate) const SERVICE: &str = "config-key";
/// The prefix of the module's keys for crashes.
pub(crate) const PREFIX: &str = "mgr/crash/crash/";

const WARN: &str = "mgr/crash/warn_recent_interval";
const RETAIN: &str = "mgr/crash/retain_interval";

/// A crash as it was reported.
pub(crate) struct Crash(pub(crate) Map<String, Value>);

impl Crash {
    /// Reads and checks a report.
    pub(crate) fn parse(input: &[u8]) -> Result<Self, String> {
        let fields = match serde_json::from_slice(input) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => Map::new(),
            Err(_) => return Err("Expecting value: line 1 column 1 (char 0)".to_owned()),
        };
        let crash = Self(fields);
        for field in ["crash_id", "timestamp"] {
            if crash.text(field).is_none_or(str::is_empty) {
                return Err(format!("missing '{field}' field"));
            }
        }
        if crash.time().is_none() {
            let time = crash.text("timestamp").unwrap_or_default();
            return Err(format!(
                "time data '{time}' does not match format '%Y-%m-%d %H:%M:%S.%f'"
            ));
        }
        Ok(crash)
    }

    /// A field that is a text.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field).and_then(Value::as_str)
    }

    /// The crash's id.
    pub(crate) fn id(&self) -> &str {
        self.text("crash_id").unwrap_or_default()
    }

    /// The time of the crash: `2026-11-25T19:00:00.123456Z`, or with a blank and without the `Z`,
    /// as earlier releases write it.
    pub(crate) fn time(&self) -> Option<UTime> {
        time::parse(self.text("timestamp")?)
    }

    /// Seconds since the crash.
    pub(crate) fn age(&self, now: UTime) -> i64 {
        i64::from(now.sec) - i64::from(self.time().unwrap_or_default().sec)
    }

    /// Whether nobody has looked at the crash.
    pub(crate) fn is_new(&self) -> bool {
        !self.0.contains_key("archived")
    }

    /// The health check's line on the crash.
    fn news(&self) -> String {
        let or = |field: &str, unknown: &str| one_line(self.text(field).unwrap_or(unknown));
        let (who, host) = (
            or("entity_name", "unidentified daemon"),
            or("utsname_hostname", "(unknown)"),
        );
        format!(
            "{who} crashed on host {host} at {}",
            or("timestamp", "unknown time")
        )
    }

    /// The report with its keys in the order of Python's `json.dumps(…, sort_keys=True)`.
    pub(crate) fn sorted(&self) -> Value {
        let sorted: BTreeMap<&String, &Value> = self.0.iter().collect();
        sorted.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

/// The part of a crash that is known without reading its report.
#[derive(Debug)]
struct Known {
    time: UTime,
    /// The health check's line on the crash, if nobody has looked at it.
    news: Option<String>,
}

/// All crashes that are kept.
#[derive(Debug, Default)]
pub(crate) struct Crashes {
    /// By id.
    known: BTreeMap<String, Known>,
}

impl Service for Crashes {
    const NAMES: &'static [&'static str] = &[SERVICE];

    fn load(from: Source<'_>) -> Result<Self, LoadError> {
        let mut all = Self::default();
        for (key, value) in from.kv.scan(SERVICE)? {
            all.note(&key, Some(&value));
        }
        Ok(all)
    }

    fn apply(&mut self, _: &str, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        self.note(key, value);
        Ok(())
    }

    fn trim(&self, view: &View, txn: &mut Txn) {
        if self.known.is_empty() {
            return;
        }
        for id in self.until(view.before(RETAIN)) {
            txn.remove(SERVICE, format!("{PREFIX}{id}"));
        }
    }
}

impl Crashes {
    /// Notes a configuration key that has another value, or was removed.
    fn note(&mut self, key: &str, value: Option<&Bytes>) {
        let Some(id) = key.strip_prefix(PREFIX) else {
            return;
        };
        let known = value.and_then(|v| Crash::parse(v).ok()).map(|c| Known {
            time: c.time().unwrap_or_default(),
            news: c.is_new().then(|| c.news()),
        });
        match known {
            Some(known) => drop(self.known.insert(id.to_owned(), known)),
            None => drop(self.known.remove(id)),
        }
    }

    /// Lines about the crashes after `cutoff` that nobody has looked at, by id.
    fn news(&self, cutoff: UTime) -> Vec<String> {
        let recent = self.known.values().filter(|k| k.time > cutoff);
        recent.filter_map(|k| k.news.clone()).collect()
    }

    /// The ids of the crashes until `cutoff`.
    fn until(&self, cutoff: UTime) -> impl Iterator<Item = &String> {
        self.known
            .iter()
            .filter(move |(_, k)| k.time <= cutoff)
            .map(|(id, _)| id)
    }
}

impl View {
    /// The time that lies the seconds of an option ago.
    fn before(&self, option: &str) -> UTime {
        let set = self
            .state
            .config
            .for_daemon("mgr", &self.me.name, &self.me.hostname, "")
            .remove(option);
        let option = options::find(option);
        let parsed = set.and_then(|v| option?.parse(&v).ok());
        let seconds = parsed.as_deref().or_else(|| Some(option?.default));
        let seconds: u64 = seconds.and_then(|s| s.parse().ok()).unwrap_or(0);
        UTime {
            sec: u32::try_from(u64::from(self.now.sec).saturating_sub(seconds)).unwrap_or(0),
            ..self.now
        }
    }

    /// The health check's lines, one for each crash.
    pub(crate) fn recent_crashes(&self) -> Vec<String> {
        if self.state.crashes.known.is_empty() {
            return Vec::new();
        }
        self.state.crashes.news(self.before(WARN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_checked() {
        let why = |text: &str| Crash::parse(text.as_bytes()).err().unwrap_or_default();
        assert_eq!(why("xx"), "Expecting value: line 1 column 1 (char 0)");
        assert_eq!(why("[1]"), "missing 'crash_id' field");
        assert_eq!(why(r#"{"crash_id": "x"}"#), "missing 'timestamp' field");
        assert_eq!(
            why(r#"{"crash_id": "x", "timestamp": "foo"}"#),
            "time data 'foo' does not match format '%Y-%m-%d %H:%M:%S.%f'"
        );
        for time in ["2026-11-25T19:00:00.123456Z", "2026-11-25 19:00:00.123456"] {
            assert_eq!(why(&format!(r#"{{"crash_id": "x", "timestamp": "{time}"}}"#)), "");
        }
    }

    #[test]
    fn the_health_tells_of_new_ones_for_a_while() {
        let report = |id: &str, time: &str, more: &str| {
            Bytes::from(format!(r#"{{"crash_id": "{id}", "timestamp": "{time}"{more}}}"#))
        };
        let mut all = Crashes::default();
        let named = r#", "entity_name": "osd.1", "utsname_hostname": "here""#;
        for (id, time, more) in [
            ("b", "2026-11-25T19:00:00.123456Z", named.to_owned()),
            ("a", "2026-11-25 19:00:01.000000", String::new()),
            ("c", "2026-11-20T00:00:00.000000Z", String::new()),
            (
                "d",
                "2026-11-25T19:00:00.000000Z",
                r#", "archived": "x""#.to_owned(),
            ),
        ] {
            all.note(&format!("{PREFIX}{id}"), Some(&report(id, time, &more)));
        }
        all.note(
            "mgr/other/x",
            Some(&report("x", "2026-11-25T19:00:00.000000Z", "")),
        );
        all.note(&format!("{PREFIX}e"), Some(&Bytes::from_static(b"nonsense")));
        let at = |text: &str| time::parse(text).unwrap();
        let lines = [
            "unidentified daemon crashed on host (unknown) at 2026-11-25 19:00:01.000000",
            "osd.1 crashed on host here at 2026-11-25T19:00:00.123456Z",
        ];
        assert_eq!(all.news(at("2026-11-25T00:00:00.0Z")), lines);
        assert_eq!(all.news(at("2026-11-25T19:00:01.0Z")), [""; 0]);
        assert_eq!(all.until(at("2026-11-24T00:00:00.0Z")).collect::<Vec<_>>(), ["c"]);
        all.note(&format!("{PREFIX}b"), None);
        assert_eq!(all.news(at("2026-11-25T00:00:00.0Z")), &lines[..1]);
    }
}
