//! Requests and answers of clients, and how an object behaves that one client uses at a time.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Bytes before the filler of a value: they name it.
pub const HEAD: usize = 8;

/// An operation on an object. Values are never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Replaces the object's data by the value.
    Write(u32),
    /// Appends the value.
    Append(u32),
    /// Removes the object.
    Delete,
    /// Sets the object's pair to the value.
    SetPair(u32),
    /// Replaces one value, if the data begins with it, by another of the same length.
    Replace {
        /// The value with which the data begins.
        old: u32,
        /// The value in its place.
        new: u32,
    },
    /// Cuts off what follows a value, if the data begins with it.
    Cut(u32),
    /// Reads the whole object.
    Read,
}

/// The answer to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// There is no such object.
    NoObject,
    /// The data begins with another value than was expected.
    Differs,
    /// The object.
    Found(Contents),
}

/// The contents of an existing object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Contents {
    /// The values in its data.
    pub data: Vec<u32>,
    /// The value of its pair.
    pub pair: Option<u32>,
}

/// An object, or none.
pub type State = Option<Contents>;

impl Op {
    /// The object's state after this operation, if the answer is right for `state`. `None` as the
    /// answer stands for a request without one.
    pub fn apply(self, state: &State, answer: Option<&Answer>) -> Option<State> {
        let (next, right) = match self {
            Self::Write(v) => {
                let mut o = state.clone().unwrap_or_default();
                o.data = vec![v];
                (Some(o), Answer::Done)
            }
            Self::Append(v) => {
                let mut o = state.clone().unwrap_or_default();
                o.data.push(v);
                (Some(o), Answer::Done)
            }
            Self::SetPair(v) => {
                let mut o = state.clone().unwrap_or_default();
                o.pair = Some(v);
                (Some(o), Answer::Done)
            }
            Self::Replace { old, new } => Self::change_first(state, old, |data| data[0] = new),
            Self::Cut(first) => Self::change_first(state, first, |data| data.truncate(1)),
            Self::Delete if state.is_some() => (None, Answer::Done),
            Self::Delete => (None, Answer::NoObject),
            Self::Read => {
                let right = state.clone().map_or(Answer::NoObject, Answer::Found);
                (state.clone(), right)
            }
        };
        answer.is_none_or(|a| *a == right).then_some(next)
    }

    /// The state after a change of data that begin with `first`, and the right answer.
    fn change_first(state: &State, first: u32, change: impl FnOnce(&mut Vec<u32>)) -> (State, Answer) {
        match state.clone().filter(|o| o.data.first() == Some(&first)) {
            Some(mut o) => {
                change(&mut o.data);
                (Some(o), Answer::Done)
            }
            None => (state.clone(), Answer::Differs),
        }
    }

    /// Whether the operation only reads.
    pub fn is_read(self) -> bool {
        self == Self::Read
    }
}

/// A request and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The client process, which sends one request after the other.
    pub process: usize,
    /// The operation.
    pub op: Op,
    /// When it was sent, in an order of all events.
    pub start: u64,
    /// When the answer came, and the answer. `None` without one: the operation may have been done
    /// or not.
    pub end: Option<(u64, Answer)>,
}

/// All requests.
#[derive(Debug, Default)]
pub struct History {
    objects: Vec<Vec<Call>>,
    clock: u64,
    /// Bytes of filler of each value, once it was sent; values count from 1.
    lens: Vec<usize>,
    /// The value with which each object's data began as of the last answer that tells.
    firsts: BTreeMap<usize, u32>,
    /// Reads that failed because every copy is damaged.
    pub unreadable: u64,
    /// Reads that were answered by members other than the primary.
    pub member_reads: u64,
}

impl History {
    /// A value that was never used.
    pub fn value(&mut self) -> u32 {
        self.lens.push(0);
        u32::try_from(self.lens.len()).unwrap_or(u32::MAX)
    }

    /// Notes how many bytes of filler a value is sent with.
    pub fn note_len(&mut self, value: u32, len: usize) {
        if let Some(known) = self.lens.get_mut(place(value)) {
            *known = len;
        }
    }

