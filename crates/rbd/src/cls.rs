//! Calls of methods of the classes `rbd`, `lock` and `journal`.

use std::time::Duration;

use bytes::Bytes;
use spirula_client::{BytesList, IoCtx, LockRequest, LockType, OpReply, errno};
use spirula_denc::{Decode, Encode, Reader, Writer};
use spirula_maps::ObjectName;
use spirula_proto::osd::{ExtentArgs, OpArgs, OpCode, OpFlags, OsdFlags, OsdOpIn};
use spirula_proto::osd_op_data::CallInput;

use crate::{Error, Result};

/// The lock on headers and object maps.
pub(crate) const LOCK: &str = "rbd_lock";
/// The tag of locks that clients pass on to each other.
pub(crate) const LOCK_TAG: &str = "internal";

/// The input of a method without arguments.
pub(crate) struct Nothing;

impl Encode for Nothing {
    fn encode(&self, _: &mut Writer) {}
}

fn made(call: Option<OsdOpIn>) -> Result<OsdOpIn> {
    call.ok_or(Error::os("class method", errno::EINVAL))
}

/// A call of a method of any class.
pub(crate) fn method(class: &str, method: &str, input: &impl Encode) -> Result<OsdOpIn> {
    made(CallInput::op_with(class, method, input))
}

/// A call of a method of any class with data behind the input, which is not copied.
pub(crate) fn method_with_data(
    class: &str,
    method: &str,
    input: &impl Encode,
    data: &BytesList,
) -> Result<OsdOpIn> {
    made(CallInput::op_with_data(class, method, input, data))
}

/// A call of a method of the class `rbd`.
pub(crate) fn rbd(name: &str, input: &impl Encode) -> Result<OsdOpIn> {
    method("rbd", name, input)
}

/// Fails with EBUSY unless this client holds the lock under this cookie and tag.
pub(crate) fn assert_locked(cookie: &str, tag: &str) -> Result<OsdOpIn> {
    let mut w = Writer::new();
    w.section(1, 1, |w| {
        w.string(LOCK);
        w.u8(LockType::EXCLUSIVE.0);
        w.string(cookie);
        w.string(tag);
    });
    made(CallInput::op("lock", "assert_locked", w.as_slice()))
}

/// Replaces the cookie under which this client holds the lock.
pub(crate) fn set_lock_cookie(old: &str, new: &str) -> Result<OsdOpIn> {
    let mut w = Writer::new();
    w.section(1, 1, |w| {
        w.string(LOCK);
        w.u8(LockType::EXCLUSIVE.0);
        w.string(old);
        w.string(LOCK_TAG);
        w.string(new);
    });
    made(CallInput::op("lock", "set_cookie", w.as_slice()))
}

/// A request for the exclusive lock.
pub(crate) fn lock_request(cookie: &str, tag: &str) -> LockRequest {
    LockRequest {
        name: LOCK.to_owned(),
        kind: LockType::EXCLUSIVE,
        cookie: cookie.to_owned(),
        tag: tag.to_owned(),
        description: String::new(),
        duration: Duration::ZERO,
        flags: 0,
    }
}

/// Fails with ENOENT unless the object exists.
pub(crate) fn assert_exists() -> OsdOpIn {
    OsdOpIn::new(OpCode::STAT, OpArgs::None, Bytes::new())
}

/// Creates the object; with `exclusive` it fails where the object exists.
pub(crate) fn create(exclusive: bool) -> OsdOpIn {
    let mut op = OsdOpIn::new(OpCode::CREATE, OpArgs::None, Bytes::new());
    if exclusive {
        op.op = op.op.with_flags(OpFlags::EXCL);
    }
    op
}

/// An operation on a range.
pub(crate) fn ranged(code: OpCode, offset: u64, length: u64, data: impl Into<BytesList>) -> OsdOpIn {
    let extent = ExtentArgs {
        offset,
        length,
        ..ExtentArgs::default()
    };
    OsdOpIn::new(code, OpArgs::Extent(extent), data)
}

/// Removes the object.
pub(crate) fn delete() -> OsdOpIn {
    OsdOpIn::new(OpCode::DELETE, OpArgs::None, Bytes::new())
}

/// Runs operations that change an object, methods among them.
pub(crate) async fn change(
    io: &IoCtx,
    what: &'static str,
    oid: impl Into<ObjectName>,
    ops: Vec<OsdOpIn>,
) -> Result<()> {
    let io = io.clone().with_flags(OsdFlags::WRITE);
    Ok(io.operate(what, oid, ops).await.map(drop)?)
}

/// Runs a method that changes the object.
pub(crate) async fn tell(
    io: &IoCtx,
    oid: impl Into<ObjectName>,
    method: &'static str,
    input: &impl Encode,
) -> Result<()> {
    change(io, method, oid, vec![rbd(method, input)?]).await
}

/// Notifies the watchers of an object. A watcher that does not answer is no failure: it is gone, or
/// reads everything again when it finds its watch lost.
pub(crate) async fn announce(io: &IoCtx, oid: impl Into<ObjectName>, message: impl Into<Bytes>) {
    const SECONDS: u32 = 5;
    let oid = oid.into();
    if let Err(e) = io.notify(oid.clone(), message.into(), SECONDS).await {
        tracing::debug!("watchers of {oid:?}: {e}");
    }
}

/// Runs a method that reads, and decodes its output.
pub(crate) async fn ask<T: Decode>(
    io: &IoCtx,
    oid: impl Into<ObjectName>,
    method: &'static str,
    input: &impl Encode,
) -> Result<T> {
    ask_of(io, oid, "rbd", method, input).await
}

/// Runs a method of any class that reads, and decodes its output.
pub(crate) async fn ask_of<T: Decode>(
    io: &IoCtx,
    oid: impl Into<ObjectName>,
    class: &'static str,
    name: &'static str,
    input: &impl Encode,
) -> Result<T> {
    let reply = io.operate(name, oid, vec![method(class, name, input)?]).await?;
    output(&reply, 0)
}

/// Decodes the output of one operation of a reply.
pub(crate) fn output<T: Decode>(reply: &OpReply, at: usize) -> Result<T> {
    let (_, data) = reply.outs.get(at).ok_or(Error::os("answer", errno::EIO))?;
    Ok(Reader::new(data).get()?)
}

/// Decodes a value; `None` where it is not one.
pub(crate) fn read<T: Decode>(data: &[u8]) -> Option<T> {
    Reader::new(data).get().ok()
}
