//! The common parts of this crate's codecs: versioned structures from a table of their fields, sets
//! of flags.

use spirula_denc::{Error, Result};

/// Declares a structure whose encoding is one versioned section holding its fields in order.
///
/// `, since N` on a field: only sections of version N and later have it; older ones leave its default, which
/// `= VALUE` sets. `, via M`: module M's `encode(&field, writer)` and `decode(reader)` take the place of the type's
/// own. `[reserved T = VALUE]` before a field: a dead field of that type, written as VALUE and skipped when read.
/// `oldest N`: older versions are refused. `fix F`: `F(version, &mut value)` completes what an old version lacked.
macro_rules! versioned {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($what:literal, version $version:literal, compat $compat:literal
            $(, oldest $oldest:literal)? $(, fix $fix:path)?) {
            $(
                $(#[$fmeta:meta])*
                $([reserved $rty:ty = $rval:expr $(, since $rsince:literal)?])*
                pub $field:ident: $ty:ty $(= $default:expr)? $(, via $via:ident)? $(, since $since:literal)?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::codec::field_default!($ty $(, $default)?),)* }
            }
        }

        impl spirula_denc::Encode for $name {
            fn encode(&self, w: &mut spirula_denc::Writer) {
                w.section($version, $compat, |w| {
                    $(
                        $({
                            let dead: $rty = $rval;
                            w.put(&dead);
                        })*
                        $crate::codec::put_field!(w, &self.$field $(, $via)?);
                    )*
                });
            }
        }

        impl spirula_denc::Decode for $name {
            fn decode(r: &mut spirula_denc::Reader<'_>) -> spirula_denc::Result<Self> {
                r.section($what, $version, |version, r| {
                    $($crate::codec::at_least($what, version, $oldest)?;)?
                    let mut v = Self::default();
                    $(
                        $(if $crate::codec::present!(version $(, $rsince)?) {
                            r.get::<$rty>()?;
                        })*
                        if $crate::codec::present!(version $(, $since)?) {
                            v.$field = $crate::codec::get_field!(r $(, $via)?);
                        }
                    )*
                    $($fix(version, &mut v);)?
                    // Not every structure has fields that depend on the version.
                    let _ = version;
                    Ok(v)
                })
            }
        }
    };
}

/// Declares how a section of a larger structure is encoded: both directions from one table of its fields, in order.
/// `via` and `since` are those of [`versioned`]. What stands behind `if` is written, and the version is the one given there,
/// only where that method says so.
macro_rules! section_of {
    (
        impl $name:ident($what:literal, version $version:literal, compat $compat:literal, oldest $oldest:literal) {
            fn $encode:ident, fn $decode:ident;
            $($field:ident $(, via $via:ident)? $(, since $since:literal)?;)*
        }
        $(if $later:ident, version $later_version:literal {
            $($later_field:ident, since $later_since:literal;)*
        })?
    ) => {
        impl $name {
            fn $encode(&self, w: &mut spirula_denc::Writer) {
                let version: u8 = $version;
                $(let version = if self.$later() { $later_version } else { version };)?
                w.section(version, $compat, |w| {
                    $($crate::codec::put_field!(w, &self.$field $(, $via)?);)*
                    $(if version == $later_version {
                        $(w.put(&self.$later_field);)*
                    })?
                });
            }

            fn $decode(&mut self, r: &mut spirula_denc::Reader<'_>) -> spirula_denc::Result<()> {
                let known: u8 = $version;
                $(let known = known.max($later_version);)?
                r.section($what, known, |version, r| {
                    $crate::codec::at_least($what, version, $oldest)?;
                    $(if $crate::codec::present!(version $(, $since)?) {
                        self.$field = $crate::codec::get_field!(r $(, $via)?);
                    })*
                    $($(if version >= $later_since {
                        self.$later_field = r.get()?;
                    })*)?
                    Ok(())
                })
            }
        }
    };
}

macro_rules! put_field {
    ($w:ident, $value:expr) => {
        $w.put($value)
    };
    ($w:ident, $value:expr, $via:ident) => {
        $via::encode($value, $w)
    };
}

macro_rules! get_field {
    ($r:ident) => {
        $r.get()?
    };
    ($r:ident, $via:ident) => {
        $via::decode($r)?
    };
}

/// Refuses versions of a structure from before `oldest`.
pub(crate) fn at_least(what: &'static str, version: u8, oldest: u8) -> Result<()> {
    if version < oldest {
        return Err(Error::TooOld { what, version });
    }
    Ok(())
}

macro_rules! field_default {
    ($ty:ty) => {
        <$ty>::default()
    };
    ($ty:ty, $value:expr) => {
        $value
    };
}

macro_rules! present {
    ($version:ident) => {
        true
    };
    ($version:ident, $since:literal) => {
        $version >= $since
    };
}

/// Declares an integer newtype of bit flags: a constant for each bit, and the table of names in the order in
/// which Ceph prints them.
macro_rules! flags {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($int:ty) {
            $($(#[$fmeta:meta])* $flag:ident = $bit:literal, $text:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$fmeta])* pub const $flag: Self = Self(1 << $bit);)*

            /// Every known flag with its name, in printing order.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$flag, $text)),*];

            /// No flag.
            pub const fn empty() -> Self {
                Self(0)
            }

            /// Whether all of `other`'s flags are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any of `other`'s flags is set.
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// These flags and `other`'s.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These flags without `other`'s.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// Sets all of `other`'s flags.
            pub fn insert(&mut self, other: Self) {
                self.0 |= other.0;
            }

            /// Clears all of `other`'s flags.
            pub fn remove(&mut self, other: Self) {
                self.0 &= !other.0;
            }

            /// The flag called `name`.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::NAMES.iter().find(|(_, n)| *n == name).map(|(f, _)| *f)
            }

            /// The names of the set flags, in printing order; flags without a name are left out.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().filter(move |(f, _)| self.contains(*f)).map(|(_, n)| *n)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}({:#x})", self.0)
            }
        }

        spirula_denc::transparent!($name);
    };
}

pub(crate) use {field_default, flags, get_field, present, put_field, section_of, versioned};

/// Writes `items` separated by `separator`.
pub(crate) fn write_joined<T: std::fmt::Display>(
    f: &mut std::fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    separator: &str,
) -> std::fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { separator })?;
    }
    Ok(())
}
