//! The clones of an object (`SnapSet` in `src/osd/osd_types.h`).

use std::collections::BTreeMap;

use spirula_denc::versioned;
use spirula_maps::{IntervalSet, SnapId};

versioned! {
    /// A head's clones.
    #[derive(Eq)]
    pub struct SnapSet("SnapSet", version 3, compat 2, oldest 2) {
        /// The newest snapshot id that a writer knew.
        pub seq: SnapId;
        /// The writer's snapshots, newest first. OSDs since Octopus leave it empty.
        // Before it: once whether the head exists.
        @reserved(bool = true)
        pub snaps: Vec<SnapId>;
        /// The clones' ids, ascending.
        pub clones: Vec<SnapId>;
        /// The ranges that each clone shares with the next newer one, or the head.
        pub clone_overlap: BTreeMap<SnapId, IntervalSet>;
        /// The size of each clone in bytes.
        pub clone_size: BTreeMap<SnapId, u64>;
        /// The snapshots that each clone stands for, newest first.
        pub clone_snaps: BTreeMap<SnapId, Vec<SnapId>>, since 3;
    }
}
