//! Attributes and class methods, whose names stand before their values with lengths in the
//! arguments.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Encode, Writer};

use crate::BytesList;
use crate::osd::{CallArgs, OpArgs, OpCode, OsdOpIn, XattrArgs};

/// Output of `GETXATTRS`: values by name. Names are without the underscore that the disk form has.
pub type Xattrs = BTreeMap<Bytes, Bytes>;

/// Cuts the front `lens` off `data`, `None` where it is too short.
fn cut<const N: usize>(data: &Bytes, lens: [usize; N]) -> Option<[Bytes; N]> {
    let mut at = 0usize;
    let mut out = [const { Bytes::new() }; N];
    for (part, len) in out.iter_mut().zip(lens) {
        let end = at.checked_add(len).filter(|&end| end <= data.len())?;
        *part = data.slice(at..end);
        at = end;
    }
    Some(out)
}

/// Input of the attribute operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XattrInput {
    /// The attribute's name.
    pub name: Bytes,
    /// The value to set or to compare with.
    pub value: Bytes,
    /// The comparison.
    pub args: XattrArgs,
}

impl XattrInput {
    /// The input of `op`, sharing its bytes; `None` where the lengths don't fit.
    pub fn of(op: &OsdOpIn) -> Option<Self> {
        let OpArgs::Xattr(args) = op.op.args() else {
            return None;
        };
        Self::new(args, &op.data.to_bytes())
    }

    /// The input in `data` under these arguments, sharing its bytes; `None` where the lengths don't
    /// fit.
    pub fn new(args: XattrArgs, data: &Bytes) -> Option<Self> {
        let lens = [
            usize::try_from(args.name_len).ok()?,
            usize::try_from(args.value_len).ok()?,
        ];
        let [name, value] = cut(data, lens)?;
        Some(Self { name, value, args })
    }

    /// The name alone, for operations that have no value.
    pub fn name(args: &XattrArgs, data: &Bytes) -> Option<Bytes> {
        let [name] = cut(data, [usize::try_from(args.name_len).ok()?])?;
        Some(name)
    }

    /// An operation on attribute `name`.
    pub fn op(code: OpCode, name: &[u8], value: &[u8], compare: XattrArgs) -> OsdOpIn {
        let args = XattrArgs {
            name_len: u32::try_from(name.len()).unwrap_or(u32::MAX),
            value_len: u32::try_from(value.len()).unwrap_or(u32::MAX),
            ..compare
        };
        OsdOpIn::new(code, OpArgs::Xattr(args), [name, value].concat())
    }
}

/// Input of `CALL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInput {
    /// The class.
    pub class: Bytes,
    /// The method.
    pub method: Bytes,
    /// The method's input.
    pub input: Bytes,
}

impl CallInput {
    /// The input of `op`, sharing its bytes; `None` where the lengths don't fit.
    pub fn of(op: &OsdOpIn) -> Option<Self> {
        let OpArgs::Call(args) = op.op.args() else {
            return None;
        };
        let lens = [
            args.class_len.into(),
            args.method_len.into(),
            usize::try_from(args.input_len).ok()?,
        ];
        let [class, method, input] = cut(&op.data.to_bytes(), lens)?;
        Some(Self { class, method, input })
    }

    /// A call of `class.method`; `None` where a name is longer than 255 bytes.
    pub fn op(class: &str, method: &str, input: &[u8]) -> Option<OsdOpIn> {
        Self::written(class, method, |w| w.bytes(input))
    }

    /// A call of `class.method` with a value that is encoded in place, as it may be large; `None`
    /// where a name is longer than 255 bytes.
    pub fn op_with(class: &str, method: &str, input: &impl Encode) -> Option<OsdOpIn> {
        Self::written(class, method, |w| w.put(input))
    }

    /// A call of `class.method` with a value and data behind it, which is not copied; `None` where
    /// a name is longer than 255 bytes.
    pub fn op_with_data(class: &str, method: &str, input: &impl Encode, data: &BytesList) -> Option<OsdOpIn> {
        let mut op = Self::op_with(class, method, input)?;
        let OpArgs::Call(args) = op.op.args() else {
            return None;
        };
        let args = CallArgs {
            input_len: args.input_len.checked_add(u32::try_from(data.len()).ok()?)?,
            ..args
        };
        op.data.extend(data);
        Some(OsdOpIn::new(OpCode::CALL, OpArgs::Call(args), op.data))
    }

    fn written(class: &str, method: &str, input: impl FnOnce(&mut Writer)) -> Option<OsdOpIn> {
        let mut w = Writer::new();
        w.bytes(class.as_bytes());
        w.bytes(method.as_bytes());
        let names = w.len();
        input(&mut w);
        let args = CallArgs {
            class_len: u8::try_from(class.len()).ok()?,
            method_len: u8::try_from(method.len()).ok()?,
            argc: 0,
            input_len: u32::try_from(w.len() - names).ok()?,
        };
        Some(OsdOpIn::new(OpCode::CALL, OpArgs::Call(args), w.into_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_cut_from_the_input() {
        let op = XattrInput::op(OpCode::SETXATTR, b"key", b"value", XattrArgs::default());
        let x = XattrInput::of(&op).unwrap();
        assert_eq!((&x.name[..], &x.value[..]), (&b"key"[..], &b"value"[..]));

        let mut short = op.clone();
        short.data = short.data.split_to(7);
        assert_eq!(XattrInput::of(&short), None);

        let c = CallInput::of(&CallInput::op("lock", "get_info", b"in").unwrap()).unwrap();
        assert_eq!(
            (&c.class[..], &c.method[..], &c.input[..]),
            (&b"lock"[..], &b"get_info"[..], &b"in"[..])
        );
        assert_eq!(CallInput::of(&op), None);
        let behind = BytesList::from(vec![Bytes::from("ab"), Bytes::from("c")]);
        let behind = CallInput::op_with_data("lock", "get_info", &3u8, &behind).unwrap();
        assert_eq!(behind, CallInput::op("lock", "get_info", b"\x03abc").unwrap());
    }
}
