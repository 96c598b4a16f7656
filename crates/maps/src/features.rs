//! Connection feature bits (Ceph's `src/include/ceph_features.h`).
//!
//! Bits are reused by later releases, so a feature is a mask of its bit and its "incarnation" bits.

const INCARNATION_2: u64 = 1 << 57;
const INCARNATION_3: u64 = INCARNATION_2 | 1 << 28;

/// A peer knows Nautilus' features; the oldest that may connect.
pub const SERVER_NAUTILUS: u64 = 1 << 2 | INCARNATION_3;
/// Addresses are `entity_addrvec_t`, as msgr2 needs.
pub const MSG_ADDR2: u64 = 1 << 59;
/// The monitor's subscriptions are acknowledged by the session itself.
pub const MON_STATEFUL_SUB: u64 = 1 << 57;

/// Everything that Ceph 16.2.15 supports (`CEPH_FEATURES_ALL`). Spirula reports the same, so that
/// newer peers talk to it as to a Pacific cluster.
pub const PACIFIC_ALL: u64 = 0x3f01_cfbd_fffd_ffff;
/// The features that every peer must have. One encoding of the maps then fits all of them.
pub const REQUIRED: u64 = MSG_ADDR2 | SERVER_NAUTILUS;

/// The features that change how an OSDMap is encoded, all of which Pacific has
/// (`OSDMap::SIGNIFICANT_FEATURES`).
pub const OSDMAP_SIGNIFICANT: u64 = 0x0f00_0880_1021_2a04;

/// Whether `features` has all bits of `feature`.
pub const fn has(features: u64, feature: u64) -> bool {
    features & feature == feature
}

/// Releases as maps number them (`ceph_release_t`).
pub mod release {
    /// Unset.
    pub const UNKNOWN: u8 = 0;
    /// 0.80.
    pub const FIREFLY: u8 = 6;
    /// 12.2.
    pub const LUMINOUS: u8 = 12;
    /// 13.2.
    pub const MIMIC: u8 = 13;
    /// 14.2.
    pub const NAUTILUS: u8 = 14;
    /// 15.2.
    pub const OCTOPUS: u8 = 15;
    /// 16.2.
    pub const PACIFIC: u8 = 16;

    const NAMES: [&str; 21] = [
        "unknown",
        "argonaut",
        "bobtail",
        "cuttlefish",
        "dumpling",
        "emperor",
        "firefly",
        "giant",
        "hammer",
        "infernalis",
        "jewel",
        "kraken",
        "luminous",
        "mimic",
        "nautilus",
        "octopus",
        "pacific",
        "quincy",
        "reef",
        "squid",
        "tentacle",
    ];

    /// The release's name, `unknown` for a number without one.
    pub fn name(release: u8) -> &'static str {
        NAMES.get(usize::from(release)).copied().unwrap_or("unknown")
    }

    /// The number of the release called `name`.
    pub fn from_name(name: &str) -> Option<u8> {
        NAMES
            .iter()
            .skip(1)
            .position(|n| *n == name)
            .and_then(|i| u8::try_from(i + 1).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER_LUMINOUS: u64 = 1 << 21 | INCARNATION_2;
    const SERVER_MIMIC: u64 = 1 << 28 | INCARNATION_2;
    const SERVER_OCTOPUS: u64 = 1 << 16 | INCARNATION_3;
    const SERVER_PACIFIC: u64 = 1 << 20 | INCARNATION_3;
    const CEPHX_V2: u64 = 1 << 61;

    #[test]
    fn the_pacific_mask_has_what_pacific_needs_and_not_what_came_later() {
        for f in [
            REQUIRED,
            SERVER_LUMINOUS,
            SERVER_MIMIC,
            SERVER_OCTOPUS,
            SERVER_PACIFIC,
            MON_STATEFUL_SUB,
            CEPHX_V2,
        ] {
            assert!(has(PACIFIC_ALL, f), "{f:#x}");
        }
        let server_quincy = 1 << 33 | INCARNATION_3;
        assert!(!has(PACIFIC_ALL, server_quincy));
    }

    /// The features that a Linux kernel client reports.
    #[test]
    fn kernel_clients_are_new_enough() {
        assert!(has(0x2f01_8fb8_7aa4_aafe, REQUIRED));
        assert!(!has(0x2f01_8fb8_7aa4_aafe, SERVER_OCTOPUS));
    }

    #[test]
    fn releases_have_names() {
        assert_eq!(release::name(release::PACIFIC), "pacific");
        assert_eq!(release::from_name("luminous"), Some(release::LUMINOUS));
        assert_eq!(release::from_name("unknown"), None);
    }
}
