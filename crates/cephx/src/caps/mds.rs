//! Capabilities at the metadata servers (`MDSAuthCaps` of Ceph's `src/mds/MDSAuthCaps.cc`): the
//! grammar, and the permissions in the grants. The metadata server evaluates them against inodes.
//!
//! ```text
//! caps    := "allow" | grant *([,;] grant)
//! grant   := "allow" spec match [network CIDR]
//! spec    := "*" | "all" | r[w[f][p][s]]
//! match   := [path=P] uid=U [gids=G,…] | [fsname=F] [path=P] [root_squash]
//! ```

use std::net::IpAddr;

use super::CapsError;
use super::cursor::{Cursor, grants, is_c_space, is_space};
use super::network::Network;

/// The permissions of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MdsPermissions {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
    /// Write although the file system is full.
    pub full: bool,
    /// Set layouts and quotas.
    pub set_vxattr: bool,
    /// Make and delete snapshots.
    pub snapshot: bool,
    /// Everything, including rights that no other permission gives.
    pub any: bool,
}

impl MdsPermissions {
    /// The permissions of these letters, or of `*`.
    fn of(letters: &str) -> Self {
        let any = letters == "*";
        let has = |letter| any || letters.contains(letter);
        Self {
            read: has('r'),
            write: has('w'),
            full: has('f'),
            set_vxattr: has('p'),
            snapshot: has('s'),
            any,
        }
    }
}

/// One grant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MdsGrant {
    /// The permissions.
    pub permissions: MdsPermissions,
    /// Below this directory, without a leading slash; empty for everywhere.
    pub path: String,
    /// As this user only.
    pub uid: Option<u32>,
    /// With these groups, in order.
    pub gids: Vec<u32>,
    /// In this file system only.
    pub fs_name: Option<String>,
    /// The super-user may not write.
    pub root_squash: bool,
    network: Option<Network>,
}

impl MdsGrant {
    /// Whether the grant applies to a peer at this address.
    pub fn applies_at(&self, addr: Option<IpAddr>) -> bool {
        self.network.as_ref().is_none_or(|n| n.contains(addr))
    }

    /// Whether a path (without a leading slash) lies in the grant's directory.
    pub fn covers_path(&self, path: &str) -> bool {
        let Some(below) = path.strip_prefix(self.path.as_str()) else {
            return false;
        };
        self.path.is_empty() || self.path.ends_with('/') || below.is_empty() || below.starts_with('/')
    }

    fn is_match_all(&self) -> bool {
        let everyone = self.uid.is_none() && self.gids.is_empty() && !self.root_squash;
        everyone && self.path.is_empty() && self.fs_name.is_none() && self.network.is_none()
    }
}

/// An entity's capabilities at the metadata servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MdsCap {
    /// The grants.
    pub grants: Vec<MdsGrant>,
}

impl MdsCap {
    /// Parses capability text.
    ///
    /// # Errors
    /// [`CapsError::Syntax`].
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        if text == "allow" {
            let permissions = MdsPermissions::of("rwps");
            return Ok(Self {
                grants: vec![MdsGrant {
                    permissions,
                    ..MdsGrant::default()
                }],
            });
        }
        Ok(Self {
            grants: grants("mds", text, |c| c == ' ', is_c_space, grant)?,
        })
    }

    /// Whether everything is allowed to everyone from everywhere.
    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(|g| g.permissions.any && g.is_match_all())
    }
}

/// Longer ones first: the first match is taken.
const SPECS: [&str; 11] = [
    "*", "all", "rwfps", "rwps", "rwfp", "rwfs", "rwp", "rws", "rwf", "rw", "r",
];

fn grant(c: &mut Cursor<'_>) -> Option<MdsGrant> {
    c.literal("allow")?;
    c.spaces()?;
    let spec = SPECS.iter().find(|spec| c.literal(spec).is_some())?;
    let permissions = MdsPermissions::of(if *spec == "all" { "*" } else { spec });
    let mut found = c.attempt(by_user).unwrap_or_else(|| by_place(c));
    found.permissions = permissions;
    found.network = c.network(is_space);
    Some(found)
}

fn by_user(c: &mut Cursor<'_>) -> Option<MdsGrant> {
    let path = path(c).unwrap_or_default();
    let uid = Some(field(c, "uid", number)?);
    let mut gids = field(c, "gids", |c| {
        let mut gids = vec![number(c)?];
        while let Some(gid) = c.attempt(|c| c.literal(",").and_then(|()| number(c))) {
            gids.push(gid);
        }
        Some(gids)
    })
    .unwrap_or_default();
    gids.sort_unstable();
    Some(MdsGrant {
        path,
        uid,
        gids,
        ..MdsGrant::default()
    })
}

fn by_place(c: &mut Cursor<'_>) -> MdsGrant {
    let name = |c: &mut Cursor<'_>| {
        c.some(|x| x.is_ascii_alphanumeric() || "_.-".contains(x))
            .map(str::to_owned)
    };
    let fs_name = field(c, "fsname", name);
    let path = path(c).unwrap_or_default();
    let root_squash = c
        .attempt(|c| c.spaces().and_then(|()| c.literal("root_squash")))
        .is_some();
    MdsGrant {
        fs_name,
        path,
        root_squash,
        ..MdsGrant::default()
    }
}

fn path(c: &mut Cursor<'_>) -> Option<String> {
    let path = field(c, "path", Cursor::string_or_empty)?;
    Some(path.trim_start_matches('/').to_owned())
}

/// ` NAME=VALUE`.
fn field<'a, T>(
    c: &mut Cursor<'a>,
    name: &str,
    value: impl FnOnce(&mut Cursor<'a>) -> Option<T>,
) -> Option<T> {
    c.attempt(|c| {
        c.spaces()?;
        c.literal(name)?;
        c.literal("=")?;
        value(c)
    })
}

fn number(c: &mut Cursor<'_>) -> Option<u32> {
    c.some(|x| x.is_ascii_digit())?.parse().ok()
}
