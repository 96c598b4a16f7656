//! Requests for `dump_historic_ops` and its relatives: the slowest recent ones, and those under way
//! (`src/common/TrackedOp.cc`).

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Map, Value, json};
use spirula_conf::options::Values;
use spirula_denc::{Micros, UTime};

/// The most requests that are kept of each sort, whatever the options say.
const MOST: u64 = 1024;
/// The most requests under way that are shown, oldest first, as each takes several KiB in the
/// output. All are counted.
const SHOWN: usize = 1000;

/// A tracked request.
pub trait TrackedOp: Clone {
    /// The kind of daemon that handles it, the prefix of the options' names.
    const DAEMON: &str;

    /// When it arrived, by the daemon's monotonic clock.
    fn received(&self) -> Micros;
    /// Its description, as official logs print it.
    fn description(&self) -> &str;
    /// Its events with their times, in order, under official names. `done`: when it was finished.
    fn events(&self, done: Option<Micros>) -> Vec<(String, Micros)>;
    /// The data that only this kind of daemon shows, with the request's events.
    fn type_data(&self, events: Vec<Value>) -> Value;
    /// Whether it matches one of the filters, if there are any.
    fn matches(&self, filters: &[&str]) -> bool;
}

/// A finished request.
#[derive(Clone)]
struct Past<T> {
    op: T,
    done: Micros,
}

impl<T: TrackedOp> Past<T> {
    fn took(&self) -> Micros {
        self.done.saturating_sub(self.op.received())
    }
}

/// The limits of the history.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Limits {
    /// `*_op_history_size`: the number of slowest requests.
    size: usize,
    /// `*_op_history_duration`: how long they are kept, in seconds.
    seconds: u64,
    /// `*_op_history_slow_op_size`: the number of requests above the threshold.
    slow_size: usize,
    /// `*_op_history_slow_op_threshold`: requests that took this many seconds are kept longer.
    slow_seconds: f64,
}

/// The finished requests that are kept.
pub struct OpHistory<T> {
    limits: Limits,
    recent: Vec<Past<T>>,
    slow: VecDeque<Past<T>>,
    /// Requests that took at most this long are not kept.
    threshold: Micros,
}

impl<T: TrackedOp> Default for OpHistory<T> {
    fn default() -> Self {
        let mut history = Self {
            limits: Limits::default(),
            recent: Vec::new(),
            slow: VecDeque::new(),
            threshold: Micros::ZERO,
        };
        history.set_options(&Values::default());
        history
    }
}

impl<T: TrackedOp> OpHistory<T> {
    /// Adopts the options; requests beyond the limits are dropped.
    pub fn set_options(&mut self, values: &Values) {
        let name = |option: &str| format!("{}_op_history_{option}", T::DAEMON);
        let size = |option: &str| usize::try_from(values.uint(&name(option)).min(MOST)).unwrap_or(0);
        self.limits = Limits {
            size: size("size"),
            seconds: values.uint(&name("duration")),
            slow_size: size("slow_op_size"),
            slow_seconds: values.float(&name("slow_op_threshold")),
        };
        self.trim();
    }

    /// The time above which a request should be passed to [`OpHistory::add`].
    pub fn threshold(&self) -> Micros {
        self.threshold
    }

    /// Adds a finished request; times are those of the monotonic clock.
    pub fn add(&mut self, op: T, done: Micros) {
        let past = Past { op, done };
        if past.took().as_secs_f64() >= self.limits.slow_seconds {
            self.slow.push_back(past.clone());
        }
        self.recent.push(past);
        self.trim();
    }

