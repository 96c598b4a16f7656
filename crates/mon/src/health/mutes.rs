//! Checks that an administrator has muted for a while. Replicated: one key a code.

use serde_json::{Map, Value, json};
use spirula_denc::{Decode, Encode, Error, Reader, Result, UTime, Writer};
use spirula_text::time;

use super::{Check, Checks, Severity};
use crate::core::{Turn, View};
use crate::service::{Kept, Keyed};

/// A muted check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mute {
    /// When the mute ends by itself; zero for never.
    pub until: UTime,
    /// Whether the mute stays when the check clears or becomes worse.
    pub sticky: bool,
    /// The check's summary when it was muted; empty for a sticky mute.
    pub summary: String,
    /// The check's count when it was muted; 0 for a sticky mute.
    pub count: u64,
}

/// Version byte of an encoded [`Mute`]. 1: the first form.
const MUTE_VERSION: u8 = 1;

impl Encode for Mute {
    fn encode(&self, w: &mut Writer) {
        MUTE_VERSION.encode(w);
        self.until.encode(w);
        self.sticky.encode(w);
        self.summary.encode(w);
        self.count.encode(w);
    }
}

impl Decode for Mute {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        if r.u8()? != MUTE_VERSION {
            return Err(Error::Invalid("mute version"));
        }
        Ok(Self {
            until: r.get()?,
            sticky: r.bool()?,
            summary: r.string()?,
            count: r.u64()?,
        })
    }
}

impl Mute {
    /// The mute as the checks' JSON lists it.
    pub(crate) fn json(&self, code: &str) -> Value {
        let mut v = Map::from_iter([("code".to_owned(), json!(code))]);
        if !self.until.is_zero() {
            v.insert("ttl".into(), json!(self.until.to_string()));
        }
        v.insert("sticky".into(), json!(self.sticky));
        v.insert("summary".into(), json!(self.summary));
        v.insert("count".into(), json!(self.count));
        Value::Object(v)
    }

    /// The time that is left; `None` if it has no end.
    fn left(&self, now: UTime) -> Option<String> {
        let left = || match self.until > now {
            true => time::age(self.until.since(now)),
            false => "0s".to_owned(),
        };
        (!self.until.is_zero()).then(left)
    }

    /// The text before the check in `health detail`.
    fn prefix(&self, now: UTime) -> String {
        let ttl = self.left(now).map(|l| format!(" ttl {l}")).unwrap_or_default();
        let sticky = if self.sticky { ", STICKY" } else { "" };
        format!("(MUTED{ttl}{sticky}) ")
    }

    /// The count that the mute now stands for, which is lower if the check has become better; as
    /// the error, why the mute ends.
    fn judge(&self, check: Option<&Check>, now: UTime) -> std::result::Result<u64, String> {
        if !self.until.is_zero() && self.until <= now {
            return Err(format!("passed TTL {}", self.until));
        }
        if self.sticky {
            return Ok(self.count);
        }
        let Some(check) = check else {
            return Err("health alert cleared".to_owned());
        };
        let count = check.count as u64;
        match self.count {
            0 if self.summary != check.summary => Err("summary changed".to_owned()),
            0 => Ok(0),
            old if count > old => Err(format!("count increased from {old} to {count}")),
            _ => Ok(count),
        }
    }
}

impl Kept for Mute {
    const SERVICE: &'static str = "health_mute";
    const WHAT: &'static str = "health mute";
}

/// All mutes by code.
pub(crate) type Mutes = Keyed<Mute>;

/// The problems, and which of them are muted: the answer to `health` and `status`.
pub(crate) struct Report<'a> {
    /// The checks.
    pub(crate) checks: Checks,
    mutes: &'a Mutes,
    now: UTime,
}

