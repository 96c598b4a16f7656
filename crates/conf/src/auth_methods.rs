//! Lists of authentication methods: `auth_cluster_required`, `auth_service_required`, `auth_client_required`.

/// The options that name such lists; `auth_supported` stands for all of them where it is set.
pub const OPTIONS: [&str; 4] = [
    "auth_client_required",
    "auth_cluster_required",
    "auth_service_required",
    "auth_supported",
];

/// Checks the methods that an option asks for: every daemon authenticates with cephx, and nothing else is offered.
///
/// # Errors
/// What is wrong, for the operator.
pub fn check(option: &str, methods: &str) -> Result<(), String> {
    let names = methods.split([',', ';', '=', ' ', '\t']);
    match names.filter(|n| !n.is_empty()).find(|n| *n != "cephx") {
        None => Ok(()),
        Some("none") => Err(format!(
            "{option} = {methods}: going without authentication (none) is not offered, only cephx"
        )),
        Some(other) => Err(format!(
            "{option} = {methods}: the authentication method {other} is not offered, only cephx"
        )),
    }
}

/// Checks all of these options in a daemon's configuration.
///
/// # Errors
/// What is wrong with the first one that asks for something else than cephx.
pub fn check_all<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<(), String> {
    OPTIONS
        .iter()
        .filter_map(|o| Some((*o, get(o)?)))
        .try_for_each(|(o, methods)| check(o, methods))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn only_cephx_is_offered() {
        for ok in ["cephx", "cephx, cephx", "", " cephx\t"] {
            assert_eq!(check("auth_client_required", ok), Ok(()), "{ok:?}");
        }
        for bad in ["none", "cephx, none", "cephx;none", "gss", "CEPHX"] {
            assert!(check("auth_client_required", bad).is_err(), "{bad:?}");
        }
        let conf = BTreeMap::from([
            ("auth_cluster_required", "cephx"),
            ("auth_service_required", "none"),
        ]);
        assert_eq!(
            check_all(|o| conf.get(o).copied()),
            Err(
                "auth_service_required = none: going without authentication (none) is not offered, only cephx"
                    .to_owned()
            )
        );
    }
}
