//! A directory of one user.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, fstat, openat, statat};
use rustix::process::geteuid;

use crate::{DIRECTORY, Error, FILE, OTHERS, check_link, check_owner, close, mode};

/// What [`directory`] found open to others, and closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Closed {
    /// Whether it was the directory.
    pub directory: bool,
    /// How many files in it.
    pub files: usize,
}

/// Makes a directory that only this user may use, with those above it; one that is there is closed
/// to others with the files in it. The contents of directories within it stay as they are: nobody
/// gets there any more.
///
/// # Errors
/// [`Error::Owner`] where it, a link to it, or something in it belongs to somebody else;
/// [`Error::Sticky`]; otherwise what the file system says.
pub fn directory(path: &Path) -> Result<Closed, Error> {
    let failed = |e: rustix::io::Errno| Error::io("read", path, e);
    check_link(path)?;
    let made = DirBuilder::new().recursive(true).mode(DIRECTORY).create(path);
    made.map_err(|e| Error::io("create", path, e))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&open).map_err(failed)?;
    check_owner(path, stat.st_uid)?;
    if mode(&stat) & Mode::SVTX.as_raw_mode() != 0 {
        return Err(Error::Sticky(path.to_owned()));
    }
    // First of all: from here on nobody else puts anything into it.
    let was_open = close(&open, &stat, DIRECTORY).map_err(|e| Error::io("close to others", path, e))?;
    let mut closed = Closed {
        directory: was_open,
        files: 0,
    };
    for entry in Dir::read_from(&open).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let at = path.join(&*name.to_string_lossy());
        let stat = match statat(&open, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // A daemon that runs has removed it.
            Err(rustix::io::Errno::NOENT) => continue,
            Err(e) => return Err(Error::io("look at", &at, e)),
        };
        check_owner(&at, stat.st_uid)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_file = matches!(kind, FileType::RegularFile | FileType::Socket);
        if !is_file || mode(&stat) & OTHERS == 0 || stat.st_uid != geteuid().as_raw() {
            continue;
        }
        // Its own execute bit is the owner's matter.
        let keep = Mode::from_raw_mode(mode(&stat) & (FILE | 0o100));
        match chmodat(&open, name, keep, AtFlags::empty()) {
            Ok(()) => closed.files += 1,
            Err(rustix::io::Errno::NOENT) => {}
            Err(e) => return Err(Error::io("close to others", &at, e)),
        }
    }
    if closed != Closed::default() {
        tracing::warn!(
            "{} was open to others (mode {:o}): it is closed, with {} of its files",
            path.display(),
            mode(&stat),
            closed.files
        );
    }
    Ok(closed)
}