    /// The value with which the object's data began as of the last answer that tells.
    pub fn first(&self, object: usize) -> Option<u32> {
        self.firsts.get(&object).copied()
    }

    /// The bytes of filler of a value that was sent.
    pub fn len_of(&self, value: u32) -> usize {
        self.lens.get(place(value)).copied().unwrap_or(0)
    }

    /// Records a request; returns its index.
    pub fn begin(&mut self, process: usize, object: usize, op: Op) -> usize {
        self.clock += 1;
        if self.objects.len() <= object {
            self.objects.resize_with(object + 1, Vec::new);
        }
        let calls = &mut self.objects[object];
        calls.push(Call {
            process,
            op,
            start: self.clock,
            end: None,
        });
        calls.len() - 1
    }

    /// Records an answer.
    pub fn end(&mut self, object: usize, call: usize, answer: Answer) {
        self.clock += 1;
        let now = self.clock;
        if let Some(c) = self.objects.get_mut(object).and_then(|o| o.get_mut(call)) {
            let first = match (c.op, &answer) {
                (Op::Write(v) | Op::Replace { new: v, .. }, Answer::Done) => Some(v),
                (Op::Read, Answer::Found(o)) => o.data.first().copied(),
                _ => None,
            };
            self.firsts.extend(first.map(|v| (object, v)));
            c.end = Some((now, answer));
        }
    }

    /// Removes the record of a read without an answer, which has no effect.
    pub fn forget_read(&mut self) {
        self.unreadable += 1;
    }

    /// Requests to an object.
    pub fn calls(&self, object: usize) -> &[Call] {
        self.objects.get(object).map_or(&[], Vec::as_slice)
    }

    /// All objects.
    pub fn objects(&self) -> &[Vec<Call>] {
        &self.objects
    }

    /// Requests that were answered.
    pub fn answered(&self) -> usize {
        let answered = |c: &&Call| c.end.is_some();
        self.objects.iter().flatten().filter(answered).count()
    }
}

/// The place of a value among all.
fn place(value: u32) -> usize {
    usize::try_from(value).unwrap_or(0).wrapping_sub(1)
}

fn filler(value: u32, at: usize) -> u8 {
    (value.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (at % 251) as u8
}

/// Bytes under one checksum of a store.
const BLOCK: usize = 4096;

/// Bytes of filler with which a value fills its last block, if it needs about that many.
pub fn whole_blocks(len: usize) -> usize {
    (HEAD + len).next_multiple_of(BLOCK) - HEAD
}

/// A flag in the length of a value: its blocks have checksums of their own.
const OWN_SUMS: u32 = 1 << 31;

/// Checksums of the whole blocks of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sums {
    /// All have the same checksum, which shows stores that take equal checksums for equal contents.
    Equal,
    /// Each has another checksum: for disks that lose writes without an error, which only the
    /// checksum shows.
    Own,
}

/// Mixes a number's bits. Unlike a checksum's, the results for several numbers do not cancel each other
/// where their sum has no bits: the sums of a stripe's blocks, which are parity, differ too.
///
/// The finalizer of MurmurHash3, <https://github.com/aappleby/smhasher>.
fn mixed(mut n: u32) -> u32 {
    n ^= n >> 16;
    n = n.wrapping_mul(0x85eb_ca6b);
    n ^= n >> 13;
    n = n.wrapping_mul(0xc2b2_ae35);
    n ^ n >> 16
}

/// A value as it is stored, with `len` bytes of filler that only this value has.
pub fn encode(value: u32, len: usize, sums: Sums) -> Bytes {
    let mut out = Vec::with_capacity(HEAD + len);
    let own = if sums == Sums::Own { OWN_SUMS } else { 0 };
    out.extend_from_slice(&value.to_le_bytes());
    out.extend_from_slice(&(u32::try_from(len).unwrap_or(0) | own).to_le_bytes());
    out.extend((0..len).map(|at| filler(value, at)));
    for (i, block) in (0u32..).zip(out.chunks_exact_mut(BLOCK)) {
        let (text, sum) = block.split_at_mut(BLOCK - 4);
        // A block that ends with its CRC-32C has the same one as every other such block.
        let other = if sums == Sums::Own {
            mixed(value << 8 ^ i)
        } else {
            0
        };
        sum.copy_from_slice(&(crc32c::crc32c(text) ^ other).to_le_bytes());
    }
    out.into()
}

