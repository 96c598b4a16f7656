//! Declares messages and structures whose encoding is their fields in order.
//!
//! `, since N` on a field: only messages of version N and later have it, as in
//! [`spirula_denc::versioned`]; older ones leave its default. `, if left`: old senders left it out
//! without a version bump.

/// Reads one field of the macros below.
macro_rules! read_field {
    ($r:ident, $version:expr) => {
        $r.get()?
    };
    ($r:ident, $version:expr, since $since:literal) => {
        if $version >= $since {
            $r.get()?
        } else {
            Default::default()
        }
    };
    ($r:ident, $version:expr, if left) => {
        if $r.is_empty() {
            Default::default()
        } else {
            $r.get()?
        }
    };
}

/// A message with everything in its front segment. `data` in the braces' tail adds the data
/// segment.
macro_rules! message {
    (
        $(#[$doc:meta])*
        pub struct $name:ident: $kind:ident, version $version:literal, compat $compat:literal
        $(, oldest $oldest:literal)? $(, priority $priority:ident)? {
            $($(#[$fdoc:meta])* pub $field:ident: $type:ty $(, since $since:literal)? $(, if $left:ident)?,)*
            $(; $(#[$ddoc:meta])* pub $data:ident)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
            $($(#[$ddoc])* pub $data: $crate::BytesList,)?
        }

        impl $crate::Payload for $name {
            const TYPE: $crate::MsgType = $crate::MsgType::$kind;
            const VERSION: u16 = $version;
            const COMPAT: u16 = $compat;
            // The official readers accept every older version of the messages that need no special
            // rule.
            const OLDEST: u16 = 0 $(+ $oldest)?;
            $(const PRIORITY: u16 = $crate::priority::$priority;)?

            #[allow(unused_variables)]
            fn encode(&self, out: &mut $crate::Body) {
                $(out.front.put(&self.$field);)*
                $(out.data = self.$data.clone();)?
            }

            #[allow(unused_variables)]
            fn decode(
                r: &mut spirula_denc::Reader<'_>,
                msg: &$crate::RawMessage,
            ) -> spirula_denc::Result<Self> {
                let version = msg.header.version;
                $(let $field = $crate::macros::read_field!(r, version $(, since $since)? $(, if $left)?);)*
                Ok(Self { $($field,)* $($data: msg.data.clone(),)? })
            }
        }
    };
}

/// A structure without a version of its own.
macro_rules! packed {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[$fdoc:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
        }

        impl spirula_denc::Encode for $name {
            fn encode(&self, w: &mut spirula_denc::Writer) {
                $(w.put(&self.$field);)*
            }
        }

        impl spirula_denc::Decode for $name {
            fn decode(r: &mut spirula_denc::Reader<'_>) -> spirula_denc::Result<Self> {
                Ok(Self { $($field: r.get()?,)* })
            }
        }
    };
}

/// An integer on the wire with named values; unknown ones survive.
macro_rules! wire_enum {
    (
        $(#[$doc:meta])*
        pub struct $name:ident($int:ty) { $($(#[$vdoc:meta])* $value:ident = $number:literal, $text:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$vdoc])* pub const $value: Self = Self($number);)*

            /// The name that official logs print, `None` for a value without one.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$value => Some($text),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "unknown({})", self.0),
                }
            }
        }

        spirula_denc::transparent!($name);
    };
}

pub(crate) use {message, packed, read_field, wire_enum};