    /// Drops requests that are too old, to make room for new ones.
    pub fn expire(&mut self, now: Micros) {
        let oldest = now.saturating_sub(Micros::from_secs(self.limits.seconds));
        self.recent.retain(|p| p.op.received() >= oldest);
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
            Micros::ZERO
        } else {
            self.recent.iter().map(Past::took).min().unwrap_or(Micros::MAX)
        };
        let slow = if self.limits.slow_size > 0 {
            Micros::from_secs_f64(self.limits.slow_seconds)
        } else {
            Micros::MAX
        };
        self.threshold = fastest.min(slow);
    }

    /// The answer to `dump_historic_ops`, `dump_historic_ops_by_duration` or
    /// `dump_historic_slow_ops`.
    pub fn dump(&self, clock: &OpClock, prefix: &str, filters: &[&str]) -> Value {
        let show = |past: &mut dyn Iterator<Item = &Past<T>>| -> Vec<Value> {
            past.filter(|p| p.op.matches(filters))
                .map(|p| clock.dump(&p.op, Some(p.done)))
                .collect()
        };
        if prefix == "dump_historic_slow_ops" {
            return json!({"num to keep": self.limits.slow_size, "threshold to keep": self.limits.slow_seconds as u64,
                "Ops": show(&mut self.slow.iter())});
        }
        let mut recent: Vec<&Past<T>> = self.recent.iter().collect();
        if prefix == "dump_historic_ops_by_duration" {
            recent.sort_by_key(|p| std::cmp::Reverse(p.took()));
        } else {
            recent.sort_by_key(|p| p.op.received());
        }
        json!({"size": self.limits.size, "duration": self.limits.seconds, "ops": show(&mut recent.into_iter())})
    }
}

/// Converts times of the monotonic clock to the time of day.
#[derive(Debug, Clone, Copy)]
pub struct OpClock {
    /// The monotonic clock now.
    pub now: Micros,
    /// The time of day now.
    pub wall: UTime,
}

impl OpClock {
    fn wall(&self, at: Micros) -> UTime {
        let ago = Duration::from(self.now.saturating_sub(at));
        UTime::from(self.wall.to_duration().saturating_sub(ago))
    }

    fn dump(&self, op: &impl TrackedOp, done: Option<Micros>) -> Value {
        let received = op.received();
        let duration = done.unwrap_or(self.now).saturating_sub(received).as_secs_f64();
        let events = op.events(done);
        let shown: Vec<Value> = events
            .iter()
            .enumerate()
            .map(|(i, (name, at))| {
                // As official daemons of this release have it: until the next event, and for the
                // last one all of it.
                let lasted = match events.get(i + 1) {
                    Some((_, next)) => next.saturating_sub(*at).as_secs_f64(),
                    None => at.saturating_sub(received).as_secs_f64(),
                };
                json!({"event": name, "time": self.wall(*at).to_string(), "duration": lasted})
            })
            .collect();
        json!({
            "description": op.description(),
            "initiated_at": self.wall(received).to_string(),
            "age": self.now.saturating_sub(received).as_secs_f64(),
            "duration": duration,
            "type_data": op.type_data(shown),
        })
    }

    /// The answer to `ops`, or to `dump_blocked_ops`: the requests under way that are older than
    /// `blocked` seconds.
    pub fn dump_in_flight<T: TrackedOp>(
        &self,
        mut ops: Vec<T>,
        blocked: Option<f64>,
        filters: &[&str],
    ) -> Value {
        let age = |op: &T| self.now.saturating_sub(op.received()).as_secs_f64();
        ops.retain(|op| blocked.is_none_or(|limit| age(op) > limit) && op.matches(filters));
        ops.sort_by_key(T::received);
        let shown: Vec<Value> = ops.iter().take(SHOWN).map(|op| self.dump(op, None)).collect();
        let count = ops.len();
        match blocked {
            Some(limit) => json!({"ops": shown, "complaint_time": limit, "num_blocked_ops": count}),
            None => json!({"ops": shown, "num_ops": count}),
        }
    }
}

