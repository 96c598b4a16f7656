//! Error numbers as replies carry them: Linux's, whatever this machine's are. Positive here,
//! negated in results.

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {$($(#[$doc])* pub const $name: i32 = $value;)*};
}

errnos! {
    /// Not permitted.
    EPERM = 1;
    /// No such object.
    ENOENT = 2;
    /// The data can't be read.
    EIO = 5;
    /// More ops, snapshots or work than one request may have.
    E2BIG = 7;
    /// Try again. Clients resubmit for ever: never let it out.
    EAGAIN = 11;
    /// More memory would be needed than is allowed.
    ENOMEM = 12;
    /// No access.
    EACCES = 13;
    /// In use.
    EBUSY = 16;
    /// Exists already.
    EEXIST = 17;
    /// Invalid request.
    EINVAL = 22;
    /// Beyond the largest object.
    EFBIG = 27;
    /// No space.
    ENOSPC = 28;
    /// The version is older.
    ERANGE = 34;
    /// A name is too long.
    ENAMETOOLONG = 36;
    /// No such attribute.
    ENODATA = 61;
    /// The version is newer, or a result too large.
    EOVERFLOW = 75;
    /// The snapshot context is older than the object's (`EOLDSNAPC`).
    EOLDSNAPC = 85;
    /// The payload is too large.
    EMSGSIZE = 90;
    /// Not supported.
    EOPNOTSUPP = 95;
    /// No such watch.
    ENOTCONN = 107;
    /// The client is on the blocklist.
    EBLOCKLISTED = 108;
    /// No answer in time, or a watch without its connection.
    ETIMEDOUT = 110;
    /// The quota is used up.
    EDQUOT = 122;
    /// A comparison did not hold.
    ECANCELED = 125;
}

/// `MAX_ERRNO`: a failed CMPEXT returns the offset of the difference beyond this.
pub const MAX_ERRNO: i32 = 4095;
