//! `dump_osd_network`: how long heartbeats take.

use std::cmp::Reverse;

use serde_json::{Value, json};
use spirula_denc::UTime;
use spirula_maps::{PingSeries, PingTimes};

use super::state::Osd;
use crate::heartbeat::Net;

/// Microseconds as milliseconds.
fn ms(us: u32) -> Value {
    json!(f64::from(us) / 1000.0)
}

fn spans([a, b, c]: [u32; 3]) -> Value {
    json!({"1min": ms(a), "5min": ms(b), "15min": ms(c)})
}

/// The entries of peers whose slowest average is at least `threshold` microseconds, the slowest first.
fn entries(
    me: i32,
    times: impl Iterator<Item = (i32, PingTimes)>,
    threshold: u64,
    (now, stale): (u32, u64),
) -> Vec<Value> {
    let both = |(osd, t): (i32, PingTimes)| [(osd, Net::Back, t, t.back), (osd, Net::Front, t, t.front)];
    let slowest = |s: &PingSeries| s.average.into_iter().max().unwrap_or(0);
    let mut all: Vec<_> = times
        .filter(|(_, t)| t.last_update > 0)
        .flat_map(both)
        .filter(|(_, _, _, s)| u64::from(slowest(s)) >= threshold)
        .collect();
    all.sort_by_key(|(osd, net, _, s)| Reverse((slowest(s), *osd, *net == Net::Back)));
    all.into_iter()
        .map(|(osd, net, t, s)| {
            json!({
                "last update": UTime::from_secs(t.last_update).to_ctime(),
                "stale": u64::from(now.saturating_sub(t.last_update)) > stale,
                "from osd": me,
                "to osd": osd,
                "interface": net.name(),
                "average": spans(s.average),
                "min": spans(s.min),
                "max": spans(s.max),
                "last": ms(s.last),
            })
        })
        .collect()
}

impl Osd {
    /// The answer to `dump_osd_network`, with the given threshold in milliseconds or that of the health check.
    pub(super) fn network_times(&self, threshold_ms: Option<i64>) -> Value {
        let threshold = match threshold_ms {
            Some(ms) => u64::try_from(ms).unwrap_or(0).saturating_mul(1000),
            None => {
                let grace = self.values.uint("osd_heartbeat_grace") as f64;
                let share = grace * 1e6 * self.values.float("mon_warn_on_slow_ping_ratio");
                let fixed = self.values.float("mon_warn_on_slow_ping_time") * 1000.0;
                (if fixed > 0.0 { fixed } else { share }) as u64
            }
        };
        let clock = (self.host.now().sec, self.values.uint("osd_heartbeat_stale"));
        let entries = entries(self.cfg.id, self.heartbeats.times(), threshold, clock);
        json!({"threshold": threshold / 1000, "entries": entries})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_peers_are_told_slowest_first() {
        let series = |n| PingSeries {
            average: [n, 5, 6],
            min: [1, 2, 3],
            max: [7, 8, n],
            last: n,
        };
        let times = |back, front| PingTimes {
            last_update: 1_567_616_689,
            back: series(back),
            front: series(front),
        };
        let all = [
            (1, times(1500, 20)),
            (2, times(3000, 2000)),
            (3, PingTimes::default()),
        ];
        let got = entries(0, all.into_iter(), 1000, (1_567_616_700, 600));
        let seen: Vec<_> = got.iter().map(|e| (&e["to osd"], &e["interface"])).collect();
        assert_eq!(
            seen,
            [
                (&json!(2), &json!("back")),
                (&json!(2), &json!("front")),
                (&json!(1), &json!("back"))
            ]
        );
        assert_eq!(
            got[2],
            json!({
                "last update": "Wed Sep  4 17:04:49 2019", "stale": false, "from osd": 0, "to osd": 1,
                "interface": "back", "average": {"1min": 1.5, "5min": 0.005, "15min": 0.006},
                "min": {"1min": 0.001, "5min": 0.002, "15min": 0.003},
                "max": {"1min": 0.007, "5min": 0.008, "15min": 1.5}, "last": 1.5,
            })
        );
    }
}
