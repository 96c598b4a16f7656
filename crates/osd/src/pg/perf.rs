//! Counts that the PG core makes of what it sees, over all PGs of a reactor.

/// Times: how many, and their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their sum in microseconds.
    pub usec: u64,
}

impl Times {
    /// Adds one time, in microseconds.
    pub fn add(&mut self, usec: u64) {
        self.count += 1;
        self.usec += usec;
    }

    /// The average since `before`, in nanoseconds; 0 where nothing happened.
    pub fn average_ns_since(&self, before: &Self) -> u64 {
        let count = self.count.saturating_sub(before.count);
        let usec = self.usec.saturating_sub(before.usec);
        usec.saturating_mul(1000).checked_div(count).unwrap_or(0)
    }
}

/// All counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct CorePerf {
    /// Transactions, from their submission until they were durable.
    pub commits: Times,
    /// Writes as a replica, from their arrival until they were durable here.
    pub sub_ops: Times,
    /// Bytes of data and attributes in them.
    pub sub_op_bytes: u64,
    /// Requests that found their object's context, and all that looked for one.
    pub contexts: (u64, u64),
    /// Objects of which this OSD had the copy repaired.
    pub repaired: u64,
    /// Messages of other OSDs that were of an earlier interval.
    pub peer_stale: u64,
    /// Messages of OSDs that have nothing to do with the PG, or not what the message says. They were dropped.
    pub peer_foreign: u64,
    /// Changes of other OSDs that no store takes, or of objects that are not the PG's. They were dropped.
    pub peer_unsound: u64,
    /// Messages of other OSDs that were dropped as they came before their map, and there were too many of them or they can't.
    pub peer_early: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_over_what_came_since() {
        let mut t = Times::default();
        t.add(1000);
        let before = t;
        assert_eq!(t.average_ns_since(&before), 0);
        t.add(3000);
        t.add(4000);
        assert_eq!(t.average_ns_since(&before), 3_500_000);
    }
}
