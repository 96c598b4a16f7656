//! The file systems' maps. Their contents belong to the MDS code: here they are bytes, except the
//! fields that a cluster without file systems must send.

use spirula_denc::{Fsid, Writer, versioned};
use spirula_maps::Epoch;

use crate::macros::message;
use crate::{Blob, Rest};

message! {
    /// All file systems, for administrators' tools.
    pub struct MFsMap: FS_MAP, version 1, compat 1, priority HIGH {
        /// The map's epoch.
        pub epoch: Epoch,
        /// The encoded `FSMap`.
        pub fsmap: Rest,
    }
}

/// The incompatible on-disk features that an MDS of Pacific lists (`MDS_FEATURE_INCOMPAT_*`).
const INCOMPAT: [(u64, &str); 9] = [
    (1, "base v0.20"),
    (2, "client writeable ranges"),
    (3, "default file layouts on dirs"),
    (4, "dir inode in separate object"),
    (5, "mds uses versioned encoding"),
    (6, "dirfrag is stored in omap"),
    (8, "no anchor table"),
    (9, "file layout v2"),
    (10, "snaprealm v2"),
];

impl MFsMap {
    /// The map of a cluster without file systems.
    pub fn empty(epoch: Epoch) -> Self {
        let mut w = Writer::new();
        w.section(7, 6, |w| {
            w.put(&epoch);
            // Id of the next file system, and the default one: none.
            w.u64(1);
            w.i32(-1);
            // CompatSet: compatible and read-only compatible features, then the incompatible ones.
            w.zeros(2 * 12);
            w.u64(INCOMPAT.iter().map(|(bit, _)| 1 << bit).sum::<u64>() & !1);
            w.count(INCOMPAT.len());
            for (bit, name) in INCOMPAT {
                w.u64(bit);
                w.string(name);
            }
            // Several file systems are allowed; there are none, no roles, and no standbys.
            w.bool(true);
            w.zeros(4 * 4);
            // Several were ever allowed.
            w.bool(true);
        });
        Self {
            epoch,
            fsmap: Rest(w.into_vec().into()),
        }
    }
}

versioned! {
    /// A file system as mounting clients see it.
    #[derive(Eq)]
    pub struct FsMapUserEntry("FSMapUser::fs_info_t", version 1, compat 1) {
        /// The file system's id.
        pub id: i32;
        /// Its name.
        pub name: String;
    }
}

versioned! {
    /// The file systems' names.
    #[derive(Eq)]
    pub struct FsMapUser("FSMapUser", version 1, compat 1) {
        /// The map's epoch.
        pub epoch: Epoch;
        /// The default file system's id; -1 for none.
        pub legacy_client_fscid: i32;
        /// All file systems.
        pub filesystems: Vec<FsMapUserEntry>;
    }
}

message! {
    /// The file systems' names, for mounting clients.
    pub struct MFsMapUser: FS_MAP_USER, version 1, compat 1, priority HIGH {
        /// The map's epoch.
        pub epoch: Epoch,
        /// The map.
        pub fsmap: FsMapUser,
    }
}

message! {
    /// One file system's MDS ranks.
    pub struct MMdsMap: MDS_MAP, version 2, compat 1, priority HIGH {
        /// The cluster.
        pub fsid: Fsid,
        /// The map's epoch.
        pub epoch: Epoch,
        /// The encoded `MDSMap`.
        pub mdsmap: Blob,
        /// Empty.
        pub fs_name: String, since 2,
    }
}
