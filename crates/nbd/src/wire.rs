//! The protocol's numbers. Everything on the wire is big-endian.

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

/// Flags of the greeting, which the client repeats.
pub mod greeting {
    /// Options have replies.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The 124 zeroes after `EXPORT_NAME` may be left out.
    pub const NO_ZEROES: u16 = 1 << 1;
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

/// Features of an export.
pub mod transmission {
    /// The other flags are valid.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` works.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The flag `FUA` works.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `TRIM` works.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` works, with `NO_HOLE`.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The flag `DF` works.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers answered writes of all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `CACHE` works.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The flag `FAST_ZERO` works.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
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

/// Flags of requests.
pub mod command_flag {
    /// The change is durable before it is answered.
    pub const FUA: u16 = 1 << 0;
    /// `WRITE_ZEROES` shall allocate space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The data of `READ` shall come in one chunk.
    pub const DF: u16 = 1 << 2;
    /// `BLOCK_STATUS` shall report one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// `WRITE_ZEROES` shall fail if it is no faster than a write.
    pub const FAST_ZERO: u16 = 1 << 4;
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
    /// The extent takes no space.
    pub const HOLE: u32 = 1 << 0;
    /// The extent reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}
