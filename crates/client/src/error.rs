//! What a request can fail with, and the errno that a user sees.

/// Errno numbers of Linux, which is what Ceph's protocol carries on every platform.
pub mod errno {
    /// Not permitted.
    pub const EPERM: i32 = 1;
    /// No such pool, object or attribute.
    pub const ENOENT: i32 = 2;
    /// An I/O error, or an answer that makes no sense.
    pub const EIO: i32 = 5;
    /// No such device: the OSD exists and is down.
    pub const ENXIO: i32 = 6;
    /// Too much.
    pub const E2BIG: i32 = 7;
    /// Not in a format that is known.
    pub const ENOEXEC: i32 = 8;
    /// The OSD asks for another attempt; never seen outside the client.
    pub const EAGAIN: i32 = 11;
    /// Not allowed.
    pub const EACCES: i32 = 13;
    /// A bad address.
    pub const EFAULT: i32 = 14;
    /// Somebody else uses it.
    pub const EBUSY: i32 = 16;
    /// Exists already.
    pub const EEXIST: i32 = 17;
    /// Between different places.
    pub const EXDEV: i32 = 18;
    /// A directory.
    pub const EISDIR: i32 = 21;
    /// A malformed request.
    pub const EINVAL: i32 = 22;
    /// Larger than anything may be.
    pub const EFBIG: i32 = 27;
    /// No room is left.
    pub const ENOSPC: i32 = 28;
    /// Writing where only reading is possible.
    pub const EROFS: i32 = 30;
    /// Too many links.
    pub const EMLINK: i32 = 31;
    /// A number that can't be used for this.
    pub const EDOM: i32 = 33;
    /// A value out of its bounds.
    pub const ERANGE: i32 = 34;
    /// Something that is not known here.
    pub const ENOSYS: i32 = 38;
    /// It holds something.
    pub const ENOTEMPTY: i32 = 39;
    /// What leads back to itself, or does not end.
    pub const ELOOP: i32 = 40;
    /// What was read makes no sense.
    pub const EBADMSG: i32 = 74;
    /// What was compared differs.
    pub const EILSEQ: i32 = 84;
    /// Interrupted, to be asked for again.
    pub const ERESTART: i32 = 85;
    /// Not possible here.
    pub const EOPNOTSUPP: i32 = 95;
    /// The watch is gone.
    pub const ENOTCONN: i32 = 107;
    /// The client is on the blocklist.
    pub const ESHUTDOWN: i32 = 108;
    /// No answer in time.
    pub const ETIMEDOUT: i32 = 110;
    /// It was changed meanwhile.
    pub const ESTALE: i32 = 116;
    /// Something has to be cleaned up first.
    pub const EUCLEAN: i32 = 117;
    /// More than was allotted.
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
    /// The keyring has no key for who wants to log in.
    #[error("{0}")]
    NotInKeyring(String),
    /// Monitors that don't answer or refuse.
    #[error(transparent)]
    Mon(#[from] spirula_monc::Error),
    /// The cluster answered with a negative errno.
    #[error("{what}: error {errno}")]
    Os {
        /// What was asked.
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
