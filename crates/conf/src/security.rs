//! Options about security. Each is obeyed, or refused if it asks for something that is not done.
//! None is accepted without effect, as operators rely on them.

use Rule::{Fixed, Methods, Modes, Obeyed};

use crate::auth_methods;

/// Separates the words of lists, as in Ceph (`substr_do` of `src/common/str_util.h`).
const SEPARATORS: [char; 5] = [',', ';', '=', ' ', '\t'];

/// How an option is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Any value is obeyed.
    Obeyed,
    /// A list of authentication methods, which may only name cephx.
    Methods,
    /// A list of connection modes: `crc`, `secure`.
    Modes,
    /// Only one value is supported: its canonical spelling, and why there is no other.
    Fixed(&'static str, &'static str),
}

const MSGR1: &str = "only msgr2 is spoken, where version 2 of cephx is the only one";
const SIGNATURES: &str =
    "only secure mode authenticates messages of msgr2: set the ms_*_mode options to secure instead";

/// Ceph 16.2's options about security, for the parts that Spirula has.
pub const OPTIONS: &[(&str, Rule)] = &[
    ("admin_socket", Obeyed),
    ("auth_allow_insecure_global_id_reclaim", Obeyed),
    ("auth_client_required", Methods),
    ("auth_cluster_required", Methods),
    (
        "auth_debug",
        Fixed(
            "false",
            "handshakes are logged at debug level, without what they carry",
        ),
    ),
    (
        "auth_expose_insecure_global_id_reclaim",
        Fixed(
            "false",
            "clients that reclaim a global id insecurely are refused or let in, never made to connect twice",
        ),
    ),
    ("auth_mon_ticket_ttl", Obeyed),
    ("auth_service_required", Methods),
    ("auth_service_ticket_ttl", Obeyed),
    ("auth_supported", Methods),
    ("cephx_cluster_require_signatures", Fixed("false", SIGNATURES)),
    ("cephx_cluster_require_version", Fixed("2", MSGR1)),
    ("cephx_require_signatures", Fixed("false", SIGNATURES)),
    ("cephx_require_version", Fixed("2", MSGR1)),
    ("cephx_service_require_signatures", Fixed("false", SIGNATURES)),
    ("cephx_service_require_version", Fixed("2", MSGR1)),
    (
        "cephx_sign_messages",
        Fixed(
            "true",
            "the frames of secure mode are always authenticated, and those of crc mode never are",
        ),
    ),
    ("key", Obeyed),
    ("keyfile", Obeyed),
    ("keyring", Obeyed),
    ("mon_allow_pool_delete", Obeyed),
    ("mon_allow_pool_size_one", Obeyed),
    ("mon_auth_allow_insecure_key", Obeyed),
    (
        "mon_auth_validate_all_caps",
        Fixed("true", "capabilities that do not parse are always refused"),
    ),
    ("ms_bind_msgr1", Fixed("false", "msgr1 is not spoken")),
    (
        "ms_bind_msgr2",
        Fixed("true", "nothing else than msgr2 is spoken"),
    ),
    ("ms_bind_port_max", Obeyed),
    ("ms_bind_port_min", Obeyed),
    ("ms_client_mode", Modes),
    ("ms_cluster_mode", Modes),
    (
        "ms_crc_data",
        Fixed("true", "checksums are always computed and checked"),
    ),
    (
        "ms_crc_header",
        Fixed("true", "checksums are always computed and checked"),
    ),
    ("ms_mon_client_mode", Modes),
    ("ms_mon_cluster_mode", Modes),
    ("ms_mon_service_mode", Modes),
    ("ms_service_mode", Modes),
    ("osd_class_default_list", Obeyed),
    ("osd_class_load_list", Obeyed),
    (
        "osd_pool_default_flags",
        Fixed(
            "0",
            "the flags of new pools have an option each, osd_pool_default_flag_*",
        ),
    ),
    ("osd_pool_default_flag_bulk", Obeyed),
    (
        "osd_pool_default_flag_hashpspool",
        Fixed(
            "true",
            "placement groups of pools without it would lie on the same OSDs",
        ),
    ),
    ("osd_pool_default_flag_nodelete", Obeyed),
    ("osd_pool_default_flag_nopgchange", Obeyed),
    ("osd_pool_default_flag_nosizechange", Obeyed),
];

