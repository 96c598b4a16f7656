//! The number of an OSD.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use spirula_crush::ITEM_NONE;
use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};

/// What an OSD's number is called in errors.
const INVALID: Error = Error::Invalid("OSD id");

/// An OSD's id: in Ceph a number of 32 bits with a sign, which is neither negative nor
/// [`ITEM_NONE`]. Where Ceph writes -1 for "no OSD", memory has `None` ([`or_none`]); so it has
/// where Ceph writes [`ITEM_NONE`] for a position without one ([`or_hole`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsdId(
    // The number plus one, so that an optional OSD takes no more room than one.
    NonZeroU32,
);

impl OsdId {
    /// The OSD of this number. Larger numbers come from outside, through [`OsdId::of_item`] or the
    /// other fallible conversions.
    pub const fn new(number: u16) -> Self {
        // Lossless; `From` is not const.
        Self(NonZeroU32::MIN.saturating_add(number as u32))
    }

    /// The OSD that is an item of a CRUSH map; `None` for buckets and [`ITEM_NONE`].
    pub const fn of_item(item: i32) -> Option<Self> {
        if item >= 0 && item != ITEM_NONE {
            Some(Self(NonZeroU32::MIN.saturating_add(item.cast_unsigned())))
        } else {
            None
        }
    }

    /// As CRUSH maps, other maps and messages have it.
    pub const fn item(self) -> i32 {
        (self.0.get() - 1).cast_signed()
    }

    /// Its place in tables that have an entry for every id.
    pub const fn index(self) -> usize {
        // Lossless; `From` is not const.
        (self.0.get() - 1) as usize
    }

    /// All ids below `max`, ascending.
    pub fn below(max: u32) -> impl Iterator<Item = Self> + Clone {
        (0..max).map_while(|n| Self::of_item(n.cast_signed()))
    }
}

impl Default for OsdId {
    fn default() -> Self {
        Self::new(0)
    }
}

impl From<OsdId> for u32 {
    fn from(osd: OsdId) -> Self {
        osd.0.get() - 1
    }
}

impl From<OsdId> for i64 {
    fn from(osd: OsdId) -> Self {
        osd.item().into()
    }
}

impl From<OsdId> for u64 {
    fn from(osd: OsdId) -> Self {
        u32::from(osd).into()
    }
}

impl TryFrom<i32> for OsdId {
    type Error = Error;

    fn try_from(number: i32) -> Result<Self> {
        Self::of_item(number).ok_or(INVALID)
    }
}

impl TryFrom<u64> for OsdId {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self> {
        i32::try_from(number).ok().and_then(Self::of_item).ok_or(INVALID)
    }
}

/// The number alone, without `osd.`.
impl fmt::Display for OsdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.item().fmt(f)
    }
}

impl fmt::Debug for OsdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.item().fmt(f)
    }
}

/// Of the number alone, without `osd.`.
impl FromStr for OsdId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse().ok().and_then(Self::of_item).ok_or(INVALID)
    }
}

/// A number.
impl serde::Serialize for OsdId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_i32(self.item())
    }
}

/// A number that is an OSD's.
impl<'de> serde::Deserialize<'de> for OsdId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        let number = i32::deserialize(d)?;
        Self::try_from(number).map_err(serde::de::Error::custom)
    }
}

impl Encode for OsdId {
    fn encode(&self, w: &mut Writer) {
        w.i32(self.item());
    }
}

impl Decode for OsdId {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Self::try_from(r.i32()?)
    }
}

/// Declares the codec of fields in which one number means that there is no OSD.
macro_rules! optional {
    ($(#[$meta:meta])* $name:ident = $none:expr) => {
        $(#[$meta])*
        pub mod $name {
            use super::{OsdId, Reader, Result, Writer};

            /// What Ceph writes where there is no OSD.
            const NONE: i32 = $none;

            /// The number that Ceph has for it.
            pub const fn number(osd: Option<OsdId>) -> i32 {
                match osd {
                    Some(osd) => osd.item(),
                    None => NONE,
                }
            }

            /// Writes it in 32 bits.
            pub fn encode(osd: &Option<OsdId>, w: &mut Writer) {
                w.i32(number(*osd));
            }

            /// Reads what [`encode`] writes.
            ///
            /// # Errors
            /// Where the number is neither an OSD's nor the one for none.
            pub fn decode(r: &mut Reader<'_>) -> Result<Option<OsdId>> {
                match r.i32()? {
                    NONE => Ok(None),
                    number => OsdId::try_from(number).map(Some),
                }
            }
        }
    };
}

optional! {
    /// The codec of fields in which -1 means that there is no OSD.
    or_none = -1
}

optional! {
    /// The codec of fields in which [`ITEM_NONE`] means that there is no OSD.
    or_hole = spirula_crush::ITEM_NONE
}

/// An OSD or none, in structures whose fields have no codec of their own: written as [`or_none`]
/// does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OsdOrNone(pub Option<OsdId>);

impl OsdOrNone {
    /// No OSD.
    pub const NONE: Self = Self(None);
}

impl From<Option<OsdId>> for OsdOrNone {
    fn from(osd: Option<OsdId>) -> Self {
        Self(osd)
    }
}

/// The number, -1 for none.
impl fmt::Display for OsdOrNone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        or_none::number(self.0).fmt(f)
    }
}

impl fmt::Debug for OsdOrNone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        or_none::number(self.0).fmt(f)
    }
}

/// The number, -1 for none.
impl serde::Serialize for OsdOrNone {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_i32(or_none::number(self.0))
    }
}

impl Encode for OsdOrNone {
    fn encode(&self, w: &mut Writer) {
        or_none::encode(&self.0, w);
    }
}

impl Decode for OsdOrNone {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        or_none::decode(r).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;

    #[test]
    fn buckets_and_the_absent_item_are_no_osds() {
        for item in [-1, -5, i32::MIN, ITEM_NONE] {
            assert_eq!(OsdId::of_item(item), None);
            assert!(decode_all::<OsdId>(&encode_to_vec(&item)).is_err());
            assert!(item.to_string().parse::<OsdId>().is_err());
        }
        assert!(OsdId::try_from(u64::from(u32::MAX)).is_err() && "".parse::<OsdId>().is_err());
    }

    #[test]
    fn it_is_a_number_of_32_bits_everywhere() {
        let osd = OsdId::new(0x0102);
        assert_eq!(encode_to_vec(&osd), [2, 1, 0, 0]);
        assert_eq!(decode_all(&[2, 1, 0, 0]), Ok(osd));
        assert_eq!((osd.item(), osd.index()), (258, 258));
        assert_eq!(
            (osd.to_string().parse(), u64::from(osd).try_into()),
            (Ok(osd), Ok(osd))
        );
        assert!(OsdId::below(3).eq([0, 1, 2].map(OsdId::new)));
        assert_eq!(
            OsdId::of_item(ITEM_NONE - 1).map(OsdId::item),
            Some(ITEM_NONE - 1)
        );
        assert_eq!(size_of::<Option<OsdId>>(), 4);
    }

    #[test]
    fn only_minus_one_is_none() {
        for osd in [None, Some(OsdId::new(0)), Some(OsdId::new(7))] {
            let bytes = encode_to_vec(&OsdOrNone(osd));
            assert_eq!(bytes, encode_to_vec(&or_none::number(osd)));
            assert_eq!(decode_all(&bytes), Ok(OsdOrNone(osd)));
        }
        for other in [-2, ITEM_NONE] {
            assert!(decode_all::<OsdOrNone>(&encode_to_vec(&other)).is_err());
        }
    }
}
