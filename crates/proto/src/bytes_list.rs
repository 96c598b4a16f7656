//! A list of buffers that stands for their concatenation.

use bytes::{Bytes, BytesMut};

/// The data of a message: several [`Bytes`] one after the other, joined only when one contiguous
/// piece is needed. The usual cases, none and one, allocate nothing.
#[derive(Clone, Default)]
pub struct BytesList {
    first: Bytes,
    rest: Vec<Bytes>,
}

impl BytesList {
    /// An empty list.
    pub const fn new() -> Self {
        Self {
            first: Bytes::new(),
            rest: Vec::new(),
        }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.iter().map(Bytes::len).sum()
    }

    /// Whether there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Appends a buffer; an empty one leaves no trace.
    pub fn push(&mut self, b: Bytes) {
        if b.is_empty() {
            return;
        }
        if self.first.is_empty() {
            self.first = b;
        } else {
            self.rest.push(b);
        }
    }

    /// Appends all buffers of `other`.
    pub fn extend(&mut self, other: &Self) {
        for b in other.iter() {
            self.push(b.clone());
        }
    }

    /// The buffers in order, none of them empty.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        Some(&self.first)
            .filter(|b| !b.is_empty())
            .into_iter()
            .chain(&self.rest)
    }

    /// The `len` bytes from `offset`, shared where they lie in one buffer and copied where they do
    /// not. `None` where the list is shorter.
    pub fn slice(&self, offset: usize, len: usize) -> Option<Bytes> {
        let end = offset.checked_add(len)?;
        if end > self.len() {
            return None;
        }
        let mut start = 0;
        for b in self.iter() {
            let stop = start + b.len();
            if offset >= start && end <= stop {
                return Some(b.slice(offset - start..end - start));
            }
            if offset < stop {
                break;
            }
            start = stop;
        }
        let mut out = BytesMut::with_capacity(len);
        let mut at = 0;
        for b in self.iter() {
            let from = offset.clamp(at, at + b.len()) - at;
            let to = end.clamp(at, at + b.len()) - at;
            out.extend_from_slice(&b[from..to]);
            at += b.len();
        }
        Some(out.freeze())
    }

    /// Removes and returns the first `len` bytes, or all if there are fewer. Buffers are cut, not
    /// copied.
    #[must_use]
    pub fn split_to(&mut self, len: usize) -> Self {
        let (mut front, mut back) = (Self::new(), Self::new());
        for b in self.iter() {
            let cut = (len - front.len()).min(b.len());
            front.push(b.slice(..cut));
            back.push(b.slice(cut..));
        }
        *self = back;
        front
    }

    /// All bytes in one piece; not copied if there is only one buffer.
    pub fn into_bytes(self) -> Bytes {
        match self.rest.is_empty() {
            true => self.first,
            false => self.to_bytes(),
        }
    }

    /// All bytes in one piece; not copied if there is only one buffer.
    pub fn to_bytes(&self) -> Bytes {
        if self.rest.is_empty() {
            return self.first.clone();
        }
        let mut out = BytesMut::with_capacity(self.len());
        for b in self.iter() {
            out.extend_from_slice(b);
        }
        out.freeze()
    }
}

impl From<Bytes> for BytesList {
    fn from(first: Bytes) -> Self {
        Self {
            first,
            rest: Vec::new(),
        }
    }
}

impl From<Vec<u8>> for BytesList {
    fn from(v: Vec<u8>) -> Self {
        Bytes::from(v).into()
    }
}

impl From<&'static [u8]> for BytesList {
    fn from(b: &'static [u8]) -> Self {
        Bytes::from_static(b).into()
    }
}

impl From<&'static str> for BytesList {
    fn from(s: &'static str) -> Self {
        s.as_bytes().into()
    }
}

impl From<String> for BytesList {
    fn from(s: String) -> Self {
        Bytes::from(s).into()
    }
}

impl From<Vec<Bytes>> for BytesList {
    fn from(buffers: Vec<Bytes>) -> Self {
        buffers.into_iter().collect()
    }
}

impl FromIterator<Bytes> for BytesList {
    fn from_iter<I: IntoIterator<Item = Bytes>>(iter: I) -> Self {
        let mut out = Self::new();
        iter.into_iter().for_each(|b| out.push(b));
        out
    }
}

/// Equal if the bytes are, however they are divided into buffers.
impl PartialEq for BytesList {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().flatten().eq(other.iter().flatten())
    }
}

impl Eq for BytesList {}

impl std::fmt::Debug for BytesList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BytesList({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_within_a_buffer_and_copy_across() {
        let list: BytesList = ["abc", "", "defg", "h"].map(Bytes::from).into_iter().collect();
        assert_eq!(list.len(), 8);
        assert_eq!(list.iter().count(), 3);
        assert_eq!(list.slice(3, 4).unwrap(), "defg");
        assert_eq!(list.slice(1, 7).unwrap(), "bcdefgh");
        assert_eq!(list.slice(8, 0).unwrap(), "");
        assert_eq!(list.slice(8, 1), None);
        assert_eq!(list.slice(usize::MAX, 2), None);
        assert_eq!(list.to_bytes(), "abcdefgh");
        assert_eq!(list, BytesList::from(Bytes::from("abcdefgh")));
    }

    #[test]
    fn lists_are_cut_without_copies() {
        let (abc, defg) = (Bytes::from("abc"), Bytes::from("defg"));
        let mut rest = BytesList::from(vec![abc.clone(), defg.clone()]);
        let front = rest.split_to(5);
        let buffers: Vec<&Bytes> = front.iter().chain(rest.iter()).collect();
        assert_eq!(buffers, ["abc", "de", "fg"]);
        let at = |n: usize| buffers[n].as_ptr();
        assert_eq!([at(0), at(1)], [abc.as_ptr(), defg.as_ptr()]);
        assert_eq!(at(2), defg[2..].as_ptr());
        assert_eq!(front.clone().into_bytes(), "abcde");
        assert_eq!((rest.split_to(9).into_bytes(), rest.len()), ("fg".into(), 0));
    }
}