/// The filters in a command's arguments.
pub fn filters(args: &Map<String, Value>) -> Vec<&str> {
    match args.get("filterstr") {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Op(Micros, String);

    impl TrackedOp for Op {
        const DAEMON: &str = "osd";

        fn received(&self) -> Micros {
            self.0
        }

        fn description(&self) -> &str {
            &self.1
        }

        fn events(&self, done: Option<Micros>) -> Vec<(String, Micros)> {
            let done = done.map(|at| ("done".to_owned(), at));
            [
                ("initiated".to_owned(), self.0),
                ("started".to_owned(), self.0 + Micros::new(1)),
            ]
            .into_iter()
            .chain(done)
            .collect()
        }

        fn type_data(&self, events: Vec<Value>) -> Value {
            json!({ "events": events })
        }

        fn matches(&self, filters: &[&str]) -> bool {
            filters.is_empty() || filters.contains(&self.1.as_str())
        }
    }

    fn op(received: u64) -> Op {
        Op(Micros::new(received), format!("op {received}"))
    }

    fn history(set: &[(&str, &str)]) -> OpHistory<Op> {
        let mut values = Values::default();
        values
            .local
            .extend(set.iter().map(|(k, v)| ((*k).into(), (*v).into())));
        let mut history = OpHistory::default();
        history.set_options(&values);
        history
    }

    const CLOCK: OpClock = OpClock {
        now: Micros::from_secs(20),
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
    fn of_very_many_under_way_the_oldest_are_shown() {
        let clock = OpClock {
            now: Micros::from_millis(10),
            wall: UTime::default(),
        };
        let ops = (0..5000)
            .rev()
            .map(|at| Op(Micros::new(at), format!("op {at}")))
            .collect();
        let dump = clock.dump_in_flight::<Op>(ops, None, &[]);
        let shown = dump["ops"].as_array().unwrap();
        assert_eq!((&dump["num_ops"], shown.len()), (&json!(5000), SHOWN));
        assert_eq!(shown[SHOWN - 1]["description"], "op 999");
    }

    #[test]
    fn the_slowest_stay_and_the_rest_costs_a_comparison() {
        let mut h = history(&[
            ("osd_op_history_size", "2"),
            ("osd_op_history_slow_op_threshold", "1"),
        ]);
        assert_eq!(h.threshold(), Micros::ZERO);
        h.add(op(10), Micros::new(510));
        assert_eq!(h.threshold(), Micros::ZERO, "there is room for one more");
        h.add(op(20), Micros::new(120));
        assert_eq!(h.threshold(), Micros::new(100));
        h.add(op(30), Micros::new(2_000_030));
        assert_eq!(h.threshold(), Micros::new(500));
        let v = h.dump(&CLOCK, "dump_historic_ops", &[]);
        assert_eq!(names(&v["ops"]), ["op 10", "op 30"]);
        let v = h.dump(&CLOCK, "dump_historic_ops_by_duration", &[]);
        assert_eq!(names(&v["ops"]), ["op 30", "op 10"]);
        let v = h.dump(&CLOCK, "dump_historic_ops", &["op 30"]);
        assert_eq!(names(&v["ops"]), ["op 30"]);
        let v = h.dump(&CLOCK, "dump_historic_slow_ops", &[]);
        assert_eq!(names(&v["Ops"]), ["op 30"]);
        h.expire(Micros::new(600_000_020));
        assert_eq!((h.recent.len(), h.threshold()), (1, Micros::ZERO));
        assert_eq!(h.slow.len(), 1, "slow ones are kept");
    }

    #[test]
    fn nothing_is_remembered_where_nothing_is_wanted() {
        let mut h = history(&[("osd_op_history_size", "0"), ("osd_op_history_slow_op_size", "0")]);
        assert_eq!(h.threshold(), Micros::MAX);
        h.add(op(1), Micros::new(99_000_000));
        assert!(h.recent.is_empty() && h.slow.is_empty());
        let h = history(&[("osd_op_history_size", "9223372036854775807")]);
        assert_eq!(h.limits.size as u64, MOST);
    }

    #[test]
    fn events_last_until_the_next_and_the_last_one_for_all_of_it() {
        let v = CLOCK.dump(&op(10_000_000), Some(Micros::new(10_000_010)));
        assert_eq!(v["initiated_at"], "2023-11-14T22:13:30.000000+0000");
        assert_eq!(
            (v["age"].as_f64(), v["duration"].as_f64()),
            (Some(10.0), Some(1e-5))
        );
        let events = v["type_data"]["events"].as_array().unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!(events[0]["duration"], 1e-6);
        assert_eq!(events[2]["duration"], 1e-5);
    }

    #[test]
    fn what_is_blocked_is_older_than_the_limit() {
        let ops = vec![op(19_000_000), op(1_000_000)];
        let v = CLOCK.dump_in_flight(ops.clone(), Some(10.0), &[]);
        assert_eq!(
            (names(&v["ops"]), &v["num_blocked_ops"]),
            (vec!["op 1000000"], &json!(1))
        );
        let v = CLOCK.dump_in_flight(ops, None, &[]);
        assert_eq!(names(&v["ops"]), ["op 1000000", "op 19000000"]);
    }
}
