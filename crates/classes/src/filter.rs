//! Filters of listings of a placement group, by which clients leave objects out (`PGLSFilter` in
//! Ceph's `src/osd/osd_types.h`).

use std::fmt::Debug;

use bytes::Bytes;
use spirula_denc::Reader;

use crate::{Error, Result};

/// Selects the objects of a listing.
pub trait Filter: Debug + Send {
    /// The attribute by which it selects, with the `_` before it that clients' attributes have in
    /// an OSD's store; empty if it needs none.
    fn attribute(&self) -> &[u8];

    /// Whether the object of this name is selected. `value` is its attribute: empty where the
    /// filter needs none, `None` where the object lacks it.
    fn wants(&self, name: &[u8], value: Option<&Bytes>) -> bool;
}

/// A kind of filter that a class offers.
#[derive(Debug)]
pub struct FilterKind {
    /// Its name.
    pub name: &'static str,
    /// Decodes a filter's parameters from a request, which has more data behind them.
    pub(crate) read: fn(&mut Reader<'_>) -> Result<Box<dyn Filter>>,
}

impl FilterKind {
    /// Makes a filter of its parameters in the request's input.
    ///
    /// # Errors
    /// EINVAL for parameters that it can't decode.
    pub fn filter(&self, input: &mut Reader<'_>) -> Result<Box<dyn Filter>> {
        (self.read)(input)
    }
}

/// The filter `plain`, which belongs to no class: objects whose attribute has a given value.
pub static PLAIN: FilterKind = FilterKind {
    name: "plain",
    read: has_value,
};

/// Selects objects whose attribute has a given value.
#[derive(Debug)]
struct HasValue {
    attribute: Bytes,
    value: Bytes,
}

/// Decodes the name of an attribute and a value.
pub(crate) fn has_value(input: &mut Reader<'_>) -> Result<Box<dyn Filter>> {
    let (attribute, value) = input.get().map_err(|_| Error::EINVAL)?;
    Ok(Box::new(HasValue { attribute, value }))
}

impl Filter for HasValue {
    fn attribute(&self) -> &[u8] {
        &self.attribute
    }

    fn wants(&self, _: &[u8], value: Option<&Bytes>) -> bool {
        value == Some(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::encode_to_vec;

    use super::*;

    #[test]
    fn a_plain_filter_reads_its_part_and_compares_whole_values() {
        let colour = (Bytes::from_static(b"_colour"), Bytes::from_static(b"red"));
        let input = [&encode_to_vec(&colour)[..], b"rest"].concat();
        let mut r = Reader::new(&input);
        let filter = PLAIN.filter(&mut r).unwrap();
        assert_eq!((filter.attribute(), r.rest()), (&b"_colour"[..], &b"rest"[..]));
        let judge = |v: &'static str| filter.wants(b"o", Some(&Bytes::from_static(v.as_bytes())));
        assert!(judge("red") && !judge("reddish") && !judge("") && !filter.wants(b"o", None));
        assert!(PLAIN.filter(&mut Reader::new(b"\x01\0\0\0")).is_err());
    }
}
