//! The omap keys of entries in the order of time, which the classes `log` and `timeindex` share.

use std::cmp::Ordering;

use bytes::Bytes;
use spirula_denc::UTime;

/// What all these keys start with.
pub(crate) const TIME_KEY_PREFIX: &[u8] = b"1_";

/// The start of the keys of a microsecond: seconds with ten digits, microseconds with six.
pub(crate) fn time_key(time: UTime) -> String {
    format!("1_{:010}.{:06}_", time.sec, time.nsec / 1000)
}

/// The key that a client gives as a bound, or that of the time where it gives none.
pub(crate) fn key_or_time(key: Bytes, time: UTime) -> Bytes {
    match key.is_empty() {
        true => time_key(time).into(),
        false => key,
    }
}

/// How as much of `key` as `bound` is long compares with `bound`.
fn compare_start(key: &[u8], bound: &[u8]) -> Ordering {
    key.get(..bound.len()).unwrap_or(key).cmp(bound)
}

/// Whether a key belongs to the time of `bound` or a later one.
pub(crate) fn starts_at_or_after(key: &[u8], bound: &[u8]) -> bool {
    compare_start(key, bound).is_ge()
}

/// Whether a key belongs to a later time than that of `bound`.
pub(crate) fn starts_after(key: &[u8], bound: &[u8]) -> bool {
    compare_start(key, bound).is_gt()
}
