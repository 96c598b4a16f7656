//! Counters in the form of `perf dump`, `perf schema` and `perf histogram`
//! (`src/common/perf_counters.cc`, `src/common/perf_histogram.cc`).

use serde_json::{Map, Value, json};
use spirula_denc::Micros;

/// Buckets of a histogram's axis.
pub const BUCKETS: usize = 32;

/// A counter's value.
#[derive(Debug, Clone, Copy)]
pub enum Reading {
    /// Only ever grows.
    Count(u64),
    /// Goes up and down.
    Gauge(u64),
    /// How often something was timed, and for how long.
    Times(Times),
}

/// A number of times, and their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// The number of times.
    pub count: u64,
    /// Their sum.
    pub usec: Micros,
}

impl Times {
    /// Adds one time.
    pub fn add(&mut self, usec: Micros) {
        self.count += 1;
        self.usec += usec;
    }

    /// The average since `before`, in nanoseconds; 0 if nothing happened.
    pub fn average_ns_since(&self, before: &Self) -> u64 {
        let count = self.count.saturating_sub(before.count);
        let usec = self.usec.saturating_sub(before.usec).count();
        usec.saturating_mul(1000).checked_div(count).unwrap_or(0)
    }
}

impl Reading {
    fn dump(self) -> Value {
        match self {
            Self::Count(n) | Self::Gauge(n) => json!(n),
            Self::Times(Times { count, usec }) => {
                let sum = usec.as_secs_f64();
                let average = if count == 0 { 0.0 } else { sum / count as f64 };
                json!({"avgcount": count, "sum": sum, "avgtime": average})
            }
        }
    }

    /// The official type bits, and their names.
    fn kind(self) -> (u32, &'static str, &'static str) {
        match self {
            Self::Count(_) => (10, "counter", "integer"),
            Self::Gauge(_) => (2, "gauge", "integer"),
            Self::Times(_) => (5, "gauge", "real-integer-pair"),
        }
    }
}

/// One counter.
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    /// Its name; one that contains `bytes` counts them.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// Its value.
    pub reading: Reading,
}

/// A counter that only grows.
pub fn count(name: &'static str, n: u64, help: &'static str) -> Counter {
    Counter {
        name,
        help,
        reading: Reading::Count(n),
    }
}

/// A value that goes up and down.
pub fn gauge(name: &'static str, n: u64, help: &'static str) -> Counter {
    Counter {
        name,
        help,
        reading: Reading::Gauge(n),
    }
}

/// A number of times and their sum.
pub fn times(name: &'static str, times: Times, help: &'static str) -> Counter {
    Counter {
        name,
        help,
        reading: Reading::Times(times),
    }
}

/// An axis of a histogram: bucket 0 counts values below 0, bucket 1 those below `quant`, and each
/// further bucket covers twice as much.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// Its name.
    pub name: &'static str,
    /// The width of the first bucket.
    pub quant: u64,
}

impl Axis {
    /// The bucket of a value that was divided by the axis's quantum.
    pub fn bucket(quanta: u64) -> usize {
        let bits = (u64::BITS - quanta.leading_zeros()) as usize;
        (bits + 1).min(BUCKETS - 1)
    }

    fn dump(&self) -> Value {
        let edge = |i: usize| self.quant << i;
        let ranges: Vec<Value> = (0..BUCKETS)
            .map(|i| match i {
                0 => json!({"max": -1}),
                1 => json!({"min": 0, "max": self.quant - 1}),
                i if i < BUCKETS - 1 => json!({"min": edge(i - 2), "max": edge(i - 1) - 1}),
                i => json!({"min": edge(i - 2)}),
            })
            .collect();
        json!({"name": self.name, "min": 0, "quant_size": self.quant, "buckets": BUCKETS, "scale_type": "log2",
            "ranges": ranges})
    }
}

/// The number of occurrences of each pair of values.
#[derive(Debug, Clone)]
pub struct Grid(Box<[[u64; BUCKETS]; BUCKETS]>);

impl Default for Grid {
    fn default() -> Self {
        Self(Box::new([[0; BUCKETS]; BUCKETS]))
    }
}

impl Grid {
    /// Counts one pair, each divided by its axis's quantum.
    pub fn add(&mut self, x: u64, y: u64) {
        self.0[Axis::bucket(x)][Axis::bucket(y)] += 1;
    }
}

/// A histogram of a logger.
#[derive(Debug)]
pub struct Histogram<'a> {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub help: &'static str,
    /// Its axes.
    pub axes: Vec<Axis>,
    /// Its values.
    pub values: Values<'a>,
}

/// A histogram's values.
#[derive(Debug)]
pub enum Values<'a> {
    /// Along one axis.
    Line(&'a [u64; BUCKETS]),
    /// Along two.
    Grid(&'a Grid),
}

/// A group of counters.
#[derive(Debug)]
pub struct Logger<'a> {
    /// Its name.
    pub name: &'static str,
    /// Its counters.
    pub counters: Vec<Counter>,
    /// Its histograms.
    pub histograms: Vec<Histogram<'a>>,
}

