//! Versioned structures: the form of most input, output and stored values of methods.

/// Decodes a field of [`versioned`].
macro_rules! field {
    ($r:ident, $version:ident) => {
        $r.get()?
    };
    ($r:ident, $version:ident, $since:literal, $old:expr) => {
        if $version >= $since { $r.get()? } else { $old }
    };
}
pub(crate) use field;

/// Declares structures. A field that older versions lack states its first version, and its value in
/// older ones.
macro_rules! versioned {
    ($(
        $(#[$doc:meta])*
        $vis:vis struct $name:ident: $text:literal, version $version:literal {
            $($(#[$fdoc:meta])* $fvis:vis $field:ident: $type:ty $(where since $since:literal else $old:expr)?,)*
        }
    )+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        $vis struct $name {
            $($(#[$fdoc])* $fvis $field: $type,)*
        }

        impl spirula_denc::Encode for $name {
            fn encode(&self, w: &mut spirula_denc::Writer) {
                w.section($version, 1, |_w| {
                    $(_w.put(&self.$field);)*
                });
            }
        }

        impl spirula_denc::Decode for $name {
            fn decode(r: &mut spirula_denc::Reader<'_>) -> spirula_denc::Result<Self> {
                r.section($text, $version, |_version, _r| {
                    $(let $field = $crate::versioned::field!(_r, _version $(, $since, $old)?);)*
                    Ok(Self { $($field,)* })
                })
            }
        }
    )+};
}
pub(crate) use versioned;
