//! Configuration options: names, types and defaults of those of Ceph 16.2, and of those that only
//! Spirula has.
//!
//! Options with an official counterpart have its name, type and default (`src/common/options.cc` of
//! Ceph 16.2), or our default where the text says so. The monitor refuses to store a value that
//! does not parse as its option's type.

mod built;
mod parse;
mod table;
mod values;
use Kind::{Addr, AddrVec, Bool, Float, Int, Millisecs, Secs, Size, Str, Uint, Uuid};
use spirula_errno::Errno;

use crate::amount;
pub use table::{all, find, of_modules};
pub use values::{Source, Values};

use crate::security;

/// An option's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Str,
    /// A signed integer.
    Int,
    /// An unsigned integer; SI suffixes are allowed.
    Uint,
    /// A float.
    Float,
    /// `true` or `false`.
    Bool,
    /// Bytes; IEC suffixes are allowed.
    Size,
    /// Seconds; unit suffixes are allowed.
    Secs,
    /// Milliseconds.
    Millisecs,
    /// An address.
    Addr,
    /// Addresses.
    AddrVec,
    /// A UUID.
    Uuid,
}

impl Kind {
    /// All types.
    pub(crate) const ALL: [Self; 11] = [
        Str, Int, Uint, Float, Bool, Size, Secs, Millisecs, Addr, AddrVec, Uuid,
    ];

    /// The name `config help` prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Str => "str",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Float => "float",
            Self::Bool => "bool",
            Self::Size => "size",
            Self::Secs => "secs",
            Self::Millisecs => "millisecs",
            Self::Addr => "addr",
            Self::AddrVec => "addrvec",
            Self::Uuid => "uuid",
        }
    }
}

/// The audience of an option, as `config dump` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For every operator.
    Basic,
    /// For experts.
    Advanced,
    /// For developers.
    Dev,
}

impl Level {
    /// All levels.
    pub(crate) const ALL: [Self; 3] = [Self::Basic, Self::Advanced, Self::Dev];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Advanced => "advanced",
            Self::Dev => "dev",
        }
    }
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct Opt {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its audience.
    pub level: Level,
    /// The default, as text.
    pub default: &'static str,
    /// The default of daemons, if it differs.
    pub daemon_default: &'static str,
    /// The least value, as text; empty for none.
    pub min: &'static str,
    /// The greatest value, as text; empty for none.
    pub max: &'static str,
    /// The values that are allowed, separated by `|`; empty for any.
    pub values: &'static str,
    /// Whether a running daemon follows changes of it.
    pub runtime: bool,
    /// Ceph's flags (`runtime`, `startup`, `no_mon_update`, …), separated by blanks.
    pub flags: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// The daemons that read it, separated by blanks; empty for all.
    pub services: &'static str,
    /// Whether it has an effect here. Other options of Ceph can be set and are stored, so that a
    /// Ceph cluster's configuration works, but have no effect.
    pub effect: bool,
}

/// The message for a log level that is a number out of range.
const LEVEL_RANGE: &str = "value must be in range [0, 99]";

/// The errno, `EINVAL` or `ERANGE`, of a message from [`Opt::parse`].
pub fn errno(why: &str) -> Errno {
    match why {
        LEVEL_RANGE => spirula_errno::ERANGE,
        _ => spirula_errno::EINVAL,
    }
}

/// An option's name in its canonical spelling.
pub fn normalize(name: &str) -> String {
    name.replace([' ', '-'], "_")
}

impl Opt {
    /// Whether the monitors' configuration database may hold the option.
    pub fn is_central(&self) -> bool {
        !self.flags.split(' ').any(|f| f == "no_mon_update")
    }

    /// The value in its canonical spelling.
    ///
    /// # Errors
    /// The official text for a value that is not of the option's type, or is not allowed.
    pub fn parse(&self, value: &str) -> Result<String, String> {
        let parsed = self.typed(value)?;
        self.check(&parsed)?;
        security::check(self.name, &parsed)?;
        Ok(parsed)
    }

    /// A value in canonical spelling; unchanged if it is not of the option's type.
    pub fn shown(&self, value: &str) -> String {
        self.typed(value).unwrap_or_else(|_| value.to_owned())
    }

