//! Errors of the command line itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// A failed command: the text is shown after `Error: `.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("can't {what} {path}: {source}")]
    Path {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{path} is not a cluster description of this version: {source}")]
    Spec {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("can't listen on {bind}: {source}")]
    Bind { bind: IpAddr, source: io::Error },
    #[error("the monitor can't listen on {addr}, where the clients of this cluster look for it: {source}")]
    MonAddress { addr: SocketAddr, source: io::Error },
    #[error("{0}")]
    Files(#[from] spirula_files::Error),
    #[error("{0}")]
    Conf(#[from] spirula_conf::Error),
    #[error("{path}: {what}")]
    Option { path: PathBuf, what: String },
    #[error("{path}:{line}: {what}")]
    Line {
        path: PathBuf,
        line: usize,
        what: String,
    },
    #[error("{0}")]
    Usage(String),
    #[error(
        "{path} holds {what}; nothing was changed. If nobody needs that, wipe it \
         (`dd if=/dev/zero of={path} bs=1M count=10`) or tell mkfs to --force it"
    )]
    Occupied { path: PathBuf, what: String },
    #[error("{path} is in use: mounted, swap, part of a volume, or the store of a running OSD")]
    Busy { path: PathBuf },
    #[error("can't start {daemon}: {source}")]
    Spawn { daemon: String, source: io::Error },
    #[error("can't write the output: {0}")]
    Output(io::Error),
    #[error("the process can't give up what it must not have: {0}")]
    Hardening(io::Error),
    #[error("no runtime: {0}")]
    Runtime(io::Error),
    #[error("the supervisor can't watch for signals: {0}")]
    Signal(io::Error),
    #[error("{what}: no HEALTH_OK within {seconds} s; see {log}")]
    Unhealthy {
        what: String,
        seconds: u64,
        log: PathBuf,
    },
    #[error("{0}")]
    Client(#[from] spirula_client::Error),
    #[error("{0}")]
    Store(#[from] spirula_store::StoreError),
    #[error("{0}")]
    Daemon(String),
}

impl Error {
    /// An I/O error on a path.
    pub(crate) fn path(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Path {
            what,
            path: path.to_owned(),
            source,
        }
    }
}
