//! Errors by Linux's numbers, which is what Ceph's protocol carries on every platform.
//!
//! An [`Errno`] has no sign. Its user makes the number with a sign where it is needed: `-ENOENT` is
//! the result that a reply carries, `ENOENT.code()` the exit code of a command.
//! [`Errno::of_result`] reads the result of a reply.

use std::fmt;

/// The kind of an error. Never zero, which would be success.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        $(
            #[doc = $text]
            pub const $name: Errno = Errno($code);
        )*

        /// Name and text of a number.
        fn known(code: i32) -> Option<(&'static str, &'static str)> {
            match code {
                $($code => Some((stringify!($name), $text)),)*
                _ => None,
            }
        }
    };
}

// `asm-generic/errno-base.h` and `asm-generic/errno.h` with the texts of glibc's `strerror`. Where
// a number has two names, the table has that of Python's `errno.errorcode`, which the official
// tools print.
errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    ESRCH = 3, "No such process";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address";
    E2BIG = 7, "Argument list too long";
    ENOEXEC = 8, "Exec format error";
    EBADF = 9, "Bad file descriptor";
    ECHILD = 10, "No child processes";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    ENOTBLK = 15, "Block device required";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    EXDEV = 18, "Invalid cross-device link";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    ENFILE = 23, "Too many open files in system";
    EMFILE = 24, "Too many open files";
    ENOTTY = 25, "Inappropriate ioctl for device";
    ETXTBSY = 26, "Text file busy";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    ESPIPE = 29, "Illegal seek";
    EROFS = 30, "Read-only file system";
    EMLINK = 31, "Too many links";
    EPIPE = 32, "Broken pipe";
    EDOM = 33, "Numerical argument out of domain";
    ERANGE = 34, "Numerical result out of range";
    EDEADLOCK = 35, "Resource deadlock avoided";
    ENAMETOOLONG = 36, "File name too long";
    ENOLCK = 37, "No locks available";
    ENOSYS = 38, "Function not implemented";
    ENOTEMPTY = 39, "Directory not empty";
    ELOOP = 40, "Too many levels of symbolic links";
    ENOMSG = 42, "No message of desired type";
    EIDRM = 43, "Identifier removed";
    ECHRNG = 44, "Channel number out of range";
    EL2NSYNC = 45, "Level 2 not synchronized";
    EL3HLT = 46, "Level 3 halted";
    EL3RST = 47, "Level 3 reset";
    ELNRNG = 48, "Link number out of range";
    EUNATCH = 49, "Protocol driver not attached";
    ENOCSI = 50, "No CSI structure available";
    EL2HLT = 51, "Level 2 halted";
    EBADE = 52, "Invalid exchange";
    EBADR = 53, "Invalid request descriptor";
    EXFULL = 54, "Exchange full";
    ENOANO = 55, "No anode";
    EBADRQC = 56, "Invalid request code";
    EBADSLT = 57, "Invalid slot";
    EBFONT = 59, "Bad font file format";
    ENOSTR = 60, "Device not a stream";
    ENODATA = 61, "No data available";
    ETIME = 62, "Timer expired";
    ENOSR = 63, "Out of streams resources";
    ENONET = 64, "Machine is not on the network";
    ENOPKG = 65, "Package not installed";
    EREMOTE = 66, "Object is remote";
    ENOLINK = 67, "Link has been severed";
    EADV = 68, "Advertise error";
    ESRMNT = 69, "Srmount error";
    ECOMM = 70, "Communication error on send";
    EPROTO = 71, "Protocol error";
    EMULTIHOP = 72, "Multihop attempted";
    EDOTDOT = 73, "RFS specific error";
    EBADMSG = 74, "Bad message";
    EOVERFLOW = 75, "Value too large for defined data type";
    ENOTUNIQ = 76, "Name not unique on network";
    EBADFD = 77, "File descriptor in bad state";
    EREMCHG = 78, "Remote address changed";
    ELIBACC = 79, "Can not access a needed shared library";
    ELIBBAD = 80, "Accessing a corrupted shared library";
    ELIBSCN = 81, ".lib section in a.out corrupted";
    ELIBMAX = 82, "Attempting to link in too many shared libraries";
    ELIBEXEC = 83, "Cannot exec a shared library directly";
    EILSEQ = 84, "Invalid or incomplete multibyte or wide character";
    ERESTART = 85, "Interrupted system call should be restarted";
    ESTRPIPE = 86, "Streams pipe error";
    EUSERS = 87, "Too many users";
    ENOTSOCK = 88, "Socket operation on non-socket";
    EDESTADDRREQ = 89, "Destination address required";
    EMSGSIZE = 90, "Message too long";
    EPROTOTYPE = 91, "Protocol wrong type for socket";
    ENOPROTOOPT = 92, "Protocol not available";
    EPROTONOSUPPORT = 93, "Protocol not supported";
    ESOCKTNOSUPPORT = 94, "Socket type not supported";
    ENOTSUP = 95, "Operation not supported";
    EPFNOSUPPORT = 96, "Protocol family not supported";
    EAFNOSUPPORT = 97, "Address family not supported by protocol";
    EADDRINUSE = 98, "Address already in use";
    EADDRNOTAVAIL = 99, "Cannot assign requested address";
    ENETDOWN = 100, "Network is down";
    ENETUNREACH = 101, "Network is unreachable";
    ENETRESET = 102, "Network dropped connection on reset";
    ECONNABORTED = 103, "Software caused connection abort";
    ECONNRESET = 104, "Connection reset by peer";
    ENOBUFS = 105, "No buffer space available";
    EISCONN = 106, "Transport endpoint is already connected";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ESHUTDOWN = 108, "Cannot send after transport endpoint shutdown";
    ETOOMANYREFS = 109, "Too many references: cannot splice";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTDOWN = 112, "Host is down";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
    ESTALE = 116, "Stale file handle";
    EUCLEAN = 117, "Structure needs cleaning";
    ENOTNAM = 118, "Not a XENIX named type file";
    ENAVAIL = 119, "No XENIX semaphores available";
    EISNAM = 120, "Is a named type file";
    EREMOTEIO = 121, "Remote I/O error";
    EDQUOT = 122, "Disk quota exceeded";
    ENOMEDIUM = 123, "No medium found";
    EMEDIUMTYPE = 124, "Wrong medium type";
    ECANCELED = 125, "Operation canceled";
    ENOKEY = 126, "Required key not available";
    EKEYEXPIRED = 127, "Key has expired";
    EKEYREVOKED = 128, "Key has been revoked";
    EKEYREJECTED = 129, "Key was rejected by service";
    EOWNERDEAD = 130, "Owner died";
    ENOTRECOVERABLE = 131, "State not recoverable";
    ERFKILL = 132, "Operation not possible due to RF-kill";
    EHWPOISON = 133, "Memory page has hardware error";
}

