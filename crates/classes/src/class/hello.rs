//! The example class: methods that show what methods can and can't do (Ceph's
//! `src/cls/hello/cls_hello.cc`).

use bytes::Bytes;

use crate::error::unless;
use crate::filter::has_value;
use crate::method::{Nothing, Raw, Return, class};
use crate::{Error, Object, Result};

class! { "hello" {
    "say_hello": RD => say_hello;
    "record_hello": WR | PROMOTE => record_hello;
    "write_return_data": WR => write_return_data;
    "writes_dont_return_data": WR => write_return_data;
    "write_too_much_return_data": WR => write_too_much_return_data;
    "replay": RD => replay;
    "turn_it_to_11": RD | WR | PROMOTE => turn_it_to_11;
    "bad_reader": WR => bad_reader;
    "bad_writer": RD => bad_writer;
} filters {
    "hello" => has_value;
} }

/// The length of the longest name.
const MAX_NAME: usize = 100;
/// The bytes of the object that are read back.
const MAX_REPLAY: u64 = 1100;

fn greeting(name: &Raw) -> Result<Bytes> {
    let name: &[u8] = match name.0.len() {
        0 => b"world",
        n if n > MAX_NAME => return Err(Error::EINVAL),
        _ => &name.0,
    };
    Ok([b"Hello, ", name, b"!"].concat().into())
}

/// Says hello, whatever the object is.
fn say_hello(_: &mut dyn Object, name: Raw) -> Result<Raw> {
    greeting(&name).map(Raw)
}

/// Creates the object with a greeting and the greeter's name.
fn record_hello(object: &mut dyn Object, name: Raw) -> Result<Nothing> {
    let text = greeting(&name)?;
    if unless(object.stat(), &[Error::ENOENT])?.is_some() {
        return Err(Error::EEXIST);
    }
    object.write_full(text)?;
    sign(object, b"said_by")
}

fn sign(object: &mut dyn Object, attribute: &[u8]) -> Result<Nothing> {
    let caller = object.caller();
    let text = format!("{} {}", caller.name, caller.addr);
    object.setxattr(attribute, text.into()).map(|()| Nothing)
}

/// Changes the object and returns data and a positive result, which only a client sees that asks
/// for writes' return values; with input it fails, and returns data all the same.
fn write_return_data(object: &mut dyn Object, input: Raw) -> Result<Return> {
    object.setxattr(b"foo", Bytes::from_static(b"bar"))?;
    Ok(match input.0.is_empty() {
        true => Return {
            code: 42,
            data: Bytes::from_static(b"you might see this"),
        },
        false => Return {
            code: -spirula_errno::EINVAL,
            data: Bytes::from_static(b"too much input data!"),
        },
    })
}

/// Changes the object and returns more than a write may.
fn write_too_much_return_data(object: &mut dyn Object, _: Nothing) -> Result<Return> {
    object.setxattr(b"foo", Bytes::from_static(b"bar"))?;
    Ok(Return {
        code: 42,
        data: b"you should not see this because it is toooooo long. "
            .repeat(10)
            .into(),
    })
}

/// Returns the recorded greeting.
fn replay(object: &mut dyn Object, _: Nothing) -> Result<Raw> {
    object.read(0, MAX_REPLAY).map(Raw)
}

/// Turns the recorded greeting into capitals, and records the caller.
fn turn_it_to_11(object: &mut dyn Object, input: Raw) -> Result<Nothing> {
    if !input.0.is_empty() {
        return Err(Error::EINVAL);
    }
    let quiet = object.read(0, MAX_REPLAY)?;
    object.write_full(quiet.to_ascii_uppercase().into())?;
    sign(object, b"amplified_by")
}

/// Reads although its flags do not say so.
fn bad_reader(object: &mut dyn Object, _: Nothing) -> Result<Raw> {
    object.read(0, 100).map(Raw)
}

/// Writes although its flags do not say so.
fn bad_writer(object: &mut dyn Object, input: Raw) -> Result<Nothing> {
    object.write_full(input.0).map(|()| Nothing)
}
