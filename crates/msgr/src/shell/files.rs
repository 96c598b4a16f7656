//! The number of files and sockets that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, and returns the new limit. The soft limit
/// is low for programs that use `select`, which none here does.
pub fn raise_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(e) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("the limit of open files stays at {:?}: {e}", limit.current);
    }
    let now = getrlimit(Resource::Nofile).current;
    now.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX)
}
