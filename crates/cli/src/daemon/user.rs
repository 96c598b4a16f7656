//! Gives root's rights up: `--setuser`, `--setgroup` and `--setuser-match-path`, as Ceph's daemons
//! have them (`src/global/global_init.cc`). The rights go before the daemon opens anything: data,
//! devices and keys must belong to that user.

use std::ffi::CString;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, Uid, User, geteuid, initgroups, setgid, setgroups, setuid};

use crate::error::Error;

/// The user that a daemon becomes, as configured.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    /// A path that must belong to that user and group; otherwise the daemon stays root.
    pub(super) match_path: Option<PathBuf>,
}

/// A user and a group that exist.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    uid: Uid,
    gid: Gid,
    /// The user's name, from which the system tells the user's other groups.
    name: Option<String>,
}

impl Wanted {
    /// Looks the names up; `None` where none are configured.
    fn find(&self) -> Result<Option<Found>, Error> {
        if self.user.is_none() && self.group.is_none() {
            return Ok(None);
        }
        let missing = |what: &str, name: &str| Error::Usage(format!("there is no {what} {name:?}"));
        let failed = |e: nix::Error| Error::Usage(format!("users can't be looked up: {e}"));
        let gid = match &self.group {
            None => None,
            Some(text) => match text.parse() {
                Ok(number) => Some(Gid::from_raw(number)),
                Err(_) => {
                    let group = Group::from_name(text).map_err(failed)?;
                    Some(group.ok_or_else(|| missing("group", text))?.gid)
                }
            },
        };
        let Some(text) = &self.user else {
            return Ok(gid.map(|gid| Found {
                uid: geteuid(),
                gid,
                name: None,
            }));
        };
        let (uid, user) = match text.parse() {
            Ok(number) => {
                let uid = Uid::from_raw(number);
                (uid, User::from_uid(uid).map_err(failed)?)
            }
            Err(_) => {
                let user = User::from_name(text).map_err(failed)?;
                let user = user.ok_or_else(|| missing("user", text))?;
                (user.uid, Some(user))
            }
        };
        let no_group = || {
            Error::Usage(format!(
                "user {text} has no group of its own: --setgroup is needed"
            ))
        };
        let gid = gid.or(user.as_ref().map(|u| u.gid)).ok_or_else(no_group)?;
        Ok(Some(Found {
            uid,
            gid,
            name: user.map(|u| u.name),
        }))
    }
}

/// Becomes the configured user, for good. Missing `dirs` are made for that user.
///
/// # Errors
/// Where there is no such user or group, or the system refuses: the daemon must not go on as root
/// then.
pub(super) fn enter<'a>(wanted: &Wanted, dirs: impl Iterator<Item = &'a Path>) -> Result<(), Error> {
    let Some(found) = wanted.find()? else {
        return Ok(());
    };
    if !geteuid().is_root() {
        if found.uid != geteuid() {
            tracing::warn!(
                "--setuser and --setgroup are ignored: this is not root, but uid {}",
                geteuid()
            );
        }
        return Ok(());
    }
    if let Some(path) = &wanted.match_path {
        let meta = path.metadata().map_err(|e| Error::path("look at", path, e))?;
        if (meta.uid(), meta.gid()) != (found.uid.as_raw(), found.gid.as_raw()) {
            tracing::warn!(
                "stays root: {} belongs to {}:{}, and not to {}:{}",
                path.display(),
                meta.uid(),
                meta.gid(),
                found.uid,
                found.gid
            );
            return Ok(());
        }
    }
    for dir in dirs.filter(|dir| !dir.exists()) {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|e| Error::path("create", dir, e))?;
        chown(dir, Some(found.uid.as_raw()), Some(found.gid.as_raw()))
            .map_err(|e| Error::path("give away", dir, e))?;
    }
    become_user(&found).map_err(|e| Error::Usage(format!("can't become {}:{}: {e}", found.uid, found.gid)))
}

fn become_user(found: &Found) -> nix::Result<()> {
    match found.name.as_ref().and_then(|n| CString::new(n.as_str()).ok()) {
        Some(name) => initgroups(&name, found.gid)?,
        None => setgroups(&[found.gid])?,
    }
    setgid(found.gid)?;
    setuid(found.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(user: Option<&str>, group: Option<&str>) -> Result<Option<Found>, String> {
        let wanted = Wanted {
            user: user.map(str::to_owned),
            group: group.map(str::to_owned),
            match_path: None,
        };
        wanted.find().map_err(|e| e.to_string())
    }

    #[test]
    fn users_and_groups_are_names_or_numbers() {
        assert_eq!(find(None, None), Ok(None));
        let root = |gid| {
            let (uid, name) = (Uid::from_raw(0), Some("root".to_owned()));
            let gid = Gid::from_raw(gid);
            Ok(Some(Found { uid, gid, name }))
        };
        assert_eq!(find(Some("root"), None), root(0));
        assert_eq!(find(Some("0"), Some("7")), root(7));
        let nameless = find(Some("4111222333"), Some("7")).unwrap().unwrap();
        assert_eq!((nameless.uid.as_raw(), nameless.name), (4_111_222_333, None));
        let refused = |user, group| find(user, group).unwrap_err();
        assert!(refused(Some("4111222333"), None).contains("--setgroup is needed"));
        assert!(refused(Some("nosuchuser"), None).contains("no user \"nosuchuser\""));
        assert!(refused(None, Some("nosuchgroup")).contains("no group"));
    }

    #[test]
    fn one_that_is_not_there_is_no_reason_to_stay_root() {
        let wanted = Wanted {
            user: Some("nosuchuser".to_owned()),
            ..Wanted::default()
        };
        assert!(enter(&wanted, std::iter::empty()).is_err());
    }
}
