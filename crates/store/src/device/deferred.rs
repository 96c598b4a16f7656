//! Asking a ring for the completions that the kernel keeps back.

use std::sync::atomic::{Ordering, fence};

/// A ring whose kernel keeps completions back until its owner asks for them (`DEFER_TASKRUN`).
///
/// For the first completion that it keeps back, the kernel notes it, then sets a flag, then signals
/// the event descriptor if that is on; all of this beside the owner's thread.
pub(super) trait Deferring {
    /// Whether the flag is set. It can be set without a reason: when the owner got the completion
    /// after the kernel had noted it and before the kernel set the flag.
    fn is_flagged(&mut self) -> bool;
    /// Switches the signals of the event descriptor.
    fn signal(&mut self, on: bool);
    /// Makes the kernel hand over what it keeps back; whether it handed over any. Each completion
    /// that is handed over is signalled, too.
    fn hand_over(&mut self) -> bool;
}

/// Takes the completions that the kernel keeps back. The kernel signals each later completion that
/// this call does not hand over, unless it has already done so.
pub(super) fn ask(ring: &mut impl Deferring) {
    if !ring.is_flagged() {
        return; // The kernel keeps nothing back, or it is a ring that never does.
    }
    // The kernel signalled this when it came: the owner need not be woken again.
    ring.signal(false);
    ring.hand_over();
    ring.signal(true);
    // A completion that came unsignalled set the flag before the kernel saw that signals are off.
    // So the next look at the flag finds it, if this look comes after they are on again.
    fence(Ordering::SeqCst);
    while ring.is_flagged() {
        // When the kernel has nothing although the flag is set, all that comes later is signalled.
        if !ring.hand_over() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_random::Rng;

    use super::{Deferring, ask};

    /// The kernel's next step with a completion that it keeps back.
    #[derive(Clone, Copy, PartialEq)]
    enum Step {
        Flag,
        Signal,
    }

    /// A kernel that takes its steps between those of the owner.
    struct Kernel {
        rng: Rng,
        /// Completions that will still come.
        to_come: usize,
        kept: usize,
        flag: bool,
        signals_on: bool,
        signals: usize,
        steps: Vec<Step>,
        calls: usize,
        /// Calls that found the flag set without a reason.
        lies: usize,
    }

    impl Kernel {
        fn step(&mut self) {
            if self.steps.is_empty() || self.rng.below(3) == 0 {
                // One comes, or none.
                let comes = self.to_come.min(self.rng.below(2) as usize);
                self.to_come -= comes;
                if comes > 0 && self.kept == 0 {
                    self.steps.push(Step::Flag);
                }
                self.kept += comes;
                return;
            }
            let next = self.rng.below(self.steps.len() as u64) as usize;
            match self.steps.remove(next) {
                Step::Flag => {
                    self.flag = true;
                    self.steps.push(Step::Signal);
                }
                Step::Signal => self.signals += usize::from(self.signals_on),
            }
        }

        fn some_steps(&mut self) {
            self.calls += 1;
            assert!(self.calls < 100, "the ring is asked for ever");
            for _ in 0..self.rng.below(6) {
                self.step();
            }
        }
    }

    impl Deferring for Kernel {
        fn is_flagged(&mut self) -> bool {
            self.some_steps();
            self.lies += usize::from(self.flag && self.kept == 0);
            self.flag
        }

        fn signal(&mut self, on: bool) {
            self.some_steps();
            self.signals_on = on;
        }

        fn hand_over(&mut self) -> bool {
            self.some_steps();
            // When there is something, the kernel takes the flag down, then the completions, and
            // looks again for those that came meanwhile.
            let mut any = false;
            while self.kept > 0 {
                self.flag = false;
                self.some_steps();
                any = true;
                self.kept = 0;
                self.signals += usize::from(self.signals_on);
                self.some_steps();
            }
            any
        }
    }

    /// The kernel's steps come between the owner's in many orders: each call of the owner ends, and
    /// no completion is left for which it is not woken.
    #[test]
    fn asking_ends_and_nothing_is_slept_over() {
        let mut lies = 0;
        for seed in 1..=100_000 {
            let mut kernel = Kernel {
                rng: Rng::new(seed),
                to_come: 20,
                kept: 0,
                flag: false,
                signals_on: true,
                signals: 0,
                steps: Vec::new(),
                calls: 0,
                lies: 0,
            };
            while kernel.to_come > 0 || !kernel.steps.is_empty() || kernel.signals > 0 {
                kernel.step();
                if kernel.signals > 0 {
                    (kernel.signals, kernel.calls) = (0, 0);
                    ask(&mut kernel);
                }
            }
            assert_eq!(
                kernel.kept, 0,
                "seed {seed}: a completion is left, and the owner sleeps"
            );
            lies += kernel.lies;
        }
        assert!(lies > 100, "the flag was set without a reason only {lies} times");
    }
}
