//! The slowest requests of late, for `dump_historic_ops` and its relatives, and those under way
//! (`src/common/TrackedOp.cc`).

use std::collections::VecDeque;

use serde_json::{Map, Value, json};
use spirula_conf::options::Values;
use spirula_denc::UTime;

use super::state::Osd;
use crate::pg::describe::{OpRecord, Progress};

/// Most requests that may be remembered of each sort, whatever the options say.
const MOST: u64 = 1024;

/// A request that is over.
#[derive(Clone)]
struct Past {
    op: OpRecord,
    done: u64,
}

impl Past {
    fn took(&self) -> u64 {
        self.done.saturating_sub(self.op.stamps.received)
    }
}

/// How much is remembered.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Limits {
    /// `osd_op_history_size`: so many, the slowest ones.
    size: usize,
    /// `osd_op_history_duration`: for so many seconds.
    seconds: u64,
    /// `osd_op_history_slow_op_size`: so many of the next.
    slow_size: usize,
    /// `osd_op_history_slow_op_threshold`: those that took so many seconds are kept longer.
    slow_seconds: f64,
}

/// What is remembered.
pub(super) struct History {
    limits: Limits,
    recent: Vec<Past>,
    slow: VecDeque<Past>,
    /// Requests that took at most so many microseconds are not worth remembering.
    threshold: u64,
}

impl Default for History {
    fn default() -> Self {
        let mut history = Self {
            limits: Limits {
                size: 0,
                seconds: 0,
                slow_size: 0,
                slow_seconds: 0.0,
            },
            recent: Vec::new(),
            slow: VecDeque::new(),
            threshold: 0,
        };
        history.set_options(&Values::default());
        history
    }
}

impl History {
    /// Takes over the options; what is too much is forgotten.
    pub(super) fn set_options(&mut self, values: &Values) {
        let size = |name: &str| usize::try_from(values.uint(name).min(MOST)).unwrap_or(0);
        self.limits = Limits {
            size: size("osd_op_history_size"),
            seconds: values.uint("osd_op_history_duration"),
            slow_size: size("osd_op_history_slow_op_size"),
            slow_seconds: values.float("osd_op_history_slow_op_threshold"),
        };
        self.trim();
    }

    /// Requests that took longer, in microseconds, are to be described to [`History::add`].
    pub(super) fn threshold(&self) -> u64 {
        self.threshold
    }

    pub(super) fn add(&mut self, op: OpRecord, done: u64) {
        let past = Past { op, done };
        if past.took() as f64 >= self.limits.slow_seconds * 1e6 {
            self.slow.push_back(past.clone());
        }
        self.recent.push(past);
        self.trim();
    }

    /// Forgets what is too old.
    pub(super) fn expire(&mut self, now: u64) {
        let oldest = now.saturating_sub(self.limits.seconds.saturating_mul(1_000_000));
        self.recent.retain(|p| p.op.stamps.received >= oldest);
        self.trim();
    }

    fn trim(&mut self) {
        while self.recent.len() > self.limits.size {
            let fastest = (0..self.recent.len()).min_by_key(|i| self.recent[*i].took());
            fastest.map(|i| self.recent.swap_remove(i));
        }
        while self.slow.len() > self.limits.slow_size {
            self.slow.pop_front();
        }
        let fastest = if self.recent.len() < self.limits.size {
            0
        } else {
            self.recent.iter().map(Past::took).min().unwrap_or(u64::MAX)
        };
        let slow = if self.limits.slow_size > 0 {
            (self.limits.slow_seconds * 1e6) as u64
        } else {
            u64::MAX
        };
        self.threshold = fastest.min(slow);
    }

    fn dump(&self, clock: &Clock, prefix: &str, filters: &[&str]) -> Value {
        let show = |past: &mut dyn Iterator<Item = &Past>| -> Vec<Value> {
            past.filter(|p| p.op.matches(filters))
                .map(|p| clock.dump(&p.op, Some(p.done)))
                .collect()
        };
        if prefix == "dump_historic_slow_ops" {
            return json!({"num to keep": self.limits.slow_size, "threshold to keep": self.limits.slow_seconds as u64,
                "Ops": show(&mut self.slow.iter())});
        }
        let mut recent: Vec<&Past> = self.recent.iter().collect();
        if prefix == "dump_historic_ops_by_duration" {
            recent.sort_by_key(|p| std::cmp::Reverse(p.took()));
        } else {
            recent.sort_by_key(|p| p.op.stamps.received);
        }
        json!({"size": self.limits.size, "duration": self.limits.seconds, "ops": show(&mut recent.into_iter())})
    }
}

