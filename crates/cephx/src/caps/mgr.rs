//! Capabilities at the managers (`MgrCap` of Ceph's `src/mgr/MgrCap.cc`).
//!
//! ```text
//! caps    := grant *([,;] grant)
//! grant   := "allow" rwx [network CIDR]
//!          | "allow" "service" NAME rwx [network CIDR]
//!          | "allow" "module" NAME ["with" constraints] rwx [network CIDR]
//!          | "allow" "command" CMD ["with" constraints] [network CIDR]
//!          | ["allow"] "profile" NAME [constraints] [network CIDR]
//! ```

use std::net::IpAddr;

use super::constraint::{Args, Constraint, all_allow};
use super::cursor::{Cursor, grants, is_space};
use super::network::Network;
use super::{Access, CapsError};
use crate::AuthName;

#[derive(Debug, Clone)]
enum Subject {
    Everything,
    Service(String),
    Module(String, Vec<Constraint>),
    Command(String, Vec<Constraint>),
    Profile(Vec<Grant>),
}

#[derive(Debug, Clone)]
struct Grant {
    subject: Subject,
    access: Access,
    network: Option<Network>,
}

impl Grant {
    fn is_allow_all(&self) -> bool {
        matches!(self.subject, Subject::Everything) && self.access == Access::ANY
    }

    fn allowed(&self, req: &MgrRequest<'_>) -> Access {
        match &self.subject {
            Subject::Everything => self.access,
            Subject::Profile(grants) => grants
                .iter()
                .fold(Access::empty(), |acc, g| acc.with(g.allowed(req))),
            Subject::Service(service) if service == req.service => self.access,
            // For one command its own arguments are not the module's.
            Subject::Module(module, constraints)
                if module == req.module
                    && (!req.command.is_empty() || all_allow(constraints, req.name, req.args)) =>
            {
                self.access
            }
            Subject::Command(command, constraints)
                if command == req.command && all_allow(constraints, req.name, req.args) =>
            {
                Access::ANY
            }
            _ => Access::empty(),
        }
    }
}

/// A request to a manager that needs permission.
#[derive(Debug, Clone, Copy)]
pub struct MgrRequest<'a> {
    /// The asking entity.
    pub name: &'a AuthName,
    /// The service.
    pub service: &'a str,
    /// The module, empty for the manager itself.
    pub module: &'a str,
    /// The command's words, empty where a module asks on its own.
    pub command: &'a str,
    /// The command's arguments.
    pub args: &'a Args,
    /// The access that the request needs.
    pub access: Access,
    /// The address from which it comes.
    pub addr: Option<IpAddr>,
}

/// An entity's capabilities at the managers.
#[derive(Debug, Clone, Default)]
pub struct MgrCap {
    text: String,
    grants: Vec<Grant>,
}

impl MgrCap {
    /// Parses capability text.
    ///
    /// # Errors
    /// [`CapsError::Syntax`], [`CapsError::Profile`].
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        let parsed = grants("mgr", text, |c| c == ' ', |_| false, grant)?;
        // A profile is only looked at once the whole text can be read, and all faulty ones are
        // named.
        let faults: String = parsed
            .iter()
            .filter_map(|g| g.as_ref().err())
            .map(String::as_str)
            .collect();
        if !faults.is_empty() {
            return Err(CapsError::Profile(faults));
        }
        Ok(Self {
            text: text.to_owned(),
            grants: parsed.into_iter().flatten().collect(),
        })
    }

    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether everything is allowed, from everywhere.
    pub fn is_allow_all(&self) -> bool {
        self.grants
            .iter()
            .any(|g| g.is_allow_all() && g.network.is_none())
    }

    /// Whether the request is allowed, by all grants together.
    pub fn is_capable(&self, req: &MgrRequest<'_>) -> bool {
        let mut allowed = Access::empty();
        for grant in &self.grants {
            if grant.network.as_ref().is_some_and(|n| !n.contains(req.addr)) {
                continue;
            }
            allowed.insert(grant.allowed(req));
            if grant.is_allow_all() || allowed.contains(req.access) {
                return true;
            }
        }
        false
    }
}

