//! `dump_osd_network`: times of heartbeats between OSDs, of one OSD, or of all at the manager.

use std::cmp::Reverse;

use serde_json::{Value, json};
use spirula_conf::options::Values;
use spirula_denc::{Micros, UTime};
use spirula_maps::{OsdId, PingSeries, PingTimes};

/// Microseconds as milliseconds.
fn ms(us: u32) -> Value {
    json!(f64::from(us) / 1000.0)
}

fn spans([a, b, c]: [u32; 3]) -> Value {
    json!({"1min": ms(a), "5min": ms(b), "15min": ms(c)})
}

/// The slowest of the averages.
pub fn slowest(s: &PingSeries) -> Micros {
    Micros::new(s.average.into_iter().max().unwrap_or(0).into())
}

/// The time above which a heartbeat is slow, for the health check: zero for never.
pub fn slow_limit(values: &Values) -> Micros {
    let grace = values.uint("osd_heartbeat_grace") as f64;
    // Casts of floats saturate.
    match values.float("mon_warn_on_slow_ping_time") * 1000.0 {
        fixed if fixed > 0.0 => Micros::new(fixed as u64),
        _ => Micros::new((grace * 1e6 * values.float("mon_warn_on_slow_ping_ratio")) as u64),
    }
}

/// The times of heartbeats from one OSD to another.
#[derive(Debug, Clone, Copy)]
pub struct Pings {
    /// The OSD that sends the heartbeats.
    pub from: OsdId,
    /// The OSD that answers them.
    pub to: OsdId,
    /// The times.
    pub times: PingTimes,
}

/// The answer to `dump_osd_network` for these times between pairs of OSDs, with the given threshold
/// in milliseconds or that of the health check.
pub fn dump(
    pings: impl Iterator<Item = Pings>,
    threshold_ms: Option<i64>,
    values: &Values,
    now: UTime,
) -> Value {
    let threshold = match threshold_ms {
        Some(ms) => Micros::from_millis(u64::try_from(ms).unwrap_or(0)),
        None => slow_limit(values),
    };
    let entries = entries(pings, threshold, (now.sec, values.uint("osd_heartbeat_stale")));
    json!({"threshold": threshold.as_millis(), "entries": entries})
}

/// The entries whose slowest average is at least `threshold`, the slowest first.
fn entries(pings: impl Iterator<Item = Pings>, threshold: Micros, (now, stale): (u32, u64)) -> Vec<Value> {
    let both = |p: Pings| [("back", p, p.times.back), ("front", p, p.times.front)];
    let mut all: Vec<_> = pings
        .filter(|p| p.times.last_update > 0)
        .flat_map(both)
        .filter(|(.., s)| slowest(s) >= threshold)
        .collect();
    all.sort_by_key(|(net, p, s)| Reverse((slowest(s), p.from, p.to, *net == "back")));
    all.into_iter()
        .map(|(net, p, s)| {
            let updated = p.times.last_update;
            json!({
                "last update": UTime::from_secs(updated).to_ctime(),
                "stale": u64::from(now.saturating_sub(updated)) > stale,
                "from osd": p.from,
                "to osd": p.to,
                "interface": net,
                "average": spans(s.average),
                "min": spans(s.min),
                "max": spans(s.max),
                "last": ms(s.last),
            })
        })
        .collect()
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
        let all = all.map(|(to, times)| Pings {
            from: OsdId::new(0),
            to: OsdId::new(to),
            times,
        });
        let got = entries(all.into_iter(), Micros::from_millis(1), (1_567_616_700, 600));
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
