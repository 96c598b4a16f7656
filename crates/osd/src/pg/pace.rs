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

use spirula_denc::Micros;

use super::config::Window;

/// The time after a client's request for which clients count as working.
const RECENT: Micros = Micros::from_millis(100);
/// The time of copying after which there is a rest. Alarms are not much finer.
const SPELL: Micros = Micros::from_millis(20);
/// The longest rest: a step that took longer was stuck, and that is over.
const LONGEST_REST: Micros = Micros::from_secs(2);

/// The bytes beyond which a request's size does not count.
const LARGEST: u64 = 8 << 20;
/// The mean size of requests follows a new one by this part of the difference.
const MEAN_OF: u64 = 16;

/// The pace of copying, which the PGs of a reactor share.
#[derive(Debug, Clone, Default)]
pub struct Pace(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// When a client last sent a request, in microseconds; 0 for never.
    last_op: AtomicU64,
    /// The mean payload bytes of the last few requests.
    mean: AtomicU64,
    /// Microseconds of copying since the last rest.
    worked: AtomicU64,
    /// When the rest ends, in microseconds.
    rest_until: AtomicU64,
}

impl Pace {
    /// Notes a client's request that moves this many bytes.
    pub fn note_op(&self, usec: Micros, bytes: u64) {
        let s = &self.0;
        s.last_op.store(usec.count(), Ordering::Relaxed);
        let mean = s.mean.load(Ordering::Relaxed);
        let mean = mean - mean / MEAN_OF + bytes.min(LARGEST) / MEAN_OF;
        s.mean.store(mean, Ordering::Relaxed);
    }

    /// The window of a copy: `all`, or while clients work as much as `requests` of their requests,
    /// but no less than `least`.
    pub(super) fn window(&self, usec: Micros, all: Window, least: Window, requests: u64) -> Window {
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
    pub(crate) fn is_busy(&self, usec: Micros) -> bool {
        let last = Micros::new(self.0.last_op.load(Ordering::Relaxed));
        !last.is_zero() && usec.saturating_sub(last) < RECENT
    }

    /// Until when nothing is to be copied; `None` for now.
    pub(super) fn rests_until(&self, usec: Micros) -> Option<Micros> {
        let until = Micros::new(self.0.rest_until.load(Ordering::Relaxed));
        (until > usec).then_some(until)
    }

    /// Notes that a step took `took`. While clients work the rest is `rest` times as long, and
    /// `sleep` in any case.
    pub(super) fn worked(&self, usec: Micros, took: Micros, rest: u64, sleep: Micros) {
        let mut pause = sleep;
        if self.is_busy(usec) {
            let worked = Micros::new(self.0.worked.load(Ordering::Relaxed)) + took;
            let ends = worked >= SPELL;
            self.0
                .worked
                .store(if ends { 0 } else { worked.count() }, Ordering::Relaxed);
            if ends {
                pause = pause.max((worked * rest).min(LONGEST_REST));
            }
        } else {
            self.0.worked.store(0, Ordering::Relaxed);
        }
        let until = usec + pause;
        self.0.rest_until.fetch_max(until.count(), Ordering::Relaxed);
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
        assert_eq!(p.window(Micros::new(5), all, least, 3), all, "nobody works");
        p.note_op(Micros::new(10), 4096);
        assert_eq!(p.window(Micros::new(10), all, least, 3), least);
        (0..100).for_each(|_| p.note_op(Micros::new(10), 1 << 20));
        let now = p.window(Micros::new(10), all, least, 3);
        assert_eq!(now.pushes, 16);
        assert!((2 << 20..=3 << 20).contains(&now.bytes), "{now:?}");
        assert!((700 << 10..=1 << 20).contains(&now.chunk), "{now:?}");
        (0..100).for_each(|_| p.note_op(Micros::new(10), u64::MAX));
        assert_eq!(
            p.window(Micros::new(10), all, least, 3),
            window(16, 8 << 20, 1 << 20)
        );
    }

    #[test]
    fn a_copy_rests_only_while_clients_work() {
        let p = Pace::default();
        p.worked(Micros::new(1_000_000), Micros::new(50_000), 3, Micros::ZERO);
        assert_eq!(p.rests_until(Micros::new(1_000_000)), None);
        p.note_op(Micros::new(1_000_000), 4096);
        p.worked(Micros::new(1_004_000), Micros::new(4_000), 3, Micros::ZERO);
        assert_eq!(p.rests_until(Micros::new(1_004_000)), None, "not yet");
        p.worked(Micros::new(1_020_000), Micros::new(16_000), 3, Micros::ZERO);
        assert_eq!(
            p.rests_until(Micros::new(1_020_000)),
            Some(Micros::new(1_080_000))
        );
        assert_eq!(p.rests_until(Micros::new(1_080_000)), None);
        // The last client has gone.
        p.worked(Micros::new(1_200_000), Micros::new(50_000), 3, Micros::ZERO);
        assert_eq!(p.rests_until(Micros::new(1_200_000)), None);
        p.worked(Micros::new(1_200_000), Micros::new(50_000), 3, Micros::new(7_000));
        assert_eq!(
            p.rests_until(Micros::new(1_200_000)),
            Some(Micros::new(1_207_000))
        );
    }
}
