//! Digests of an object's parts, by which members compare their copies without sending them.
//!
//! Those of data and omap are Ceph's (`PGBackend::be_deep_scrub`, `bufferhash`): CRC-32C that begins
//! with all ones and is not inverted at the end.

use bytes::Bytes;

use crate::pg::object::Attrs;

/// A CRC-32C that grows, over bytes and ranges of zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Digest(u32);

impl Digest {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// Adds zeros that nobody wrote.
    pub(super) fn add_zeros(&mut self, mut len: u64) {
        // The digest of twice as many zeros is that of the half, combined with itself.
        let (mut power, mut size) = (crc32c::crc32c(&[0]), 1usize);
        while len > 0 {
            if len & 1 == 1 {
                self.0 = crc32c::crc32c_combine(self.0, power, size);
            }
            len >>= 1;
            if len > 0 {
                power = crc32c::crc32c_combine(power, power, size);
                size <<= 1;
            }
        }
    }

    /// The value that Ceph prints.
    pub(super) fn value(self) -> u32 {
        !self.0
    }

    /// Adds bytes with their length before them.
    fn add_counted(&mut self, bytes: &[u8]) {
        self.add(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.add(bytes);
    }

    /// Adds an omap's header.
    pub(super) fn add_header(&mut self, header: &Bytes) {
        self.add(header);
    }

    /// Adds a pair of an omap.
    pub(super) fn add_pair(&mut self, key: &Bytes, value: &Bytes) {
        self.add_counted(key);
        self.add_counted(value);
    }
}

/// The digest of an object's attributes.
pub(super) fn of_attrs(attrs: &Attrs) -> u32 {
    let mut digest = Digest::default();
    for (name, value) in attrs {
        digest.add_pair(name, value);
    }
    digest.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_count_as_bytes_do() {
        for len in [0u64, 1, 2, 3, 4095, 4096, 100_001] {
            let (mut some, mut all) = (Digest::default(), Digest::default());
            some.add(b"before");
            some.add_zeros(len);
            some.add(b"after");
            all.add(&[&b"before"[..], &vec![0; len as usize], b"after"].concat());
            assert_eq!(some, all, "{len}");
        }
    }

    #[test]
    fn values_are_those_that_ceph_prints() {
        // `rados list-inconsistent-obj` of an object without omap, and of empty data.
        assert_eq!(Digest::default().value(), 0xffff_ffff);
        let mut d = Digest::default();
        d.add(b"123456789");
        assert_eq!(d.value(), !0xe306_9283);
    }
}
