//! Restrictions that a process with keys in its memory puts on itself.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::set_no_new_privs;

use crate::error::Error;

/// The variable that keeps core dumps, debuggers and profilers of the same user possible.
const DUMPABLE: &str = "SPIRULA_DUMPABLE";

/// Forbids core dumps, reads of this process's memory by other processes of the same user, and
/// set-user-id programs below it; files that it makes are closed to others. With
/// `SPIRULA_DUMPABLE=1` memory stays within reach, for developers.
///
/// # Errors
/// Where the system refuses.
pub(crate) fn harden() -> Result<(), Error> {
    spirula_files::close_umask();
    let failed = |e: rustix::io::Errno| Error::Hardening(e.into());
    set_no_new_privs(true).map_err(failed)?;
    if std::env::var_os(DUMPABLE).is_some_and(|v| v == "1") {
        return Ok(());
    }
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none).map_err(failed)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed)
}

/// Closes all files but the standard ones that the parent process has left open.
///
/// # Errors
/// Where the system does not say which are open.
pub(crate) fn close_inherited() -> Result<(), Error> {
    const OPEN: &str = "/proc/self/fd";
    let failed = |e| Error::path("list", OPEN.as_ref(), e);
    let mut open = Vec::new();
    for entry in std::fs::read_dir(OPEN).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        open.extend(name.to_str().and_then(|n| n.parse::<i32>().ok()));
    }
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        match nix::unistd::close(fd) {
            // The list's own is closed by now.
            Ok(()) | Err(nix::errno::Errno::EBADF) => {}
            Err(e) => return Err(Error::Hardening(e.into())),
        }
    }
    Ok(())
}
