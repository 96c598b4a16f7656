//! Numbers in seven-bit groups, least first, as objects' infos have them.

use spirula_denc::{Error, Reader, Result, Writer};

/// Writes a number.
pub(super) fn put_number(w: &mut Writer, mut n: u64) {
    while n >= 0x80 {
        w.u8(n as u8 | 0x80);
        n >>= 7;
    }
    w.u8(n as u8);
}

/// Reads a number.
///
/// # Errors
/// The input ends, or the number has more than 64 bits.
pub(super) fn number(r: &mut Reader<'_>) -> Result<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let byte = r.u8()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        n |= bits << shift;
        if byte < 0x80 {
            return Ok(n);
        }
    }
    Err(Error::Invalid("number in an object info"))
}

/// Reads a number that has 32 bits at most.
///
/// # Errors
/// The input ends, or the number is larger.
pub(super) fn small(r: &mut Reader<'_>) -> Result<u32> {
    u32::try_from(number(r)?).map_err(|_| Error::Invalid("number in an object info"))
}
