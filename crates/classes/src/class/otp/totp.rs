//! Passwords that depend on the time: RFC 6238 with SHA-1, as `oath_totp_validate2` of liboath has
//! them.

use aws_lc_rs::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, sign};

use super::OtpInfo;
use crate::text::until_nul;

/// Seconds of a step where none are given.
const DEFAULT_STEP: u32 = 30;
/// Steps on either side that are tried at most, so that a check takes a limited time. Ceph has no
/// limit; its default is 2.
const MAX_WINDOW: u32 = 1000;

/// The password of a step (RFC 4226), of so many digits.
fn password(key: &Key, step: u64, digits: usize) -> String {
    let tag = sign(key, &step.to_be_bytes());
    let hash = tag.as_ref();
    let at = usize::from(hash.last().copied().unwrap_or_default() & 0xf);
    let word = hash
        .iter()
        .skip(at)
        .take(4)
        .fold(0, |n: u32, b| n << 8 | u32::from(*b));
    let number = u64::from(word & 0x7fff_ffff) % 10u64.pow(digits as u32);
    format!("{number:0digits$}")
}

/// The step whose password this is, of those within the device's window; `None` where it is none of
/// them. A step before the present one counts as if it were as far behind it, as in Ceph.
pub(super) fn matching_step(otp: &OtpInfo, given: &[u8], now: u32) -> Option<u64> {
    let given = until_nul(given);
    if !(6..=8).contains(&given.len()) {
        return None;
    }
    let key = Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, &otp.seed_bin);
    let size = match otp.step_size {
        0 => DEFAULT_STEP,
        size => size,
    };
    let present = (i64::from(now) - i64::from(otp.time_ofs)) / i64::from(size);
    let present = present.cast_unsigned();
    let is_password = |step| password(&key, step, given.len()).as_bytes() == given;
    let distance = (0..=otp.window.min(MAX_WINDOW)).find(|distance| {
        let distance = u64::from(*distance);
        is_password(present.wrapping_add(distance)) || is_password(present.wrapping_sub(distance))
    })?;
    // In 32 bits, which is how it is stored.
    let since = now.wrapping_sub(otp.time_ofs.cast_unsigned());
    Some((since / size).wrapping_add(distance).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(time_ofs: i32, step_size: u32, window: u32) -> OtpInfo {
        OtpInfo {
            seed_bin: "12345678901234567890".into(),
            time_ofs,
            step_size,
            window,
            ..OtpInfo::default()
        }
    }

    /// The test values of RFC 6238, appendix B.
    #[test]
    fn passwords_are_those_of_the_standard() {
        for (now, want) in [
            (59, "94287082"),
            (1_111_111_109, "07081804"),
            (1_111_111_111, "14050471"),
            (1_234_567_890, "89005924"),
            (2_000_000_000, "69279037"),
        ] {
            let otp = device(0, 30, 0);
            assert_eq!(
                matching_step(&otp, want.as_bytes(), now),
                Some(u64::from(now) / 30)
            );
        }
    }

    /// Made with liboath 2.6.
    #[test]
    fn windows_reach_both_ways() {
        let key = Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"12345678901234567890");
        let of = |step: i64, digits| password(&key, step.cast_unsigned(), digits);
        let find = |otp: &OtpInfo, text: &str, now| matching_step(otp, text.as_bytes(), now);
        let otp = device(0, 30, 2);
        for (step, distance) in [(-1, Some(2)), (0, Some(1)), (1, Some(0)), (3, Some(2)), (4, None)] {
            let want = distance.map(|d| 1 + d);
            assert_eq!(find(&otp, &of(step, 6), 59), want, "{step}");
        }
        for (digits, good) in [(5, false), (6, true), (7, true), (8, true), (9, false)] {
            assert_eq!(find(&otp, &of(1, digits), 59).is_some(), good, "{digits}");
        }
        assert_eq!(find(&device(40, 30, 0), &of(2, 6), 100), Some(2));
        assert_eq!(find(&device(-60, 30, 0), &of(5, 6), 100), Some(5));
        assert!(find(&device(100, 30, 0), &of(-3, 6), 10).is_some());
        assert_eq!(find(&device(0, 0, 0), &of(1, 6), 59), Some(1));
        assert_eq!(find(&otp, "287082 ", 59), None);
    }
}
