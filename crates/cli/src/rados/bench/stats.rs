//! The figures of a benchmark, and their output in the official tool's form: a line a second, a
//! summary at the end.

use std::time::Duration;

use serde_json::{Map, Value, json};
use spirula_text::general;

/// A mean and the sum of squared differences from it, kept without the values (B. P. Welford,
/// 1962).
#[derive(Debug, Default, Clone, Copy)]
struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, v: f64) {
        self.count += 1.0;
        let delta = v - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (v - self.mean);
    }

    /// The standard deviation of a sample, 0 of one value.
    fn deviation(&self) -> f64 {
        if self.count > 1.0 {
            (self.squares / (self.count - 1.0)).sqrt()
        } else {
            0.0
        }
    }
}

/// The figures of one run.
#[derive(Debug, Clone)]
pub(super) struct Stats {
    pub(super) op_size: u64,
    pub(super) object_size: u64,
    pub(super) started: u64,
    pub(super) finished: u64,
    last_latency: f64,
    min_latency: f64,
    max_latency: f64,
    latency: Spread,
    min_bandwidth: f64,
    max_bandwidth: f64,
    bandwidth: Spread,
    min_iops: i64,
    max_iops: i64,
    iops: Spread,
    /// Lines printed so far.
    lines: u64,
    finished_at_line: u64,
    /// Lines since the last one with progress.
    idle: u64,
    /// The last interval's rate, where one was measured.
    last_iops: Option<i64>,
}

#[allow(clippy::cast_precision_loss, reason = "figures of six digits are made of it")]
fn float(v: u64) -> f64 {
    v as f64
}

const MIB: f64 = 1_048_576.0;

/// The head of the lines.
pub(super) const HEAD: &str = "  sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)";

/// One line of progress.
pub(super) struct Line {
    /// The whole line.
    pub(super) text: String,
    /// The line as a JSON object.
    pub(super) json: Value,
}

impl Stats {
    pub(super) fn new(op_size: u64, object_size: u64) -> Self {
        Self {
            op_size,
            object_size,
            started: 0,
            finished: 0,
            last_latency: 0.0,
            min_latency: 9999.0,
            max_latency: 0.0,
            latency: Spread::default(),
            min_bandwidth: f64::MAX,
            max_bandwidth: 0.0,
            bandwidth: Spread::default(),
            min_iops: i64::from(i32::MAX),
            max_iops: 0,
            iops: Spread::default(),
            lines: 0,
            finished_at_line: 0,
            idle: 0,
            last_iops: None,
        }
    }

    /// Counts a finished operation.
    pub(super) fn finish(&mut self, latency: Duration) {
        let latency = latency.as_secs_f64();
        self.finished += 1;
        self.last_latency = latency;
        self.min_latency = self.min_latency.min(latency);
        self.max_latency = self.max_latency.max(latency);
        self.latency.add(latency);
    }

    fn megabytes_per_second(&self, operations: u64, seconds: f64) -> f64 {
        float(operations) * float(self.op_size) / seconds / MIB
    }

    /// Measures the interval since the last line and makes a new one.
    pub(super) fn line(&mut self, elapsed: Duration) -> Line {
        let done = self.finished - self.finished_at_line;
        let mut bandwidth = -1.0;
        self.last_iops = None;
        if self.idle > 0 {
            bandwidth = self.megabytes_per_second(done, float(self.idle));
            self.min_bandwidth = self.min_bandwidth.min(bandwidth);
            self.max_bandwidth = self.max_bandwidth.max(bandwidth);
            self.bandwidth.add(bandwidth);
            let iops = i64::try_from(done / self.idle).unwrap_or(i64::MAX);
            self.min_iops = self.min_iops.min(iops);
            self.max_iops = self.max_iops.max(iops);
            #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
            self.iops.add(iops as f64);
            self.last_iops = Some(iops);
        }
        let average = self.megabytes_per_second(self.finished, elapsed.as_secs_f64().max(1e-9));
        let progress = done > 0;
        let (current, last) = if progress {
            (general(bandwidth, 6), general(self.last_latency, 6))
        } else {
            ("0".to_owned(), "-".to_owned())
        };
        let in_flight = self.started.saturating_sub(self.finished);
        let text = format!(
            "{:5} {in_flight:7} {:9} {:9} {:>9} {current:>9} {last:>11} {:>11}",
            self.lines,
            self.started,
            self.finished,
            general(average, 6),
            general(self.latency.mean, 6),
        );
        let fixed = |v: f64| format!("{v:.6}");
        let (current, last) = if progress {
            (bandwidth, self.last_latency)
        } else {
            (0.0, 0.0)
        };
        let json = json!({
            "sec": self.lines.to_string(),
            "cur_ops": in_flight.to_string(),
            "started": self.started.to_string(),
            "finished": self.finished.to_string(),
            "avg_bw": fixed(average),
            "cur_bw": fixed(current),
            "last_lat": fixed(last),
            "avg_lat": fixed(self.latency.mean),
        });
        if progress {
            self.finished_at_line = self.finished;
            self.idle = 0;
        }
        self.lines += 1;
        self.idle += 1;
        Line { text, json }
    }

    /// Whether a head comes before the next line, and the summary before the head if there is one.
    pub(super) fn wants_head(&self) -> (bool, Option<String>) {
        let head = self.lines.is_multiple_of(20);
        let summary = format!(
            " min lat: {} max lat: {} avg lat: {}",
            general(self.min_latency, 6),
            general(self.max_latency, 6),
            general(self.latency.mean, 6)
        );
        (head, (head && self.lines > 0).then_some(summary))
    }

