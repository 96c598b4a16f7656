//! Weights as numbers.

use crate::{Error, Result};

/// A weight in 16.16 fixed point from what a command says (1.0 is 0x10000), rounded as the official monitor does:
/// through single precision, then towards zero.
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
}
