//! A limit on messages: a number of them in a period for each entity that causes them.

use std::collections::BTreeMap;
use std::time::Duration;

/// The entities that are remembered at once; more share the rest of the limit.
const MOST: usize = 1000;

/// The messages of one entity in its period.
#[derive(Debug, Clone, Copy)]
struct Period {
    ends: Duration,
    told: u32,
    untold: u64,
}

/// Counts the messages that were admitted, and those that were not.
#[derive(Debug)]
pub(crate) struct Pace<K> {
    most: u32,
    period: Duration,
    by: BTreeMap<K, Period>,
}

impl<K: Ord + Clone> Pace<K> {
    /// A limit of `most` messages in each `period`.
    pub(crate) fn new(most: u32, period: Duration) -> Self {
        Self {
            most,
            period,
            by: BTreeMap::new(),
        }
    }

    /// Whether one more message caused by `who` is admitted.
    pub(crate) fn admits(&mut self, who: &K, now: Duration) -> bool {
        if !self.by.contains_key(who) && self.by.len() >= MOST {
            return false;
        }
        let new = Period {
            ends: now.saturating_add(self.period),
            told: 0,
            untold: 0,
        };
        let p = self.by.entry(who.clone()).or_insert(new);
        let admitted = p.told < self.most;
        match admitted {
            true => p.told += 1,
            false => p.untold = p.untold.saturating_add(1),
        }
        admitted
    }

    /// Ends the periods that are over. Returns how many messages of each entity were not admitted.
    pub(crate) fn over(&mut self, now: Duration) -> Vec<(K, u64)> {
        let mut untold = Vec::new();
        self.by.retain(|who, p| {
            let over = p.ends <= now;
            if over && p.untold > 0 {
                untold.push((who.clone(), p.untold));
            }
            !over
        });
        untold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_number_in_a_period_and_the_rest_is_counted() {
        let secs = Duration::from_secs;
        let mut p = Pace::new(2, secs(60));
        let told = |p: &mut Pace<u32>, who, now| (0..5).filter(|_| p.admits(&who, secs(now))).count();
        assert_eq!((told(&mut p, 1, 0), told(&mut p, 2, 10)), (2, 2));
        assert_eq!(p.over(secs(59)), []);
        assert_eq!(p.over(secs(60)), [(1, 3)]);
        assert_eq!((told(&mut p, 1, 61), told(&mut p, 2, 61)), (2, 0));
        let many = (0..5000).filter(|n| p.admits(n, secs(62))).count();
        assert!(many < 1100, "{many}");
    }
}
