//! The promises of OSDs to each other about reads.

use spirula_denc::Micros;

/// Until when reads may be answered by this OSD's clock; in messages, how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promise {
    /// By the primary.
    pub primary: Micros,
    /// By any member.
    pub members: Micros,
}

impl Promise {
    fn map(self, f: impl Fn(Micros) -> Micros) -> Self {
        Self {
            primary: f(self.primary),
            members: f(self.members),
        }
    }

    /// A promise to the primary and all members, until `until`.
    pub(super) fn to_all(until: Micros) -> Self {
        Self {
            primary: until,
            members: until,
        }
    }

    /// How long the promise still holds.
    pub(super) fn left(self, now: Micros) -> Self {
        self.map(|until| until.saturating_sub(now))
    }

    /// Until when a promise of a duration holds.
    pub(super) fn from(self, now: Micros) -> Self {
        self.map(|length| now + length)
    }

    /// The later of each time of both promises.
    pub(super) fn max(self, o: Self) -> Self {
        Self {
            primary: self.primary.max(o.primary),
            members: self.members.max(o.members),
        }
    }
}
