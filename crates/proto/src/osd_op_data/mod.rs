//! The payloads of operations: the data segment for each [`crate::osd::OpCode`].
//!
//! Keys, attribute names and object names are bytes. Layouts: Ceph's `src/osd/osd_types.h`,
//! `src/osdc/Objecter.h`, `src/include/object.h` and `src/common/scrub_types.h`.

pub mod attr;
mod copy;
mod data;
mod inconsistent;
mod list;
mod named;
mod omap;
mod snap;
mod watch;

pub use copy::{CopyCursor, CopyData};
pub use data::StatResult;
pub use inconsistent::{
    InconsistentObject, InconsistentSnapSet, ObjectErrors, ObjectId, ScrubLsArg, ScrubLsResult, ShardErrors,
    ShardInfo, SnapSetErrors,
};
pub use list::{ListEntry, ListFilter, PgLsEntry, PgLsResponse, PgNlsResponse};
pub use named::{CallInput, XattrInput, Xattrs};
pub use omap::{
    OmapCmp, OmapGetKeys, OmapGetVals, OmapKeys, OmapKeysReply, OmapRange, OmapVals, OmapValsReply,
};
pub use snap::{CloneInfo, CopySource, ListSnapsResponse};
pub use watch::{ListWatchersResponse, NotifyAck, NotifyReplies, NotifyRequest, WatchItem, WatcherId};
