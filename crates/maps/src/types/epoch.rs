//! The number of a map's version.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};

/// `epoch_t`: which version of a map it is. Each change of the map takes the next one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(u32);

impl Epoch {
    /// Before the first map: where something has not happened, or is not known.
    pub const NONE: Self = Self(0);
    /// The epoch of the first map.
    pub const FIRST: Self = Self(1);
    /// After every real epoch.
    pub const MAX: Self = Self(u32::MAX);

    /// The epoch of this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Whether it is no epoch of a map.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The epoch `n` epochs after this one.
    #[must_use]
    pub const fn after(self, n: u32) -> Self {
        Self(self.0.saturating_add(n))
    }

    /// The epoch `n` epochs before this one, [`Epoch::NONE`] if there is none.
    #[must_use]
    pub const fn before(self, n: u32) -> Self {
        Self(self.0.saturating_sub(n))
    }

    /// How many epochs this one comes after `other`; 0 if it does not.
    pub const fn since(self, other: Self) -> u32 {
        self.0.saturating_sub(other.0)
    }

    /// The epochs of a range, in their order.
    pub fn all(range: RangeInclusive<Self>) -> impl DoubleEndedIterator<Item = Self> {
        (range.start().0..=range.end().0).map(Self)
    }
}

impl From<Epoch> for u32 {
    fn from(epoch: Epoch) -> Self {
        epoch.0
    }
}

impl From<Epoch> for i64 {
    fn from(epoch: Epoch) -> Self {
        epoch.0.into()
    }
}

impl From<Epoch> for u64 {
    fn from(epoch: Epoch) -> Self {
        epoch.0.into()
    }
}

/// An epoch in 64 bits, as subscriptions and paxos versions have it.
impl TryFrom<u64> for Epoch {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self> {
        let number = u32::try_from(number).map_err(|_| Error::Invalid("epoch"))?;
        Ok(Self(number))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Epoch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = text.parse().map_err(|_| Error::Invalid("epoch"))?;
        Ok(Self(number))
    }
}

/// A number.
impl serde::Serialize for Epoch {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_u32(self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Epoch {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        u32::deserialize(d).map(Self)
    }
}

impl Encode for Epoch {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.0);
    }
}

impl Decode for Epoch {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u32().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;

    #[test]
    fn epochs_are_counted() {
        let e = Epoch::new(7);
        assert_eq!(
            (e.next(), e.before(3), e.after(3)),
            (Epoch::new(8), Epoch::new(4), Epoch::new(10))
        );
        assert_eq!(
            (Epoch::FIRST.before(5), Epoch::MAX.next()),
            (Epoch::NONE, Epoch::MAX)
        );
        assert_eq!((e.since(Epoch::new(5)), e.since(Epoch::new(9))), (2, 0));
        let all: Vec<_> = Epoch::all(e..=Epoch::new(9)).map(Epoch::number).collect();
        assert_eq!(all, [7, 8, 9]);
        assert!(Epoch::NONE.is_none() && !Epoch::FIRST.is_none());
    }

    #[test]
    fn it_is_a_number_of_32_bits_everywhere() {
        let e = Epoch::new(0x0102_0304);
        assert_eq!(encode_to_vec(&e), [4, 3, 2, 1]);
        assert_eq!(decode_all(&[4, 3, 2, 1]), Ok(e));
        assert_eq!((e.to_string().parse(), u64::from(e).try_into()), (Ok(e), Ok(e)));
        assert!(Epoch::try_from(1 << 32).is_err() && "-1".parse::<Epoch>().is_err());
    }
}
