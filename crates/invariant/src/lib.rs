//! Two reasons to stop, which a bare `return` does not tell apart.
//!
//! *What cannot be*: a state that no input from outside can cause. [`invariant!`] and
//! [`impossible!`] end the daemon, in release builds too, before what is broken reaches a disk or
//! another daemon. The message names what was expected and where: the PG, the epoch, the object.
//!
//! *What is merely old*, or otherwise of no use: a message of an attempt that ended, an answer that
//! nobody waits for any more. [`dropped!`] counts it by its reason and traces it. A part declares
//! its reasons with [`reasons!`], keeps [`Counts`] of them, and shows these in `perf dump`.
//!
//! So that a broken invariant can be explained, parts remember their last transitions in a [`Ring`]
//! each, which a [`Recorder`] tells before the daemon ends.

mod recorder;
mod ring;

pub use recorder::{AtWork, Recorder, told};
pub use ring::Ring;

use std::fmt;

/// A named fact about the place where an invariant broke.
pub type Fact<'a> = (&'static str, &'a dyn fmt::Display);

struct Broken<'a> {
    expected: &'a str,
    facts: &'a [Fact<'a>],
}

impl fmt::Display for Broken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant broken: expected {}", self.expected)?;
        for (name, value) in self.facts {
            write!(f, ", {name} {value}")?;
        }
        Ok(())
    }
}

/// Ends the daemon. Called by [`impossible!`].
#[cold]
#[inline(never)]
#[track_caller]
#[allow(clippy::panic, reason = "this is the one place that ends a daemon on purpose")]
pub fn broken(expected: &str, facts: &[Fact<'_>]) -> ! {
    panic!("{}", Broken { expected, facts })
}

/// Ends the daemon, as this place can't be reached. After what was expected instead come facts:
/// `name = value`, which are shown.
///
/// ```should_panic
/// let reply = "a page";
/// spirula_invariant::impossible!("an answer to the question"; pg = "1.2", reply = reply);
/// ```
#[macro_export]
macro_rules! impossible {
    ($expected:literal $(; $($name:ident = $value:expr),+ $(,)?)?) => {
        $crate::broken($expected, &[$($((stringify!($name), &$value as &dyn ::std::fmt::Display)),+)?])
    };
}

/// Ends the daemon unless something holds. The facts are only looked at when it does not.
///
/// ```
/// let (newest, version) = (3, 4);
/// spirula_invariant::invariant!(version > newest, "versions that ascend"; pg = "1.2", newest = newest);
/// ```
#[macro_export]
macro_rules! invariant {
    ($holds:expr, $expected:literal $(; $($name:ident = $value:expr),+ $(,)?)?) => {
        if !$holds {
            $crate::impossible!($expected $(; $($name = $value),+)?)
        }
    };
}

/// Why something is dropped: one of the reasons that [`reasons!`] declares.
pub trait Reason: Copy + 'static {
    /// All reasons, in their order.
    const ALL: &'static [Self];
    /// The reason's place in that order.
    fn index(self) -> usize;
    /// The reason's name in `perf dump`.
    fn name(self) -> &'static str;
    /// The reason's meaning, for people.
    fn help(self) -> &'static str;
}

/// The most reasons of one kind.
pub const MOST_REASONS: usize = 32;

/// Declares an enum of reasons, each with its name in `perf dump` and what that means for people.
///
/// ```
/// spirula_invariant::reasons! {
///     /// Why a part drops a message.
///     pub enum Dropped {
///         /// Its attempt has ended.
///         Stale => "stale", "Messages of attempts that have ended";
///     }
/// }
/// let mut counts = spirula_invariant::Counts::default();
/// spirula_invariant::dropped!(counts, Dropped::Stale);
/// assert_eq!(counts.of(Dropped::Stale), 1);
/// ```
#[macro_export]
macro_rules! reasons {
    (
        $(#[$doc:meta])* $vis:vis enum $kind:ident {
            $($(#[$reason_doc:meta])* $reason:ident => $name:literal, $help:literal;)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $kind {
            $($(#[$reason_doc])* $reason,)+
        }

        impl $crate::Reason for $kind {
            const ALL: &'static [Self] = {
                let all = &[$(Self::$reason),+];
                assert!(all.len() <= $crate::MOST_REASONS);
                all
            };

            fn index(self) -> usize {
                self as usize
            }

            fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)+
                }
            }

            fn help(self) -> &'static str {
                match self {
                    $(Self::$reason => $help,)+
                }
            }
        }
    };
}

