//! Object classes: named methods that clients call on an object, and that the OSD runs in the
//! transaction of the request.
//!
//! A class is a file or directory under `class` with typed methods, and a line in the registry
//! there. A method sees its object, its caller and the time through [`Object`] and nothing else. It
//! has no clock, no randomness and no state of its own, so that it can run again from the start
//! with the same outcome. It must be able to: a method that reads data which is not in memory yet
//! gets [`Error::NotFetched`], passes it up with `?`, and is called again once the data was
//! fetched. The writes of an interrupted call are discarded, like those of a failed method.
//!
//! A class may also have filters for listings.
//!
//! Names, formats and results are those of Ceph's classes (`src/cls` in its source), as its clients
//! and its other classes rely on all three.

mod class;
mod error;
mod filter;
mod method;
mod object;
mod omap;
#[cfg(test)]
mod testing;
mod text;
mod time_key;

pub use class::{all, find};

/// Structures of the class `journal` for its clients.
pub mod journal {
    pub use crate::class::journal::tags::Tag;
    pub use crate::class::journal::{Client, ClientState, ObjectPosition, ObjectSetPosition};
}

/// Structures of the class `rbd` for its clients.
pub mod rbd {
    pub use crate::class::rbd::{
        BitVector, ChildImageSpec, FeatureChange, Features, FeaturesFound, GroupSpec, ImageFlags,
        MirrorDirection, MirrorImage, MirrorImageState, MirrorPeer, MirrorSnapshot, OpFeatures,
        ParentImageSpec, SnapshotInfo, SnapshotNamespace, Striping, TrashImage, migration, object_state,
        protection,
    };
}

pub use error::{Error, Result};
pub use filter::{Filter, FilterKind, PLAIN};
pub use method::{Class, Flags, Method, Return};
pub use object::{Caller, Object, Page, Stat};
