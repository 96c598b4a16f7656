//! Who could put something else where a path leads.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat, stat, statat};
use rustix::process::{getegid, geteuid};

use crate::{Error, check_owner, is_trusted, mode};

/// Checks that a symbolic link at `path`, if there is one, was put there by this user or root.
///
/// # Errors
/// [`Error::Owner`]; otherwise what the file system says.
pub fn check_link(path: &Path) -> Result<(), Error> {
    match look(path)? {
        Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
            check_owner(path, stat.st_uid)
        }
        _ => Ok(()),
    }
}

/// Checks that nobody but this user and root can put something else where `path` leads: it and the
/// links on the way to it belong to them, and so do all directories above it. Others may write to
/// one of those only if it is sticky, as `/tmp` is. It need not exist.
///
/// # Errors
/// [`Error::Owner`], [`Error::Replaceable`]; otherwise what the file system says.
pub fn check_path(path: &Path) -> Result<(), Error> {
    let path = std::path::absolute(path).map_err(|e| Error::io("look at", path, e))?;
    for prefix in path.ancestors() {
        check_link(prefix)?;
    }
    let mut found = path.as_path();
    let real = loop {
        match found.canonicalize() {
            Ok(real) => break real,
            Err(e) if e.kind() == io::ErrorKind::NotFound => match found.parent() {
                Some(parent) => found = parent,
                None => return Ok(()),
            },
            Err(e) => return Err(Error::io("resolve", found, e)),
        }
    };
    if found == path {
        let stat = stat(&real).map_err(|e| Error::io("look at", &real, e))?;
        check_owner(&path, stat.st_uid)?;
    }
    let above = match found == path {
        true => real.parent(),
        false => Some(real.as_path()),
    };
    for parent in above.into_iter().flat_map(Path::ancestors) {
        let stat = stat(parent).map_err(|e| Error::io("look at", parent, e))?;
        if !is_trusted(stat.st_uid) || others_may_write(&stat) {
            return Err(Error::Replaceable {
                path,
                parent: parent.to_owned(),
                owner: stat.st_uid,
                mode: mode(&stat),
            });
        }
    }
    Ok(())
}

/// Whether others may rename what lies in a directory. A group of this user's own is none: many
/// systems give each user one, and let it write by default.
fn others_may_write(stat: &Stat) -> bool {
    let own_group = stat.st_gid == getegid().as_raw() && getegid().as_raw() == geteuid().as_raw();
    let group = mode(stat) & Mode::WGRP.as_raw_mode() != 0 && !own_group;
    let all = mode(stat) & Mode::WOTH.as_raw_mode() != 0;
    (group || all) && mode(stat) & Mode::SVTX.as_raw_mode() == 0
}

/// What lies at `path` itself; `None` where nothing does.
fn look(path: &Path) -> Result<Option<Stat>, Error> {
    match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(e) => Err(Error::io("look at", path, e)),
    }
}
