//! By whose rights the manager does something.
//!
//! Tasks and schedules lie in pools that tenants may write, and so does all that images say of themselves: where their data is,
//! what they are clones of, from where they migrate. So nothing is done by rights of the manager's own, which would be anybody's. For
//! each piece of work the monitor makes a client that may do what is written here and nothing else; the OSDs see to that.

use serde::{Deserialize, Serialize};
use spirula_cephx::{AuthName, CryptoKey};

/// A pool and a namespace in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The pool's id.
    pub pool: i64,
    /// The namespace; empty for the default one.
    pub namespace: String,
}

/// A task or schedule that the manager has stored for somebody. The monitors remember who that was, where no tenant writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its name among all: `task/POOL/NAMESPACE/ID`, or the object of a schedule and its key there.
    pub key: String,
    /// What was stored, word for word: what was changed since is nobody's.
    pub text: String,
}

/// Whose rights are added to those in the place itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Basis {
    /// Those of whoever asks the question of this number.
    Asked(u64),
    /// Those that whoever had this stored had then.
    Stored {
        /// What is stored.
        origin: Origin,
        /// Where; what nobody is known to have asked for is done there only. `None` where only administrators write.
        at: Option<Place>,
    },
}

/// With what a client logs in.
#[derive(Debug, Clone)]
pub struct Login {
    /// Its name.
    pub name: AuthName,
    /// Its key.
    pub key: CryptoKey,
}
