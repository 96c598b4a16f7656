//! Changes of data objects.

use bytes::Bytes;
use spirula_classes::rbd::object_state::{EXISTS, PENDING};
use spirula_proto::osd::{OpCode, OsdOpIn};

use crate::cls::{delete, ranged};

/// A change of a data object.
pub(crate) struct Change {
    pub(crate) ops: Vec<OsdOpIn>,
    /// The object's state in the object map before the change: it exists, or is being removed.
    pub(crate) state: u8,
    /// The change replaces all data, so that the parent's need not be copied.
    pub(crate) replaces_all: bool,
    /// Without the object the change has nothing to do.
    pub(crate) only_existing: bool,
    /// The change depends on the object's data, so the parent's must be in the object before
    /// the change, rather than come with it.
    pub(crate) compares: bool,
}

impl Change {
    /// A change that writes to the object.
    pub(crate) fn write(ops: Vec<OsdOpIn>) -> Self {
        Self {
            ops,
            state: EXISTS,
            replaces_all: false,
            only_existing: false,
            compares: false,
        }
    }

    /// Removes the object, which uncovers the parent's data.
    pub(crate) fn remove() -> Self {
        Self {
            state: PENDING,
            replaces_all: true,
            only_existing: true,
            ..Self::write(vec![delete()])
        }
    }

    /// Truncates the object.
    pub(crate) fn truncate(len: u64) -> Self {
        Self {
            only_existing: true,
            ..Self::write(vec![ranged(OpCode::TRUNCATE, len, 0, Bytes::new())])
        }
    }
}