/// Selects all loggers, or one logger, or one counter of it. Empty names select all.
fn select<'a, T>(
    loggers: &'a [Logger<'_>],
    (logger, counter): (&str, &str),
    items: impl Fn(&'a Logger<'_>) -> Vec<(&'static str, T)>,
    show: impl Fn(T) -> Value,
) -> Value {
    let wanted = loggers.iter().filter(|l| logger.is_empty() || l.name == logger);
    wanted
        .map(|l| {
            let of = items(l).into_iter();
            let of = of.filter(|(name, _)| counter.is_empty() || *name == counter);
            let shown: Map<String, Value> = of.map(|(name, i)| (name.to_owned(), show(i))).collect();
            (l.name.to_owned(), Value::Object(shown))
        })
        .collect::<Map<_, _>>()
        .into()
}

fn description(kind: (u32, &str, &str), name: &str, help: &str) -> Value {
    json!({"type": kind.0, "metric_type": kind.1, "value_type": kind.2, "description": help, "nick": "", "priority": 5,
        "units": if name.contains("bytes") && !name.contains("histogram") { "bytes" } else { "none" }})
}

/// Runs `perf dump`, `perf schema`, `perf histogram dump` or `perf histogram schema`; `None` for
/// another command. `of` names a logger and a counter; empty names select all.
pub fn run(loggers: &[Logger<'_>], prefix: &str, of: (&str, &str)) -> Option<Value> {
    let counters = |l: &Logger<'_>| l.counters.iter().map(|c| (c.name, *c)).collect();
    Some(match prefix {
        "perf dump" => select(loggers, of, counters, |c| c.reading.dump()),
        "perf schema" => select(loggers, of, counters, |c| {
            description(c.reading.kind(), c.name, c.help)
        }),
        "perf histogram dump" => select(
            loggers,
            of,
            |l| l.histograms.iter().map(|h| (h.name, h)).collect(),
            |h| {
                let axes: Vec<Value> = h.axes.iter().map(Axis::dump).collect();
                let values = match h.values {
                    Values::Line(v) => json!(v),
                    Values::Grid(g) => g.0.iter().map(|row| json!(row)).collect(),
                };
                json!({"axes": axes, "values": values})
            },
        ),
        "perf histogram schema" => select(
            loggers,
            of,
            |l| l.histograms.iter().map(|h| (h.name, h)).collect(),
            |h| {
                let kind = match h.values {
                    Values::Line(_) => (26, "counter", "integer-1d-histogram"),
                    Values::Grid(_) => (26, "counter", "integer-2d-histogram"),
                };
                description(kind, h.name, h.help)
            },
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_over_what_came_since() {
        let mut t = Times::default();
        t.add(Micros::new(1000));
        let before = t;
        assert_eq!(t.average_ns_since(&before), 0);
        t.add(Micros::new(3000));
        t.add(Micros::new(4000));
        assert_eq!(t.average_ns_since(&before), 3_500_000);
    }

    #[test]
    fn buckets_are_those_of_official_histograms() {
        assert_eq!([0, 1, 2, 3, 4].map(Axis::bucket), [1, 2, 3, 3, 4]);
        assert_eq!(Axis::bucket(u64::MAX), BUCKETS - 1);
        let axis = Axis {
            name: "Latency (usec)",
            quant: 100_000,
        };
        let v = axis.dump();
        assert_eq!(v["ranges"][0], json!({"max": -1}));
        assert_eq!(v["ranges"][1], json!({"min": 0, "max": 99_999}));
        assert_eq!(v["ranges"][4], json!({"min": 400_000, "max": 799_999}));
        assert_eq!(v["ranges"][31], json!({"min": 100_000u64 << 29}));
    }

    #[test]
    fn a_logger_or_a_counter_can_be_asked_for() {
        let mut grid = Grid::default();
        grid.add(3, 0);
        let loggers = [
            Logger {
                name: "osd",
                counters: vec![
                    count("op", 4, "requests"),
                    times(
                        "op_latency",
                        Times {
                            count: 2,
                            usec: Micros::from_secs(3),
                        },
                        "",
                    ),
                ],
                histograms: vec![Histogram {
                    name: "h",
                    help: "",
                    axes: Vec::new(),
                    values: Values::Grid(&grid),
                }],
            },
            Logger {
                name: "store",
                counters: vec![gauge("log_bytes", 1, "")],
                histograms: Vec::new(),
            },
        ];
        let ask = |prefix, logger, counter| run(&loggers, prefix, (logger, counter)).unwrap();
        let all = json!({"osd": {"op": 4, "op_latency": {"avgcount": 2, "sum": 3.0, "avgtime": 1.5}},
            "store": {"log_bytes": 1}});
        assert_eq!(ask("perf dump", "", ""), all);
        assert_eq!(ask("perf dump", "osd", "op"), json!({"osd": {"op": 4}}));
        assert_eq!(ask("perf dump", "nope", ""), json!({}));
        assert_eq!(
            ask("perf schema", "store", "")["store"]["log_bytes"]["units"],
            "bytes"
        );
        assert_eq!(
            ask("perf histogram dump", "osd", "h")["osd"]["h"]["values"][3][1],
            1
        );
        assert!(run(&loggers, "perf reset", ("", "")).is_none());
    }
}
