//! Why a map could not be changed.

use spirula_errno::Errno;

/// A refused change. The map stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A weight, or a sum of weights, does not fit 16.16 fixed point.
    #[error("weight out of range")]
    WeightOverflow,
    /// Items of a uniform bucket must have equal weights.
    #[error("uniform bucket {0} takes items of one weight only")]
    UnequalWeight(i32),
    /// A tree bucket can't hold more items.
    #[error("tree bucket {0} is full")]
    TreeFull(i32),
    /// The tunables allow no bucket algorithm at all.
    #[error("no bucket algorithm is allowed")]
    NoAlgAllowed,
    /// No item of that name or id.
    #[error("item does not exist")]
    NoSuchItem,
    /// A rule's root does not exist.
    #[error("root item {0} does not exist")]
    NoSuchRoot(String),
    /// A type name is unknown.
    #[error("unknown type {0}")]
    UnknownType(String),
    /// A device class is unknown.
    #[error("device class {0} does not exist")]
    NoSuchClass(String),
    /// A device class exists.
    #[error("class '{0}' already exists")]
    ClassExists(String),
    /// Rules take from a device class.
    #[error("class '{class}' still referenced by crush_rule(s): {rules}")]
    ClassInUse {
        /// The class's name.
        class: String,
        /// The rules' names.
        rules: String,
    },
    /// A root holds no shadow tree for the class.
    #[error("root {root} has no devices with class {class}")]
    NoDevicesOfClass {
        /// The root's name.
        root: String,
        /// The class's name.
        class: String,
    },
    /// A name is taken by another item.
    #[error("name {name} already exists as id {id}")]
    NameTaken {
        /// The name.
        name: String,
        /// The other item.
        id: i32,
    },
    /// A rule of that name exists.
    #[error("rule {0} exists")]
    RuleExists(String),
    /// No rule of that name or number.
    #[error("rule does not exist")]
    NoSuchRule,
    /// No rule number is free.
    #[error("too many rules")]
    TooManyRules,
    /// Names consist of letters, digits and `-_.`.
    #[error("{0:?} is not a valid CRUSH name ([A-Za-z0-9_-.]+)")]
    InvalidName(String),
    /// A location names a bucket whose type is another one.
    #[error("bucket {0} is not of the type that the location says")]
    WrongType(String),
    /// Nothing in the location can hold the item.
    #[error("no place for the item in the location")]
    NoPlace,
    /// The item is already below the bucket.
    #[error("item {0} already exists beneath the location")]
    AlreadyThere(i32),
    /// The change would make a bucket its own descendant.
    #[error("item {0} contains the location: a loop")]
    Loop(i32),
    /// A bucket still has items.
    #[error("bucket {0} is not empty")]
    NotEmpty(i32),
    /// A rule or shadow tree refers to the bucket.
    #[error("item {0} is in use")]
    InUse(i32),
    /// A device has another class already.
    #[error("osd.{id} has already bound to class '{class}'")]
    HasClass {
        /// The device.
        id: i32,
        /// Its class.
        class: String,
    },
    /// The operation is for buckets only, or for devices only.
    #[error("item {0} is of the wrong kind")]
    WrongKind(i32),
    /// The map violates an invariant; see [`crate::CrushMap::validate`].
    #[error("invalid map: {0}")]
    Invalid(&'static str),
}

impl Error {
    /// The errno that the official monitor answers with.
    pub fn errno(&self) -> Errno {
        match self {
            Error::WeightOverflow => spirula_errno::ERANGE,
            Error::NoSuchItem | Error::NoSuchRoot(_) | Error::NoSuchRule => spirula_errno::ENOENT,
            Error::NameTaken { .. } | Error::RuleExists(_) | Error::ClassExists(_) => spirula_errno::EEXIST,
            Error::TooManyRules | Error::TreeFull(_) => spirula_errno::ENOSPC,
            Error::Loop(_) => spirula_errno::ELOOP,
            Error::NotEmpty(_) => spirula_errno::ENOTEMPTY,
            Error::InUse(_) | Error::HasClass { .. } | Error::ClassInUse { .. } => spirula_errno::EBUSY,
            _ => spirula_errno::EINVAL,
        }
    }
}

/// The result of a change.
pub type Result<T> = std::result::Result<T, Error>;
