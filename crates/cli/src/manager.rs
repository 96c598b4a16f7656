//! `spirula manager`: the process of the manager's modules, which the leading monitor starts.

use crate::error::Error;
use crate::hardening;

/// On a host without memory the manager is to be killed before the monitor, whose rank
/// (`OOMScoreAdjust`) it has inherited.
const OOM_SCORE: (&str, &str) = ("/proc/self/oom_score_adj", "500");

/// Restricts the process before it opens anything, while it may still change its own files in
/// `/proc`.
pub(crate) fn prepare() -> Result<(), Error> {
    hardening::close_inherited()?;
    if let Err(e) = std::fs::write(OOM_SCORE.0, OOM_SCORE.1) {
        // As where a container has /proc read-only: the manager works all the same.
        eprintln!("{}: {e}", OOM_SCORE.0);
    }
    Ok(())
}

/// Runs the manager until the monitor closes the connection.
pub(crate) fn run() -> Result<(), Error> {
    let failed = |e: spirula_manager::ServeError| Error::Daemon(e.to_string());
    spirula_manager::restrict().map_err(failed)?;
    crate::local(async { spirula_manager::serve().await.map_err(failed) })
}
