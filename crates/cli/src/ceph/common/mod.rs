//! What the `ceph` and `rados` commands share: connection arguments, errno texts.

use spirula_client::errno::Errno;

pub(crate) mod args;
pub(crate) mod conn;

/// What `--version` prints. Tools parse the version after `ceph version`.
pub(crate) const VERSION: &str = concat!(
    "ceph version 16.2.15 (spirula ",
    env!("CARGO_PKG_VERSION"),
    ") pacific (stable)"
);

/// The name of the error that a command's result is, of either sign: `EINVAL`.
pub(crate) fn name_of(result: i32) -> &'static str {
    Errno::new(result.saturating_abs()).map_or("Unknown", Errno::name)
}
