//! The common part of this crate's codecs: sections of larger structures.

/// Declares how a section of a larger structure is encoded: both directions from one table of its
/// fields, in order. `via` and `since` are those of [`spirula_denc::versioned`]. The fields behind
/// `if` are written, in the version given there, only if that method returns true.
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
                    $(spirula_denc::versioned!(@put w, &self.$field $(, $via)?);)*
                    $(if version == $later_version {
                        $(w.put(&self.$later_field);)*
                    })?
                });
            }

            fn $decode(&mut self, r: &mut spirula_denc::Reader<'_>) -> spirula_denc::Result<()> {
                let known: u8 = $version;
                $(let known = known.max($later_version);)?
                r.section($what, known, |version, r| {
                    spirula_denc::at_least($what, version, $oldest)?;
                    $(if spirula_denc::versioned!(@present version $(, $since)?) {
                        self.$field = spirula_denc::versioned!(@get r $(, $via)?);
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

pub(crate) use section_of;
