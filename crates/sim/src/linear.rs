//! Whether a history is linearizable: whether each request can be taken for something that happened
//! at one moment between its start and its answer.
//!
//! The checker is `todc-utils`', which searches as Wing and Gong, *Testing and Verifying Concurrent
//! Objects* (1993), with the memory of Lowe, *Testing for linearizability* (2017), as Porcupine
//! does. This module tells it how an object behaves, and how requests without an answer count.
//! Objects are independent, and each is checked by itself.

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use crate::history::{Answer, Call, Op, State};

/// Requests to one object that are checked in good time.
pub const MOST: usize = 400;

/// A request with its answer, if there was one.
type Step = (Op, Option<Answer>);

/// An object that does not exist at first.
struct Object;

impl Specification for Object {
    type State = State;
    type Operation = Step;

    fn init() -> State {
        None
    }

    fn apply((op, answer): &Step, state: &State) -> (bool, State) {
        match op.apply(state, answer.as_ref()) {
            Some(after) => (true, after),
            None => (false, state.clone()),
        }
    }
}

/// The calls and responses in order, each call as a process of its own. A call without an answer
/// may take effect until the end, or after it, as if it never did.
fn actions(calls: &[Call]) -> Vec<(usize, Action<Step>)> {
    let mut events = Vec::new();
    for (i, c) in calls.iter().enumerate() {
        let answer = c.end.as_ref().map(|(_, a)| a.clone());
        if c.op.is_read() && answer.is_none() {
            // It changed nothing and said nothing.
            continue;
        }
        let end = c.end.as_ref().map_or(u64::MAX, |(at, _)| *at);
        events.push((c.start, i, Action::Call((c.op, answer.clone()))));
        events.push((end, i, Action::Response((c.op, answer))));
    }
    events.sort_by_key(|(at, ..)| *at);
    events.into_iter().map(|(_, i, action)| (i, action)).collect()
}

/// Whether a history of at most [`MOST`] requests to one object, which does not exist at first, is
/// linearizable.
///
/// # Errors
/// The history.
pub fn check(calls: &[Call]) -> Result<(), String> {
    if calls.len() > MOST {
        return Err(format!("{} requests are too many to check", calls.len()));
    }
    let actions = actions(calls);
    if actions.is_empty() || WGLChecker::<Object>::is_linearizable(History::from_actions(actions)) {
        return Ok(());
    }
    let all: Vec<String> = calls.iter().map(|c| format!("    {c:?}\n")).collect();
    Err(format!("not linearizable:\n{}", all.concat()))
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
