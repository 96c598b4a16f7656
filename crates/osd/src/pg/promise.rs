//! The promises of OSDs to each other about reads.

/// Until when reads may be answered, in microseconds of this OSD's clock; in messages, how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promise {
    /// By the primary.
    pub primary: u64,
    /// By any member.
    pub members: u64,
}

impl Promise {
    fn map(self, f: impl Fn(u64) -> u64) -> Self {
        Self {
            primary: f(self.primary),
            members: f(self.members),
        }
    }

    /// A promise to the primary and all members, until `until`.
    pub(super) fn to_all(until: u64) -> Self {
        Self {
            primary: until,
            members: until,
        }
    }

    /// How long the promise still holds.
    pub(super) fn left(self, now: u64) -> Self {
        self.map(|until| until.saturating_sub(now))
    }

    /// Until when a promise of a duration holds.
    pub(super) fn from(self, now: u64) -> Self {
        self.map(|length| now.saturating_add(length))
    }

    /// The later of each time of both promises.
    pub(super) fn max(self, o: Self) -> Self {
        Self {
            primary: self.primary.max(o.primary),
            members: self.members.max(o.members),
        }
    }
}
