//! Whether a history is linearizable: whether each request can be taken for something that happened at one moment between its start
//! and its answer.
//!
//! The search is that of Wing and Gong, *Testing and Verifying Concurrent Objects* (1993), with the memory of Lowe, *Testing for
//! linearizability* (2017): a set of requests that are done and the object's state are looked at once, however they came about. Reads that
//! are right now are done at once, as they change nothing. Objects are independent of each other, and so each is checked by itself.

use std::collections::HashSet;

use crate::history::{Call, State};

/// Requests to one object that can be checked.
pub const MOST: usize = 128;

struct Search<'a> {
    calls: &'a [Call],
    /// What was looked at: requests that are done, and the state.
    seen: HashSet<(u128, State)>,
    /// The most that was ever done.
    best: u128,
}

/// Whether a history of at most [`MOST`] requests to one object, which is not there at first, is linearizable.
///
/// # Errors
/// What could not be fitted in, and what happened around it.
pub fn check(calls: &[Call]) -> Result<(), String> {
    if calls.len() > MOST {
        return Err(format!("{} requests are too many to check", calls.len()));
    }
    let mut search = Search {
        calls,
        seen: HashSet::new(),
        best: 0,
    };
    if search.fits(0, &None) {
        return Ok(());
    }
    let left = |(i, c): &(usize, &Call)| search.best & (1 << i) == 0 && c.end.is_some();
    let left: Vec<String> = calls
        .iter()
        .enumerate()
        .filter(left)
        .map(|(_, c)| format!("{c:?}"))
        .collect();
    let all: Vec<String> = calls.iter().map(|c| format!("    {c:?}\n")).collect();
    Err(format!(
        "not linearizable; left over: {}\nof\n{}",
        left.join("; "),
        all.concat()
    ))
}

impl Search<'_> {
    fn fits(&mut self, mut done: u128, state: &State) -> bool {
        while let Some(read) = self.candidates(done).find(|i| self.is_right_read(*i, state)) {
            done |= 1 << read;
        }
        if done.count_ones() > self.best.count_ones() {
            self.best = done;
        }
        let is_done = |(i, c): (usize, &Call)| done & (1 << i) != 0 || c.end.is_none();
        if self.calls.iter().enumerate().all(is_done) {
            return true;
        }
        if !self.seen.insert((done, state.clone())) {
            return false;
        }
        let next: Vec<usize> = self.candidates(done).collect();
        for i in next {
            let call = &self.calls[i];
            let answer = call.end.as_ref().map(|(_, a)| a);
            if let Some(after) = call.op.apply(state, answer)
                && self.fits(done | 1 << i, &after)
            {
                return true;
            }
        }
        false
    }

    /// Requests that may be the next: those that began before any other that is left was answered.
    fn candidates(&self, done: u128) -> impl Iterator<Item = usize> + use<'_> {
        let left = move |i: &usize| done & (1 << i) == 0;
        let end = |c: &Call| c.end.as_ref().map_or(u64::MAX, |(at, _)| *at);
        let first = (0..self.calls.len())
            .filter(left)
            .map(|i| end(&self.calls[i]))
            .min()
            .unwrap_or(u64::MAX);
        (0..self.calls.len())
            .filter(left)
            .filter(move |i| self.calls[*i].start < first)
    }

    fn is_right_read(&self, i: usize, state: &State) -> bool {
        let call = &self.calls[i];
        let answer = call.end.as_ref().map(|(_, a)| a);
        call.op.is_read() && call.op.apply(state, answer).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Contents, Op};

    fn call(process: usize, op: Op, start: u64, end: Option<(u64, Answer)>) -> Call {
        Call {
            process,
            op,
            start,
            end,
        }
    }

    fn found(data: &[u32]) -> Answer {
        Answer::Found(Contents {
            data: data.to_vec(),
            pair: None,
        })
    }

    fn read(start: u64, end: u64, data: &[u32]) -> Call {
        call(9, Op::Read, start, Some((end, found(data))))
    }

    fn write(v: u32, start: u64, end: u64) -> Call {
        call(1, Op::Write(v), start, Some((end, Answer::Done)))
    }

    #[test]
    fn what_overlaps_may_be_in_any_order() {
        assert!(check(&[write(1, 1, 10), write(2, 2, 9), read(11, 12, &[1])]).is_ok());
        assert!(check(&[write(1, 1, 10), write(2, 2, 9), read(11, 12, &[2])]).is_ok());
        assert!(check(&[write(1, 1, 10), read(2, 3, &[1]), read(4, 5, &[1])]).is_ok());
    }

    #[test]
    fn stale_reads_are_noticed() {
        assert!(check(&[write(1, 1, 2), write(2, 3, 4), read(5, 6, &[1])]).is_err());
        // Once somebody saw it, it is there.
        let gone = call(2, Op::Read, 4, Some((5, Answer::NoObject)));
        assert!(check(&[write(1, 1, 10), read(2, 3, &[1]), gone]).is_err());
        // Two readers that see two writes in different orders.
        let both = [write(1, 1, 20), write(2, 2, 19)];
        let seen = [read(3, 4, &[1]), read(5, 6, &[2]), read(7, 8, &[1])];
        assert!(check(&[both.as_slice(), &seen].concat()).is_err());
    }

    #[test]
    fn what_nobody_answered_may_be_done_late_or_never() {
        let lost = call(1, Op::Append(2), 3, None);
        let first = write(1, 1, 2);
        for data in [&[1][..], &[1, 2]] {
            assert!(check(&[first.clone(), lost.clone(), read(50, 60, data)]).is_ok());
        }
        assert!(
            check(&[
                first.clone(),
                lost.clone(),
                read(50, 60, &[1, 2]),
                read(61, 62, &[1])
            ])
            .is_err()
        );
        assert!(
            check(&[first, lost, read(50, 60, &[1, 2, 2])]).is_err(),
            "done twice"
        );
    }

    #[test]
    fn long_histories_of_many_do_not_take_for_ever() {
        // Eight at a time, all of which overlap.
        let calls: Vec<Call> = (0..120u32)
            .map(|i| {
                let round = u64::from(i / 8) * 100;
                write(i + 1, round + u64::from(i % 8), round + 50 + u64::from(i % 8))
            })
            .collect();
        let last = read(5000, 5001, &[113]);
        assert!(check(&[calls.as_slice(), &[last]].concat()).is_ok());
        let wrong = read(5000, 5001, &[100]);
        assert!(check(&[calls.as_slice(), &[wrong]].concat()).is_err());
    }
}
