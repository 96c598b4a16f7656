//! Values of the pool properties that are options: the allowed ones, and the official refusals of
//! others.

use spirula_conf::amount;
use spirula_maps::pool::{PoolOption, PoolOptionKind, PoolOptions};
use spirula_maps::{PgPool, PoolId};

use super::{Reply, errno, refuse};
use crate::core::View;

fn invalid<T>(text: String) -> Result<T, Reply> {
    refuse(errno::EINVAL, text)
}

/// An integer, with the official text for anything else.
pub(super) fn int(val: &str) -> Result<i64, Reply> {
    amount::integer(val).or_else(|why| invalid(format!("error parsing integer value '{val}': {why}")))
}

fn float(val: &str) -> Result<f64, Reply> {
    amount::double(val).or_else(|why| invalid(format!("error parsing floating point value '{val}': {why}")))
}

/// Checksum types by the number that is stored, from 1.
pub(super) const CSUM_TYPES: [&str; 6] = ["none", "xxhash32", "xxhash64", "crc32c", "crc32c_16", "crc32c_8"];
const COMPRESSION_MODES: [&str; 4] = ["none", "passive", "aggressive", "force"];
const COMPRESSION_ALGORITHMS: [&str; 5] = ["none", "snappy", "zlib", "zstd", "lz4"];
const FINGERPRINTS: [&str; 4] = ["none", "sha1", "sha256", "sha512"];

/// An option's value that is an integer in the map.
fn integer(m: &View, p: &PgPool, var: &str, val: &str) -> Result<i64, Reply> {
    match var {
        "csum_type" => match CSUM_TYPES.into_iter().zip(1..).find(|(name, _)| *name == val) {
            Some(("crc32c", n)) => return Ok(n),
            Some(_) => {
                let text = format!("csum_type {val} is not supported: the store's checksums are CRC-32C");
                return refuse(errno::EOPNOTSUPP, text);
            }
            None => return invalid(format!("unrecognized csum_type '{val}'")),
        },
        "dedup_tier" => {
            if amount::integer(val).is_ok() {
                return invalid("expecting value 'pool name'".to_owned());
            }
            let missing = || Reply::error(errno::ENOENT, format!("unrecognized pool '{val}'"));
            return m
                .state
                .osd
                .map
                .pool_id(val)
                .map(PoolId::signed)
                .ok_or_else(missing);
        }
        "target_size_bytes"
        | "compression_max_blob_size"
        | "compression_min_blob_size"
        | "csum_max_block"
        | "csum_min_block" => {
            let bad = |why| Reply::error(errno::EINVAL, format!("error parsing unit value '{val}': {why}"));
            // Ceph, too, keeps it as the signed number of the same bits.
            return amount::iec(val).map(u64::cast_signed).map_err(bad);
        }
        _ => {}
    }
    let n = int(val)?;
    match var {
        "recovery_priority" if !(-10..=10).contains(&n) => {
            invalid("pool recovery_priority must be between -10 and 10".to_owned())
        }
        "pg_num_min" if n > i64::from(p.pg_num_target) => {
            invalid(format!("specified pg_num_min {n} > pg_num {}", p.pg_num_target))
        }
        "pg_num_max" if n != 0 && n < i64::from(p.pg_num_target) => {
            invalid(format!("specified pg_num_max {n} < pg_num {}", p.pg_num_target))
        }
        _ => Ok(n),
    }
}

fn real(var: &str, val: &str) -> Result<f64, Reply> {
    let f = float(val)?;
    match var {
        "compression_required_ratio" if !(0.0..=1.0).contains(&f) => invalid(format!(
            "compression_required_ratio is out of range (0-1): '{val}'"
        )),
        "target_size_ratio" if f < 0.0 => invalid("target_size_ratio cannot be negative".to_owned()),
        "pg_autoscale_bias" if !(0.0..=1000.0).contains(&f) => {
            invalid("pg_autoscale_bias must be between 0 and 1000".to_owned())
        }
        _ => Ok(f),
    }
}

fn text(var: &str, val: &str) -> Result<String, Reply> {
    let (allowed, what): (&[&str], &str) = match var {
        "compression_mode" => (&COMPRESSION_MODES, "compression mode"),
        "compression_algorithm" => (&COMPRESSION_ALGORITHMS, "compression_algorithm"),
        "fingerprint_algorithm" => (&FINGERPRINTS, "fingerprint_algorithm"),
        _ => return Ok(val.to_owned()),
    };
    if var == "compression_mode" && allowed.contains(&val) && val != "none" {
        let text = format!("compression_mode {val} is not supported: the store does not compress");
        return refuse(errno::EOPNOTSUPP, text);
    }
    match allowed.contains(&val) {
        true => Ok(val.to_owned()),
        false => invalid(format!("unrecognized {what} '{val}'")),
    }
}

/// Sets an option: 0, an empty text and, of texts, `unset` remove it.
pub(super) fn set(m: &View, p: &mut PgPool, var: &str, val: &str) -> Result<(), Reply> {
    let Some(kind) = PoolOptions::kind(var) else {
        return refuse(
            errno::EOPNOTSUPP,
            format!("{var} is not supported by this version"),
        );
    };
    let value = match kind {
        PoolOptionKind::Text if ["", "unset"].contains(&val) => None,
        // Its names are texts, though the map has a number.
        PoolOptionKind::Int if var == "csum_type" && val == "unset" => None,
        PoolOptionKind::Text => Some(PoolOption::Text(text(var, val)?)),
        PoolOptionKind::Int => Some(integer(m, p, var, val)?)
            .filter(|n| *n != 0)
            .map(PoolOption::Int),
        PoolOptionKind::Float => Some(real(var, val)?).filter(|f| *f != 0.0).map(PoolOption::Float),
    };
    match value {
        None => p.opts.unset(var),
        Some(v) => {
            p.opts.set(var, v);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_official_ones() {
        let said = |r: Result<f64, Reply>| r.unwrap_err().status;
        assert_eq!(
            said(real("target_size_ratio", "-1")),
            "target_size_ratio cannot be negative"
        );
        assert_eq!(
            said(real("scrub_min_interval", "abc")),
            "error parsing floating point value 'abc': strict_strtod: expected double, got: 'abc'"
        );
        assert_eq!(
            said(real("deep_scrub_interval", "1h")),
            "error parsing floating point value '1h': strict_strtod: garbage at end of string. got: '1h'"
        );
        // As in Ceph, a number may be negative: the option's default holds then.
        assert_eq!(real("scrub_max_interval", "-5").unwrap(), -5.0);
        assert_eq!(int(" 5").unwrap(), 5);
        assert_eq!(
            text("compression_mode", "bogus").unwrap_err().status,
            "unrecognized compression mode 'bogus'"
        );
    }
}