    /// Whether the option is the log level of a daemon's subsystem (`debug_osd`). Ceph does not
    /// list these.
    pub fn is_log_level(&self) -> bool {
        self.kind == Str && self.name.starts_with("debug_")
    }

    /// Checks that a value of the option's type is allowed.
    fn check(&self, value: &str) -> Result<(), String> {
        let number = |text: &str| text.parse::<f64>().ok();
        let below = |a: &str, b: &str| number(a).zip(number(b)).is_some_and(|(a, b)| a < b);
        if below(value, self.min) {
            return Err(format!(
                "Value '{value}' is below minimum {}",
                self.shown(self.min)
            ));
        }
        if below(self.max, value) {
            return Err(format!(
                "Value '{value}' exceeds maximum {}",
                self.shown(self.max)
            ));
        }
        if self.kind == Str && !self.values.is_empty() && !self.values.split('|').any(|v| v == value) {
            let allowed = self.values.replace('|', ", ");
            return Err(format!("'{value}' is not one of the permitted values: {allowed}"));
        }
        Ok(())
    }

    fn typed(&self, value: &str) -> Result<String, String> {
        match self.kind {
            Str if self.is_log_level() => parse::log_levels(value),
            Str => Ok(value.to_owned()),
            Int => amount::signed_si(value).map(|v| v.to_string()),
            Uint => amount::si(value).map(|v| v.to_string()),
            Size => amount::iec(value).map(|v| v.to_string()),
            Secs | Millisecs => parse::seconds(value).map(|v| v.to_string()),
            Addr => parse::address(value),
            AddrVec => parse::addresses(value),
            Uuid => match spirula_denc::Fsid::parse(value.trim()) {
                Some(v) => Ok(v.to_string()),
                None => Err(String::new()),
            },
            Float => amount::double(value).map(|v| format!("{v:.6}")),
            Bool => parse::boolean(value).map(|v| v.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_parses() {
        // Ceph refuses this one's default, too: its limit is a negative number taken for a positive
        // one.
        let odd = "rgw_rados_pool_recovery_priority";
        for o in all().iter().filter(|o| o.name != odd) {
            assert!(o.default.is_empty() || o.parse(o.default).is_ok(), "{}", o.name);
        }
        for o in all().iter().filter(|o| !o.daemon_default.is_empty()) {
            assert!(o.parse(o.daemon_default).is_ok(), "{}", o.name);
        }
    }

    /// As `ceph config set` of 16.2.15 says.
    #[test]
    fn values_are_read_as_officially() {
        let none = "strict_si_cast: unit prefix not recognized";
        for (name, value, want) in [
            ("osd_max_backfills", "2", Ok("2")),
            ("osd_max_backfills", "x", Err(none)),
            (
                "osd_max_backfills",
                "-1",
                Err("strict_sistrtoll: value should not be negative"),
            ),
            ("osd_max_backfills", "1k", Err(none)),
            ("osd_max_backfills", "2.5", Err(none)),
            (
                "osd_max_backfills",
                "",
                Err("strict_sistrtoll: value not specified"),
            ),
            ("osd_max_backfills", " 3", Err(none)),
            ("osd_max_write_size", "4K", Ok("4096")),
            (
                "osd_max_write_size",
                "x",
                Err("strict_iecstrtoll: unit prefix not recognized"),
            ),
            (
                "mon_osd_laggy_weight",
                "2",
                Err("Value '2.000000' exceeds maximum 1.000000"),
            ),
            ("mon_osd_laggy_weight", ".5", Ok("0.500000")),
            ("log_max_recent", "5k", Err(none)),
            ("log_max_recent", "-5", Err("Value '-5' is below minimum 1")),
            ("mon_op_complaint_time", "1h 5m", Ok("3900")),
            ("mon_op_complaint_time", "-1", Err("expected digit")),
            ("cluster_addr", "1.2.3.4", Ok("v2:1.2.3.4:0/0")),
            ("cluster_addr", "nonsense", Err("")),
            ("public_addrv", "v2:1.2.3.4:5", Ok("v2:1.2.3.4:5/0")),
            ("osd_uuid", "abc", Err("")),
            ("debug_bluestore", "5", Ok("5/5")),
            ("debug_bluestore", "5/", Ok("5/5")),
            ("debug_bluestore", "99/0", Ok("99/0")),
            ("debug_bluestore", "100", Err(LEVEL_RANGE)),
            ("debug_bluestore", "5/-1", Err(LEVEL_RANGE)),
            (
                "debug_bluestore",
                "/5",
                Err("value must take the form N or N/M, where N and M are integers"),
            ),
            (
                "osd_scrub_auto_repair",
                "maybe",
                Err("Expected option value to be integer, got 'maybe'"),
            ),
            ("osd_scrub_auto_repair", "1", Ok("true")),
        ] {
            let got = find(name).unwrap().parse(value);
            assert_eq!(
                got,
                want.map(str::to_owned).map_err(str::to_owned),
                "{name} {value}"
            );
        }
    }

    #[test]
    fn values_are_checked_by_type() {
        let size = find("osd-memory-target").unwrap();
        assert_eq!(size.parse("256M").unwrap(), "268435456");
        assert!(size.parse("abc").is_err());
        assert_eq!(find("mon_allow_pool_delete").unwrap().parse("1").unwrap(), "true");
        assert_eq!(find("rados_osd_op_timeout").unwrap().parse("2m").unwrap(), "120");
    }

    #[test]
    fn values_are_checked_by_limits() {
        let check = |name: &str, value: &str| find(name).unwrap().parse(value).unwrap_err();
        assert_eq!(
            check("osd_pool_default_size", "11"),
            "Value '11' exceeds maximum 10"
        );
        assert_eq!(check("osd_max_write_size", "3"), "Value '3' is below minimum 4");
        assert_eq!(
            check("osd_op_queue", "fast"),
            "'fast' is not one of the permitted values: wpq, mclock_scheduler, debug_random"
        );
        assert!(find("osd_memory_target").unwrap().parse("134217728").is_ok());
    }

    #[test]
    fn a_running_daemon_follows_only_what_it_can() {
        let mut v = Values::default();
        let all = [
            ("osd_max_pgls", "5K"),
            ("osd_memory_target", "1G"),
            ("osd_max_write_size", "much"),
            ("osd_nonsense", "1"),
        ];
        v.set_central(all.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!(v.central.keys().collect::<Vec<_>>(), ["osd_max_pgls"]);
        let ignored: Vec<&String> = v.ignored.iter().collect();
        assert_eq!(ignored, ["osd_max_write_size", "osd_memory_target"]);
        v.overrides.insert("osd_max_pgls".into(), "7".into());
        let want = [
            (Source::Override, "7".to_owned()),
            (Source::Mon, "5000".to_owned()),
        ];
        assert_eq!(v.sources("osd_max_pgls"), want);
        assert!(v.sources("osd_memory_target").is_empty());
        for name in [
            "fsid",
            "host",
            "keyring",
            "mon_data",
            "mon_host",
            "mon_initial_members",
            "mon_osd_backfillfull_ratio",
            "mon_osd_full_ratio",
            "mon_osd_nearfull_ratio",
            "osd_data",
        ] {
            assert!(!find(name).unwrap().is_central(), "{name}");
        }
    }

    #[test]
    fn local_values_win() {
        let mut v = Values::default();
        assert_eq!(v.uint("osd_pool_default_size"), 3);
        v.central.insert("osd_pool_default_size".into(), "2".into());
        assert_eq!(v.source("osd_pool_default_size"), "mon");
        v.local.insert("osd_pool_default_size".into(), "1".into());
        assert_eq!(v.uint("osd_pool_default_size"), 1);
        v.overrides.insert("osd_pool_default_size".into(), "4".into());
        assert_eq!(
            (v.uint("osd_pool_default_size"), v.source("osd_pool_default_size")),
            (4, "override")
        );
        v.overrides
            .insert("osd_pool_default_size".into(), "nonsense".into());
        assert_eq!(v.uint("osd_pool_default_size"), 3);
        assert_eq!(
            v.canonical("osd_failsafe_full_ratio").as_deref(),
            Some("0.970000")
        );
    }
}
