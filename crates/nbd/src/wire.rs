//! The protocol's numbers. Everything on the wire is big-endian.

use spirula_denc::flags;

/// Begins the server's greeting: `NBDMAGIC`.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Begins the newstyle greeting's second word, and every option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Longest string that the protocol allows, in bytes.
pub const MAX_STRING: usize = 4096;
/// The most bytes that a READ or WRITE may move, which clients assume by default.
pub const MAX_PAYLOAD: u32 = 32 << 20;

flags! {
    /// Flags of the greeting, which the client repeats.
    pub struct GreetingFlags(u16), joined ", " {
        /// Options have replies.
        FIXED_NEWSTYLE = 0, "fixed newstyle";
        /// The 124 zeroes after `EXPORT_NAME` may be left out.
        NO_ZEROES = 1, "no zeroes";
    }

    /// Features of an export.
    pub struct TransmissionFlags(u16), joined ", " {
        /// The other flags are valid.
        HAS_FLAGS = 0, "has flags";
        /// Writes are refused.
        READ_ONLY = 1, "read only";
        /// `FLUSH` works.
        SEND_FLUSH = 2, "flush";
        /// The flag `FUA` works.
        SEND_FUA = 3, "fua";
        /// `TRIM` works.
        SEND_TRIM = 5, "trim";
        /// `WRITE_ZEROES` works, with `NO_HOLE`.
        SEND_WRITE_ZEROES = 6, "write zeroes";
        /// The flag `DF` works.
        SEND_DF = 7, "df";
        /// A flush on one connection covers answered writes of all.
        CAN_MULTI_CONN = 8, "multi conn";
        /// `CACHE` works.
        SEND_CACHE = 10, "cache";
        /// The flag `FAST_ZERO` works.
        SEND_FAST_ZERO = 11, "fast zero";
    }

    /// Flags of requests.
    pub struct RequestFlags(u16), joined ", " {
        /// The change is durable before it is answered.
        FUA = 0, "fua";
        /// `WRITE_ZEROES` shall allocate space.
        NO_HOLE = 1, "no hole";
        /// The data of `READ` shall come in one chunk.
        DF = 2, "df";
        /// `BLOCK_STATUS` shall report one extent.
        REQ_ONE = 3, "one";
        /// `WRITE_ZEROES` shall fail if it is no faster than a write.
        FAST_ZERO = 4, "fast zero";
    }

    /// Flags of an extent in the metadata context `base:allocation`.
    pub struct ExtentFlags(u32), joined ", " {
        /// The extent takes no space.
        HOLE = 0, "hole";
        /// The extent reads as zeroes.
        ZERO = 1, "zero";
    }
}

/// Options of the handshake.
pub mod option {
    /// Chooses an export, without a reply that could refuse it.
    pub const EXPORT_NAME: u32 = 1;
    /// Ends the session.
    pub const ABORT: u32 = 2;
    /// Lists the exports.
    pub const LIST: u32 = 3;
    /// Goes on encrypted.
    pub const STARTTLS: u32 = 5;
    /// Asks about an export.
    pub const INFO: u32 = 6;
    /// Chooses an export.
    pub const GO: u32 = 7;
    /// Allows structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Lists metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Chooses metadata contexts for `BLOCK_STATUS`.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub mod option_reply {
    /// Done; no data.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// A fact about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    /// The option is known and not allowed here.
    pub const ERR_POLICY: u32 = 1 << 31 | 2;
    /// The option's data is invalid, or the option comes at the wrong time.
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    /// TLS is required first.
    pub const ERR_TLS_REQD: u32 = 1 << 31 | 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    /// The server is ending.
    pub const ERR_SHUTDOWN: u32 = 1 << 31 | 7;
    /// The option's data is too long.
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// Facts about an export that clients ask for.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The name as `LIST` gives it.
    pub const NAME: u16 = 1;
    /// A text for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum and preferred block size, and maximum payload.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Types of requests.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the data follows.
    pub const WRITE: u16 = 1;
    /// The last request of a connection; has no reply.
    pub const DISC: u16 = 2;
    /// Makes answered changes durable.
    pub const FLUSH: u16 = 3;
    /// Frees space.
    pub const TRIM: u16 = 4;
    /// Announces reads.
    pub const CACHE: u16 = 5;
    /// Writes zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Asks for extents.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Types of chunks of structured replies, and their flag.
pub mod chunk {
    /// This chunk is the reply's last.
    pub const FLAG_DONE: u16 = 1 << 0;
    /// A chunk without payload.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of a metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// The request failed.
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// The metadata context `base:allocation`.
pub mod allocation {
    /// Its name.
    pub const NAME: &str = "base:allocation";
    /// The query for all contexts of its namespace.
    pub const NAMESPACE: &str = "base:";
    /// Its number, which the server chooses.
    pub const ID: u32 = 1;
}
