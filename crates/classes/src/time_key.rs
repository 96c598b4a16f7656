//! The omap keys of entries ordered by time, for the classes `log` and `timeindex`.

use std::cmp::Ordering;

use bytes::Bytes;
use spirula_denc::UTime;

/// The prefix of all these keys.
pub(crate) const TIME_KEY_PREFIX: &[u8] = b"1_";

/// The prefix of the keys of one microsecond: seconds with ten digits, microseconds with six.
pub(crate) fn time_key(time: UTime) -> String {
    format!("1_{:010}.{:06}_", time.sec, time.nsec / 1000)
}

/// A bound: the client's key or, if that is empty, the key of the time.
pub(crate) fn key_or_time(key: Bytes, time: UTime) -> Bytes {
    match key.is_empty() {
        true => time_key(time).into(),
        false => key,
    }
}

/// Compares the start of `key`, cut to the length of `bound`, with `bound`.
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
