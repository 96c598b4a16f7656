//! Errno numbers and their texts, as official daemons and tools print them.

/// Not permitted.
pub const EPERM: i32 = 1;
/// No such option, command, daemon, …
pub const ENOENT: i32 = 2;
/// An invalid argument.
pub const EINVAL: i32 = 22;
/// An operation that the daemon does not support.
pub const EOPNOTSUPP: i32 = 95;

/// The system's text for an errno of either sign: `No such file or directory`.
pub fn message(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno.saturating_abs()).to_string();
    match text.rsplit_once(" (os error ") {
        Some((message, _)) => message.to_owned(),
        None => text,
    }
}

/// Number and text as official tools print them: `(2) No such file or directory`.
pub fn describe(errno: i32) -> String {
    format!("({}) {}", errno.saturating_abs(), message(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_texts() {
        assert_eq!(describe(-2), "(2) No such file or directory");
        assert_eq!(describe(61), "(61) No data available");
    }
}
