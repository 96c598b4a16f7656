//! Arguments of methods: consecutive fields, of which older clients leave out the last.

use spirula_denc::{Decode, Reader};

/// Declares a structure of arguments.
macro_rules! arguments {
    ($(
        $(#[$doc:meta])*
        $vis:vis struct $name:ident {
            $($(#[$fdoc:meta])* $fvis:vis $field:ident: $type:ty,)*
        }
    )+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        $vis struct $name {
            $($(#[$fdoc])* $fvis $field: $type,)*
        }

        impl spirula_denc::Decode for $name {
            fn decode(r: &mut spirula_denc::Reader<'_>) -> spirula_denc::Result<Self> {
                Ok(Self { $($field: r.get()?,)* })
            }
        }
    )+};
}
pub(super) use arguments;

/// An argument that older clients do not send.
#[derive(Debug)]
pub(super) struct Trailing<T>(pub(super) Option<T>);

impl<T: Decode> Decode for Trailing<T> {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        match r.is_empty() {
            true => Ok(Self(None)),
            false => r.get().map(|v| Self(Some(v))),
        }
    }
}