/// The values in an object's data; `None` for data that no client wrote.
pub fn decode(mut data: &[u8]) -> Option<Vec<u32>> {
    let mut values = Vec::new();
    while !data.is_empty() {
        let (value, rest) = data.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*rest.first_chunk::<4>()?);
        let sums = if len & OWN_SUMS == 0 {
            Sums::Equal
        } else {
            Sums::Own
        };
        let len = usize::try_from(len & !OWN_SUMS).ok()?;
        let value = u32::from_le_bytes(*value);
        let (whole, rest) = data.split_at_checked(HEAD.checked_add(len)?)?;
        if encode(value, len, sums) != whole {
            return None;
        }
        values.push(value);
        data = rest;
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_ones_own_in_parity_too() {
        let sum = |value| {
            let data = encode(value, 4 * BLOCK - HEAD, Sums::Own);
            let mut parity = vec![0; BLOCK];
            for block in data.chunks(BLOCK) {
                parity.iter_mut().zip(block).for_each(|(p, b)| *p ^= b);
            }
            crc32c::crc32c(&parity)
        };
        assert_ne!(sum(19), sum(34));
    }

    #[test]
    fn values_are_told_from_what_nobody_wrote() {
        let both = [encode(7, 20, Sums::Equal), encode(9, 0, Sums::Own)].concat();
        assert_eq!(decode(&both), Some(vec![7, 9]));
        for sums in [Sums::Equal, Sums::Own] {
            let blocks = [1, 2].map(|v| encode(v, whole_blocks(1), sums));
            assert_eq!(blocks.each_ref().map(Bytes::len), [BLOCK, BLOCK]);
            assert_eq!(decode(&blocks.concat()), Some(vec![1, 2]));
            let crcs = blocks.each_ref().map(|b| crc32c::crc32c(b));
            assert_eq!(crcs[0] == crcs[1], sums == Sums::Equal);
        }
        assert_eq!(decode(b""), Some(vec![]));
        for at in 0..both.len() {
            let mut bad = both.clone();
            bad[at] ^= 0x20;
            assert_ne!(decode(&bad), Some(vec![7, 9]), "at {at}");
        }
        assert_eq!(decode(&both[..both.len() - 1]), None);
    }

    #[test]
    fn an_object_does_what_it_is_told() {
        let after = |ops: &[Op]| {
            let mut state = None;
            for op in ops {
                state = op.apply(&state, None).unwrap();
            }
            state
        };
        let o = after(&[Op::Write(1), Op::SetPair(5), Op::Append(2)]);
        let found = Contents {
            data: vec![1, 2],
            pair: Some(5),
        };
        assert_eq!(o, Some(found.clone()));
        assert!(Op::Read.apply(&o, Some(&Answer::Found(found))).is_some());
        assert!(Op::Read.apply(&o, Some(&Answer::NoObject)).is_none());
        assert!(Op::Delete.apply(&None, Some(&Answer::Done)).is_none());
        assert_eq!(after(&[Op::Write(1), Op::Delete]), None);
        let replaced = [Op::Write(1), Op::Append(2), Op::Replace { old: 1, new: 3 }];
        let data = |ops: &[Op]| after(ops).map(|o| o.data);
        assert_eq!(data(&replaced), Some(vec![3, 2]));
        assert_eq!(data(&[&replaced[..], &[Op::Cut(3)]].concat()), Some(vec![3]));
        let state = after(&replaced);
        for late in [Op::Replace { old: 1, new: 4 }, Op::Cut(1)] {
            assert_eq!(late.apply(&state, Some(&Answer::Differs)), Some(state.clone()));
            assert_eq!(late.apply(&state, Some(&Answer::Done)), None);
            assert_eq!(late.apply(&None, Some(&Answer::Differs)), Some(None));
        }
    }
}
