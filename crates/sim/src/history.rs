//! What clients did and saw, and how an object behaves that only one of them uses at a time.

use bytes::Bytes;

/// Bytes before the filler of a value.
const HEAD: usize = 8;

/// What a client asks of an object. Values are never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// The value becomes all of the object.
    Write(u32),
    /// The value is added at the end.
    Append(u32),
    /// The object goes.
    Delete,
    /// The object's pair gets the value.
    SetPair(u32),
    /// All of it.
    Read,
}

/// What it was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// There is no such object.
    NoObject,
    /// The object.
    Found(Contents),
}

/// An object that is there.
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
    /// What the object is after this, where the answer is the right one. `None` for the answer: nobody got one.
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
            Self::Delete if state.is_some() => (None, Answer::Done),
            Self::Delete => (None, Answer::NoObject),
            Self::Read => {
                let right = state.clone().map_or(Answer::NoObject, Answer::Found);
                (state.clone(), right)
            }
        };
        answer.is_none_or(|a| *a == right).then_some(next)
    }

    /// Whether it only looks.
    pub fn is_read(self) -> bool {
        self == Self::Read
    }
}

/// A request and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Who asked: one that asks one thing after the other.
    pub process: usize,
    /// What.
    pub op: Op,
    /// When, in an order of all events.
    pub start: u64,
    /// When the answer came, and what it was. `None`: never, so that nobody knows whether it was done.
    pub end: Option<(u64, Answer)>,
}

/// All requests.
#[derive(Debug, Default)]
pub struct History {
    objects: Vec<Vec<Call>>,
    clock: u64,
    values: u32,
    /// Reads that were refused because all that there is to read is damaged.
    pub unreadable: u64,
    /// Reads that members answered which were not primary.
    pub member_reads: u64,
}

impl History {
    /// A value that was never used.
    pub fn value(&mut self) -> u32 {
        self.values += 1;
        self.values
    }

    /// Somebody asks; returns the request's place.
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

    /// The answer comes.
    pub fn end(&mut self, object: usize, call: usize, answer: Answer) {
        self.clock += 1;
        let now = self.clock;
        if let Some(c) = self.objects.get_mut(object).and_then(|o| o.get_mut(call)) {
            c.end = Some((now, answer));
        }
    }

    /// A read had no effect and no answer.
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

fn filler(value: u32, at: usize) -> u8 {
    (value.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (at % 251) as u8
}

/// Bytes that a store takes the checksum of.
const BLOCK: usize = 4096;

/// Bytes of filler that make a value fill its last block, where it needs so many or a few more.
pub fn whole_blocks(len: usize) -> usize {
    (HEAD + len).next_multiple_of(BLOCK) - HEAD
}

/// In the length of a value: its blocks have checksums of their own.
const OWN_SUMS: u32 = 1 << 31;

/// Checksums of the whole blocks of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sums {
    /// All have the same, so that stores that take equal checksums for equal contents are found out.
    Equal,
    /// Each has another: for disks that lose writes without an error, which nothing but the checksum shows.
    Own,
}

/// A value as it is stored, with so many bytes of filler that is its own.
pub fn encode(value: u32, len: usize, sums: Sums) -> Bytes {
    let mut out = Vec::with_capacity(HEAD + len);
    let own = if sums == Sums::Own { OWN_SUMS } else { 0 };
    out.extend_from_slice(&value.to_le_bytes());
    out.extend_from_slice(&(u32::try_from(len).unwrap_or(0) | own).to_le_bytes());
    out.extend((0..len).map(|at| filler(value, at)));
    for (i, block) in (0u32..).zip(out.chunks_exact_mut(BLOCK)) {
        let (text, sum) = block.split_at_mut(BLOCK - 4);
        // A block that ends with its CRC-32C has the same one as every other such block.
        let other = if sums == Sums::Own { value << 8 ^ i } else { 0 };
        sum.copy_from_slice(&(crc32c::crc32c(text) ^ other).to_le_bytes());
    }
    out.into()
}

/// The values in an object's data; `None` where it holds what nobody wrote.
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
    }
}
