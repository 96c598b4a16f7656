//! The speed of work in the background: full speed while no client works, else only for a part of
//! the time, which the class of the work and the options of the scheduler (`osd_mclock_profile`)
//! decide.
//!
//! How much such work disturbs depends on what is scarce: processor, disk, network. None of that is
//! measured. But a step of it takes the longer the busier all of that is, so after some time of work
//! there is a rest that is several times as long. And the bytes that a copy may have under
//! way grow with the size of the clients' requests: beside writes of 4 MiB, each of which waits for
//! all others, a few small pushes would get no share worth the name, and clients could write faster
//! than the copy proceeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spirula_denc::Micros;

use super::config::Window;
use super::rate::Rate;

/// The time after a client's request for which clients count as working.
const RECENT: Micros = Micros::from_millis(100);
/// The time of work after which there is a rest. Alarms are not much finer.
const SPELL: Micros = Micros::from_millis(20);
/// The longest rest: a step that took longer was stuck, and that is over.
const LONGEST_REST: Micros = Micros::from_secs(2);

/// The bytes beyond which a request's size does not count.
const LARGEST: u64 = 8 << 20;
/// The mean size of requests follows a new one by this part of the difference.
const MEAN_OF: u64 = 16;

/// A class of work in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Copies to members that lack something.
    Recovery,
    /// Scrubs, the trimming of snapshots and the deletion of copies.
    BestEffort,
}

/// The time of a step if there are so many in a second; `None` for any number.
fn step(rate: f64) -> Option<Micros> {
    (rate > 0.0).then(|| Micros::from_secs_f64(1.0 / rate))
}

/// The pace of work in the background, which the PGs of a reactor share.
#[derive(Debug, Clone, Default)]
pub struct Pace(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// When a client last sent a request, in microseconds; 0 for never.
    last_op: AtomicU64,
    /// The mean payload bytes of the last few requests.
    mean: AtomicU64,
    /// The classes of work.
    classes: [Spell; 2],
}

/// A class's work and rest.
#[derive(Debug, Default)]
struct Spell {
    /// Microseconds of work since the last rest.
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

    fn spell(&self, class: Class) -> &Spell {
        &self.0.classes[class as usize]
    }

    /// Until when a class of work rests; `None` if it does not.
    pub(super) fn rests_until(&self, class: Class, usec: Micros) -> Option<Micros> {
        let until = Micros::new(self.spell(class).rest_until.load(Ordering::Relaxed));
        (until > usec).then_some(until)
    }

    /// Notes that a step took `took`. The class rests after it at this rate, and for `sleep` in any
    /// case.
    pub(super) fn worked(&self, class: Class, usec: Micros, took: Micros, rate: Rate, sleep: Micros) {
        let spell = self.spell(class);
        let mut pause = Micros::ZERO;
        if self.is_busy(usec) {
            let worked = Micros::new(spell.worked.load(Ordering::Relaxed)) + took;
            let ends = worked >= SPELL;
            spell
                .worked
                .store(if ends { 0 } else { worked.count() }, Ordering::Relaxed);
            if ends {
                pause = Micros::from_secs_f64(worked.as_secs_f64() * rate.rest).min(LONGEST_REST);
            }
            pause = step(rate.least).map_or(pause, |least| pause.min(least));
        } else {
            spell.worked.store(0, Ordering::Relaxed);
        }
        let most = step(rate.most).map_or(Micros::ZERO, |most| most.saturating_sub(took));
        let until = usec + pause.max(most).max(sleep);
        spell.rest_until.fetch_max(until.count(), Ordering::Relaxed);
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
    fn work_rests_only_while_clients_work() {
        let (p, copies) = (Pace::default(), Class::Recovery);
        let rests = |p: &Pace, usec| p.rests_until(copies, Micros::new(usec)).map(Micros::count);
        let worked = |p: &Pace, usec, took, sleep| {
            let rate = Rate::weighing(1.0 / 3.0);
            p.worked(
                copies,
                Micros::new(usec),
                Micros::new(took),
                rate,
                Micros::new(sleep),
            );
        };
        worked(&p, 1_000_000, 50_000, 0);
        assert_eq!(rests(&p, 1_000_000), None);
        p.note_op(Micros::new(1_000_000), 4096);
        worked(&p, 1_004_000, 4_000, 0);
        assert_eq!(rests(&p, 1_004_000), None, "not yet");
        worked(&p, 1_020_000, 16_000, 0);
        assert_eq!(rests(&p, 1_020_000), Some(1_080_000));
        assert_eq!(p.rests_until(Class::BestEffort, Micros::new(1_020_000)), None);
        assert_eq!(rests(&p, 1_080_000), None);
        // The last client has gone.
        worked(&p, 1_200_000, 50_000, 0);
        assert_eq!(rests(&p, 1_200_000), None);
        worked(&p, 1_200_000, 50_000, 7_000);
        assert_eq!(rests(&p, 1_200_000), Some(1_207_000));
    }

    #[test]
    fn steps_are_as_many_as_may_be_and_have_to_be() {
        let (p, usec) = (Pace::default(), Micros::from_secs(1));
        let rate = Rate {
            rest: 9.0,
            least: 10.0,
            most: 20.0,
        };
        let rest_after = |took| {
            p.worked(
                Class::BestEffort,
                usec,
                Micros::from_millis(took),
                rate,
                Micros::ZERO,
            );
            p.rests_until(Class::BestEffort, usec)
                .map(|until| until.saturating_sub(usec).as_millis())
        };
        assert_eq!(rest_after(10), Some(40), "nobody works: one in 50 ms");
        p.note_op(usec, 4096);
        // 180 ms were nine times as long, but less often than ten times a second.
        assert_eq!(rest_after(20), Some(100));
    }
}
