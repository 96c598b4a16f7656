//! Classes and their methods, with typed input and output.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer, encode_to_vec, flags};

use crate::{Error, FilterKind, Object, Result};

flags! {
    /// Flags of a method, as in Ceph's `src/include/rados/objclass.h` (`CLS_METHOD_*`).
    pub struct Flags(u8), joined "|" {
        /// The method reads the object.
        RD = 0, "rd";
        /// The method changes the object.
        WR = 1, "wr";
        /// In a cache tier, the object is promoted for the method.
        PROMOTE = 3, "promote";
    }
}

/// The result and output of a method.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Return {
    /// The result; a negative error number discards the method's writes, as [`Error`] does, but
    /// keeps `data`.
    pub code: i32,
    /// The output.
    pub data: Bytes,
}

impl<T: Encode> From<T> for Return {
    fn from(output: T) -> Self {
        Self {
            code: 0,
            data: to_bytes(&output),
        }
    }
}

/// A method of a class.
#[derive(Debug)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// Its flags.
    pub flags: Flags,
    /// Runs it on its encoded input.
    pub(crate) run: fn(&mut dyn Object, &Bytes) -> Result<Return>,
}

impl Method {
    /// Calls the method.
    ///
    /// # Errors
    /// EINVAL for input that it can't decode, and the method's own error.
    pub fn call(&self, object: &mut dyn Object, input: &Bytes) -> Result<Return> {
        (self.run)(object, input)
    }
}

/// A class.
#[derive(Debug)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// Its methods.
    pub methods: &'static [Method],
    /// Its filters for listings.
    pub filters: &'static [FilterKind],
}

impl Class {
    /// The method of that name.
    pub fn method(&self, name: &[u8]) -> Option<&'static Method> {
        self.methods.iter().find(|m| m.name.as_bytes() == name)
    }

    /// The filter of that name.
    pub fn filter(&self, name: &[u8]) -> Option<&'static FilterKind> {
        self.filters.iter().find(|f| f.name.as_bytes() == name)
    }
}

/// Declares a class: its name, then each method with its flags and its function. A function takes
/// the object and one argument that decodes from the input, and returns a value that encodes to the
/// output. Filters may follow, each with the function that decodes its parameters.
macro_rules! class {
    ($name:literal { $($method:literal: $first:ident $(| $more:ident)* => $function:path;)+ }
        $(filters { $($filter:literal => $read:path;)+ })?) => {
        /// The class.
        pub(super) static CLASS: $crate::Class = $crate::Class {
            name: $name,
            methods: &[$($crate::Method {
                name: $method,
                flags: $crate::Flags::$first$(.with($crate::Flags::$more))*,
                run: |object, input| {
                    let input = $crate::method::input(input)?;
                    $function(object, input).map($crate::Return::from)
                },
            }),+],
            filters: &[$($($crate::FilterKind { name: $filter, read: $read }),+)?],
        };
    };
}
pub(crate) use class;

/// Decodes a method's input. As in Ceph, bytes behind it are ignored.
pub(crate) fn input<T: Decode>(bytes: &Bytes) -> Result<T> {
    Reader::new(bytes).get().map_err(|_| Error::EINVAL)
}

/// Decodes stored bytes.
pub(crate) fn stored<T: Decode>(bytes: &Bytes) -> Result<T> {
    Reader::new(bytes).get().map_err(|_| Error::EIO)
}

/// Encodes a value to be stored.
pub(crate) fn to_bytes<T: Encode>(value: &T) -> Bytes {
    encode_to_vec(value).into()
}

/// Input or output without a format: the bytes as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Raw(pub(crate) Bytes);

impl Encode for Raw {
    fn encode(&self, w: &mut Writer) {
        w.bytes(&self.0);
    }
}

impl Decode for Raw {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        Ok(Self(Bytes::copy_from_slice(r.rest())))
    }
}

/// No output, or input that is ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Nothing;

impl Encode for Nothing {
    fn encode(&self, _: &mut Writer) {}
}

impl Decode for Nothing {
    fn decode(_: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        Ok(Self)
    }
}