impl OpRecord {
    /// Whether one of the filters, if there are any, is part of an event's or client's name.
    fn matches(&self, filters: &[&str]) -> bool {
        let (client, addr) = (self.client.to_string(), self.addr.to_string());
        let point = self.progress.flag_point();
        let hit =
            |f: &&str| client == **f || addr == **f || point.contains(*f) || self.description.contains(*f);
        filters.is_empty() || filters.iter().any(hit)
    }

    /// What happened to it, in order, with official names.
    fn events(&self, done: Option<u64>) -> Vec<(String, u64)> {
        let s = &self.stamps;
        let mut events = vec![("initiated".to_owned(), s.received)];
        let mut add = |name: &str, at: u64| {
            if at != 0 {
                events.push((name.to_owned(), at));
            }
        };
        add("reached_pg", s.queued);
        if let Progress::Delayed(what) = self.progress {
            add(what, s.queued.max(s.received));
        }
        add("started", s.started);
        if !self.peers.is_empty() {
            let peers: Vec<String> = self.peers.iter().map(i32::to_string).collect();
            add(
                &format!("waiting for subops from {}", peers.join(",")),
                s.sub_ops_sent,
            );
        }
        add("op_commit", s.local_commit);
        // The others' times are not kept: this is the last one, where it was not before the own commit.
        if s.peer_commit > s.local_commit && !self.peers.is_empty() {
            add("sub_op_commit_rec", s.peer_commit);
        }
        if let Some(done) = done {
            add("commit_sent", done);
            add("done", done);
        }
        events
    }
}

/// Tells the time of day from microseconds of the monotonic clock.
struct Clock {
    now: u64,
    wall: UTime,
}

impl Clock {
    fn wall(&self, usec: u64) -> UTime {
        let ago = std::time::Duration::from_micros(self.now.saturating_sub(usec));
        UTime::from(self.wall.to_duration().saturating_sub(ago))
    }

    fn dump(&self, op: &OpRecord, done: Option<u64>) -> Value {
        let seconds = |usec: u64| usec as f64 / 1e6;
        let received = op.stamps.received;
        let duration = seconds(done.unwrap_or(self.now).saturating_sub(received));
        let events = op.events(done);
        let shown: Vec<Value> = events
            .iter()
            .enumerate()
            .map(|(i, (name, at))| {
                // As official OSDs of this release have it: until the next event, and for the last one all of it.
                let lasted = match events.get(i + 1) {
                    Some((_, next)) => seconds(next.saturating_sub(*at)),
                    None => seconds(at.saturating_sub(received)),
                };
                json!({"event": name, "time": self.wall(*at).to_string(), "duration": lasted})
            })
            .collect();
        json!({
            "description": op.description,
            "initiated_at": self.wall(received).to_string(),
            "age": seconds(self.now.saturating_sub(received)),
            "duration": duration,
            "type_data": {
                "flag_point": op.progress.flag_point(),
                "client_info": {
                    "client": op.client.to_string(),
                    "client_addr": op.addr.to_string(),
                    "tid": op.tid,
                },
                "events": shown,
            },
        })
    }
}

/// The filters that a command names.
fn filters(args: &Map<String, Value>) -> Vec<&str> {
    match args.get("filterstr") {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    }
}

impl Osd {
    /// Forgets requests that are too long ago, so that new ones are worth remembering.
    pub(super) fn expire_history(&mut self) {
        let now = self.usec();
        self.perf.history.expire(now);
    }

