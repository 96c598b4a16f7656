//! An object's state, in memory.

use crate::pg::object::{Attrs, ObjectInfo};

/// An object as it is, or as an earlier op left it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectState {
    /// Whether the object exists.
    pub exists: bool,
    /// The object's info; the default if it does not exist.
    pub info: ObjectInfo,
    /// Its attributes.
    pub attrs: Attrs,
}

impl ObjectState {
    /// The approximate bytes of memory beyond its own size.
    pub(crate) fn extras(&self) -> usize {
        const ENTRY: usize = 64;
        let attrs = self.attrs.iter().map(|(n, v)| ENTRY + n.len() + v.len());
        let clones = self.info.snap_set.clones.iter();
        let clones = clones.map(|c| ENTRY + 16 * (c.snaps.len() + c.overlap.ranges().count()));
        attrs.chain(clones).sum::<usize>() + 2 * ENTRY * self.info.watchers.len()
    }
}
