//! What the `ceph` and `rados` commands share: connection arguments, errno texts.

pub(crate) mod args;
pub(crate) mod conn;
pub(crate) mod errno;

/// What `--version` prints. Tools parse the version after `ceph version`.
pub(crate) const VERSION: &str = concat!(
    "ceph version 16.2.15 (spirula ",
    env!("CARGO_PKG_VERSION"),
    ") pacific (stable)"
);
