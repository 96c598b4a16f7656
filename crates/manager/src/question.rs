//! Questions to the manager's modules, and their answers.

use std::net::IpAddr;

use serde_json::{Map, Value};
use spirula_cephx::AuthName;
use spirula_cephx::caps::{Access, MgrCap, MgrRequest};

/// The module of Ceph's manager whose commands these are, as capabilities name it.
pub const MODULE: &str = "rbd_support";

/// Errno numbers of answers.
pub use spirula_client::errno;

/// The rights of a command's asker. The command itself was admitted before; modules check access to
/// pools and namespaces.
#[derive(Debug, Clone)]
pub enum Authority {
    /// The asker may do everything.
    All,
    /// The asker has limited capabilities.
    Limited(Box<Holder>),
}

/// A holder of capabilities at the manager.
#[derive(Debug, Clone)]
pub struct Holder {
    /// The entity.
    pub name: AuthName,
    /// Its capabilities.
    pub cap: MgrCap,
    /// The address from which it asks.
    pub ip: Option<IpAddr>,
    /// The access that the command needs.
    pub access: Access,
}

impl Authority {
    /// Whether images of all namespaces of a pool may be accessed; without a pool, of all pools.
    pub fn allows_all_of(&self, pool: Option<&str>) -> bool {
        // No pool or namespace of images can have this name: capabilities that match it match
        // everywhere.
        self.allows(pool.unwrap_or("/"), "/")
    }

    /// Whether images of this pool and namespace may be accessed.
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
    /// Its first words: `rbd task list`.
    pub prefix: String,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// The asker's rights.
    pub authority: Authority,
    /// The pool of a command that names none (`rbd_default_pool`).
    pub default_pool: String,
}

impl Question {
    /// An optional argument.
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

    /// Failure with this errno.
    pub fn error(errno: errno::Errno, status: impl Into<String>) -> Self {
        Self {
            code: -errno,
            status: status.into(),
            ..Self::default()
        }
    }
}
