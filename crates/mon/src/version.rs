//! The version reported to Ceph's tools: the release whose behaviour this software has, and its
//! own.

use serde_json::{Value, json};

/// The release.
pub const RELEASE: &str = "pacific";
/// The version whose protocol level this software has.
pub const SHORT: &str = "16.2.15";
/// The version as `ceph version` prints it. The official tools parse the number after `ceph
/// version`.
pub const LONG: &str = concat!(
    "ceph version 16.2.15 (spirula ",
    env!("CARGO_PKG_VERSION"),
    ") pacific (stable)"
);

/// The answer to `version` on a daemon.
pub fn daemon() -> Value {
    json!({"version": SHORT, "release": RELEASE, "release_type": "stable"})
}
