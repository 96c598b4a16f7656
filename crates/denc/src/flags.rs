//! Sets of flags.

/// Declares sets of flags as integer newtypes: a constant for each bit, and the table of names in
/// the order in which Ceph prints them. Unknown bits survive.
#[macro_export]
macro_rules! flags {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident($int:ty) {
            $($(#[$fmeta:meta])* $flag:ident = $bit:literal, $text:literal;)*
        }
    )+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        $vis struct $name(pub $int);

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

        $crate::transparent!($name);
    )+};
}
