//! Capabilities at the monitors (`MonCap` of Ceph's `src/mon/MonCap.cc`).
//!
//! ```text
//! caps    := grant *([,;] grant)
//! grant   := "allow" rwx [network CIDR] [fsname NAME]
//!          | "allow" "service" NAME rwx [network CIDR]
//!          | "allow" "command" CMD ["with" *(k=v | k prefix v | k regex v)] [network CIDR]
//!          | ["allow"] "profile" NAME [network CIDR]
//! rwx     := "*" | "all" | [r][w][x]
//! ```

use std::net::IpAddr;

use super::constraint::{Args, Constraint, all_allow};
use super::cursor::{Cursor, grants, is_space};
use super::mon_profiles::expand;
use super::network::Network;
use super::{Access, CapsError};
use crate::AuthName;

/// The subject of a grant.
#[derive(Debug, Clone)]
pub(super) enum Subject {
    /// Every service.
    Everything,
    /// One service of the monitor: `osd`, `auth`, `config-key`, …
    Service(String),
    /// One command.
    Command(String, Vec<Constraint>),
    /// The grants of a profile.
    Profile(&'static [Grant]),
}

#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) subject: Subject,
    pub(super) access: Access,
    pub(super) network: Option<Network>,
    pub(super) fs_name: Option<String>,
}

impl Grant {
    pub(super) fn new(subject: Subject, access: Access) -> Self {
        Self {
            subject,
            access,
            network: None,
            fs_name: None,
        }
    }

    fn is_allow_all(&self) -> bool {
        matches!(self.subject, Subject::Everything) && self.access == Access::ANY && self.fs_name.is_none()
    }

    fn allowed(&self, req: &MonRequest<'_>) -> Access {
        match &self.subject {
            Subject::Profile(grants) => grants
                .iter()
                .fold(Access::empty(), |acc, g| acc.with(g.allowed(req))),
            Subject::Service(service) if service == req.service => self.access,
            Subject::Command(command, constraints)
                if command == req.command && all_allow(constraints, req.name, req.args) =>
            {
                Access::RWX
            }
            // Configuration keys may hold secrets: only `allow *` opens them all.
            Subject::Everything if req.service != "config-key" => self.access,
            _ => Access::empty(),
        }
    }
}

/// A request to a monitor that needs permission.
#[derive(Debug, Clone, Copy)]
pub struct MonRequest<'a> {
    /// The asking entity.
    pub name: &'a AuthName,
    /// The monitor's service: `mon`, `osd`, `auth`, `config-key`, …
    pub service: &'a str,
    /// The command's words, empty for anything that is not a command.
    pub command: &'a str,
    /// The command's arguments.
    pub args: &'a Args,
    /// The access that the request needs.
    pub access: Access,
    /// The address from which it comes.
    pub addr: Option<IpAddr>,
}

/// An entity's capabilities at the monitors.
#[derive(Debug, Clone, Default)]
pub struct MonCap {
    grants: Vec<Grant>,
}

impl MonCap {
    /// Parses capability text.
    ///
    /// # Errors
    /// [`CapsError::Syntax`].
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        Ok(Self {
            grants: grants("mon", text, |c| c == ' ', |_| false, grant)?,
        })
    }

    /// Capabilities that allow everything.
    pub fn allow_all() -> Self {
        Self {
            grants: vec![Grant::new(Subject::Everything, Access::ANY)],
        }
    }

    /// Whether everything is allowed, from everywhere.
    pub fn is_allow_all(&self) -> bool {
        self.grants
            .iter()
            .any(|g| g.is_allow_all() && g.network.is_none())
    }

    /// Whether the request is allowed, by all grants together.
    pub fn is_capable(&self, req: &MonRequest<'_>) -> bool {
        let mut allowed = Access::empty();
        for grant in &self.grants {
            if grant.network.as_ref().is_some_and(|n| !n.contains(req.addr)) {
                continue;
            }
            if grant.is_allow_all() {
                return true;
            }
            allowed.insert(grant.allowed(req));
            if allowed.contains(req.access) {
                return true;
            }
        }
        false
    }
}

fn grant(c: &mut Cursor<'_>) -> Option<Grant> {
    c.take_while(is_space);
    let found = c
        .attempt(everything)
        .or_else(|| c.attempt(profile))
        .or_else(|| c.attempt(service))
        .or_else(|| c.attempt(command))?;
    c.take_while(is_space);
    Some(found)
}

fn everything(c: &mut Cursor<'_>) -> Option<Grant> {
    c.literal("allow")?;
    c.spaces()?;
    let access = c.access()?;
    let network = c.network(is_space);
    let fs_name = c.attempt(|c| {
        c.spaces()?;
        c.literal("fsname")?;
        c.equals_or(is_space)?;
        c.some(|x| x.is_ascii_alphanumeric() || "_.-".contains(x))
            .map(str::to_owned)
    });
    Some(Grant {
        subject: Subject::Everything,
        access,
        network,
        fs_name,
    })
}

fn profile(c: &mut Cursor<'_>) -> Option<Grant> {
    c.attempt(|c| c.literal("allow").and_then(|()| c.spaces()));
    c.literal("profile")?;
    c.equals_or(is_space)?;
    let name = c.string()?;
    let network = c.network(is_space);
    Some(Grant {
        network,
        ..Grant::new(Subject::Profile(expand(&name)), Access::empty())
    })
}

fn service(c: &mut Cursor<'_>) -> Option<Grant> {
    let service = c.allow_keyword("service")?;
    c.spaces()?;
    let access = c.access()?;
    let network = c.network(is_space);
    Some(Grant {
        network,
        ..Grant::new(Subject::Service(service), access)
    })
}

fn command(c: &mut Cursor<'_>) -> Option<Grant> {
    let command = c.allow_keyword("command")?;
    let constraints = c.with_constraints(false);
    let network = c.network(is_space);
    Some(Grant {
        network,
        ..Grant::new(Subject::Command(command, constraints), Access::empty())
    })
}
