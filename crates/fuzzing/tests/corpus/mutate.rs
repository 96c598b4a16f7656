//! Seeded changes of an input: the same on every machine.

use spirula_random::Rng;

/// What the changes of an input are chosen by.
pub(crate) struct Random(Rng);

/// Values at which decoders tend to fail.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    i64::MAX.cast_unsigned(),
    u64::MAX,
];

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// A number below `n`; 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.index(n)
    }

    /// A range of at most 64 bytes.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        start..(start + self.below(64)).min(len)
    }

    /// `data` with a few changes, some with bytes of `other`.
    pub(crate) fn mutate(&mut self, data: &[u8], other: &[u8]) -> Vec<u8> {
        let mut out = data.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(out.len());
            match self.below(8) {
                0 => out.truncate(at),
                1 => {
                    let piece = other[self.range(other.len())].to_vec();
                    out.splice(at..at, piece);
                }
                2 => drop(out.drain(self.range(out.len()))),
                3 => {
                    let piece = out[self.range(out.len())].to_vec();
                    out.splice(at..at, piece);
                }
                4 | 5 => {
                    let value = EDGES[self.below(EDGES.len())].to_le_bytes();
                    let width = [1, 2, 4, 8][self.below(4)];
                    let end = (at + width).min(out.len());
                    out[at..end].copy_from_slice(&value[..end - at]);
                }
                _ if out.is_empty() => out.push(self.0.number() as u8),
                _ => out[at] ^= 1 << self.below(8),
            }
        }
        out
    }

    /// `data` with one list made long: a possible count is raised, and as many elements follow. The
    /// sections around it grow with it.
    pub(crate) fn grow(&mut self, data: &[u8]) -> Vec<u8> {
        const ELEMENTS: usize = 3000;
        let word = |buf: &[u8], at: usize| -> Option<usize> {
            let bytes = buf.get(at..at + 4)?.first_chunk()?;
            usize::try_from(u32::from_le_bytes(*bytes)).ok()
        };
        let counts: Vec<usize> = (0..data.len())
            .filter(|at| word(data, *at).is_some_and(|n| n <= 64))
            .collect();
        let Some(at) = counts.get(self.below(counts.len())).copied() else {
            return data.to_vec();
        };
        let size = [1, 4, 5, 6, 8, 10, 12, 16, 20, 24][self.below(10)];
        let follows = &data[(at + 4).min(data.len())..(at + 4 + size).min(data.len())];
        let mut element = if self.below(2) == 0 {
            vec![0; size]
        } else {
            follows.to_vec()
        };
        element.resize(size, 0);
        let grown = element.repeat(ELEMENTS);
        let mut out = data.to_vec();
        out[at..at + 4].copy_from_slice(&(ELEMENTS as u32).to_le_bytes());
        // Version, compat and the length of a section that the list is in.
        for start in 0..at.saturating_sub(5) {
            let len_at = start + 2;
            if let Some(len) = word(data, len_at)
                && (1..64).contains(&data[start])
                && data[start + 1] <= data[start]
                && len_at + 4 + len > at
                && len_at + 4 + len <= data.len()
            {
                let longer = (len + grown.len()) as u32;
                out[len_at..len_at + 4].copy_from_slice(&longer.to_le_bytes());
            }
        }
        out.splice(at + 4..at + 4, grown);
        out
    }
}
