//! Orders to scrub.

use spirula_denc::Fsid;
use spirula_maps::{Epoch, SpgId};

use crate::macros::message;

message! {
    /// Orders an OSD to scrub PGs that it leads. The monitor sends it; in Ceph the manager does.
    pub struct MOsdScrub2: OSD_SCRUB2, version 1, compat 1 {
        /// The cluster.
        pub fsid: Fsid,
        /// The sender's osdmap epoch.
        pub epoch: Epoch,
        /// The PGs.
        pub pgs: Vec<SpgId>,
        /// Whether what the scrub finds is repaired. Such a scrub is deep, whatever `deep` says.
        pub repair: bool,
        /// Whether all data is read.
        pub deep: bool,
    }
}
