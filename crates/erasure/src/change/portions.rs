//! Portions of what members stage.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Step;
use crate::Layout;

impl Layout {
    /// Divides steps that are [staged](crate::Divided::staged) into portions of at most `max` bytes
    /// of payload. A stripe is never cut, even if it has more: coding blocks are differences of all
    /// its units, and a block can be staged only once.
    pub fn portions(self, staged: &[Step], max: u64) -> Vec<Vec<Step>> {
        let mut portions = Vec::new();
        let (mut from, mut sum) = (0, 0);
        let mut portion = |range: Range<u64>| {
            let parts = staged.iter().filter_map(|step| step.part(range.clone().into()));
            portions.push(parts.collect());
        };
        for (stripe, bytes) in self.payload(staged) {
            if sum > 0 && sum + bytes > max {
                portion(from..stripe);
                (from, sum) = (stripe, 0);
            }
            sum += bytes;
        }
        if sum > 0 {
            portion(from..u64::MAX);
        }
        portions
    }

    /// The bytes that steps carry of each stripe, by its first byte.
    fn payload(self, steps: &[Step]) -> BTreeMap<u64, u64> {
        let mut payload = BTreeMap::new();
        for step in steps {
            let touched = self.stripes(step.range()).touched;
            for stripe in touched.filter_map(|number| self.stripe(number)) {
                let bytes = step.part(stripe).map_or(0, |part| part.bytes() as u64);
                *payload.entry(stripe.offset).or_default() += bytes;
            }
        }
        payload
    }
}
