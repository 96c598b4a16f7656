//! Failures of methods, and of their operations on the object.

/// A failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The positive error number that the client sees negated.
    Errno(i32),
    /// The data that was asked for is being fetched: the method must return now, and is called
    /// again with it.
    NotFetched,
}

/// The result of a method, and of its operations on the object.
pub type Result<T> = std::result::Result<T, Error>;

/// Input that can't be decoded, or is inconsistent.
pub(crate) const EINVAL: i32 = 22;

#[allow(missing_docs)]
impl Error {
    pub const ENOENT: Self = Self::Errno(2);
    pub const EIO: Self = Self::Errno(5);
    pub const ENXIO: Self = Self::Errno(6);
    pub const ENOEXEC: Self = Self::Errno(8);
    pub const EBADF: Self = Self::Errno(9);
    pub const EBUSY: Self = Self::Errno(16);
    pub const EEXIST: Self = Self::Errno(17);
    pub const EXDEV: Self = Self::Errno(18);
    pub const EINVAL: Self = Self::Errno(EINVAL);
    pub const ERANGE: Self = Self::Errno(34);
    pub const ENOSYS: Self = Self::Errno(38);
    pub const ENOMSG: Self = Self::Errno(42);
    pub const ENODATA: Self = Self::Errno(61);
    pub const ENOLINK: Self = Self::Errno(67);
    pub const EBADMSG: Self = Self::Errno(74);
    pub const EOVERFLOW: Self = Self::Errno(75);
    pub const EOPNOTSUPP: Self = Self::Errno(95);
    pub const ESTALE: Self = Self::Errno(116);
    pub const EDQUOT: Self = Self::Errno(122);
    pub const ECANCELED: Self = Self::Errno(125);
}

/// Turns an expected error into a value: `None` where the result is one of `expected`.
pub(crate) fn unless<T>(result: Result<T>, expected: &[Error]) -> Result<Option<T>> {
    match result {
        Ok(v) => Ok(Some(v)),
        Err(e) if expected.contains(&e) => Ok(None),
        Err(e) => Err(e),
    }
}
