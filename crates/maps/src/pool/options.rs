//! `pool_opts_t`: the optional settings of a pool.

use std::collections::BTreeMap;
use std::fmt;

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};
use spirula_text::general;

/// The digits that Ceph's texts have of a fraction.
const STREAM_DIGITS: usize = 6;

/// The value of an option.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolOption {
    /// Text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// A fraction or a span in seconds.
    Float(f64),
}

impl fmt::Display for PoolOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(s) => f.write_str(s),
            Self::Int(n) => write!(f, "{n}"),
            Self::Float(x) => f.write_str(&general(*x, STREAM_DIGITS)),
        }
    }
}

/// The type that an option's value must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolOptionKind {
    /// [`PoolOption::Text`].
    Text,
    /// [`PoolOption::Int`].
    Int,
    /// [`PoolOption::Float`].
    Float,
}

/// Name and type of every option; its place is its key on the wire.
const OPTIONS: [(&str, PoolOptionKind); 24] = [
    ("scrub_min_interval", PoolOptionKind::Float),
    ("scrub_max_interval", PoolOptionKind::Float),
    ("deep_scrub_interval", PoolOptionKind::Float),
    ("recovery_priority", PoolOptionKind::Int),
    ("recovery_op_priority", PoolOptionKind::Int),
    ("scrub_priority", PoolOptionKind::Int),
    ("compression_mode", PoolOptionKind::Text),
    ("compression_algorithm", PoolOptionKind::Text),
    ("compression_required_ratio", PoolOptionKind::Float),
    ("compression_max_blob_size", PoolOptionKind::Int),
    ("compression_min_blob_size", PoolOptionKind::Int),
    ("csum_type", PoolOptionKind::Int),
    ("csum_max_block", PoolOptionKind::Int),
    ("csum_min_block", PoolOptionKind::Int),
    ("fingerprint_algorithm", PoolOptionKind::Text),
    ("pg_num_min", PoolOptionKind::Int),
    ("target_size_bytes", PoolOptionKind::Int),
    ("target_size_ratio", PoolOptionKind::Float),
    ("pg_autoscale_bias", PoolOptionKind::Float),
    ("read_lease_interval", PoolOptionKind::Float),
    ("dedup_tier", PoolOptionKind::Int),
    ("dedup_chunk_algorithm", PoolOptionKind::Text),
    ("dedup_cdc_chunk_size", PoolOptionKind::Int),
    ("pg_num_max", PoolOptionKind::Int),
];

/// A pool's options by key. Keys without a name here survive.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolOptions(pub BTreeMap<i32, PoolOption>);

impl PoolOptions {
    fn key(name: &str) -> Option<i32> {
        OPTIONS
            .iter()
            .position(|(n, _)| *n == name)
            .and_then(|i| i32::try_from(i).ok())
    }

    /// The type of the option called `name`.
    pub fn kind(name: &str) -> Option<PoolOptionKind> {
        OPTIONS.iter().find(|(n, _)| *n == name).map(|(_, k)| *k)
    }

    /// The option called `name`, where it is set.
    pub fn get(&self, name: &str) -> Option<&PoolOption> {
        self.0.get(&Self::key(name)?)
    }

    /// Sets the option called `name`; false where there is none or the value has the wrong type.
    pub fn set(&mut self, name: &str, value: PoolOption) -> bool {
        let kind = match &value {
            PoolOption::Text(_) => PoolOptionKind::Text,
            PoolOption::Int(_) => PoolOptionKind::Int,
            PoolOption::Float(_) => PoolOptionKind::Float,
        };
        match Self::key(name) {
            Some(key) if Self::kind(name) == Some(kind) => {
                self.0.insert(key, value);
                true
            }
            _ => false,
        }
    }

    /// Removes the option called `name`.
    pub fn unset(&mut self, name: &str) {
        if let Some(key) = Self::key(name) {
            self.0.remove(&key);
        }
    }

    /// The options that are set, with their names, in alphabetic order of the names: how Ceph
    /// prints them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &PoolOption)> {
        let mut set: Vec<_> = self
            .0
            .iter()
            .filter_map(|(k, v)| OPTIONS.get(usize::try_from(*k).ok()?).map(|(name, _)| (*name, v)))
            .collect();
        set.sort_unstable_by_key(|(name, _)| *name);
        set.into_iter()
    }
}

const KIND_TEXT: i32 = 0;
const KIND_INT: i32 = 1;
const KIND_FLOAT: i32 = 2;

impl Encode for PoolOptions {
    fn encode(&self, w: &mut Writer) {
        w.section(2, 1, |w| {
            w.count(self.0.len());
            for (key, value) in &self.0 {
                w.i32(*key);
                match value {
                    PoolOption::Text(s) => {
                        w.i32(KIND_TEXT);
                        w.string(s);
                    }
                    PoolOption::Int(n) => {
                        w.i32(KIND_INT);
                        w.i64(*n);
                    }
                    PoolOption::Float(x) => {
                        w.i32(KIND_FLOAT);
                        w.f64(*x);
                    }
                }
            }
        });
    }
}

impl Decode for PoolOptions {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("pool_opts_t", 2, |v, r| {
            let n = r.count(12)?;
            let mut options = BTreeMap::new();
            for _ in 0..n {
                let key = r.i32()?;
                let value = match r.i32()? {
                    KIND_TEXT => PoolOption::Text(r.string()?),
                    KIND_INT if v >= 2 => PoolOption::Int(r.i64()?),
                    KIND_INT => PoolOption::Int(r.i32()?.into()),
                    KIND_FLOAT => PoolOption::Float(r.f64()?),
                    _ => return Err(Error::Invalid("pool option type")),
                };
                options.insert(key, value);
            }
            Ok(Self(options))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ceph osd pool ls detail` of 16.2.15 prints them.
    #[test]
    fn options_print_as_officially() {
        let mut options = PoolOptions::default();
        assert!(options.set("scrub_priority", PoolOption::Int(7)));
        assert!(options.set("scrub_min_interval", PoolOption::Float(3600.0)));
        assert!(options.set("scrub_max_interval", PoolOption::Float(86400.5)));
        assert!(options.set("deep_scrub_interval", PoolOption::Float(1e6)));
        assert!(!options.set("scrub_priority", PoolOption::Float(7.0)));
        let shown: Vec<String> = options.iter().map(|(name, v)| format!("{name} {v}")).collect();
        assert_eq!(
            shown,
            [
                "deep_scrub_interval 1e+06",
                "scrub_max_interval 86400.5",
                "scrub_min_interval 3600",
                "scrub_priority 7",
            ]
        );
    }
}
