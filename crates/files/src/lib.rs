//! Files and directories with keys and data: they belong to the user that a daemon runs as (or to
//! root), nobody else may read them, and nobody else can have put something in their place.
//!
//! A new file or directory is closed from its first moment (`0600`, `0700`), not after it was open
//! for a while. One that an earlier version or another umask left open is closed when it is next
//! used, and the log says so. A path that belongs to another user is refused by name: it may be a
//! link to another file of ours, or a file in which that user reads our data.

mod directory;
mod path;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fchmod, fstat};
use rustix::process::geteuid;

pub use directory::{Closed, directory};
pub use path::{check_link, check_path};

/// Mode of files.
const FILE: u32 = 0o600;
/// Mode of directories.
const DIRECTORY: u32 = 0o700;
/// What others than the owner may do.
const OTHERS: u32 = 0o077;

/// Why something is not used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It belongs to somebody else.
    #[error(
        "{path} belongs to uid {owner} and this process is uid {us}: run it as the owner (`sudo -u`, --setuser), or give the \
         file to this user (`chown`) if it is known what it is"
    )]
    Owner {
        /// What.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// This process.
        us: u32,
    },
    /// It is a symbolic link, where none is followed.
    #[error("{0} is a symbolic link, which is not followed")]
    Link(PathBuf),
    /// It is neither a file nor a block device.
    #[error("{0} is not a file")]
    NoFile(PathBuf),
    /// Somebody else could put another directory into the place of this one.
    #[error(
        "{path} is no safe place: others may change {parent}, which belongs to uid {owner} and has mode {mode:o}, and put \
         something else into its place"
    )]
    Replaceable {
        /// What was asked for.
        path: PathBuf,
        /// The directory above that others may change.
        parent: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
    },
    /// A directory in which everybody may make files, such as `/tmp`.
    #[error("{0} is a directory for everybody's files (sticky): a directory of its own is needed")]
    Sticky(PathBuf),
    /// The file system.
    #[error("can't {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    fn io(what: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            what,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

impl From<Error> for io::Error {
    fn from(e: Error) -> Self {
        match e {
            Error::Io { source, .. } => source,
            refused => Self::new(io::ErrorKind::PermissionDenied, refused),
        }
    }
}

/// Lets this process and its children make nothing that others may use, sockets and what libraries
/// make included.
pub fn close_umask() {
    rustix::process::umask(Mode::from_raw_mode(OTHERS));
}

/// Opens a file with `options`, which may create it; never through a symbolic link.
///
/// # Errors
/// [`Error::Link`], [`Error::NoFile`], [`Error::Owner`]; otherwise what the file system says.
pub fn open(path: &Path, options: &mut OpenOptions) -> Result<File, Error> {
    // A named pipe would keep whoever opens it waiting.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = options.mode(FILE).custom_flags(flags).open(path);
    let file = opened.map_err(|e| match e.raw_os_error() {
        Some(n) if n == rustix::io::Errno::LOOP.raw_os_error() => Error::Link(path.to_owned()),
        _ => Error::io("open", path, e),
    })?;
    keep(&file, path)?;
    Ok(file)
}

/// Closes an open file to others. A block device stays as the system made it.
///
/// # Errors
/// [`Error::NoFile`], [`Error::Owner`]; otherwise what the file system says.
pub fn keep(file: &File, path: &Path) -> Result<(), Error> {
    let stat = fstat(file).map_err(|e| Error::io("look at", path, e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => return Ok(()),
        FileType::RegularFile => {}
        _ => return Err(Error::NoFile(path.to_owned())),
    }
    check_owner(path, stat.st_uid)?;
    if close(file, &stat, FILE).map_err(|e| Error::io("close to others", path, e))? {
        tracing::warn!(
            "{} was open to others (mode {:o}): it is closed",
            path.display(),
            mode(&stat)
        );
    }
    Ok(())
}

/// Whether a file is one that only this user, or root, can have written.
pub fn is_own(file: &File) -> bool {
    const WRITE: u32 = 0o022;
    fstat(file).is_ok_and(|stat| is_trusted(stat.st_uid) && mode(&stat) & WRITE == 0)
}

/// Whether `owner` is this user or root.
fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

/// Checks that what lies at `path` and belongs to the user `owner` is this user's or root's.
///
/// # Errors
/// [`Error::Owner`].
pub fn check_owner(path: &Path, owner: u32) -> Result<(), Error> {
    match is_trusted(owner) {
        true => Ok(()),
        false => Err(Error::Owner {
            path: path.to_owned(),
            owner,
            us: geteuid().as_raw(),
        }),
    }
}

/// The permissions of a file.
fn mode(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// Removes the permissions of group and others from a file of ours. A file of root stays as it is:
/// only root can mend it.
fn close(file: impl AsFd, stat: &Stat, keep: u32) -> io::Result<bool> {
    if mode(stat) & OTHERS == 0 || stat.st_uid != geteuid().as_raw() {
        return Ok(false);
    }
    fchmod(file, Mode::from_raw_mode(mode(stat) & keep))?;
    Ok(true)
}

#[cfg(test)]
mod tests;
