//! A growing buffer of encoded bytes.

use crate::Encode;

/// Encoded bytes under construction.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    buf: Vec<u8>,
}

/// A place in a [`Writer`] that is filled once its value is known (a length, a checksum).
#[derive(Debug)]
#[must_use]
pub struct Hole {
    at: usize,
}

impl Hole {
    /// The offset of the hole's first byte.
    pub fn offset(&self) -> usize {
        self.at
    }
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty writer with room for `n` bytes.
    pub fn with_capacity(n: usize) -> Self {
        Self {
            buf: Vec::with_capacity(n),
        }
    }

    /// Makes room for `n` more bytes and no others, where these are many.
    pub fn reserve(&mut self, n: usize) {
        self.buf.reserve_exact(n);
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// What was written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    /// The finished bytes.
    pub fn into_vec(self) -> Vec<u8> {
        self.buf
    }

    /// Raw bytes, without a length.
    pub fn bytes(&mut self, b: &[u8]) {
        self.buf.extend_from_slice(b);
    }

    /// `n` zero bytes.
    pub fn zeros(&mut self, n: usize) {
        self.buf.resize(self.buf.len() + n, 0);
    }

    /// One byte.
    pub fn u8(&mut self, v: u8) {
        self.buf.push(v);
    }

    /// A bool as one byte.
    pub fn bool(&mut self, v: bool) {
        self.u8(u8::from(v));
    }

    /// A little-endian `u16`.
    pub fn u16(&mut self, v: u16) {
        self.bytes(&v.to_le_bytes());
    }

    /// A little-endian `u32`.
    pub fn u32(&mut self, v: u32) {
        self.bytes(&v.to_le_bytes());
    }

    /// A little-endian `u64`.
    pub fn u64(&mut self, v: u64) {
        self.bytes(&v.to_le_bytes());
    }

    /// A signed byte.
    pub fn i8(&mut self, v: i8) {
        self.bytes(&v.to_le_bytes());
    }

    /// A little-endian `i16`.
    pub fn i16(&mut self, v: i16) {
        self.bytes(&v.to_le_bytes());
    }

    /// A little-endian `i32`.
    pub fn i32(&mut self, v: i32) {
        self.bytes(&v.to_le_bytes());
    }

    /// A little-endian `i64`.
    pub fn i64(&mut self, v: i64) {
        self.bytes(&v.to_le_bytes());
    }

    /// An IEEE 754 single.
    pub fn f32(&mut self, v: f32) {
        self.bytes(&v.to_le_bytes());
    }

    /// An IEEE 754 double.
    pub fn f64(&mut self, v: f64) {
        self.bytes(&v.to_le_bytes());
    }

    /// A container's element count, or a length, as `u32`.
    ///
    /// # Panics
    /// Above `u32::MAX`: nothing that large is ever built in memory here, so it is a broken
    /// invariant.
    pub fn count(&mut self, n: usize) {
        assert!(
            n <= u32::MAX as usize,
            "container of {n} elements can't be encoded"
        );
        self.u32(n as u32);
    }

    /// A byte string with its `u32` length before it.
    pub fn blob(&mut self, b: &[u8]) {
        self.count(b.len());
        self.bytes(b);
    }

    /// A string with its `u32` length before it.
    pub fn string(&mut self, s: &str) {
        self.blob(s.as_bytes());
    }

    /// Encodes one value.
    pub fn put<T: Encode + ?Sized>(&mut self, v: &T) {
        v.encode(self);
    }

    /// A versioned section: `u8` version, `u8` compat, `u32` length, then what `body` writes.
    pub fn section(&mut self, version: u8, compat: u8, body: impl FnOnce(&mut Writer)) {
        self.u8(version);
        self.u8(compat);
        let hole = self.hole_u32();
        body(self);
        let n = self.buf.len() - hole.at - 4;
        assert!(n <= u32::MAX as usize, "section of {n} bytes can't be encoded");
        self.fill_u32(hole, n as u32);
    }

    /// Leaves room for a `u32` to be filled later.
    pub fn hole_u32(&mut self) -> Hole {
        let at = self.buf.len();
        self.u32(0);
        Hole { at }
    }

    /// Fills a hole left by [`Writer::hole_u32`].
    pub fn fill_u32(&mut self, hole: Hole, v: u32) {
        self.buf[hole.at..hole.at + 4].copy_from_slice(&v.to_le_bytes());
    }
}
