//! Comparisons of values in the object's omap, which changes depend on. Formats: Ceph's
//! `src/cls/cmpomap/ops.h` and `types.h`.
//!
//! The client's value is on the left of a comparison, the stored one on the right.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{Reader, versioned};

use crate::error::unless;
use crate::method::{Nothing, class};
use crate::{Error, Object, Result};

class! { "cmpomap" {
    "cmp_vals": RD => compare;
    "cmp_set_vals": RD | WR => set;
    "cmp_rm_keys": RD | WR => remove;
} }

versioned! {
    /// Input of `cmp_vals` and `cmp_set_vals`.
    #[derive(Eq)]
    pub(crate) struct CompareOp("cmp_vals_op", version 1, compat 1) {
        /// What values are: 1 for bytes, 2 for numbers of 64 bits.
        pub(crate) mode: u8;
        /// From 1 on: equal, not equal, greater, greater or equal, less, less or equal.
        pub(crate) comparison: u8;
        /// The client's values by their omap keys.
        pub(crate) values: BTreeMap<Bytes, Bytes>;
        /// What stands for the values of missing keys.
        pub(crate) default_value: Option<Bytes>;
    }

    /// Input of `cmp_rm_keys`.
    #[derive(Eq)]
    pub(crate) struct RemoveOp("cmp_rm_keys_op", version 1, compat 1) {
        pub(crate) mode: u8;
        pub(crate) comparison: u8;
        pub(crate) values: BTreeMap<Bytes, Bytes>;
    }
}

/// Whether a comparison holds; EINVAL for one that there is not.
fn holds(comparison: u8, order: Ordering) -> Result<bool> {
    match comparison {
        1 => Ok(order.is_eq()),
        2 => Ok(order.is_ne()),
        3 => Ok(order.is_gt()),
        4 => Ok(order.is_ge()),
        5 => Ok(order.is_lt()),
        6 => Ok(order.is_le()),
        _ => Err(Error::EINVAL),
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    Reader::new(bytes).u64().ok()
}

/// Compares a value of the client with a stored one; EINVAL where the client's is no number, EIO
/// where the stored one is none.
fn is_true(mode: u8, comparison: u8, input: &[u8], stored: &[u8]) -> Result<bool> {
    let order = match mode {
        // Bytes count from -128 on, as C's characters do on x86.
        1 => {
            let signed = |b: &u8| b.cast_signed();
            input.iter().map(signed).cmp(stored.iter().map(signed))
        }
        2 => {
            let input = number(input).ok_or(Error::EINVAL)?;
            // Nothing is zero.
            let stored = match stored {
                [] => 0,
                _ => number(stored).ok_or(Error::EIO)?,
            };
            input.cmp(&stored)
        }
        _ => return Err(Error::EINVAL),
    };
    holds(comparison, order)
}

/// As [`is_true`], but a stored value that is no number compares as false.
fn is_true_or_no_number(mode: u8, comparison: u8, input: &[u8], stored: &[u8]) -> Result<bool> {
    let outcome = unless(is_true(mode, comparison, input, stored), &[Error::EIO])?;
    Ok(outcome.unwrap_or(false))
}

fn stored_values(object: &mut dyn Object, values: &BTreeMap<Bytes, Bytes>) -> Result<BTreeMap<Bytes, Bytes>> {
    let keys: BTreeSet<Bytes> = values.keys().cloned().collect();
    object.omap_by_keys(&keys)
}

/// ECANCELED unless all comparisons are true.
fn compare(object: &mut dyn Object, op: CompareOp) -> Result<Nothing> {
    let found = stored_values(object, &op.values)?;
    for (key, input) in &op.values {
        let stored = found.get(key).or(op.default_value.as_ref());
        let stored = stored.ok_or(Error::ECANCELED)?;
        if !is_true(op.mode, op.comparison, input, stored)? {
            return Err(Error::ECANCELED);
        }
    }
    Ok(Nothing)
}

/// Sets the keys whose comparisons are true.
fn set(object: &mut dyn Object, op: CompareOp) -> Result<Nothing> {
    let found = stored_values(object, &op.values)?;
    let mut changes = BTreeMap::new();
    for (key, input) in op.values {
        let Some(stored) = found.get(&key).or(op.default_value.as_ref()) else {
            continue;
        };
        if is_true_or_no_number(op.mode, op.comparison, &input, stored)? {
            changes.insert(key, input);
        }
    }
    if !changes.is_empty() {
        object.omap_set(&changes)?;
    }
    Ok(Nothing)
}

/// Removes the keys whose comparisons are true.
fn remove(object: &mut dyn Object, op: RemoveOp) -> Result<Nothing> {
    let found = stored_values(object, &op.values)?;
    let mut gone = BTreeSet::new();
    for (key, stored) in found {
        let input = op.values.get(&key).ok_or(Error::EIO)?;
        if is_true_or_no_number(op.mode, op.comparison, input, &stored)? {
            gone.insert(key);
        }
    }
    if !gone.is_empty() {
        object.omap_remove(&gone)?;
    }
    Ok(Nothing)
}
