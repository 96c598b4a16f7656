//! Sums over objects.

use std::collections::BTreeMap;

use spirula_denc::{Decode, Encode, Reader, Result, Writer, versioned};

macro_rules! summed {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($what:literal, version $version:literal, compat $compat:literal) {
            $($(#[$fmeta:meta])* pub $field:ident: $ty:ty $(, since $since:literal)?;)*
        }
    ) => {
        versioned! {
            $(#[$meta])*
            #[derive(Copy, Eq)]
            pub struct $name($what, version $version, compat $compat) {
                $($(#[$fmeta])* pub $field: $ty $(, since $since)?;)*
            }
        }

        impl $name {
            /// Adds another's numbers. Each sum is cut to an eighth of the largest number, so that
            /// a few sums can be added up.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field).clamp(<$ty>::MIN / 8, 1 << (<$ty>::BITS - 4));)*
            }

            /// Subtracts another's numbers, likewise.
            pub fn sub(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_sub(other.$field).clamp(<$ty>::MIN / 8, 1 << (<$ty>::BITS - 4));)*
            }

            /// Cuts each number to be non-negative, and far from the largest.
            pub fn bound(&mut self) {
                $(self.$field = self.$field.clamp(0, 1 << (<$ty>::BITS - 8));)*
            }
        }
    };
}
pub(super) use summed;

summed! {
    /// `object_stat_sum_t`.
    pub struct ObjectStatSum("object_stat_sum_t", version 20, compat 14) {
        /// Bytes of data.
        pub num_bytes: i64;
        /// Objects, clones included.
        pub num_objects: i64;
        /// Clones.
        pub num_object_clones: i64;
        /// Objects times the number of copies that there should be.
        pub num_object_copies: i64;
        /// Objects that the primary lacks.
        pub num_objects_missing_on_primary: i64;
        /// Copies that are missing.
        pub num_objects_degraded: i64;
        /// Objects of which no copy is found.
        pub num_objects_unfound: i64;
        /// Read operations.
        pub num_rd: i64;
        /// KiB read.
        pub num_rd_kb: i64;
        /// Write operations.
        pub num_wr: i64;
        /// KiB written.
        pub num_wr_kb: i64;
        /// Errors found by scrub.
        pub num_scrub_errors: i64;
        /// Objects recovered.
        pub num_objects_recovered: i64;
        /// Bytes recovered.
        pub num_bytes_recovered: i64;
        /// Omap keys recovered.
        pub num_keys_recovered: i64;
        /// Errors found by shallow scrub.
        pub num_shallow_scrub_errors: i64;
        /// Errors found by deep scrub.
        pub num_deep_scrub_errors: i64;
        /// Cache tier.
        pub num_objects_dirty: i64;
        /// Cache tier.
        pub num_whiteouts: i64;
        /// Objects with omap.
        pub num_objects_omap: i64;
        /// Cache tier.
        pub num_objects_hit_set_archive: i64;
        /// Copies in the wrong place.
        pub num_objects_misplaced: i64;
        /// Cache tier.
        pub num_bytes_hit_set_archive: i64;
        /// Cache tier.
        pub num_flush: i64;
        /// Cache tier.
        pub num_flush_kb: i64;
        /// Cache tier.
        pub num_evict: i64;
        /// Cache tier.
        pub num_evict_kb: i64;
        /// Cache tier.
        pub num_promote: i64;
        /// Cache tier.
        pub num_flush_mode_high: i32;
        /// Cache tier.
        pub num_flush_mode_low: i32;
        /// Cache tier.
        pub num_evict_mode_some: i32;
        /// Cache tier.
        pub num_evict_mode_full: i32;
        /// Cache tier.
        pub num_objects_pinned: i64;
        /// Objects that some replica lacks.
        pub num_objects_missing: i64;
        /// Objects with snapshot metadata from before Luminous.
        pub num_legacy_snapsets: i64, since 16;
        /// Objects with very large omaps.
        pub num_large_omap_objects: i64, since 17;
        /// Objects with a manifest.
        pub num_objects_manifest: i64, since 18;
        /// Bytes of omap, as scrub found them.
        pub num_omap_bytes: i64, since 19;
        /// Keys of omap, as scrub found them.
        pub num_omap_keys: i64, since 19;
        /// Objects repaired.
        pub num_objects_repaired: i64, since 20;
    }
}

/// `object_stat_collection_t`: a sum, once one of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectStatCollection {
    /// The sum over all objects.
    pub sum: ObjectStatSum,
}

// By hand: it ends with a dead field.
impl Encode for ObjectStatCollection {
    fn encode(&self, w: &mut Writer) {
        w.section(2, 2, |w| {
            w.put(&self.sum);
            // Once sums by category.
            w.u32(0);
        });
    }
}

impl Decode for ObjectStatCollection {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("object_stat_collection_t", 2, |_, r| {
            let sum = r.get()?;
            r.get::<BTreeMap<String, ObjectStatSum>>()?;
            Ok(Self { sum })
        })
    }
}
