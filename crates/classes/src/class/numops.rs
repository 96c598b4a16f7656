//! Arithmetic on numbers that omap values hold as text (Ceph's `src/cls/numops`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::method::{Nothing, class};
use crate::text::parse_double;
use crate::{Error, Object, Result};

class! { "numops" {
    "add": RD | WR => add;
    "mul": RD | WR => mul;
} }

/// Key and operand.
type Input = (Bytes, Bytes);

fn add(object: &mut dyn Object, input: Input) -> Result<Nothing> {
    update(object, input, |value, operand| value + operand)
}

fn mul(object: &mut dyn Object, input: Input) -> Result<Nothing> {
    update(object, input, |value, operand| value * operand)
}

fn update(object: &mut dyn Object, (key, operand): Input, f: fn(f64, f64) -> f64) -> Result<Nothing> {
    let operand = parse_double(&operand).ok_or(Error::EINVAL)?;
    let found = match object.omap_by_keys(&BTreeSet::from([key.clone()])) {
        Ok(mut found) => found.remove(&key).unwrap_or_default(),
        // As in Ceph, a value that can't be read is none.
        Err(Error::Errno(_)) => Bytes::new(),
        Err(Error::NotFetched) => return Err(Error::NotFetched),
    };
    // No value, like an empty one, is zero.
    let value = parse_double(&found).ok_or(Error::EBADMSG)?;
    let result = spirula_text::general(f(value, operand), 10).into();
    object
        .omap_set(&BTreeMap::from([(key, result)]))
        .map(|()| Nothing)
}
