//! Decisions taken from the input.

/// The unread rest of the input. Reads beyond the end return zeros, so that every input is valid.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most `n` bytes: fewer at the end.
    pub(crate) fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (out, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        out
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let b = self.bytes(N);
        out[..b.len()].copy_from_slice(b);
        out
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Bytes with a length of two bytes before them.
    pub(crate) fn blob(&mut self) -> &'a [u8] {
        let len = self.u16();
        self.bytes(len.into())
    }

    /// `honest` with a few bytes changed, cut off or appended.
    pub(crate) fn mutate(&mut self, mut honest: Vec<u8>) -> Vec<u8> {
        for _ in 0..self.u8() % 8 {
            let at = usize::from(self.u16());
            match self.u8() {
                0 => honest.truncate(at),
                1 => honest.extend_from_slice(self.blob()),
                xor => {
                    let len = honest.len();
                    if len > 0 {
                        honest[at % len] ^= xor;
                    }
                }
            }
        }
        honest
    }
}
