//! What is asked of the manager's modules, and what they answer.

use std::net::IpAddr;

use serde_json::{Map, Value};
use spirula_cephx::AuthName;
use spirula_cephx::caps::{Access, MgrCap, MgrRequest};

/// The module of Ceph's manager whose commands these are, as capabilities name it.
pub const MODULE: &str = "rbd_support";

/// Errno numbers of answers.
pub use spirula_client::errno;

/// Whose a command is, and what they may do. A command was admitted before; the module asks what it may touch.
#[derive(Debug, Clone)]
pub enum Authority {
    /// Whoever asked may do everything.
    All,
    /// The holder of capabilities.
    Limited(Box<Holder>),
}

/// A holder of capabilities at the manager.
#[derive(Debug, Clone)]
pub struct Holder {
    /// Who.
    pub name: AuthName,
    /// What it may do.
    pub cap: MgrCap,
    /// From where it asks.
    pub ip: Option<IpAddr>,
    /// What the command needs.
    pub access: Access,
}

impl Authority {
    /// Whether images of all namespaces of a pool may be touched; of all pools where none is named.
    pub fn allows_all_of(&self, pool: Option<&str>) -> bool {
        // No pool or namespace of images is called so: what is allowed there is allowed everywhere.
        self.allows(pool.unwrap_or("/"), "/")
    }

    /// Whether images of this pool and namespace may be touched.
    pub fn allows(&self, pool: &str, namespace: &str) -> bool {
        let Self::Limited(holder) = self else { return true };
        let named = [("pool", pool), ("namespace", namespace)];
        let args = named.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        holder.cap.is_capable(&MgrRequest {
            name: &holder.name,
            service: "py",
            module: MODULE,
            command: "",
            args: &args,
            access: holder.access,
            addr: holder.ip,
        })
    }
}

/// A command.
#[derive(Debug, Clone)]
pub struct Question {
    /// Its words: `rbd task list`.
    pub prefix: String,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// Whose it is.
    pub authority: Authority,
    /// The pool that is meant where none is named (`rbd_default_pool`).
    pub default_pool: String,
}

impl Question {
    /// An argument that need not be given.
    pub(crate) fn optional(&self, name: &str) -> Option<&str> {
        self.args.get(name).and_then(Value::as_str)
    }
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// 0, or a negative errno.
    pub code: i32,
    /// The status line.
    pub status: String,
    /// The output.
    pub output: String,
}

impl Reply {
    /// Success with output.
    pub fn output(output: impl Into<String>) -> Self {
        Self {
            output: output.into(),
            ..Self::default()
        }
    }

    /// Failure with a positive errno.
    pub fn error(errno: i32, status: impl Into<String>) -> Self {
        Self {
            code: -errno,
            status: status.into(),
            ..Self::default()
        }
    }
}
