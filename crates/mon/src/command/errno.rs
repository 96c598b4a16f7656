//! Linux error numbers that replies carry, negative.

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        $($(#[$doc])* pub const $name: i32 = -$value;)*
    };
}

errnos! {
    /// Not permitted.
    EPERM = 1;
    /// No such thing.
    ENOENT = 2;
    /// Input or output failed.
    EIO = 5;
    /// Too many arguments.
    E2BIG = 7;
    /// Try again.
    EAGAIN = 11;
    /// Permission denied.
    EACCES = 13;
    /// In use.
    EBUSY = 16;
    /// It exists.
    EEXIST = 17;
    /// Not a directory; here: not of the kind wanted.
    ENOTDIR = 20;
    /// Invalid argument.
    EINVAL = 22;
    /// A value outside the sensible range.
    EDOM = 33;
    /// Out of range.
    ERANGE = 34;
    /// Not empty.
    ENOTEMPTY = 39;
    /// Not supported.
    EOPNOTSUPP = 95;
}

/// An errno as the official monitor prints it without any other text: `(22) Invalid argument`.
pub fn text(code: i32) -> String {
    let what = std::io::Error::from_raw_os_error(-code).to_string();
    let what = what.split(" (os error").next().unwrap_or_default();
    format!("({}) {what}", -code)
}
