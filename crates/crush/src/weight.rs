//! Weights as numbers.

use std::collections::BTreeMap;

use crate::{CrushMap, Error, Result};

/// Converts a command's weight to 16.16 fixed point (1.0 is 0x10000), rounded as by the official
/// monitor: through single precision, then towards zero.
///
/// # Errors
/// Where the weight is negative, not a number, or 32768 and above.
pub fn weight_from_f64(weight: f64) -> Result<u32> {
    let scaled = weight as f32 * 65536.0;
    if !(0.0..2_147_483_648.0).contains(&scaled) {
        return Err(Error::WeightOverflow);
    }
    Ok(scaled as u32)
}

/// A 16.16 fixed-point weight as the number that dumps show, with their single precision.
pub fn weight_to_f64(weight: u32) -> f64 {
    f64::from(weight as f32 / 65536.0)
}

impl CrushMap {
    /// The share of a rule's data that each device gets, by its weight below the items that the
    /// rule takes from. `None` if the rule does not exist. The capacity of a pool follows from it
    /// (`ceph df`).
    ///
    /// Shares add up to the number of `take` steps, as in Ceph, which does not know what each of
    /// them places.
    pub fn rule_device_shares(&self, rule: u32) -> Option<BTreeMap<i32, f32>> {
        let mut shares = BTreeMap::new();
        for root in self.rule(rule)?.takes() {
            let weights = self.device_weights_below(root);
            let sum: f32 = weights.values().sum();
            if sum > 0.0 {
                for (device, weight) in weights {
                    *shares.entry(device).or_insert(0.0) += weight / sum;
                }
            }
        }
        Some(shares)
    }

    fn device_weights_below(&self, root: i32) -> BTreeMap<i32, f32> {
        if root >= 0 {
            return BTreeMap::from([(root, 1.0)]);
        }
        let mut weights = BTreeMap::new();
        for item in self.walk_from(vec![root]).filter(|i| i.id >= 0) {
            weights.insert(item.id, item.weight as f32);
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_convert_as_in_official_tools() {
        assert_eq!(weight_from_f64(1.0), Ok(0x10000));
        assert_eq!(weight_from_f64(0.00389), Ok(254));
        assert_eq!(weight_from_f64(1.1), Ok(72089));
        assert_eq!(weight_from_f64(-0.5), Err(Error::WeightOverflow));
        assert_eq!(weight_from_f64(f64::NAN), Err(Error::WeightOverflow));
        assert_eq!(weight_to_f64(0x18000), 1.5);
    }

    #[test]
    fn a_rule_shares_data_by_weight() {
        let mut map = CrushMap::with_default_root("osd").unwrap();
        let at = CrushMap::parse_location(["root=default"]).unwrap();
        map.insert_item(0, 0x10000, "osd.0", &at).unwrap();
        map.insert_item(1, 0x30000, "osd.1", &at).unwrap();
        assert_eq!(
            map.rule_device_shares(0),
            Some(BTreeMap::from([(0, 0.25), (1, 0.75)]))
        );
        assert_eq!(map.rule_device_shares(1), None);
    }
}
