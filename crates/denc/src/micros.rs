//! Microseconds, the unit of monotonic clocks and of what they measure.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul};
use std::time::Duration;

use crate::transparent;

/// Microseconds: a span of time, or a point in time as the span since a monotonic clock began. On
/// the wire 64 bits. Sums, products and what is made of seconds saturate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(u64);

transparent!(Micros);

impl Micros {
    /// No time; as a point in time usually "not yet".
    pub const ZERO: Self = Self(0);
    /// Longer than anything.
    pub const MAX: Self = Self(u64::MAX);

    /// So many microseconds.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// So many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// So many seconds; zero where that is negative.
    pub fn from_secs_f64(seconds: f64) -> Self {
        // A cast of a float saturates.
        Self((seconds * 1e6) as u64)
    }

    /// How many microseconds.
    pub const fn count(self) -> u64 {
        self.0
    }

    /// Whole milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1000
    }

    /// Whole seconds.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whether it is no time.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The span from `earlier` to this point; zero where that is later.
    #[must_use]
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Micros {
    type Output = Self;

    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign for Micros {
    fn add_assign(&mut self, span: Self) {
        *self = *self + span;
    }
}

impl Mul<u64> for Micros {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Micros {
    type Output = Self;

    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl From<Duration> for Micros {
    fn from(d: Duration) -> Self {
        Self(u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Micros> for Duration {
    fn from(m: Micros) -> Self {
        Self::from_micros(m.0)
    }
}

/// The number.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number.
impl fmt::Debug for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode_all, encode_to_vec};

    #[test]
    fn nothing_wraps_around() {
        let (second, max) = (Micros::from_secs(1), Micros::MAX);
        assert_eq!(
            (max + second, max * 2, Micros::from_secs(u64::MAX)),
            (max, max, max)
        );
        assert_eq!(second.saturating_sub(Micros::from_secs(2)), Micros::ZERO);
        assert_eq!(Micros::from_secs_f64(-1.0), Micros::ZERO);
        assert_eq!(Micros::from_secs_f64(f64::INFINITY), max);
        assert_eq!(Micros::from(Duration::MAX), max);
    }

    #[test]
    fn units_and_bytes() {
        let span = Micros::from_millis(1500);
        assert_eq!(
            (span.count(), span.as_millis(), span.as_secs()),
            (1_500_000, 1500, 1)
        );
        assert_eq!(
            (span / 3, span * 2),
            (Micros::from_millis(500), Micros::from_secs(3))
        );
        assert_eq!(Duration::from(span), Duration::from_millis(1500));
        assert_eq!(encode_to_vec(&span), encode_to_vec(&1_500_000u64));
        assert_eq!(decode_all::<Micros>(&encode_to_vec(&7u64)), Ok(Micros::new(7)));
        assert!((span.as_secs_f64() - 1.5).abs() < 1e-9);
    }
}