/// The rule of an option; `None` for one that is not about security.
pub fn rule(option: &str) -> Option<Rule> {
    OPTIONS
        .iter()
        .find(|(name, _)| *name == option)
        .map(|(_, rule)| *rule)
}

/// Checks the value of an option, in its canonical spelling.
///
/// # Errors
/// The unsupported request, for the operator.
pub fn check(option: &str, value: &str) -> Result<(), String> {
    match rule(option) {
        None | Some(Obeyed) => Ok(()),
        Some(Methods) => auth_methods::check(option, value),
        Some(Modes) => check_modes(option, value),
        Some(Fixed(only, _)) if value == only => Ok(()),
        Some(Fixed(only, why)) => Err(format!("{option} = {value} is not offered, only {only}: {why}")),
    }
}

/// The words of a list.
pub(crate) fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(SEPARATORS).filter(|w| !w.is_empty())
}

fn check_modes(option: &str, list: &str) -> Result<(), String> {
    if words(list).next().is_none() {
        return Err(format!("{option} names no connection mode"));
    }
    match words(list).find(|w| !["crc", "secure"].contains(w)) {
        None => Ok(()),
        Some(other) => Err(format!(
            "{option} = {list}: {other} is no connection mode; there are crc and secure"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{all, find};

    /// Parts of names that mark an option as one about security.
    const TELLING: [&str; 9] = [
        "auth_",
        "cephx_",
        "ms_bind_msgr",
        "ms_crc_",
        "key",
        "mon_allow_",
        "mon_auth_",
        "osd_pool_default_flag",
        "osd_class_l",
    ];

    #[test]
    fn every_option_about_security_is_obeyed_or_refused() {
        let about = |name: &str| {
            TELLING.iter().any(|t| name.starts_with(t)) || name.starts_with("ms_") && name.ends_with("_mode")
        };
        for option in all().iter().filter(|o| about(o.name)) {
            assert!(rule(option.name).is_some(), "{} has no rule", option.name);
        }
        assert!(OPTIONS.len() > 35);
        for (name, rule) in OPTIONS {
            let option = find(name).unwrap_or_else(|| panic!("{name} is no option"));
            match rule {
                Obeyed | Methods | Modes => {
                    assert!(
                        option.effect || ["auth_supported", "key", "keyfile"].contains(name),
                        "{name} has no effect"
                    );
                }
                Fixed(only, _) => {
                    assert_eq!(option.parse(only).as_deref(), Ok(*only), "{name}");
                    let others = ["true", "false", "3"].into_iter().filter(|o| o != only);
                    for other in others.filter(|o| (*o == "3") != only.parse::<bool>().is_ok()) {
                        assert!(option.parse(other).is_err(), "{name} = {other}");
                    }
                }
            }
        }
    }

    #[test]
    fn connection_modes_are_words_that_are_known() {
        for ok in ["secure", "crc secure", "secure,crc", " crc "] {
            assert_eq!(check("ms_cluster_mode", ok), Ok(()), "{ok:?}");
        }
        for bad in ["", " ", "secur", "secure, none", "SECURE"] {
            assert!(check("ms_cluster_mode", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_not_done_is_refused_with_the_reason() {
        let why = find("cephx_require_signatures").unwrap().parse("yes please");
        assert!(why.is_err());
        let why = find("cephx_require_signatures")
            .unwrap()
            .parse("true")
            .unwrap_err();
        assert!(
            why.starts_with("cephx_require_signatures = true is not offered, only false: "),
            "{why}"
        );
    }
}
