//! A bounded reader over received bytes.

use crate::Decode;

/// Why received bytes could not be decoded. Always the sender's fault: answer `EINVAL` or drop the
/// peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The input ends before the value does.
    #[error("truncated: {wanted} bytes wanted, {left} left")]
    Truncated {
        /// Bytes the value needs.
        wanted: usize,
        /// Bytes the input still has.
        left: usize,
    },
    /// Bytes remain where the value should have ended.
    #[error("{0} bytes left over")]
    LeftOver(usize),
    /// A structure says that no reader as old as this one can understand it.
    #[error("{what}: needs a reader of version {compat}, this one knows {known}")]
    TooNew {
        /// The structure.
        what: &'static str,
        /// The oldest version that may read it.
        compat: u8,
        /// The version this code implements.
        known: u8,
    },
    /// A structure is older than this reader accepts.
    #[error("{what}: version {version} is no longer read")]
    TooOld {
        /// The structure.
        what: &'static str,
        /// The version found.
        version: u8,
    },
    /// A field holds a value that its type forbids.
    #[error("invalid {0}")]
    Invalid(&'static str),
}

/// The result of decoding.
pub type Result<T> = std::result::Result<T, Error>;

/// A cursor over received bytes. Every method fails instead of reading past the end.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    buf: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `buf`.
    pub fn new(buf: &'a [u8]) -> Self {
        Self { buf, pos: 0 }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.buf.len() - self.pos
    }

    /// Bytes already read.
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The next `n` bytes, borrowed.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.remaining() {
            return Err(Error::Truncated {
                wanted: n,
                left: self.remaining(),
            });
        }
        let out = &self.buf[self.pos..self.pos + n];
        self.pos += n;
        Ok(out)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    /// Everything that is left, borrowed.
    pub fn rest(&mut self) -> &'a [u8] {
        let out = &self.buf[self.pos..];
        self.pos = self.buf.len();
        out
    }

    /// Skips `n` bytes.
    pub fn skip(&mut self, n: usize) -> Result<()> {
        self.bytes(n).map(|_| ())
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// A byte that must be 0 or 1 in spirit; like Ceph, any non-zero byte is true.
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }

    /// A little-endian `u16`.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A little-endian `u32`.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A little-endian `u64`.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A signed byte.
    pub fn i8(&mut self) -> Result<i8> {
        self.array().map(i8::from_le_bytes)
    }

    /// A little-endian `i16`.
    pub fn i16(&mut self) -> Result<i16> {
        self.array().map(i16::from_le_bytes)
    }

    /// A little-endian `i32`.
    pub fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_le_bytes)
    }

    /// A little-endian `i64`.
    pub fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// An IEEE 754 single.
    pub fn f32(&mut self) -> Result<f32> {
        self.array().map(f32::from_le_bytes)
    }

    /// An IEEE 754 double.
    pub fn f64(&mut self) -> Result<f64> {
        self.array().map(f64::from_le_bytes)
    }

    /// A byte string with a `u32` length before it, borrowed.
    pub fn blob(&mut self) -> Result<&'a [u8]> {
        let n = self.u32()?;
        self.bytes(usize::try_from(n).map_err(|_| Error::Invalid("length"))?)
    }

    /// A `u32`-counted string. Ceph's strings are bytes; where a name must be text, invalid UTF-8
    /// is an error.
    pub fn string(&mut self) -> Result<String> {
        std::str::from_utf8(self.blob()?)
            .map(str::to_owned)
            .map_err(|_| Error::Invalid("UTF-8 string"))
    }

    /// The `u32` element count of a container whose elements take at least `min_element_size` bytes
    /// each. Refuses a count that the remaining input can't hold, so that callers may allocate for
    /// it.
    pub fn count(&mut self, min_element_size: usize) -> Result<usize> {
        let n = usize::try_from(self.u32()?).map_err(|_| Error::Invalid("count"))?;
        let wanted = n.saturating_mul(min_element_size.max(1));
        if wanted > self.remaining() {
            return Err(Error::Truncated {
                wanted,
                left: self.remaining(),
            });
        }
        Ok(n)
    }

    /// Decodes one value.
    pub fn get<T: Decode>(&mut self) -> Result<T> {
        T::decode(self)
    }

    /// Opens a versioned section (`u8` version, `u8` compat, `u32` length), lets `body` decode its
    /// contents with the version found, and skips what a newer writer appended.
    ///
    /// # Errors
    /// [`Error::TooNew`] where the writer's compat is above `known`, and whatever `body` returns.
    pub fn section<T>(
        &mut self,
        what: &'static str,
        known: u8,
        body: impl FnOnce(u8, &mut Reader<'a>) -> Result<T>,
    ) -> Result<T> {
        let version = self.u8()?;
        let compat = self.u8()?;
        if compat > known {
            return Err(Error::TooNew { what, compat, known });
        }
        let mut inner = Reader::new(self.blob()?);
        body(version, &mut inner)
    }

    /// Succeeds where all input was read.
    pub fn finish(self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            n => Err(Error::LeftOver(n)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_the_input_is_refused_before_any_allocation() {
        let mut r = Reader::new(&[0xff, 0xff, 0xff, 0xff, 1, 2]);
        assert_eq!(
            r.count(1),
            Err(Error::Truncated {
                wanted: 0xffff_ffff,
                left: 2
            })
        );
    }

    #[test]
    fn a_section_skips_what_a_newer_writer_appended() {
        let bytes = [3, 1, 5, 0, 0, 0, 7, 0, 0, 0, 99, 42];
        let mut r = Reader::new(&bytes);
        let v = r.section("test", 2, |v, r| Ok((v, r.u32()?))).unwrap();
        assert_eq!(v, (3, 7));
        assert_eq!(r.u8(), Ok(42));
    }

    #[test]
    fn a_section_for_newer_readers_is_refused() {
        let mut r = Reader::new(&[9, 8, 0, 0, 0, 0]);
        let e = r.section("test", 2, |_, _| Ok(()));
        assert_eq!(
            e,
            Err(Error::TooNew {
                what: "test",
                compat: 8,
                known: 2
            })
        );
    }
}
