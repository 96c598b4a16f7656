//! What of a large change of an object that is coded goes ahead to a member.

use std::ops::Range;

use spirula_erasure::FragmentOp;

use super::BLOCK;
use crate::pg::coded::message::runs;

/// A run of writes that goes ahead to a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The writes' places among what the member stages.
    pub(super) place: Range<usize>,
    /// Where they begin in the fragment, in bytes.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) len: u64,
}

/// The longest run of adjacent writes among what a member stages of a large change, if it is long
/// enough to be placed. Those are whole blocks. What is added to a fragment can't go ahead, as the
/// result depends on what the fragment has by then.
pub(super) fn run_ahead(staged: &[FragmentOp]) -> Option<Run> {
    let mut end = 0;
    let all = runs(staged).filter_map(|run| {
        let place = end..end + run.len();
        end = place.end;
        match run {
            [FragmentOp::Write { offset, .. }, ..] => Some(Run {
                place,
                offset: *offset,
                len: run.iter().map(|op| op.range().len).sum(),
            }),
            _ => None,
        }
    });
    let longest = all.max_by_key(|run| (run.len, std::cmp::Reverse(run.offset)));
    longest.filter(|run| run.len >= 2 * BLOCK)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_longest_run_of_writes_goes_ahead() {
        let bytes = |blocks: u64| Bytes::from(vec![0; (blocks * BLOCK) as usize]);
        let write = |at: u64, blocks: u64| FragmentOp::Write {
            offset: at * BLOCK,
            data: bytes(blocks),
        };
        let add = |at: u64, blocks: u64| FragmentOp::Add {
            offset: at * BLOCK,
            delta: bytes(blocks),
        };
        let run = |place: Range<usize>, at: u64, blocks: u64| {
            let (offset, len) = (at * BLOCK, blocks * BLOCK);
            Some(Run { place, offset, len })
        };
        let staged = [
            write(0, 1),
            write(2, 1),
            write(3, 2),
            write(5, 1),
            add(6, 9),
            write(20, 4),
        ];
        assert_eq!(
            run_ahead(&staged),
            run(1..4, 2, 4),
            "the first of the longest ones"
        );
        assert_eq!(run_ahead(&staged[4..]), run(1..2, 20, 4));
        assert_eq!(
            run_ahead(&[add(0, 9), write(9, 1)]),
            None,
            "sums, and less than is placed"
        );
        assert_eq!(run_ahead(&[]), None);
    }
}
