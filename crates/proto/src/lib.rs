//! All messages: the official ones at Pacific's level, and our own between daemons.
//!
//! A [`RawMessage`] is what travels in one msgr2 message frame: a fixed header and up to three
//! segments (front, middle, data). A typed message implements [`Payload`], which encodes it into a
//! raw message and decodes it from one. Payload bytes in the data segment are sliced, never copied.
//!
//! Layouts follow Ceph's public headers `src/messages/M*.h`, `src/include/rados.h` and
//! `src/include/msgr.h`; the versions are those of Pacific (16.2).

mod blob;
mod bytes_list;
mod header;
pub mod internal;
mod macros;
mod message;
pub mod mgr;
pub mod mon;
mod msg_type;
pub mod osd;
pub mod osd_op_data;

pub use blob::{Blob, Rest, Section};
pub use bytes_list::BytesList;
pub use header::{MsgHeader2, priority};
pub use message::{Body, Error, Payload, RawMessage, Result};
pub use msg_type::MsgType;
