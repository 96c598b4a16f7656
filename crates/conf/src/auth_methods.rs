//! Lists of authentication methods: `auth_cluster_required`, `auth_service_required`,
//! `auth_client_required`; `auth_supported` overrides all of them if it is set.

/// Checks an option's methods: every daemon authenticates with cephx, and offers nothing else.
///
/// # Errors
/// The reason, for the operator.
pub(crate) fn check(option: &str, methods: &str) -> Result<(), String> {
    match crate::security::words(methods).find(|n| *n != "cephx") {
        None => Ok(()),
        Some("none") => Err(format!(
            "{option} = {methods}: going without authentication (none) is not offered, only cephx"
        )),
        Some(other) => Err(format!(
            "{option} = {methods}: the authentication method {other} is not offered, only cephx"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cephx_is_offered() {
        for ok in ["cephx", "cephx, cephx", "", " cephx\t"] {
            assert_eq!(check("auth_client_required", ok), Ok(()), "{ok:?}");
        }
        for bad in ["none", "cephx, none", "cephx;none", "gss", "CEPHX"] {
            assert!(check("auth_client_required", bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            check("auth_service_required", "none"),
            Err(
                "auth_service_required = none: going without authentication (none) is not offered, only cephx"
                    .to_owned()
            )
        );
    }
}
