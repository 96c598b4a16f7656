//! Ping times: averages over 1, 5 and 15 minutes, as official OSDs keep them.

use spirula_denc::Micros;
use spirula_maps::{PingSeries, PingTimes};

use super::Net;

/// The number of minutes that are kept.
const KEPT: usize = 16;
/// The spans over which averages are reported, in minutes.
const SPANS: [usize; 3] = [1, 5, 15];

/// The ping times of one minute, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Minute {
    average: u32,
    min: u32,
    max: u32,
}

/// The minute under way.
#[derive(Debug, Clone, Copy)]
struct Running {
    total: u64,
    count: u32,
    min: u32,
    max: u32,
}

impl Default for Running {
    fn default() -> Self {
        Self {
            total: 0,
            count: 0,
            min: u32::MAX,
            max: 0,
        }
    }
}

impl Running {
    fn add(&mut self, took: u32) {
        self.total += u64::from(took);
        self.count += 1;
        self.min = self.min.min(took);
        self.max = self.max.max(took);
    }

    fn close(&mut self) -> Minute {
        let r = std::mem::take(self);
        let average = r.total / u64::from(r.count.max(1));
        Minute {
            average: u32::try_from(average).unwrap_or(u32::MAX),
            min: r.min,
            max: r.max,
        }
    }
}

/// The ping times on one network.
#[derive(Debug, Clone, Default)]
struct Series {
    running: Running,
    /// The last minutes, the newest at the end.
    minutes: Vec<Minute>,
    last: u32,
}

impl Series {
    fn close_minute(&mut self) {
        let minute = self.running.close();
        if self.minutes.is_empty() {
            // As if it had always been so: the longer averages start with the first one.
            self.minutes = vec![minute; KEPT];
        } else {
            self.minutes.rotate_left(1);
            self.minutes[KEPT - 1] = minute;
        }
    }

    fn told(&self) -> PingSeries {
        let mut out = PingSeries {
            last: self.last,
            ..PingSeries::default()
        };
        for (i, span) in SPANS.into_iter().enumerate() {
            let newest = self.minutes.iter().rev().take(span);
            let sum: u64 = newest.clone().map(|m| u64::from(m.average)).sum();
            out.average[i] = u32::try_from(sum / span as u64).unwrap_or(u32::MAX);
            out.min[i] = newest.clone().map(|m| m.min).min().unwrap_or(0);
            out.max[i] = newest.map(|m| m.max).max().unwrap_or(0);
        }
        out
    }
}

/// The times of the pings to one peer.
#[derive(Debug, Clone, Default)]
pub(super) struct Times {
    back: Series,
    front: Series,
    /// When the running minute began; 0 for not yet.
    began: Micros,
    /// When the last minute ended, in seconds since 1970; 0 for none.
    updated: u32,
}

impl Times {
    /// Adds a ping that was answered after `took` microseconds on the two networks. `span` is the
    /// length of a minute, which tests shorten.
    pub(super) fn add(&mut self, took: [u32; 2], now: Micros, wall: u32, span: Micros) {
        for (net, took) in Net::BOTH.into_iter().zip(took) {
            let s = self.series(net);
            s.running.add(took);
            s.last = took;
        }
        if self.began.is_zero() {
            self.began = now;
        } else if now.saturating_sub(self.began) >= span {
            self.began = now;
            self.updated = wall;
            self.back.close_minute();
            self.front.close_minute();
        }
    }

    fn series(&mut self, net: Net) -> &mut Series {
        match net {
            Net::Back => &mut self.back,
            Net::Front => &mut self.front,
        }
    }

    /// The times to report; before the end of the first minute only the last ones.
    pub(super) fn told(&self) -> PingTimes {
        if self.updated == 0 {
            let last = |s: &Series| PingSeries {
                last: s.last,
                ..PingSeries::default()
            };
            return PingTimes {
                last_update: 0,
                back: last(&self.back),
                front: last(&self.front),
            };
        }
        PingTimes {
            last_update: self.updated,
            back: self.back.told(),
            front: self.front.told(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Micros = Micros::from_secs(60);

    #[test]
    fn averages_cover_one_five_and_fifteen_minutes() {
        let mut t = Times::default();
        t.add([1000, 10], Micros::new(1), 0, MINUTE);
        t.add([3000, 30], Micros::new(2), 5, MINUTE);
        assert_eq!((t.told().last_update, t.told().back.last), (0, 3000));
        t.add([2000, 20], Micros::new(1) + MINUTE, 60, MINUTE);
        let told = t.told();
        assert_eq!((told.last_update, told.back.average), (60, [2000; 3]));
        assert_eq!((told.back.min, told.back.max), ([1000; 3], [3000; 3]));
        assert_eq!((told.front.average, told.front.last), ([20; 3], 20));
        // Four more minutes of 12 ms: the last five average 10, and the first one has left only the
        // minute's view.
        for n in 2..6 {
            t.add([12_000, 20], Micros::new(1) + MINUTE * n, 60, MINUTE);
        }
        let back = t.told().back;
        assert_eq!(back.average[..2], [12_000, 10_000]);
        assert_eq!(back.average[2], (11 * 2000 + 4 * 12_000) / 15);
        assert_eq!((back.min, back.max), ([12_000, 1000, 1000], [12_000; 3]));
    }
}
