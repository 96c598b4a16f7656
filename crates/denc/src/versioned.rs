//! Structures in versioned sections, declared as a table of their fields.

use crate::{Error, Result};

/// Declares structures whose encoding is one versioned section that holds their fields in order.
///
/// `, since N` on a field: only sections of version N and later have it; older ones leave its
/// default, which `= VALUE` sets. `, via M`: module M's `encode(&field, writer)` and
/// `decode(reader)` take the place of the type's own. `@reserved(T = VALUE)` before a field: a dead
/// field of that type, written as VALUE and skipped when read. `oldest N`: older versions are
/// refused. `fix F`: `F(version, &mut value)` completes what an old version lacked.
///
/// A structure is encoded by hand only where its form depends on more than the version.
#[macro_export]
macro_rules! versioned {
    (@put $w:ident, $value:expr) => {
        $w.put($value)
    };
    (@put $w:ident, $value:expr, $via:ident) => {
        $via::encode($value, $w)
    };
    (@get $r:ident) => {
        $r.get()?
    };
    (@get $r:ident, $via:ident) => {
        $via::decode($r)?
    };
    (@default $ty:ty) => {
        <$ty>::default()
    };
    (@default $ty:ty, $value:expr) => {
        $value
    };
    (@present $version:ident) => {
        true
    };
    (@present $version:ident, $since:literal) => {
        $version >= $since
    };
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident($what:literal, version $version:literal, compat $compat:literal
            $(, oldest $oldest:literal)? $(, fix $fix:path)?) {
            $(
                $(#[$fmeta:meta])*
                $(@reserved($rty:ty = $rval:expr $(, since $rsince:literal)?))*
                $fvis:vis $field:ident: $ty:ty $(= $default:expr)? $(, via $via:ident)? $(, since $since:literal)?;
            )*
        }
    )+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name {
            $($(#[$fmeta])* $fvis $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::versioned!(@default $ty $(, $default)?),)* }
            }
        }

        impl $crate::Encode for $name {
            fn encode(&self, w: &mut $crate::Writer) {
                w.section($version, $compat, |_w| {
                    $(
                        $({
                            let dead: $rty = $rval;
                            _w.put(&dead);
                        })*
                        $crate::versioned!(@put _w, &self.$field $(, $via)?);
                    )*
                });
            }
        }

        impl $crate::Decode for $name {
            fn decode(r: &mut $crate::Reader<'_>) -> $crate::Result<Self> {
                r.section($what, $version, |_version, _r| {
                    $($crate::at_least($what, _version, $oldest)?;)?
                    #[allow(unused_mut)] // Not every structure has fields.
                    let mut v = Self::default();
                    $(
                        $(if $crate::versioned!(@present _version $(, $rsince)?) {
                            _r.get::<$rty>()?;
                        })*
                        if $crate::versioned!(@present _version $(, $since)?) {
                            v.$field = $crate::versioned!(@get _r $(, $via)?);
                        }
                    )*
                    $($fix(_version, &mut v);)?
                    Ok(v)
                })
            }
        }
    )+};
}

/// Refuses versions of a structure from before `oldest`.
///
/// # Errors
/// [`Error::TooOld`].
pub fn at_least(what: &'static str, version: u8, oldest: u8) -> Result<()> {
    if version < oldest {
        return Err(Error::TooOld { what, version });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Error, Writer, decode_all, encode_to_vec};

    mod twice {
        use crate::{Reader, Result, Writer};

        pub(super) fn encode(n: &u8, w: &mut Writer) {
            w.u8(n * 2);
        }

        pub(super) fn decode(r: &mut Reader<'_>) -> Result<u8> {
            Ok(r.u8()? / 2)
        }
    }

    fn complete(version: u8, v: &mut Sample) {
        if version < 3 {
            v.sum = u16::from(v.first) + u16::from(v.second);
        }
    }

    versioned! {
        #[derive(Eq)]
        struct Sample("sample", version 4, compat 2, oldest 2, fix complete) {
            first: u8, via twice;
            @reserved(u16 = 7) @reserved(u8 = 1, since 4)
            second: u8 = 5, since 3;
            sum: u16, since 3;
        }

        #[derive(Copy, Eq)]
        struct Empty("empty", version 1, compat 1) {}
    }

    fn sample() -> Sample {
        Sample {
            first: 3,
            second: 4,
            sum: 0x102,
        }
    }

    fn written(version: u8, compat: u8, body: &[u8]) -> Vec<u8> {
        let mut w = Writer::new();
        w.section(version, compat, |w| w.bytes(body));
        w.into_vec()
    }

    #[test]
    fn fields_are_written_in_order_and_come_back() {
        let bytes = encode_to_vec(&sample());
        assert_eq!(bytes, written(4, 2, &[6, 7, 0, 1, 4, 2, 1]));
        assert_eq!(decode_all(&bytes), Ok(sample()));
        assert_eq!(decode_all(&encode_to_vec(&Empty::default())), Ok(Empty {}));
    }

    #[test]
    fn an_older_version_lacks_what_came_later() {
        let third = decode_all::<Sample>(&written(3, 2, &[6, 7, 0, 4, 2, 1]));
        assert_eq!(third, Ok(sample()));
        let second = Sample {
            first: 3,
            second: 5,
            sum: 8,
        };
        assert_eq!(decode_all(&written(2, 2, &[6, 7, 0])), Ok(second));
        let first = decode_all::<Sample>(&written(1, 1, &[6, 7, 0]));
        assert!(matches!(first, Err(Error::TooOld { version: 1, .. })));
    }

    #[test]
    fn a_newer_version_is_read_where_it_says_so() {
        let body = [6, 7, 0, 1, 4, 2, 1, 99];
        assert_eq!(decode_all(&written(9, 4, &body)), Ok(sample()));
        let too_new = decode_all::<Sample>(&written(9, 5, &body));
        assert!(matches!(too_new, Err(Error::TooNew { compat: 5, .. })));
    }
}
