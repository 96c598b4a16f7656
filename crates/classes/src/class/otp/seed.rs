//! Secrets as texts, read as `oath_hex2bin` and `oath_base32_decode` of liboath read them.

use bytes::Bytes;

use crate::text::until_nul;

/// The kind of a secret in base 32.
const BASE32: u8 = 2;

/// The bytes of a secret; `None` for a text that is none.
pub(super) fn parse(text: &[u8], kind: u8) -> Option<Bytes> {
    match kind {
        BASE32 => parse_base32(text),
        _ => parse_hex(until_nul(text)),
    }
}

fn parse_hex(text: &[u8]) -> Option<Bytes> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.chunks(2).map(byte).collect()
}

/// Blanks do not count, nor does the case of letters, and padding may lack at the end.
fn parse_base32(text: &[u8]) -> Option<Bytes> {
    let mut digits: Vec<u8> = text.iter().copied().filter(|b| *b != b' ').collect();
    digits.resize(digits.len().next_multiple_of(8), b'=');
    let mut out = Vec::new();
    for group in digits.chunks(8) {
        let len = group.iter().take_while(|b| **b != b'=').count();
        let (digits, padding) = group.split_at(len);
        // Groups of other lengths make no whole bytes.
        if !matches!(len, 2 | 4 | 5 | 7 | 8) || padding.iter().any(|b| *b != b'=') {
            return None;
        }
        let mut bits = 0u64;
        for digit in digits {
            bits = bits << 5 | u64::from(base32_digit(*digit)?);
        }
        bits <<= 5 * padding.len();
        // The lower 40 bits are five bytes.
        out.extend_from_slice(bits.to_be_bytes()[3..].get(..len * 5 / 8)?);
    }
    Some(out.into())
}

fn base32_digit(b: u8) -> Option<u8> {
    match b.to_ascii_uppercase() {
        b @ b'A'..=b'Z' => Some(b - b'A'),
        b @ b'2'..=b'7' => Some(b - b'2' + 26),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with liboath 2.6.
    #[test]
    fn texts_are_read_as_liboath_reads_them() {
        for (text, want) in [
            ("", Some("")),
            (" ", Some("")),
            ("MZXW6===", Some("foo")),
            ("mzxw6", Some("foo")),
            ("MZXW6==", Some("foo")),
            ("M Z", Some("f")),
            ("MZX W6YT BOI======", Some("foobar")),
            ("MZXW6===MZXW6===", Some("foofoo")),
            ("MZXW", Some("fo")),
            ("MZXW6YQ=", Some("foob")),
            ("MZXW6YR", Some("foob")),
            ("MZ XW-6", None),
            ("1", None),
            ("M", None),
            ("MZX", None),
            ("MZXW6Y", None),
            ("MZXW6Y=", None),
            ("MZXW\0ABC", None),
            ("=", None),
            ("========", None),
            ("MZ======X", None),
            ("MZXW_6", None),
        ] {
            assert_eq!(parse(text.as_bytes(), BASE32), want.map(Bytes::from), "{text}");
        }
        for (text, want) in [
            ("", Some(&b""[..])),
            ("aB", Some(b"\xab")),
            ("ab\0cd", Some(b"\xab")),
            ("ab1", None),
            ("zz", None),
            ("0x12", None),
            ("ab\n", None),
        ] {
            let want = want.map(Bytes::from_static);
            assert_eq!(parse(text.as_bytes(), 1), want, "{text}");
        }
    }
}
