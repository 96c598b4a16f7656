//! Straw lengths of the first straw algorithm.
//!
//! Each item draws a 16-bit hash scaled by its straw; the longest wins. Lengths grow from the
//! lightest item upwards such that the chances approximate the weights. The exact sequence of
//! floating-point operations is the format (`crush_calc_straw` in Ceph's `src/crush/builder.c`):
//! another order gives other lengths and moves data.

/// Straw lengths (16.16) for the weights. Version 0 skips equal weights in a way that misplaces
/// data, and exists for maps that were built with it.
pub(crate) fn straw_lengths(weights: &[u32], version: u8) -> Vec<u32> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|i| weights[*i]);
    let mut straws = vec![0; weights.len()];
    let zeros = order.iter().take_while(|i| weights[**i] == 0).count();
    // Version 0 counts the items without weight among those still to come, version 1 does not.
    let mut left = if version == 0 {
        order.len()
    } else {
        order.len() - zeros
    };
    let (mut straw, mut below, mut last) = (1.0f64, 0.0f64, 0.0f64);
    for (k, item) in order.iter().enumerate().skip(zeros) {
        let weight = weights[*item];
        // Truncation to 16.16 is meant.
        straws[*item] = (straw * 65536.0) as u32;
        let Some(next) = order.get(k + 1).map(|i| weights[*i]) else {
            break;
        };
        if version == 0 && next == weight {
            continue;
        }
        below += (f64::from(weight) - last) * left as f64;
        left -= if version == 0 {
            order[k + 1..].iter().take_while(|i| weights[**i] == next).count()
        } else {
            1
        };
        // The product of two integers is taken modulo 2^32 before it becomes a real number.
        let above = f64::from((left as u32).wrapping_mul(next.wrapping_sub(weight)));
        let share = below / (below + above);
        straw *= (1.0 / share).powf(1.0 / left as f64);
        last = f64::from(weight);
    }
    straws
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_weights_give_equal_straws_and_no_weight_no_straw() {
        assert_eq!(straw_lengths(&[0x10000; 3], 0), [0x10000; 3]);
        assert_eq!(straw_lengths(&[0x10000; 3], 1), [0x10000; 3]);
        assert_eq!(straw_lengths(&[0, 0x10000], 1), [0, 0x10000]);
        assert!(straw_lengths(&[], 1).is_empty());
    }
}
