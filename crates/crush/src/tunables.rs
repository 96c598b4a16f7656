//! The knobs of the mapper that changed over Ceph's releases, and their named profiles.

use crate::Alg;

/// Parameters of the mapping algorithm. Clients and servers must agree on them, so they travel in
/// the map.
///
/// Format and defaults: `CrushWrapper::set_tunables_*` in Ceph's `src/crush/CrushWrapper.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    /// Retries in the same bucket after a collision, before descending anew.
    pub choose_local_tries: u32,
    /// Retries by permutation of the same bucket, after the local ones.
    pub choose_local_fallback_tries: u32,
    /// Retries of the whole descent (one less than the number of attempts).
    pub choose_total_tries: u32,
    /// 1: `chooseleaf firstn` tries the inner descent once and then retries the outer one.
    pub chooseleaf_descend_once: u32,
    /// Non-zero: the inner descent depends on the outer attempt, shifted right by this minus one.
    pub chooseleaf_vary_r: u8,
    /// 1: the inner descent of `firstn` does not depend on the position in the result.
    pub chooseleaf_stable: u8,
    /// How straw lengths are computed: 0 (as first published) or 1.
    pub straw_calc_version: u8,
    /// Bit `1 << alg` for each bucket algorithm that may be used for new buckets.
    pub allowed_bucket_algs: u32,
}

/// A named set of tunables, by the release that introduced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The first release; also called `legacy`.
    Argonaut,
    /// v0.56.
    Bobtail,
    /// v0.80.
    Firefly,
    /// v0.94: straw2.
    Hammer,
    /// v10.2: `chooseleaf_stable`; also called `optimal` and `default`.
    Jewel,
}

const LEGACY_ALGS: u32 = Alg::Uniform.bit() | Alg::List.bit() | Alg::Straw.bit();
const HAMMER_ALGS: u32 = LEGACY_ALGS | Alg::Straw2.bit();

impl Profile {
    /// All profiles, newest first, as they are probed for a name.
    pub const ALL: [Profile; 5] = [
        Profile::Jewel,
        Profile::Hammer,
        Profile::Firefly,
        Profile::Bobtail,
        Profile::Argonaut,
    ];

    /// The profile's name in commands and dumps.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Argonaut => "argonaut",
            Profile::Bobtail => "bobtail",
            Profile::Firefly => "firefly",
            Profile::Hammer => "hammer",
            Profile::Jewel => "jewel",
        }
    }

    /// The profile that `ceph osd crush tunables NAME` means, aliases included.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "legacy" => Some(Profile::Argonaut),
            "optimal" | "default" => Some(Profile::Jewel),
            _ => Self::ALL.into_iter().find(|p| p.name() == name),
        }
    }

    /// The profile's values, with the given `straw_calc_version`, which belongs to no profile.
    pub fn tunables(self, straw_calc_version: u8) -> Tunables {
        let argonaut = self == Profile::Argonaut;
        Tunables {
            choose_local_tries: if argonaut { 2 } else { 0 },
            choose_local_fallback_tries: if argonaut { 5 } else { 0 },
            choose_total_tries: if argonaut { 19 } else { 50 },
            chooseleaf_descend_once: u32::from(!argonaut),
            chooseleaf_vary_r: u8::from(!matches!(self, Profile::Argonaut | Profile::Bobtail)),
            chooseleaf_stable: u8::from(self == Profile::Jewel),
            straw_calc_version,
            allowed_bucket_algs: match self {
                Profile::Jewel | Profile::Hammer => HAMMER_ALGS,
                _ => LEGACY_ALGS,
            },
        }
    }
}

impl Tunables {
    /// The values of a map that was encoded before tunables existed.
    pub fn legacy() -> Self {
        Profile::Argonaut.tunables(0)
    }

    /// The profile with these values, if there is one.
    pub fn profile(&self) -> Option<Profile> {
        Profile::ALL
            .into_iter()
            .find(|p| p.tunables(self.straw_calc_version) == *self)
    }

    /// Whether the retry counts need clients of bobtail or later (feature `CRUSH_TUNABLES`).
    pub fn needs_tunables(&self) -> bool {
        let old = Tunables::legacy();
        self.choose_local_tries != old.choose_local_tries
            || self.choose_local_fallback_tries != old.choose_local_fallback_tries
            || self.choose_total_tries != old.choose_total_tries
    }

    /// Whether feature `CRUSH_TUNABLES2` is needed.
    pub fn needs_tunables2(&self) -> bool {
        self.chooseleaf_descend_once != 0
    }

    /// Whether feature `CRUSH_TUNABLES3` is needed.
    pub fn needs_tunables3(&self) -> bool {
        self.chooseleaf_vary_r != 0
    }

    /// Whether feature `CRUSH_TUNABLES5` is needed.
    pub fn needs_tunables5(&self) -> bool {
        self.chooseleaf_stable != 0
    }

    /// The algorithm for new buckets: the best of the allowed ones.
    pub fn default_alg(&self) -> Option<Alg> {
        [Alg::Straw2, Alg::Straw, Alg::Tree, Alg::List, Alg::Uniform]
            .into_iter()
            .find(|a| self.allowed_bucket_algs & a.bit() != 0)
    }
}

impl Default for Tunables {
    /// The jewel profile with the corrected straw lengths, for new clusters.
    fn default() -> Self {
        Profile::Jewel.tunables(1)
    }
}
