//! The rights of a session at the monitor, on top of the capability grammar.

use std::net::IpAddr;

use spirula_cephx::AuthName;
use spirula_cephx::caps::{Access, MonRequest};

/// A session's capabilities. A text that does not parse allows nothing.
#[derive(Debug, Clone)]
pub struct MonCap {
    cap: spirula_cephx::caps::MonCap,
    name: AuthName,
    addr: Option<IpAddr>,
}

/// The access that letters of a command's `perm` stand for.
pub(crate) fn access(perm: &str) -> Access {
    perm.chars().fold(Access::empty(), |a, c| {
        a.with(match c {
            'r' => Access::R,
            'w' => Access::W,
            'x' => Access::X,
            _ => Access::empty(),
        })
    })
}

impl MonCap {
    /// The capabilities of `name` at `addr` with this text.
    pub fn parse(text: &str, name: AuthName, addr: Option<IpAddr>) -> Self {
        let cap = spirula_cephx::caps::MonCap::parse(text).unwrap_or_else(|e| {
            tracing::warn!("{name}: {e}");
            spirula_cephx::caps::MonCap::default()
        });
        Self { cap, name, addr }
    }

    /// Whether a command is allowed: `perm` is its entry in the command table.
    pub fn is_allowed(&self, service: &str, command: &str, args: &[(String, String)], perm: &str) -> bool {
        let args = args.iter().cloned().collect();
        self.cap.is_capable(&MonRequest {
            name: &self.name,
            service,
            command,
            args: &args,
            access: access(perm),
            addr: self.addr,
        })
    }

    /// Whether something that is not a command is allowed.
    pub fn is_allowed_service(&self, service: &str, perm: &str) -> bool {
        self.is_allowed(service, "", &[], perm)
    }
}