/// Linux's other name of [`ENOTSUP`].
pub const EOPNOTSUPP: Errno = ENOTSUP;
/// Ceph's name of [`ESHUTDOWN`]: the client is on the blocklist.
pub const EBLOCKLISTED: Errno = ESHUTDOWN;
/// Ceph's name of [`ERESTART`]: the snapshot context is older than the object's.
pub const EOLDSNAPC: Errno = ERESTART;

/// The largest number that an error may have (`MAX_ERRNO` of the kernel). A failed CMPEXT returns
/// the offset of the difference beyond it.
pub const MAX_ERRNO: i32 = 4095;

impl Errno {
    /// An error with this positive number; `None` if the number is zero or negative.
    pub const fn new(code: i32) -> Option<Self> {
        if code > 0 { Some(Self(code)) } else { None }
    }

    /// The error of a reply's result; `None` if the result is not negative.
    pub const fn of_result(result: i32) -> Option<Self> {
        if result < 0 {
            Some(Self(result.saturating_neg()))
        } else {
            None
        }
    }

    /// The number, positive.
    pub const fn code(self) -> i32 {
        self.0
    }

    /// The name, as `EINVAL`; `Unknown` if Linux has none.
    pub fn name(self) -> &'static str {
        known(self.0).map_or("Unknown", |(name, _)| name)
    }

    /// The text that `strerror` gives: `No such file or directory`.
    pub fn message(self) -> impl fmt::Display {
        Message(self.0)
    }
}

struct Message(i32);

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match known(self.0) {
            Some((_, text)) => f.write_str(text),
            None => write!(f, "Unknown error {}", self.0),
        }
    }
}

/// The negative number: the result that a reply carries.
impl std::ops::Neg for Errno {
    type Output = i32;

    fn neg(self) -> i32 {
        -self.0
    }
}

/// Number and text as official daemons and tools print them (`cpp_strerror`):
/// `(2) No such file or directory`.
impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) {}", self.0, self.message())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match known(self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

/// The system's number; [`EIO`] if the error has none.
impl From<&std::io::Error> for Errno {
    fn from(e: &std::io::Error) -> Self {
        e.raw_os_error().and_then(Self::new).unwrap_or(EIO)
    }
}

impl From<Errno> for std::io::Error {
    fn from(e: Errno) -> Self {
        Self::from_raw_os_error(e.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_has_one_sign() {
        assert_eq!((-ENOENT, ENOENT.code()), (-2, 2));
        assert_eq!(Errno::of_result(-2), Some(ENOENT));
        assert_eq!((Errno::of_result(0), Errno::of_result(2)), (None, None));
        assert_eq!(
            (Errno::new(2), Errno::new(0), Errno::new(-2)),
            (Some(ENOENT), None, None)
        );
        assert_eq!(Errno::of_result(i32::MIN), Errno::new(i32::MAX));
        assert_eq!(Errno::from(&std::io::Error::from(ENOSPC)), ENOSPC);
        assert_eq!(Errno::from(&std::io::Error::other("no number")), EIO);
    }

    #[test]
    fn names_and_texts() {
        assert_eq!(ENOENT.to_string(), "(2) No such file or directory");
        assert_eq!((EINVAL.name(), EOPNOTSUPP.name()), ("EINVAL", "ENOTSUP"));
        let unknown = Errno::new(41).unwrap();
        assert_eq!(
            (unknown.name(), unknown.to_string().as_str()),
            ("Unknown", "(41) Unknown error 41")
        );
        assert_eq!(format!("{ETIMEDOUT:?} {unknown:?}"), "ETIMEDOUT Errno(41)");
    }

    /// The table has the texts of this machine's library.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn texts_are_those_of_strerror() {
        for code in 1..=MAX_ERRNO {
            let system = std::io::Error::from_raw_os_error(code).to_string();
            let text = Errno(code).message().to_string();
            assert_eq!(format!("{text} (os error {code})"), system);
        }
    }
}