/// A grant, or the error of its profile.
type Parsed = Result<Grant, String>;

fn grant(c: &mut Cursor<'_>) -> Option<Parsed> {
    c.take_while(is_space);
    let found = c
        .attempt(everything)
        .or_else(|| c.attempt(profile))
        .or_else(|| c.attempt(service))
        .or_else(|| c.attempt(module))
        .or_else(|| c.attempt(command))?;
    c.take_while(is_space);
    Some(found)
}

fn finish(c: &mut Cursor<'_>, subject: Subject, access: Access) -> Option<Parsed> {
    Some(Ok(Grant {
        subject,
        access,
        network: c.network(is_space),
    }))
}

fn everything(c: &mut Cursor<'_>) -> Option<Parsed> {
    c.literal("allow")?;
    c.spaces()?;
    let access = c.access()?;
    finish(c, Subject::Everything, access)
}

fn service(c: &mut Cursor<'_>) -> Option<Parsed> {
    let service = c.allow_keyword("service")?;
    c.spaces()?;
    let access = c.access()?;
    finish(c, Subject::Service(service), access)
}

fn module(c: &mut Cursor<'_>) -> Option<Parsed> {
    let module = c.allow_keyword("module")?;
    let constraints = c.with_constraints(true);
    c.spaces()?;
    let access = c.access()?;
    finish(c, Subject::Module(module, constraints), access)
}

fn command(c: &mut Cursor<'_>) -> Option<Parsed> {
    let command = c.allow_keyword("command")?;
    let constraints = c.with_constraints(true);
    finish(c, Subject::Command(command, constraints), Access::empty())
}

fn profile(c: &mut Cursor<'_>) -> Option<Parsed> {
    c.attempt(|c| c.literal("allow").and_then(|()| c.spaces()));
    c.literal("profile")?;
    c.equals_or(is_space)?;
    let name = c.string()?;
    let constraints = c
        .attempt(|c| c.spaces().and_then(|()| c.constraints(true)))
        .unwrap_or_default();
    match expand(&name, constraints) {
        Ok(grants) => finish(c, Subject::Profile(grants), Access::empty()),
        Err(fault) => {
            c.network(is_space);
            Some(Err(fault))
        }
    }
}

/// Whether the text is nothing but profiles for images: `profile rbd…`, several.
pub(super) fn is_rbd_profiles(text: &str) -> bool {
    // No other profile is about this module.
    let of_images = |g: &Grant| matches!(&g.subject, Subject::Module(module, _) if module == "rbd_support");
    let rbd = |g: &Grant| matches!(&g.subject, Subject::Profile(inner) if !inner.is_empty() && inner.iter().all(of_images));
    MgrCap::parse(text).is_ok_and(|cap| cap.grants.iter().all(rbd))
}

/// The grants of a profile.
fn expand(profile: &str, constraints: Vec<Constraint>) -> Result<Vec<Grant>, String> {
    let one = |subject, access| {
        vec![Grant {
            subject,
            access,
            network: None,
        }]
    };
    Ok(match profile {
        "read-only" => one(Subject::Everything, Access::R),
        "read-write" => one(Subject::Everything, Access::RW),
        "crash" => one(
            Subject::Command("crash post".to_owned(), Vec::new()),
            Access::empty(),
        ),
        // Documented, and without effect.
        "osd" | "mds" => Vec::new(),
        "rbd" | "rbd-read-only" => {
            if let Some(odd) = constraints
                .iter()
                .map(|c| &c.key)
                .filter(|k| !matches!(k.as_str(), "pool" | "namespace"))
                .min()
            {
                return Err(format!("profile '{profile}' does not recognize key '{odd}'"));
            }
            let access = if profile == "rbd" { Access::RW } else { Access::R };
            one(Subject::Module("rbd_support".to_owned(), constraints), access)
        }
        _ => return Err(format!("unrecognized profile '{profile}'")),
    })
}
