//! Sets of flags.

use std::fmt;

/// Declares sets of flags as integer newtypes: a constant for each bit, and the table of names in
/// the order in which Ceph prints them. A set prints as the names of its flags, `joined` by a text,
/// and an `empty` one as nothing or as the given text. Unknown bits survive.
#[macro_export]
macro_rules! flags {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident($int:ty), joined $separator:literal $(, empty $empty:literal)? {
            $($(#[$fmeta:meta])* $flag:ident = $bit:literal, $text:literal;)*
        }
    )+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        $vis struct $name(pub $int);

        #[allow(dead_code, unreachable_pub)] // For sets that are private.
        impl $name {
            $($(#[$fmeta])* pub const $flag: Self = Self(1 << $bit);)*

            /// Every known flag with its name, in printing order.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$flag, $text)),*];

            /// No flag.
            pub const fn empty() -> Self {
                Self(0)
            }

            /// Whether no flag is set, known or not.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
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

            /// The flags that both have.
            #[must_use]
            pub const fn intersection(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// These flags without `other`'s.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// These flags, with those in `mask` as they are in `new`.
            #[must_use]
            pub const fn changed(self, mask: Self, new: Self) -> Self {
                self.without(mask).with(new.intersection(mask))
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

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(if self.names().next().is_none() {
                    return f.write_str($empty);
                })?
                $crate::write_joined(f, self.names(), $separator)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}({:#x})", self.0)
            }
        }

        $crate::transparent!($name);
    )+};
}

/// Writes `items` separated by `separator`.
///
/// # Errors
/// Those of the formatter.
pub fn write_joined<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    separator: &str,
) -> fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { separator })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{decode_all, encode_to_vec};

    flags! {
        struct Colours(u16), joined ", " {
            RED = 0, "red";
            GREEN = 9, "green";
            BLUE = 3, "blue";
        }

        struct Marks(u8), joined "+", empty "-" {
            STAR = 7, "star";
        }
    }

    #[test]
    fn a_set_prints_its_names_in_order() {
        let all = Colours::BLUE.with(Colours::GREEN).with(Colours::RED);
        assert_eq!(all.to_string(), "red, green, blue");
        assert_eq!(Colours(4).to_string(), "");
        assert_eq!([Marks::STAR, Marks(1)].map(|m| m.to_string()), ["star", "-"]);
        assert_eq!(format!("{all:?}"), "red, green, blue(0x209)");
        assert_eq!(Colours::from_name("blue"), Some(Colours::BLUE));
        assert_eq!(Colours::from_name("black"), None);
    }

    #[test]
    fn unknown_flags_survive() {
        let unknown = Colours(0x8000);
        let set = unknown.with(Colours::RED);
        assert_eq!(encode_to_vec(&set), [1, 0x80]);
        assert_eq!(decode_all(&[1, 0x80]), Ok(set));
        assert_eq!(set.without(Colours::RED), unknown);
        assert!(!unknown.is_empty() && Colours::empty().is_empty());
        assert_eq!(set.changed(Colours::RED, Colours::BLUE), unknown);
        let mask = Colours::RED.with(Colours::GREEN);
        assert_eq!(set.changed(mask, Colours::GREEN), unknown.with(Colours::GREEN));
    }
}
