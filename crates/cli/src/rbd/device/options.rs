//! The options of `-o` for a mapping by the kernel's RBD client, as the official tool parses them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::rbd::Exit;
use crate::rbd::bad;

/// Pairs of opposite options; the last one given counts.
const PAIRS: [(&str, &str); 5] = [
    ("share", "noshare"),
    ("crc", "nocrc"),
    ("cephx_require_signatures", "nocephx_require_signatures"),
    ("tcp_nodelay", "notcp_nodelay"),
    ("cephx_sign_messages", "nocephx_sign_messages"),
];
/// Options without a value.
const FLAGS: [&str; 5] = ["lock_on_read", "exclusive", "notrim", "abort_on_full", "rxbounce"];
/// Options with a number.
const NUMBERS: [&str; 7] = [
    "mount_timeout",
    "osd_request_timeout",
    "osdkeepalive",
    "osd_idle_ttl",
    "queue_depth",
    "lock_timeout",
    "alloc_size",
];
/// Options with a choice of words.
const CHOICES: [(&str, &[&str]); 3] = [
    ("read_from_replica", &["no", "balance", "localize"]),
    ("compression_hint", &["none", "compressible", "incompressible"]),
    (MODE, &["legacy", "crc", "secure", "prefer-crc", "prefer-secure"]),
];

/// The option for the messenger's mode.
const MODE: &str = "ms_mode";

/// The options of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MapOptions {
    /// The options' texts for the kernel, by option.
    texts: BTreeMap<String, String>,
    /// Wait until udev has processed the device.
    pub(super) udev: bool,
}

impl MapOptions {
    pub(super) fn new() -> Self {
        Self {
            texts: BTreeMap::new(),
            udev: true,
        }
    }

    fn put(&mut self, key: &str, text: impl Into<String>) {
        self.texts.insert(key.to_owned(), text.into());
    }

    pub(super) fn set_read_only(&mut self) {
        self.put("rw", "ro");
    }

    pub(super) fn set_exclusive(&mut self) {
        self.put("exclusive", "exclusive");
    }

    /// Sets the messenger's mode, unless an option has set it.
    pub(super) fn set_default_mode(&mut self, mode: &str) {
        self.texts
            .entry(MODE.to_owned())
            .or_insert_with(|| format!("{MODE}={mode}"));
    }

    /// Whether the daemons are reached by msgr1.
    pub(super) fn is_legacy(&self) -> bool {
        self.texts.get(MODE).is_some_and(|text| text == "ms_mode=legacy")
    }

    /// Adds options separated by commas.
    pub(super) fn add(&mut self, text: &str) -> Result<(), Exit> {
        // A space in front is passed over, as by the official tool.
        let text = text.trim_start_matches([',', ' ']);
        text.split(',')
            .filter(|o| !o.is_empty())
            .try_for_each(|o| self.add_one(o))
    }

    fn add_one(&mut self, option: &str) -> Result<(), Exit> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if let Some((key, _)) = PAIRS.iter().find(|(yes, no)| [*yes, *no].contains(&name)) {
            self.put(key, name);
            return Ok(());
        }
        if FLAGS.contains(&name) {
            self.put(name, name);
            return Ok(());
        }
        match name {
            "rw" | "ro" => {
                self.put("rw", name);
                return Ok(());
            }
            "udev" | "noudev" => {
                self.udev = name == "udev";
                return Ok(());
            }
            _ => {}
        }
        let Some(read) = reader(name) else {
            return Err(bad(format!("unknown map option '{name}'")));
        };
        let given = value.filter(|v| !v.is_empty());
        let given = given.ok_or_else(|| bad(format!("{name} option requires a value")))?;
        let value = read(name, given).ok_or_else(|| bad(format!("invalid {name} value '{given}'")))?;
        self.put(name, format!("{name}={value}"));
        Ok(())
    }

    /// The text for the kernel. `rw` is its default, and left out.
    pub(super) fn text(&self) -> String {
        let texts: Vec<&str> = self
            .texts
            .values()
            .map(String::as_str)
            .filter(|t| *t != "rw")
            .collect();
        texts.join(",")
    }
}

