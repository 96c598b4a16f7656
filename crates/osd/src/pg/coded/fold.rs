//! Steps of coded changes, carried out on this OSD's fragments.
//!
//! A step that adds to a fragment needs what the fragment has. It is read first, and the transaction
//! gets the result: a store that replays its log must not add twice. All that the PG asks of the
//! store afterwards waits behind, so that the order stays; so does all that PGs ask which are split
//! off meanwhile, as what waits may change objects that are theirs now.

use std::collections::VecDeque;

use bytes::Bytes;
use spirula_erasure::{self as erasure, Code, FragmentOp, Step, Unit};
use spirula_invariant::impossible;

use super::message::data_of;
use super::want::fragment_want;
use crate::pg::fetch::{Answer, Fetched, Want};
use crate::pg::layout::{Layout, Part};
use crate::pg::output::{Claim, Output, Token};
use crate::pg::txn::{ObjectOp, Txn};

/// The store's blocks: what can't be read of a fragment is some of them.
const BLOCK: u64 = 4096;

/// Shorter changes of a fragment are put together. The store writes longer ones to their place.
const SMALL: usize = 64 << 10;

/// The fragments that a copy holds.
#[derive(Debug, Clone)]
pub(in crate::pg) struct Fragments {
    pub(in crate::pg) layout: erasure::Layout,
    pub(in crate::pg) code: Code,
    /// The unit of each stripe.
    pub(in crate::pg) unit: Unit,
}

impl Fragments {
    /// The fragments of a copy that holds this part of each object; `None` if that is all of it, or
    /// no one part.
    pub(in crate::pg) fn of(part: Part) -> Option<Self> {
        let Layout::Coded(layout) = part.layout else {
            return None;
        };
        Some(Self {
            layout,
            code: layout.code(),
            unit: layout.unit_of(part.role)?,
        })
    }

    /// The part of each object that consists of this unit of its stripes, if the layout has it.
    pub(in crate::pg) fn part_of(&self, unit: Unit) -> Option<Part> {
        let layout = Layout::Coded(self.layout);
        Some(Part {
            layout,
            role: self.layout.role_of(unit)?,
        })
    }

    /// Replaces the steps of a transaction by changes of the fragments. Returns the changes that
    /// need to be added to what is there: each stands for a write with the difference.
    pub(in crate::pg) fn carry_out(&self, txn: &mut Txn) -> Vec<Adding> {
        let mut adds = Vec::new();
        for (object, (_, ops)) in txn.objects.iter_mut().enumerate() {
            if ops.iter().any(|op| matches!(op, ObjectOp::Stage { .. })) {
                stage(object, ops, &mut adds);
                continue;
            }
            // Steps that follow each other make sums together.
            let mut steps: Vec<Step> = Vec::new();
            for op in std::mem::take(ops).into_iter().map(Some).chain([None]) {
                match op {
                    Some(ObjectOp::Step(step)) => steps.push(step),
                    other => {
                        self.steps(object, &std::mem::take(&mut steps), ops, &mut adds);
                        ops.extend(other);
                    }
                }
            }
        }
        adds
    }

    /// Adds the changes that steps make of the fragment to those of the object.
    fn steps(&self, object: usize, steps: &[Step], ops: &mut Vec<ObjectOp>, adds: &mut Vec<Adding>) {
        let changes = self.layout.carry_out(&self.code, self.unit, steps);
        put((object, None), changes, ops, adds);
    }
}

/// Replaces what is staged of a large change by writes.
fn stage(object: usize, ops: &mut Vec<ObjectOp>, adds: &mut Vec<Adding>) {
    for op in std::mem::take(ops) {
        match op {
            ObjectOp::Stage { ops: staged, base } => put((object, Some(&base)), staged, ops, adds),
            op => ops.push(op),
        }
    }
}

/// Adds changes of the fragment to those of the object with this place in its transaction. `base`: the
/// object to whose fragment differences are added, if that is another one.
fn put(
    (object, base): (usize, Option<&Bytes>),
    changes: Vec<FragmentOp>,
    ops: &mut Vec<ObjectOp>,
    adds: &mut Vec<Adding>,
) {
    for op in joined(changes) {
        if let FragmentOp::Add { offset, delta } = &op {
            adds.push(Adding {
                object,
                op: ops.len(),
                offset: *offset,
                len: delta.len() as u64,
                base: base.cloned(),
            });
        }
        ops.push(in_store(op));
    }
}

