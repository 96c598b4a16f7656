//! Integers in as few bytes as hold them: `encode_packed_val` of Ceph's `src/cls/rgw/cls_rgw_types.h`.
//! Below 0x80 the byte is the number; otherwise it is 0x80 and the number of bytes that follow.

use spirula_denc::{Error, Reader, Result, Writer};

const LONG: u8 = 0x80;

/// Writes 0x10000 in four bytes, as any reader takes it. Ceph squeezes this one number into two,
/// which makes it zero.
pub(super) fn encode(n: &u64, w: &mut Writer) {
    let bytes = n.to_le_bytes();
    let len = match *n {
        0..0x80 => return w.u8(bytes[0]),
        0x80..0x100 => 1,
        0x100..0x1_0000 => 2,
        0x1_0000..=0x100_0000 => 4,
        _ => 8,
    };
    w.u8(LONG | len);
    w.bytes(&bytes[..usize::from(len)]);
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<u64> {
    let first = r.u8()?;
    Ok(match first {
        ..=0x7f => first.into(),
        0x81 => r.u8()?.into(),
        0x82 => r.u16()?.into(),
        0x84 => r.u32()?.into(),
        0x88 => r.u64()?,
        _ => return Err(Error::Invalid("packed integer")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_bytes_that_they_need() {
        for (n, bytes) in [
            (0, &[0][..]),
            (0x7f, &[0x7f]),
            (0x80, &[0x81, 0x80]),
            (0xff, &[0x81, 0xff]),
            (0x100, &[0x82, 0, 1]),
            (0xffff, &[0x82, 0xff, 0xff]),
            (0x1_0000, &[0x84, 0, 0, 1, 0]),
            (0x100_0000, &[0x84, 0, 0, 0, 1]),
            (0x100_0001, &[0x88, 1, 0, 0, 1, 0, 0, 0, 0]),
            (u64::MAX, &[0x88, 255, 255, 255, 255, 255, 255, 255, 255]),
        ] {
            let mut w = Writer::new();
            encode(&n, &mut w);
            assert_eq!(w.as_slice(), bytes, "{n:#x}");
            assert_eq!(decode(&mut Reader::new(bytes)), Ok(n));
        }
        for bad in [&[][..], &[0x80], &[0x83, 1, 2, 3], &[0x88, 1], &[0xff]] {
            assert!(decode(&mut Reader::new(bad)).is_err(), "{bad:?}");
        }
    }
}
