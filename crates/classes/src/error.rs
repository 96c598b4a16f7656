//! Failures of methods, and of their operations on the object.

use spirula_errno::Errno;

/// A failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// What the client sees.
    Errno(Errno),
    /// The data that was asked for is being fetched: the method must return now, and is called
    /// again with it.
    NotFetched,
}

/// The result of a method, and of its operations on the object.
pub type Result<T> = std::result::Result<T, Error>;

#[allow(missing_docs)]
impl Error {
    pub const ENOENT: Self = Self::Errno(spirula_errno::ENOENT);
    pub const EIO: Self = Self::Errno(spirula_errno::EIO);
    pub const ENXIO: Self = Self::Errno(spirula_errno::ENXIO);
    pub const ENOEXEC: Self = Self::Errno(spirula_errno::ENOEXEC);
    pub const EAGAIN: Self = Self::Errno(spirula_errno::EAGAIN);
    pub const EFAULT: Self = Self::Errno(spirula_errno::EFAULT);
    pub const EBADF: Self = Self::Errno(spirula_errno::EBADF);
    pub const EBUSY: Self = Self::Errno(spirula_errno::EBUSY);
    pub const EEXIST: Self = Self::Errno(spirula_errno::EEXIST);
    pub const EXDEV: Self = Self::Errno(spirula_errno::EXDEV);
    pub const EINVAL: Self = Self::Errno(spirula_errno::EINVAL);
    pub const ENOSPC: Self = Self::Errno(spirula_errno::ENOSPC);
    pub const ERANGE: Self = Self::Errno(spirula_errno::ERANGE);
    pub const ENOSYS: Self = Self::Errno(spirula_errno::ENOSYS);
    pub const ENOMSG: Self = Self::Errno(spirula_errno::ENOMSG);
    pub const ENODATA: Self = Self::Errno(spirula_errno::ENODATA);
    pub const ENOLINK: Self = Self::Errno(spirula_errno::ENOLINK);
    pub const EBADMSG: Self = Self::Errno(spirula_errno::EBADMSG);
    pub const EOVERFLOW: Self = Self::Errno(spirula_errno::EOVERFLOW);
    pub const EOPNOTSUPP: Self = Self::Errno(spirula_errno::EOPNOTSUPP);
    pub const EUSERS: Self = Self::Errno(spirula_errno::EUSERS);
    pub const ESTALE: Self = Self::Errno(spirula_errno::ESTALE);
    pub const EDQUOT: Self = Self::Errno(spirula_errno::EDQUOT);
    pub const ECANCELED: Self = Self::Errno(spirula_errno::ECANCELED);
}

/// Turns an expected error into a value: `None` where the result is one of `expected`.
pub(crate) fn unless<T>(result: Result<T>, expected: &[Error]) -> Result<Option<T>> {
    match result {
        Ok(v) => Ok(Some(v)),
        Err(e) if expected.contains(&e) => Ok(None),
        Err(e) => Err(e),
    }
}