impl Report<'_> {
    fn loud(&self) -> impl Iterator<Item = &Check> {
        let mutes = self.mutes;
        let checks = self.checks.iter().filter(|(code, _)| !mutes.contains(code));
        checks.map(|(_, c)| c)
    }

    /// `HEALTH_OK`, or the severity of the worst check that is not muted.
    pub(crate) fn overall(&self) -> &'static str {
        let worst = self.loud().map(|c| c.severity).max();
        worst.map_or("HEALTH_OK", Severity::name)
    }

    /// The overall status, the problems and the mutes, in one text.
    pub(crate) fn line(&self, first: &str, between: &str) -> String {
        let mut parts: Vec<String> = self.loud().map(|c| c.summary.clone()).collect();
        let muted: Vec<String> = self
            .mutes
            .iter()
            .map(|(code, m)| match m.left(self.now) {
                Some(left) => format!("{code}({left})"),
                None => code.clone(),
            })
            .collect();
        if !muted.is_empty() {
            parts.push(format!("(muted: {})", muted.join(" ")));
        }
        let mut text = self.overall().to_owned();
        if !parts.is_empty() {
            text.push_str(first);
            text.push_str(&parts.join(between));
        }
        text
    }

    /// A paragraph for each check.
    pub(crate) fn detail(&self) -> String {
        let mut text = String::new();
        for (code, c) in &self.checks {
            let muted = self.mutes.get(code).map(|m| m.prefix(self.now));
            let muted = muted.unwrap_or_default();
            text.push_str(&format!(
                "{muted}[{}] {code}: {}\n",
                c.severity.short(),
                c.summary
            ));
            for line in &c.detail {
                text.push_str(&format!("    {line}\n"));
            }
        }
        text
    }

    /// The report as JSON.
    pub(crate) fn json(&self, detail: bool) -> Value {
        let mut checks = Map::new();
        for (code, c) in &self.checks {
            let mut v = Map::new();
            v.insert("severity".into(), json!(c.severity.name()));
            v.insert("summary".into(), json!({"message": c.summary, "count": c.count}));
            if detail {
                let lines = c.detail.iter().map(|d| json!({"message": d}));
                v.insert("detail".into(), lines.collect());
            }
            v.insert("muted".into(), json!(self.mutes.contains(code)));
            checks.insert((*code).to_owned(), Value::Object(v));
        }
        let mutes: Vec<Value> = self.mutes.iter().map(|(code, m)| m.json(code)).collect();
        json!({"status": self.overall(), "checks": checks, "mutes": mutes})
    }
}

impl View {
    /// The problems, and which of them are muted.
    pub(crate) fn health_report(&self) -> Report<'_> {
        Report {
            checks: self.health(),
            mutes: &self.state.mutes,
            now: self.now,
        }
    }
}

impl Turn<'_> {
    /// Ends the mutes whose time is over, and those of checks that cleared or became worse.
    pub(crate) fn review_mutes(&mut self) {
        if self.view.state.mutes.is_empty() {
            return;
        }
        let checks = self.view.health();
        let mutes: Vec<(String, Mute)> = self
            .view
            .state
            .mutes
            .iter()
            .map(|(c, m)| (c.clone(), m.clone()))
            .collect();
        for (code, mute) in mutes {
            match mute.judge(checks.get(code.as_str()), self.view.now) {
                Ok(count) if count == mute.count => {}
                Ok(count) => Mutes::set(&code, &Mute { count, ..mute }, &mut self.changes.txn),
                Err(why) => {
                    Mutes::remove(&code, &mut self.changes.txn);
                    let text = format!("Health alert mute {code} cleared ({why})");
                    self.log_event(spirula_proto::mon::LogPriority::INFO, text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spirula_denc::encode_to_vec;

    use super::*;
    use crate::health::warn;
    use crate::service::Service;

    #[test]
    fn a_mute_round_trips() {
        let mute = Mute {
            until: UTime::from_secs(9),
            sticky: true,
            summary: "s".into(),
            count: 3,
        };
        assert_eq!(
            spirula_denc::decode_all::<Mute>(&encode_to_vec(&mute)).unwrap(),
            mute
        );
        assert!(spirula_denc::decode_all::<Mute>(&[2]).is_err());
    }

    #[test]
    fn a_mute_ends_by_time_and_when_things_get_worse() {
        let now = UTime::from_secs(100);
        let check = |n| warn(format!("{n} osds down"), n, Vec::new());
        let mute = Mute {
            count: 2,
            summary: "2 osds down".into(),
            ..Mute::default()
        };
        assert_eq!(mute.judge(Some(&check(2)), now), Ok(2));
        assert_eq!(mute.judge(Some(&check(1)), now), Ok(1));
        assert_eq!(
            mute.judge(Some(&check(3)), now),
            Err("count increased from 2 to 3".into())
        );
        assert_eq!(mute.judge(None, now), Err("health alert cleared".into()));
        let sticky = Mute {
            sticky: true,
            until: UTime::from_secs(101),
            ..Mute::default()
        };
        assert_eq!(sticky.judge(None, now), Ok(0));
        assert!(sticky.judge(None, now.plus(Duration::from_secs(1))).is_err());
    }

    #[test]
    fn muted_checks_do_not_count() {
        let mut mutes = Mutes::default();
        let value = encode_to_vec(&Mute::default()).into();
        mutes.apply(Mute::SERVICE, "OSD_DOWN", Some(&value)).unwrap();
        let report = |mutes| Report {
            checks: Checks::from([("OSD_DOWN", warn("1 osds down".into(), 1, vec!["osd.0".into()]))]),
            mutes,
            now: UTime::from_secs(1),
        };
        let muted = report(&mutes);
        assert_eq!(muted.line(" ", "; "), "HEALTH_OK (muted: OSD_DOWN)");
        assert_eq!(muted.detail(), "(MUTED) [WRN] OSD_DOWN: 1 osds down\n    osd.0\n");
        let none = Mutes::default();
        assert_eq!(report(&none).line(" ", "; "), "HEALTH_WARN 1 osds down");
    }
}
