//! Pid files with a lock that the daemon holds for as long as it lives, so that a file left by a
//! crash is never mistaken for a running process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::{Pid, Signal, kill_process};

/// A held pid file; dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct PidFile {
    file: File,
}

/// The second line of the file of a process that is about to end.
const LEAVING: &str = "leaving";

impl PidFile {
    /// Takes the file at `path` for this process.
    ///
    /// # Errors
    /// `AddrInUse` where another process holds it; what the file system says otherwise.
    pub(crate) fn take(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = spirula_files::open(path, options.read(true).write(true).create(true))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("{} is held by a running process", path.display()),
            )
        })?;
        // Overwrites the text of an earlier process, as a full file system has no other room. One
        // write replaces all of it, so that no reader takes this process for one that is about to
        // end.
        let text = format!("{}\n", std::process::id());
        let left = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        file.rewind()?;
        file.write_all(format!("{text:\n<left$}").as_bytes())?;
        file.set_len(text.len() as u64)?;
        file.seek(io::SeekFrom::End(0))?;
        Ok(Self { file })
    }

    /// Notes that this process is about to end, see [`is_leaving`].
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        writeln!(self.file, "{LEAVING}")
    }
}

/// Whether the process that holds the pid file at `path` is about to end, and starts no more
/// daemons.
pub(crate) fn is_leaving(path: &Path) -> bool {
    holder(path).is_some() && std::fs::read_to_string(path).is_ok_and(|t| t.lines().nth(1) == Some(LEAVING))
}

fn read(path: &Path) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(no_link).open(path)
}

/// Whether there is a pid file that [`holder`] does not trust.
pub(crate) fn is_doubtful(path: &Path) -> bool {
    match read(path) {
        Ok(file) => !spirula_files::is_own(&file),
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    }
}

/// The process that holds the pid file at `path`; `None` without a holder. A file that other users
/// could have written counts as without: they would choose which of our processes gets a signal.
pub(crate) fn holder(path: &Path) -> Option<Pid> {
    let mut file = read(path).ok()?;
    if !spirula_files::is_own(&file) {
        tracing::warn!("{} is not believed: others may have written it", path.display());
        return None;
    }
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    Pid::from_raw(text.lines().next()?.parse().ok()?)
}

/// Sends `signal`; a process that is gone already is no error.
pub(crate) fn signal(pid: Pid, signal: Signal) -> io::Result<()> {
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_living_holder_counts() {
        let path = std::env::temp_dir().join(format!("spirula-pidfile-{}", std::process::id()));
        let mut held = PidFile::take(&path).unwrap();
        let me = Some(std::process::id() as i32);
        assert_eq!(holder(&path).map(Pid::as_raw_pid), me);
        assert!(PidFile::take(&path).is_err());
        assert!(!is_leaving(&path));
        held.leave().unwrap();
        assert!(is_leaving(&path));
        assert_eq!(holder(&path).map(Pid::as_raw_pid), me);
        drop(held);
        // The next one leaves nothing of it.
        let held = PidFile::take(&path).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            format!("{}\n", std::process::id())
        );
        drop(held);
        assert_eq!(holder(&path), None);
        assert!(!is_leaving(&path));
        std::fs::remove_file(&path).unwrap();
    }
}