/// The changes with small ones of a kind put together where they are next to each other: units of an
/// object follow each other in a fragment. Each write takes a block or more in the store's log.
fn joined(ops: Vec<FragmentOp>) -> Vec<FragmentOp> {
    let is_small = |op: &FragmentOp| (1..SMALL).contains(&data_of(op).len());
    let follows = |a: &FragmentOp, b: &FragmentOp| {
        let is_next = is_small(a) && is_small(b) && a.range().end() == b.range().offset;
        is_next && std::mem::discriminant(a) == std::mem::discriminant(b)
    };
    let join = |run: &[FragmentOp]| match run {
        [] => None,
        [alone] => Some(alone.clone()),
        [first, ..] => {
            let bytes: Vec<u8> = run.iter().map(data_of).collect::<Vec<_>>().concat();
            let (offset, bytes) = (first.range().offset, bytes.into());
            Some(match first {
                FragmentOp::Add { .. } => FragmentOp::Add { offset, delta: bytes },
                _ => FragmentOp::Write { offset, data: bytes },
            })
        }
    };
    ops.chunk_by(follows).filter_map(join).collect()
}

/// The change of the fragment in the store; an addition as the write of its difference.
fn in_store(op: FragmentOp) -> ObjectOp {
    match op {
        FragmentOp::Write { offset, data } | FragmentOp::Add { offset, delta: data } => {
            ObjectOp::Write { offset, data }
        }
        FragmentOp::Zero { range } => ObjectOp::Zero {
            offset: range.offset,
            len: range.len,
        },
        FragmentOp::Truncate { size } => ObjectOp::Truncate { size },
    }
}

/// A write of a transaction that has only the difference yet.
#[derive(Debug)]
pub(in crate::pg) struct Adding {
    /// The object's place in the transaction, and that of the write in the object's changes.
    object: usize,
    op: usize,
    offset: u64,
    len: u64,
    /// The object to whose fragment it is added, if that is another one.
    base: Option<Bytes>,
}

impl Adding {
    /// The reads of the fragment. By blocks after one that failed: the blocks that can't be read
    /// stay as they are, and are repaired as a whole.
    fn wants(&self, by_blocks: bool) -> Vec<Want> {
        let end = self.offset + self.len;
        let want = |from: u64, to: u64| fragment_want((from..to).into());
        if !by_blocks {
            return vec![want(self.offset, end)];
        }
        let blocks = self.offset / BLOCK..end.div_ceil(BLOCK);
        blocks
            .map(|b| want((b * BLOCK).max(self.offset), ((b + 1) * BLOCK).min(end)))
            .collect()
    }
}

/// Something to be asked of the store, in its turn.
#[derive(Debug)]
enum Call {
    /// A transaction with writes that are differences yet.
    Add {
        token: Token,
        claim: Claim,
        txn: Txn,
        adds: Vec<Adding>,
        by_blocks: bool,
    },
    /// Anything that can be asked as it is.
    Plain(Output),
    /// The place where the PGs in these slots were split off: their calls come after those before.
    Split(Vec<u32>),
}

/// A read of a fragment for the first transaction of the queue.
pub(in crate::pg) struct FragmentRead {
    pub(in crate::pg) key: Bytes,
    pub(in crate::pg) wants: Vec<Want>,
}

/// The calls to the store that wait for one another.
#[derive(Debug, Default)]
pub(in crate::pg) struct Folds {
    calls: VecDeque<Call>,
    /// The number of the read that the first call waits for.
    pub(in crate::pg) reading: Option<u32>,
    /// Whether all calls wait for those of the PG that this one was split off from.
    is_preceded: bool,
    /// The slots of PGs that were split off, and need wait no longer.
    freed: Vec<u32>,
}

impl Folds {
    /// The calls of a PG that is split off; `is_preceded`: those of the other PG come first.
    pub(in crate::pg) fn of_split(is_preceded: bool) -> Self {
        Self {
            is_preceded,
            ..Self::default()
        }
    }

    /// Whether nothing waits, and the next call need not.
    pub(in crate::pg) fn is_empty(&self) -> bool {
        self.calls.is_empty() && !self.is_preceded
    }

    /// Lets the PGs in these slots, which were split off, wait for the calls that wait here.
    pub(in crate::pg) fn precede(&mut self, slots: Vec<u32>) {
        if !self.is_empty() {
            self.calls.push_back(Call::Split(slots));
        }
    }