    /// The summary: title, name in JSON, value as text, value in JSON.
    fn summary(
        &mut self,
        write: bool,
        elapsed: Duration,
    ) -> Vec<(&'static str, &'static str, String, String)> {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        #[allow(clippy::cast_possible_truncation, reason = "a rate that was counted in u64")]
        let rate = (float(self.finished) / seconds) as i64;
        if self.last_iops.is_none() {
            (self.min_iops, self.max_iops) = (rate, rate);
        }
        let whole = |title, name, v: String| (title, name, v.clone(), v);
        let real = |title, name, v: f64| (title, name, general(v, 6), format!("{v:.6}"));
        let bandwidth = self.megabytes_per_second(self.finished, seconds);
        let finished = self.finished.to_string();
        let mut rows = vec![real("Total time run", "total_time_run", seconds)];
        if write {
            rows.push(whole("Total writes made", "total_writes_made", finished));
            rows.push(whole("Write size", "write_size", self.op_size.to_string()));
        } else {
            rows.push(whole("Total reads made", "total_reads_made", finished));
            rows.push(whole("Read size", "read_size", self.op_size.to_string()));
        }
        rows.push(whole("Object size", "object_size", self.object_size.to_string()));
        rows.push(real("Bandwidth (MB/sec)", "bandwidth", bandwidth));
        if write {
            rows.push(real(
                "Stddev Bandwidth",
                "stddev_bandwidth",
                self.bandwidth.deviation(),
            ));
            rows.push(real(
                "Max bandwidth (MB/sec)",
                "max_bandwidth",
                self.max_bandwidth,
            ));
            rows.push(real(
                "Min bandwidth (MB/sec)",
                "min_bandwidth",
                self.min_bandwidth,
            ));
        }
        rows.push(whole("Average IOPS", "average_iops", rate.to_string()));
        rows.push(real("Stddev IOPS", "stddev_iops", self.iops.deviation()));
        rows.push(whole("Max IOPS", "max_iops", self.max_iops.to_string()));
        rows.push(whole("Min IOPS", "min_iops", self.min_iops.to_string()));
        rows.push(real("Average Latency(s)", "average_latency", self.latency.mean));
        if write {
            rows.push(real(
                "Stddev Latency(s)",
                "stddev_latency",
                self.latency.deviation(),
            ));
        }
        rows.push(real("Max latency(s)", "max_latency", self.max_latency));
        rows.push(real("Min latency(s)", "min_latency", self.min_latency));
        rows
    }

    /// The summary as lines.
    pub(super) fn report(&mut self, write: bool, elapsed: Duration) -> Vec<String> {
        let width = if write { 23 } else { 21 };
        let rows = self.summary(write, elapsed);
        rows.into_iter()
            .map(|(title, _, text, _)| format!("{:<width$} {text}", format!("{title}:")))
            .collect()
    }

    /// The summary as members of an object; numbers are strings there, as in the official tool's.
    pub(super) fn report_json(&mut self, write: bool, elapsed: Duration) -> Map<String, Value> {
        let rows = self.summary(write, elapsed);
        rows.into_iter()
            .map(|(_, name, _, json)| (name.to_owned(), json.into()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(n: u64) -> Stats {
        let mut stats = Stats::new(4096, 4096);
        stats.started = n + 3;
        (0..n).for_each(|i| stats.finish(Duration::from_micros(1000 + i)));
        stats
    }

    #[test]
    fn lines_look_as_the_official_ones() {
        let mut stats = after(0);
        assert!(stats.wants_head().0);
        let line = stats.line(Duration::from_micros(10)).text;
        assert_eq!(
            line,
            "    0       3         3         0         0         0           -           0"
        );
        assert_eq!(line.len(), HEAD.len());
        stats.started += 1037;
        (0..1037).for_each(|_| stats.finish(Duration::from_micros(3500)));
        let line = stats.line(Duration::from_secs(1)).text;
        assert_eq!(
            line,
            "    1       3      1040      1037   4.05078   4.05078      0.0035      0.0035"
        );
    }

    #[test]
    fn a_second_without_progress_counts_towards_the_next_rate() {
        let mut stats = after(256);
        stats.line(Duration::from_secs(1));
        assert!(
            stats
                .line(Duration::from_secs(2))
                .text
                .contains(" 0           - ")
        );
        stats.started += 512;
        (0..512).for_each(|_| stats.finish(Duration::from_micros(10)));
        assert_eq!(stats.line(Duration::from_secs(3)).json["cur_bw"], "1.000000");
        assert_eq!((stats.min_iops, stats.max_iops), (0, 256));
    }

    #[test]
    fn reports_have_the_official_rows() {
        let mut stats = after(2);
        let lines = stats.report(true, Duration::from_secs(2));
        assert_eq!(lines.len(), 16);
        assert_eq!(lines[0], "Total time run:         2");
        assert_eq!(lines[7], "Min bandwidth (MB/sec): 1.79769e+308");
        assert_eq!(lines[8], "Average IOPS:           1");
        let lines = stats.report(false, Duration::from_secs(2));
        assert_eq!(lines.len(), 12);
        assert_eq!(lines[1], "Total reads made:     2");
        assert_eq!(
            stats.report_json(true, Duration::from_secs(2))["write_size"],
            "4096"
        );
    }
}