/// How often something was dropped, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts<R> {
    by_reason: [u64; MOST_REASONS],
    total: u64,
    newest: Option<R>,
}

impl<R> Default for Counts<R> {
    fn default() -> Self {
        Self {
            by_reason: [0; MOST_REASONS],
            total: 0,
            newest: None,
        }
    }
}

impl<R: Reason> Counts<R> {
    /// Counts one more drop. [`dropped!`] traces it besides.
    pub fn add(&mut self, reason: R) {
        if let Some(n) = self.by_reason.get_mut(reason.index()) {
            *n += 1;
        }
        self.total += 1;
        self.newest = Some(reason);
    }

    /// The number of drops for any reason.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The reason of the last drop, if the total has grown since `before`, an earlier total.
    pub fn newest_since(&self, before: u64) -> Option<R> {
        self.newest.filter(|_| self.total > before)
    }

    /// The number of drops for this reason.
    pub fn of(&self, reason: R) -> u64 {
        self.by_reason.get(reason.index()).copied().unwrap_or(0)
    }

    /// All reasons, each with its number of drops.
    pub fn iter(&self) -> impl Iterator<Item = (R, u64)> {
        R::ALL.iter().map(|r| (*r, self.of(*r)))
    }
}

/// Counts by its reason that something is dropped, and traces it with facts: `name = value`. To be
/// returned if there is nothing else to do: `return dropped!(cx.perf.dropped, Dropped::Stale)`.
#[macro_export]
macro_rules! dropped {
    ($counts:expr, $reason:expr $(; $($name:ident = $value:expr),+ $(,)?)?) => {{
        let reason = $reason;
        $counts.add(reason);
        $crate::trace!($($($name = %$value,)+)? "dropped: {}", $crate::Reason::name(reason));
    }};
}

// For `dropped!`, whose users need not know of it.
#[doc(hidden)]
pub use tracing::trace;

#[cfg(test)]
mod tests {
    use super::*;

    reasons! {
        /// Reasons for the tests.
        enum Why {
            /// One.
            Old => "old", "Too old";
            /// Another.
            Early => "early", "Too early";
        }
    }

    #[test]
    fn what_is_dropped_is_counted_by_its_reason() {
        let mut counts = Counts::default();
        dropped!(counts, Why::Old);
        dropped!(counts, Why::Early; from = 3, pg = "1.0");
        dropped!(counts, Why::Early);
        let all: Vec<_> = counts.iter().map(|(r, n)| (r.name(), r.help(), n)).collect();
        assert_eq!(all, [("old", "Too old", 1), ("early", "Too early", 2)]);
        assert_eq!(counts.newest_since(2), Some(Why::Early));
        assert_eq!(counts.newest_since(counts.total()), None);
    }

    #[test]
    fn what_holds_costs_nothing() {
        invariant!(1 + 1 == 2, "arithmetic"; pg = unreachable());
    }

    fn unreachable() -> u32 {
        impossible!("facts to be looked at only where an invariant is broken")
    }

    #[test]
    #[should_panic(expected = "invariant broken: expected versions that ascend, pg 1.2, epoch 7, object o")]
    fn what_does_not_hold_says_where() {
        invariant!(2 > 3, "versions that ascend"; pg = "1.2", epoch = 7, object = "o");
    }
}
