//! Between clients and OSDs: `src/messages/{MOSDOp,MOSDOpReply,MOSDBackoff,MWatchNotify}.h` and
//! `src/include/rados.h`; and what Ceph's manager tells an OSD: `src/messages/MOSDScrub2.h`.

mod args;
mod flags;
mod op;
mod op_code;
mod reply;
mod request;
mod scrub;
mod session;

pub use args::{
    AllocHintArgs, ArgsMember, AssertVersionArgs, CallArgs, ChecksumArgs, ChecksumType, CmpMode, CmpOp,
    CopyFromArgs, ExtentArgs, ListArgs, OpArgs, WatchArgs, WatchOp, WriteSameArgs, XattrArgs,
};
pub use flags::{AllocHintFlags, CopyFromFlags, OpFlags, OsdFlags};
pub use op::{OsdOp, OsdOpIn, OsdOpOut};
pub use op_code::OpCode;
pub use reply::{MOsdOpReply, Redirect};
pub use request::{MOsdOp, Trace};
pub use scrub::MOsdScrub2;
pub use session::{BackoffOp, MOsdBackoff, MWatchNotify, WatchEvent};
