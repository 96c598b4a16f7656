//! The number of a pool.

use std::fmt;
use std::str::FromStr;

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};

/// What a pool's number is called in errors.
const WHAT: &str = "pool id";

/// A pool's id, never negative: Ceph has it signed in maps and locators and unsigned in PG ids, in
/// 64 bits each. Where Ceph writes -1 for "no pool", memory has `None` ([`or_none`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PoolId(u64);

impl PoolId {
    /// The pool of this number.
    pub const fn new(id: u32) -> Self {
        // Lossless; `From` is not const.
        Self(id as u64)
    }

    /// As maps, locators, object ids and CRUSH have it.
    pub const fn signed(self) -> i64 {
        self.0.cast_signed()
    }

    /// As PG ids and keys in a store have it.
    pub const fn unsigned(self) -> u64 {
        self.0
    }

    /// The id after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        if self.0 < i64::MAX.cast_unsigned() {
            Self(self.0 + 1)
        } else {
            self
        }
    }
}

impl TryFrom<i64> for PoolId {
    type Error = Error;

    fn try_from(id: i64) -> Result<Self> {
        u64::try_from(id).map(Self).map_err(|_| Error::Invalid(WHAT))
    }
}

impl TryFrom<u64> for PoolId {
    type Error = Error;

    fn try_from(id: u64) -> Result<Self> {
        i64::try_from(id)
            .map(|_| Self(id))
            .map_err(|_| Error::Invalid(WHAT))
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PoolId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let id: u64 = text.parse().map_err(|_| Error::Invalid(WHAT))?;
        Self::try_from(id)
    }
}

/// A number.
impl serde::Serialize for PoolId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

/// A number that is not negative.
impl<'de> serde::Deserialize<'de> for PoolId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        let id = u64::deserialize(d)?;
        Self::try_from(id).map_err(serde::de::Error::custom)
    }
}

impl Encode for PoolId {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
}

impl Decode for PoolId {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Self::try_from(r.u64()?)
    }
}

/// The codec of fields in which -1 means that there is no pool.
pub mod or_none {
    use super::{PoolId, Reader, Result, Writer};

    /// What Ceph writes where there is no pool.
    const NONE: i64 = -1;

    /// The number that Ceph has for it: -1 for none.
    pub const fn number(pool: Option<PoolId>) -> i64 {
        match pool {
            Some(pool) => pool.signed(),
            None => NONE,
        }
    }

    /// Writes it in 64 bits.
    pub fn encode(pool: &Option<PoolId>, w: &mut Writer) {
        w.i64(number(*pool));
    }

    /// Reads what [`encode`] writes.
    ///
    /// # Errors
    /// Where the number is negative, but not -1.
    pub fn decode(r: &mut Reader<'_>) -> Result<Option<PoolId>> {
        match r.i64()? {
            NONE => Ok(None),
            id => PoolId::try_from(id).map(Some),
        }
    }
}

/// A pool or none, in structures whose fields have no codec of their own: written as [`or_none`]
/// does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PoolOrNone(pub Option<PoolId>);

impl PoolOrNone {
    /// No pool.
    pub const NONE: Self = Self(None);
}

impl From<PoolId> for PoolOrNone {
    fn from(pool: PoolId) -> Self {
        Self(Some(pool))
    }
}

impl Encode for PoolOrNone {
    fn encode(&self, w: &mut Writer) {
        or_none::encode(&self.0, w);
    }
}

impl Decode for PoolOrNone {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        or_none::decode(r).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;

    #[test]
    fn a_negative_number_is_no_pool() {
        let pool = PoolId::new(7);
        assert_eq!(decode_all::<PoolId>(&encode_to_vec(&7i64)).unwrap(), pool);
        assert_eq!(encode_to_vec(&pool), encode_to_vec(&7i64));
        assert_eq!(("7".parse(), pool.to_string()), (Ok(pool), "7".to_owned()));
        assert!(decode_all::<PoolId>(&encode_to_vec(&-1i64)).is_err());
        assert!(PoolId::try_from(-1i64).is_err() && PoolId::try_from(u64::MAX).is_err());
        assert!("-1".parse::<PoolId>().is_err() && "".parse::<PoolId>().is_err());
        let last = PoolId::try_from(i64::MAX).unwrap();
        assert_eq!(last.next(), last);
    }

    #[test]
    fn only_minus_one_is_none() {
        for pool in [None, Some(PoolId::new(0)), Some(PoolId::new(7))] {
            let mut w = Writer::new();
            or_none::encode(&pool, &mut w);
            let bytes = w.into_vec();
            assert_eq!(bytes, encode_to_vec(&or_none::number(pool)));
            assert_eq!(or_none::decode(&mut Reader::new(&bytes)), Ok(pool));
        }
        let other = encode_to_vec(&-2i64);
        assert!(or_none::decode(&mut Reader::new(&other)).is_err());
    }
}