/// The parser of an option's value, which returns the text for the kernel.
fn reader(name: &str) -> Option<fn(&str, &str) -> Option<String>> {
    match name {
        "fsid" => Some(|_, value| Some(uuid::Uuid::try_parse(value).ok()?.to_string())),
        "ip" => Some(|_, value| address(value)),
        "crush_location" => Some(|_, value| Some(value.to_owned())),
        _ if NUMBERS.contains(&name) => Some(|_, value| number(value)),
        _ if CHOICES.iter().any(|(n, _)| *n == name) => Some(choice),
        _ => None,
    }
}

fn number(value: &str) -> Option<String> {
    let number: i32 = value.trim_start().parse().ok()?;
    (number >= 0).then(|| number.to_string())
}

fn choice(name: &str, value: &str) -> Option<String> {
    let (_, words) = CHOICES.iter().find(|(n, _)| *n == name)?;
    words.contains(&value).then(|| value.to_owned())
}

fn address(value: &str) -> Option<String> {
    let socket = match value.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, 0),
        Err(_) => value.parse().ok()?,
    };
    Some(socket.to_string())
}

/// The options of an unmapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnmapOptions {
    /// Unmap the device although it is open.
    pub(super) force: bool,
    /// Wait until udev has processed the device.
    pub(super) udev: bool,
}

impl UnmapOptions {
    pub(super) fn parse(texts: &[String]) -> Result<Self, Exit> {
        let mut options = Self {
            force: false,
            udev: true,
        };
        let words = texts.iter().flat_map(|t| t.split(','));
        for word in words.filter(|w| !w.is_empty()) {
            match word {
                "force" => options.force = true,
                "udev" | "noudev" => options.udev = word == "udev",
                _ => {
                    bad(format!("unknown unmap option '{word}'"));
                    return Err(bad("couldn't parse unmap options"));
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(given: &str) -> Result<String, Exit> {
        let mut options = MapOptions::new();
        options.add(given)?;
        Ok(options.text())
    }

    #[test]
    fn options_are_written_as_the_kernel_reads_them() {
        for (given, want) in [
            ("", ""),
            ("ro", "ro"),
            ("ro,rw", ""),
            ("noshare,share,crc", "crc,share"),
            ("queue_depth=0128,lock_on_read", "lock_on_read,queue_depth=128"),
            ("ms_mode=prefer-crc", "ms_mode=prefer-crc"),
            ("ip=10.0.0.1", "ip=10.0.0.1:0"),
            ("ip=[::1]:7", "ip=[::1]:7"),
            (
                "fsid=1F3A9B7C-0000-4000-8000-0123456789AB",
                "fsid=1f3a9b7c-0000-4000-8000-0123456789ab",
            ),
            ("crush_location=rack:a|row:b", "crush_location=rack:a|row:b"),
            ("noudev", ""),
        ] {
            assert_eq!(text(given).as_deref(), Ok(want), "{given}");
        }
        for wrong in [
            "bogus",
            "force",
            "ms_mode",
            "ms_mode=",
            "ms_mode=fast",
            "queue_depth=-1",
            "queue_depth=1x",
            "fsid=1",
            "ip=host",
            "read_from_replica=yes",
        ] {
            assert_eq!(text(wrong), Err(spirula_client::errno::EINVAL.into()), "{wrong}");
        }
    }

    #[test]
    fn a_mode_that_is_given_wins() {
        let mut options = MapOptions::new();
        options.add("ms_mode=secure").unwrap();
        options.set_default_mode("prefer-crc");
        assert_eq!(options.text(), "ms_mode=secure");
        let mut options = MapOptions::new();
        options.set_read_only();
        options.set_exclusive();
        options.set_default_mode("prefer-crc");
        assert_eq!(options.text(), "exclusive,ms_mode=prefer-crc,ro");
        assert!(!options.is_legacy());
    }

    #[test]
    fn unmapping_knows_force() {
        let parse = |text: &str| UnmapOptions::parse(&[text.to_owned()]);
        assert!(parse("force,noudev").is_ok_and(|o| o.force && !o.udev));
        assert!(parse("").is_ok_and(|o| !o.force && o.udev));
        assert_eq!(parse("ro"), Err(spirula_client::errno::EINVAL.into()));
    }
}
