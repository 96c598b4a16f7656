//! How fast members to be are copied to: as fast as it goes while no client works, else for a part of the time only.
//!
//! How much a copy disturbs depends on what is scarce: processor, disk, network. None of that is measured. But a step of a
//! copy takes the longer the busier all of it is, so after some time of copying there is a rest some times as long. And what a copy may have
//! under way grows with what clients ask for at once: beside writes of 4 MiB, each of which waits for all others, a few small
//! pushes would get no share worth the name, and clients could write faster than is copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::config::Window;

/// Microseconds after a client's request for which clients count as working.
const RECENT: u64 = 100_000;
/// Microseconds of copying after which there is a rest. Alarms are not much finer.
const SPELL: u64 = 20_000;
/// Microseconds that one rest may take: something hung, and that is over.
const LONGEST_REST: u64 = 2_000_000;

/// Bytes above which a request is no larger for this.
const LARGEST: u64 = 8 << 20;
/// The mean size of requests follows a new one by this part of the difference.
const MEAN_OF: u64 = 16;

/// Shared by the PGs of a reactor.
#[derive(Debug, Clone, Default)]
pub struct Pace(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// When a client last asked for something; 0 for never.
    last_op: AtomicU64,
    /// Payload bytes of a request in the mean of the last few.
    mean: AtomicU64,
    /// Microseconds of copying since the last rest.
    worked: AtomicU64,
    /// When the rest ends.
    rest_until: AtomicU64,
}

impl Pace {
    /// A client asks for something that moves so many bytes.
    pub fn note_op(&self, usec: u64, bytes: u64) {
        let s = &self.0;
        s.last_op.store(usec, Ordering::Relaxed);
        let mean = s.mean.load(Ordering::Relaxed);
        let mean = mean - mean / MEAN_OF + bytes.min(LARGEST) / MEAN_OF;
        s.mean.store(mean, Ordering::Relaxed);
    }

    /// What a copy may have under way: `all`, or while clients work as much as `requests` of their requests, but no less than `least`.
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

    /// A step took so long. While clients work there is to be `rest` times as much rest, and `sleep` microseconds in any
    /// case.
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