    /// The slots of the PGs that need wait no longer.
    pub(in crate::pg) fn freed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.freed)
    }

    /// Notes that the calls of the PG that this one was split off from have gone out.
    pub(in crate::pg) fn go(&mut self) {
        self.is_preceded = false;
    }

    /// Adds a call that comes after those that wait.
    pub(in crate::pg) fn push(&mut self, call: Output) {
        self.calls.push_back(Call::Plain(call));
    }

    /// Adds a transaction of which these writes are differences.
    pub(in crate::pg) fn push_adding(&mut self, token: Token, claim: Claim, txn: Txn, adds: Vec<Adding>) {
        self.calls.push_back(Call::Add {
            token,
            claim,
            txn,
            adds,
            by_blocks: false,
        });
    }

    /// The next call, if it need not wait.
    pub(in crate::pg) fn pop(&mut self) -> Option<Output> {
        while !self.is_preceded {
            match self.calls.pop_front()? {
                Call::Plain(call) => return Some(call),
                Call::Split(slots) => self.freed.extend(slots),
                Call::Add {
                    token,
                    claim,
                    txn,
                    adds,
                    ..
                } if adds.is_empty() => return Some(Output::Submit { token, txn, claim }),
                waits => {
                    self.calls.push_front(waits);
                    break;
                }
            }
        }
        None
    }

    /// The read that the first call waits for: one object's after the other's.
    pub(in crate::pg) fn wanted(&self) -> Option<FragmentRead> {
        let Some(Call::Add {
            txn, adds, by_blocks, ..
        }) = self.calls.front().filter(|_| !self.is_preceded)
        else {
            return None;
        };
        let last = adds.last()?;
        let object = last.object;
        let (key, ops) = txn.objects.get(object)?;
        // What is added to may come from another object, in the same transaction.
        let comes_from = ops.iter().rev().find_map(|op| match op {
            ObjectOp::CloneOf(source) | ObjectOp::MoveOf(source) => Some(source),
            _ => None,
        });
        let of_object = adds.iter().filter(|a| a.object == object);
        Some(FragmentRead {
            key: last.base.as_ref().or(comes_from).unwrap_or(key).clone(),
            wants: of_object.flat_map(|a| a.wants(*by_blocks)).collect(),
        })
    }

    /// Adds what was read to the differences. Returns the object of which something can't be read.
    pub(in crate::pg) fn read(&mut self, answers: Vec<Fetched>) -> Option<Bytes> {
        self.reading = None;
        let object_read = self.wanted().map(|read| read.key);
        let Some(Call::Add {
            txn, adds, by_blocks, ..
        }) = self.calls.front_mut()
        else {
            impossible!("a fragment to be read for a transaction that waits"; calls = self.calls.len());
        };
        if !*by_blocks && answers.iter().any(|f| f.answer.is_err()) {
            *by_blocks = true;
            // It is read once more, block by block.
            return object_read;
        }
        let Some(object) = adds.last().map(|a| a.object) else {
            impossible!("a transaction that waits for a fragment to add to it"; answers = answers.len());
        };
        let mut answers = answers.into_iter();
        let (_, ops) = &mut txn.objects[object];
        let first = adds.partition_point(|a| a.object < object);
        // From behind: a write may become several.
        let mut sums = Vec::new();
        for add in adds.drain(first..) {
            let ObjectOp::Write { offset, data } = &ops[add.op] else {
                impossible!("a difference to be a write of the transaction"; op = add.op);
            };
            let reads = add.wants(*by_blocks).len();
            let parts = answers.by_ref().take(reads);
            let whole = parts.filter_map(|f| sum_of(f, *offset, data)).collect::<Vec<_>>();
            sums.push((add.op, whole));
        }
        for (op, sum) in sums.into_iter().rev() {
            ops.splice(op..=op, sum);
        }
        *by_blocks = false;
        None
    }
}

/// The write of a part of a difference, added to what was read there; `None` if that failed.
fn sum_of(read: Fetched, offset: u64, delta: &Bytes) -> Option<ObjectOp> {
    let (Want::Data(range), Ok(Answer::Data(pieces))) = (read.want, read.answer) else {
        return None;
    };
    let from = usize::try_from(range.offset - offset).unwrap_or(usize::MAX);
    let len = usize::try_from(range.len).unwrap_or(usize::MAX);
    Some(ObjectOp::Write {
        offset: range.offset,
        data: erasure::add(range.offset, &delta[from..from + len], &pieces),
    })
}