    /// Runs a command that shows requests; `None` for another command.
    pub(super) fn op_command(&mut self, prefix: &str, args: &Map<String, Value>) -> Option<Value> {
        let clock = Clock {
            now: self.usec(),
            wall: UTime::now(),
        };
        let filters = filters(args);
        Some(match prefix {
            "dump_historic_ops" | "dump_historic_ops_by_duration" | "dump_historic_slow_ops" => {
                self.perf.history.expire(clock.now);
                self.perf.history.dump(&clock, prefix, &filters)
            }
            "dump_ops_in_flight" | "ops" | "dump_blocked_ops" => {
                let blocked = prefix == "dump_blocked_ops";
                let complaint = self.values.float("osd_op_complaint_time");
                let mut found: Vec<OpRecord> = self.core.op_records().collect();
                let age = |op: &OpRecord| clock.now.saturating_sub(op.stamps.received) as f64 / 1e6;
                found.retain(|op| (!blocked || age(op) > complaint) && op.matches(&filters));
                found.sort_by_key(|op| op.stamps.received);
                let ops: Vec<Value> = found.iter().map(|op| clock.dump(op, None)).collect();
                let count = ops.len();
                if blocked {
                    json!({"ops": ops, "complaint_time": complaint, "num_blocked_ops": count})
                } else {
                    json!({"ops": ops, "num_ops": count})
                }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::{EntityAddr, EntityName};
    use spirula_maps::PgId;

    use super::*;
    use crate::pg::op::Stamps;

    fn record(received: u64) -> OpRecord {
        OpRecord {
            description: format!("op {received}"),
            client: EntityName::default(),
            addr: EntityAddr::default(),
            tid: 1,
            pgid: PgId::new(1, 0),
            stamps: Stamps {
                received,
                queued: received + 1,
                started: received + 2,
                sub_ops_sent: received + 3,
                local_commit: received + 4,
                peer_commit: received + 5,
            },
            peers: vec![1, 2],
            progress: Progress::Done,
        }
    }

    fn history(set: &[(&str, &str)]) -> History {
        let mut values = Values::default();
        values
            .local
            .extend(set.iter().map(|(k, v)| ((*k).into(), (*v).into())));
        let mut history = History::default();
        history.set_options(&values);
        history
    }

    const CLOCK: Clock = Clock {
        now: 20_000_000,
        wall: UTime::from_secs(1_700_000_020),
    };

    fn names(v: &Value) -> Vec<&str> {
        v.as_array()
            .unwrap()
            .iter()
            .map(|o| o["description"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn the_slowest_stay_and_the_rest_costs_a_comparison() {
        let mut h = history(&[
            ("osd_op_history_size", "2"),
            ("osd_op_history_slow_op_threshold", "1"),
        ]);
        assert_eq!(h.threshold(), 0);
        h.add(record(10), 510);
        assert_eq!(h.threshold(), 0, "there is room for one more");
        h.add(record(20), 120);
        assert_eq!(h.threshold(), 100);
        h.add(record(30), 2_000_030);
        assert_eq!(h.threshold(), 500);
        let v = h.dump(&CLOCK, "dump_historic_ops", &[]);
        assert_eq!(names(&v["ops"]), ["op 10", "op 30"]);
        let v = h.dump(&CLOCK, "dump_historic_ops_by_duration", &[]);
        assert_eq!(names(&v["ops"]), ["op 30", "op 10"]);
        let v = h.dump(&CLOCK, "dump_historic_slow_ops", &[]);
        assert_eq!(names(&v["Ops"]), ["op 30"]);
        h.expire(600_000_020);
        assert_eq!((h.recent.len(), h.threshold()), (1, 0));
        assert_eq!(h.slow.len(), 1, "slow ones are kept");
    }

    #[test]
    fn nothing_is_remembered_where_nothing_is_wanted() {
        let mut h = history(&[("osd_op_history_size", "0"), ("osd_op_history_slow_op_size", "0")]);
        assert_eq!(h.threshold(), u64::MAX);
        h.add(record(1), 99_000_000);
        assert!(h.recent.is_empty() && h.slow.is_empty());
        let h = history(&[("osd_op_history_size", "18446744073709551615")]);
        assert_eq!(h.limits.size as u64, MOST);
    }

    #[test]
    fn events_have_official_names_and_last_until_the_next() {
        let v = CLOCK.dump(&record(10_000_000), Some(10_000_010));
        assert_eq!(v["initiated_at"], "2023-11-14T22:13:30.000000+0000");
        assert_eq!(
            (v["age"].as_f64(), v["duration"].as_f64()),
            (Some(10.0), Some(1e-5))
        );
        let events = v["type_data"]["events"].as_array().unwrap();
        let names: Vec<&str> = events.iter().map(|e| e["event"].as_str().unwrap()).collect();
        let want = [
            "initiated",
            "reached_pg",
            "started",
            "waiting for subops from 1,2",
            "op_commit",
            "sub_op_commit_rec",
            "commit_sent",
            "done",
        ];
        assert_eq!(names, want);
        assert_eq!(events[0]["duration"], 1e-6);
        assert_eq!(events[7]["duration"], 1e-5);
    }
}
