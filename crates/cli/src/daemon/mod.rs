//! The daemons' entry points: `spirula mon` and `spirula osd`, configured by a `ceph.conf` as
//! Ceph's daemons are.

mod address;
mod encryption;
mod kind;
mod location;
mod mon;
mod osd;
mod section;
mod user;

use std::path::{Path, PathBuf};

use tokio::signal::unix::{SignalKind, signal};

use crate::error::Error;

pub(crate) use encryption::{LOCKBOX, config_key, lockbox_name, read_key};
pub(crate) use kind::{DaemonName, Kind};
pub(crate) use mon::{MonCommand, key_type, mon, mon_mkfs_for};
pub(crate) use osd::{OsdCommand, osd, osd_mkfs_for};

#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    /// The daemon's id: `a`, `0`
    #[arg(long, short = 'i')]
    id: String,
    /// The configuration file [default: $CEPH_CONF, or /etc/ceph/ceph.conf]
    #[arg(long, short = 'c')]
    conf: Option<PathBuf>,
    /// Become this user, by name or number, when started as root [default: option setuser]
    #[arg(long)]
    setuser: Option<String>,
    /// … and this group [default: option setgroup, or the user's own]
    #[arg(long)]
    setgroup: Option<String>,
    /// Stay root unless this belongs to that user and group [default: option setuser_match_path]
    #[arg(long)]
    setuser_match_path: Option<PathBuf>,
}

impl DaemonArgs {
    fn new(id: &str, conf: &Path) -> Self {
        Self {
            id: id.to_owned(),
            conf: Some(conf.to_owned()),
            setuser: None,
            setgroup: None,
            setuser_match_path: None,
        }
    }
}

/// Completes when the daemon is asked to stop.
async fn asked_to_stop() -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

async fn stop_signal() {
    if let Err(e) = asked_to_stop().await {
        tracing::error!("{e}; only kill -9 stops this daemon");
        std::future::pending::<()>().await;
    }
}
