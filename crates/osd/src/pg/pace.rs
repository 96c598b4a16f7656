//! The speed at which backfill targets are copied to: full speed while no client works, else only
//! for a part of the time.
//!
//! How much a copy disturbs depends on what is scarce: processor, disk, network. None of that is
//! measured. But a step of a copy takes the longer the busier all of it is, so after some time of
//! copying there is a rest that is several times as long. And the bytes that a copy may have under
//! way grow with the size of the clients' requests: beside writes of 4 MiB, each of which waits for
//! all others, a few small pushes would get no share worth the name, and clients could write faster
//! than the copy proceeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::config::Window;

/// Microseconds after a client's request for which clients count as working.
const RECENT: u64 = 100_000;
/// Microseconds of copying after which there is a rest. Alarms are not much finer.
const SPELL: u64 = 20_000;
/// The most microseconds of one rest: a step that took longer was stuck, and that is over.
const LONGEST_REST: u64 = 2_000_000;

/// The bytes beyond which a request's size does not count.
const LARGEST: u64 = 8 << 20;
/// The mean size of requests follows a new one by this part of the difference.
const MEAN_OF: u64 = 16;

/// The pace of copying, which the PGs of a reactor share.
#[derive(Debug, Clone, Default)]
pub struct Pace(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// When a client last sent a request; 0 for never.
    last_op: AtomicU64,
    /// The mean payload bytes of the last few requests.
    mean: AtomicU64,
    /// Microseconds of copying since the last rest.
    worked: AtomicU64,
    /// When the rest ends.
    rest_until: AtomicU64,
}

impl Pace {
    /// Notes a client's request that moves this many bytes.
    pub fn note_op(&self, usec: u64, bytes: u64) {
        let s = &self.0;
        s.last_op.store(usec, Ordering::Relaxed);
        let mean = s.mean.load(Ordering::Relaxed);
        let mean = mean - mean / MEAN_OF + bytes.min(LARGEST) / MEAN_OF;
        s.mean.store(mean, Ordering::Relaxed);
    }

    /// The window of a copy: `all`, or while clients work as much as `requests` of their requests,
    /// but no less than `least`.
    pub(super) fn window(&self, usec: u64, all: Window, least: Window, requests: u64) -> Window {
        if !self.is_busy(usec) {
            return all;
        }
        let mean = self.0.mean.load(Ordering::Relaxed);
        let mut window = least;
        window.bytes = window.bytes.max(mean.saturating_mul(requests));
        window.chunk = window.chunk.max(mean);
        window.at_most(all)
    }

    /// Whether clients work.
    pub(super) fn is_busy(&self, usec: u64) -> bool {
        let last = self.0.last_op.load(Ordering::Relaxed);
        last > 0 && usec.saturating_sub(last) < RECENT
    }

    /// Until when nothing is to be copied; `None` for now.
    pub(super) fn rests_until(&self, usec: u64) -> Option<u64> {
        let until = self.0.rest_until.load(Ordering::Relaxed);
        (until > usec).then_some(until)
    }

    /// Notes that a step took `took` microseconds. While clients work the rest is `rest` times as
    /// long, and `sleep` microseconds in any case.
    pub(super) fn worked(&self, usec: u64, took: u64, rest: u64, sleep: u64) {
        let mut pause = sleep;
        if self.is_busy(usec) {
            let worked = self.0.worked.load(Ordering::Relaxed).saturating_add(took);
            let ends = worked >= SPELL;
            self.0
                .worked
                .store(if ends { 0 } else { worked }, Ordering::Relaxed);
            if ends {
                pause = pause.max(worked.saturating_mul(rest).min(LONGEST_REST));
            }
        } else {
            self.0.worked.store(0, Ordering::Relaxed);
        }
        let until = usec.saturating_add(pause);
        self.0.rest_until.fetch_max(until, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_as_some_requests() {
        let window = |pushes, bytes, chunk| Window { pushes, bytes, chunk };
        let (all, least) = (window(32, 8 << 20, 1 << 20), window(16, 512 << 10, 256 << 10));
        let p = Pace::default();
        assert_eq!(p.window(5, all, least, 3), all, "nobody works");
        p.note_op(10, 4096);
        assert_eq!(p.window(10, all, least, 3), least);
        (0..100).for_each(|_| p.note_op(10, 1 << 20));
        let now = p.window(10, all, least, 3);
        assert_eq!(now.pushes, 16);
        assert!((2 << 20..=3 << 20).contains(&now.bytes), "{now:?}");
        assert!((700 << 10..=1 << 20).contains(&now.chunk), "{now:?}");
        (0..100).for_each(|_| p.note_op(10, u64::MAX));
        assert_eq!(p.window(10, all, least, 3), window(16, 8 << 20, 1 << 20));
    }

    #[test]
    fn a_copy_rests_only_while_clients_work() {
        let p = Pace::default();
        p.worked(1_000_000, 50_000, 3, 0);
        assert_eq!(p.rests_until(1_000_000), None);
        p.note_op(1_000_000, 4096);
        p.worked(1_004_000, 4_000, 3, 0);
        assert_eq!(p.rests_until(1_004_000), None, "not yet");
        p.worked(1_020_000, 16_000, 3, 0);
        assert_eq!(p.rests_until(1_020_000), Some(1_080_000));
        assert_eq!(p.rests_until(1_080_000), None);
        // The last client has gone.
        p.worked(1_200_000, 50_000, 3, 0);
        assert_eq!(p.rests_until(1_200_000), None);
        p.worked(1_200_000, 50_000, 3, 7_000);
        assert_eq!(p.rests_until(1_200_000), Some(1_207_000));
    }
}
