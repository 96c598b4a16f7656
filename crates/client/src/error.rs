//! Errors of requests, and the errno that a user sees.

/// Errno numbers of Linux, which is what Ceph's protocol carries on every platform.
pub mod errno {
    /// Not permitted.
    pub const EPERM: i32 = 1;
    /// No such pool, object or attribute.
    pub const ENOENT: i32 = 2;
    /// An I/O error, or an answer that can't be decoded.
    pub const EIO: i32 = 5;
    /// No such device: the OSD exists and is down.
    pub const ENXIO: i32 = 6;
    /// The request, or its answer, is too large.
    pub const E2BIG: i32 = 7;
    /// The format is not known.
    pub const ENOEXEC: i32 = 8;
    /// The OSD asks for another attempt; never seen outside the client.
    pub const EAGAIN: i32 = 11;
    /// Not allowed.
    pub const EACCES: i32 = 13;
    /// A bad address.
    pub const EFAULT: i32 = 14;
    /// Another client uses it.
    pub const EBUSY: i32 = 16;
    /// Exists already.
    pub const EEXIST: i32 = 17;
    /// The operation spans different places.
    pub const EXDEV: i32 = 18;
    /// A directory.
    pub const EISDIR: i32 = 21;
    /// A malformed request.
    pub const EINVAL: i32 = 22;
    /// A size beyond the largest allowed one.
    pub const EFBIG: i32 = 27;
    /// No room is left.
    pub const ENOSPC: i32 = 28;
    /// A write where only reading is possible.
    pub const EROFS: i32 = 30;
    /// Too many links.
    pub const EMLINK: i32 = 31;
    /// A number that is out of the operation's domain.
    pub const EDOM: i32 = 33;
    /// A value out of its range.
    pub const ERANGE: i32 = 34;
    /// A feature or function that is not known here.
    pub const ENOSYS: i32 = 38;
    /// The container is not empty.
    pub const ENOTEMPTY: i32 = 39;
    /// A loop of references, or one without end.
    pub const ELOOP: i32 = 40;
    /// The data can't be decoded.
    pub const EBADMSG: i32 = 74;
    /// The compared data differs.
    pub const EILSEQ: i32 = 84;
    /// The operation was interrupted, and is to be repeated.
    pub const ERESTART: i32 = 85;
    /// The operation is not supported here.
    pub const EOPNOTSUPP: i32 = 95;
    /// The watch is gone.
    pub const ENOTCONN: i32 = 107;
    /// The client is on the blocklist.
    pub const ESHUTDOWN: i32 = 108;
    /// No answer in time.
    pub const ETIMEDOUT: i32 = 110;
    /// The object was changed meanwhile.
    pub const ESTALE: i32 = 116;
    /// Remains of an earlier operation must be cleaned up first.
    pub const EUCLEAN: i32 = 117;
    /// A quota is exceeded.
    pub const EDQUOT: i32 = 122;
    /// The request was given up, or its comparison failed.
    pub const ECANCELED: i32 = 125;
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has a bad value: the caller's fault.
    #[error("{0}")]
    Config(String),
    /// The configuration file can't be read.
    #[error("{0}")]
    Conf(String),
    /// No option names a monitor.
    #[error("no monitors in mon_host")]
    NoMonitors,
    /// There is no keyring.
    #[error("{0}")]
    NoKey(String),
    /// The keyring has no key for the entity.
    #[error("{0}")]
    NotInKeyring(String),
    /// The monitors don't answer, or refuse.
    #[error(transparent)]
    Mon(#[from] spirula_monc::Error),
    /// The cluster answered with a negative errno.
    #[error("{what}: error {errno}")]
    Os {
        /// The request.
        what: &'static str,
        /// The negative errno.
        errno: i32,
    },
    /// An answer that can't be decoded: the daemon's fault.
    #[error("unreadable answer: {0}")]
    Malformed(String),
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn os(what: &'static str, errno: i32) -> Self {
        Self::Os {
            what,
            errno: -errno.abs(),
        }
    }

    /// The negative errno that a user of the client sees.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Config(_) => -errno::EINVAL,
            Self::NotInKeyring(_) => -errno::EACCES,
            Self::Conf(_) | Self::NoMonitors | Self::NoKey(_) => -errno::ENOENT,
            Self::Mon(e) => e.errno(),
            Self::Os { errno, .. } => *errno,
            Self::Malformed(_) => -errno::EIO,
        }
    }
}

impl From<spirula_proto::Error> for Error {
    fn from(e: spirula_proto::Error) -> Self {
        Self::Malformed(e.to_string())
    }
}

impl From<spirula_denc::Error> for Error {
    fn from(e: spirula_denc::Error) -> Self {
        Self::Malformed(e.to_string())
    }
}
