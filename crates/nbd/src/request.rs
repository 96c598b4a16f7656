//! Requests of the transmission phase: their header, and the check whether they are allowed.

use bytes::Buf;

use crate::wire::{self, RequestFlags, command};
use crate::{ErrorCode, Geometry, Zeroing};

/// The header of a request on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The flags.
    pub flags: RequestFlags,
    /// The type, of [`command`].
    pub kind: u16,
    /// Returned in the reply.
    pub cookie: u64,
    /// The first byte of the range.
    pub offset: u64,
    /// The length of the range in bytes.
    pub len: u32,
}

impl Header {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Decodes a header; `None` if it does not begin with the magic number, after which no request
    /// can be found any more.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut input = &bytes[..];
        let magic = input.get_u32();
        let header = Self {
            flags: RequestFlags(input.get_u16()),
            kind: input.get_u16(),
            cookie: input.get_u64(),
            offset: input.get_u64(),
            len: input.get_u32(),
        };
        (magic == wire::REQUEST_MAGIC).then_some(header)
    }

    /// Bytes of data that follow the header, whether the request is allowed or not.
    pub fn payload(&self) -> u32 {
        if self.kind == command::WRITE { self.len } else { 0 }
    }

    /// Bytes that the request moves in either direction.
    pub fn moved(&self) -> u32 {
        match self.kind {
            command::WRITE => self.len,
            // A longer read is refused.
            command::READ if self.len <= wire::MAX_PAYLOAD => self.len,
            _ => 0,
        }
    }
}

/// The client's choices in the handshake, and the device's present properties.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The device's size and rules.
    pub geometry: Geometry,
    /// Replies are structured.
    pub structured: bool,
    /// `base:allocation` was chosen.
    pub allocation: bool,
}

/// An allowed request. Ranges lie within the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read a range.
    Read {
        /// The first byte.
        offset: u64,
        /// The length in bytes; zero is possible here and in the others.
        len: u32,
        /// Whether the data is sent in one chunk.
        whole: bool,
    },
    /// Write the data behind the header.
    Write {
        /// The first byte.
        offset: u64,
        /// Whether the write is durable before it is answered.
        fua: bool,
    },
    /// Free space.
    Trim {
        /// The first byte.
        offset: u64,
        /// The length in bytes.
        len: u32,
        /// Whether the trim is durable before it is answered.
        fua: bool,
    },
    /// Write zeroes.
    WriteZeroes {
        /// The first byte.
        offset: u64,
        /// The length in bytes.
        len: u32,
        /// How the zeroes are written.
        how: Zeroing,
        /// Whether the zeroes are durable before the answer.
        fua: bool,
    },
    /// Make all answered changes durable.
    Flush,
    /// Prepare for reads.
    Cache {
        /// The first byte.
        offset: u64,
        /// The length in bytes.
        len: u32,
    },
    /// Report extents.
    BlockStatus {
        /// The first byte.
        offset: u64,
        /// The length in bytes; not zero.
        len: u32,
        /// Whether only one extent is reported.
        one: bool,
    },
    /// End the connection when all requests are answered.
    Disconnect,
}

/// Why a request is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The error of the reply.
    pub code: ErrorCode,
    /// A text for people.
    pub message: &'static str,
}

fn refuse<T>(code: ErrorCode, message: &'static str) -> Result<T, Refusal> {
    Err(Refusal { code, message })
}

/// Flags that a request of this type may have.
fn allowed_flags(kind: u16, structured: bool) -> RequestFlags {
    let own = match kind {
        command::READ if structured => RequestFlags::DF,
        command::WRITE_ZEROES => RequestFlags::NO_HOLE.with(RequestFlags::FAST_ZERO),
        command::BLOCK_STATUS => RequestFlags::REQ_ONE,
        _ => RequestFlags::empty(),
    };
    // Clients are known to set FUA on anything.
    own.with(RequestFlags::FUA)
}

/// Decides whether a request is allowed.
///
/// # Errors
/// [`Refusal`] with the error that the protocol has for it.
pub fn check(header: &Header, terms: &Terms) -> Result<Command, Refusal> {
    let &Header {
        flags,
        kind,
        offset,
        len,
        ..
    } = header;
    if kind == command::DISC {
        return Ok(Command::Disconnect);
    }
    if !allowed_flags(kind, terms.structured).contains(flags) {
        return refuse(ErrorCode::EINVAL, "the request has a flag that it can't have");
    }
    let fua = flags.contains(RequestFlags::FUA);
    let command = match kind {
        command::READ => Command::Read {
            offset,
            len,
            whole: flags.contains(RequestFlags::DF),
        },
        command::WRITE => Command::Write { offset, fua },
        command::TRIM => Command::Trim { offset, len, fua },
        command::WRITE_ZEROES => Command::WriteZeroes {
            offset,
            len,
            how: Zeroing {
                allocate: flags.contains(RequestFlags::NO_HOLE),
                fast: flags.contains(RequestFlags::FAST_ZERO),
            },
            fua,
        },
        command::CACHE => Command::Cache { offset, len },
        command::BLOCK_STATUS if !terms.allocation => {
            return refuse(ErrorCode::EINVAL, "no metadata context was chosen");
        }
        command::BLOCK_STATUS if len == 0 => {
            return refuse(ErrorCode::EINVAL, "an empty range has no extents");
        }
        command::BLOCK_STATUS => Command::BlockStatus {
            offset,
            len,
            one: flags.contains(RequestFlags::REQ_ONE),
        },
        command::FLUSH if offset != 0 || len != 0 => {
            return refuse(ErrorCode::EINVAL, "a flush has no range");
        }
        command::FLUSH => return Ok(Command::Flush),
        _ => return refuse(ErrorCode::EINVAL, "unknown request"),
    };
    check_range(header, terms)?;
    Ok(command)
}

fn check_range(header: &Header, terms: &Terms) -> Result<(), Refusal> {
    let &Header {
        kind, offset, len, ..
    } = header;
    let geometry = &terms.geometry;
    let writes = matches!(kind, command::WRITE | command::WRITE_ZEROES | command::TRIM);
    if writes && geometry.read_only {
        return refuse(ErrorCode::EPERM, "the export is read-only");
    }
    let mask = u64::from(geometry.blocks.minimum).saturating_sub(1);
    if (offset | u64::from(len)) & mask != 0 {
        return refuse(
            ErrorCode::EINVAL,
            "the range is not aligned to the minimum block size",
        );
    }
    if kind == command::READ && len > wire::MAX_PAYLOAD {
        let code = if terms.structured {
            ErrorCode::EOVERFLOW
        } else {
            ErrorCode::EINVAL
        };
        return refuse(code, "the read is longer than the maximum payload");
    }
    if offset
        .checked_add(len.into())
        .is_none_or(|end| end > geometry.size)
    {
        let code = match kind {
            command::WRITE | command::WRITE_ZEROES => ErrorCode::ENOSPC,
            _ => ErrorCode::EINVAL,
        };
        return refuse(code, "the range ends beyond the end of the export");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockSizes;

    const MIB: u64 = 1 << 20;

    fn terms() -> Terms {
        Terms {
            geometry: Geometry {
                size: MIB,
                read_only: false,
                blocks: BlockSizes::default(),
            },
            structured: true,
            allocation: true,
        }
    }

    fn header(kind: u16, flags: RequestFlags, offset: u64, len: u32) -> Header {
        Header {
            flags,
            kind,
            cookie: 7,
            offset,
            len,
        }
    }

    fn code(header: Header, terms: &Terms) -> ErrorCode {
        check(&header, terms).map_or_else(|refusal| refusal.code, |_| ErrorCode::OK)
    }

    #[test]
    fn a_header_is_read_as_the_protocol_draws_it() {
        let mut bytes = Vec::new();
        bytes.extend(0x2560_9513_u32.to_be_bytes());
        bytes.extend(1_u16.to_be_bytes());
        bytes.extend(6_u16.to_be_bytes());
        bytes.extend(0x1122_3344_5566_7788_u64.to_be_bytes());
        bytes.extend(4096_u64.to_be_bytes());
        bytes.extend(512_u32.to_be_bytes());
        let mut bytes: [u8; Header::LEN] = bytes.try_into().unwrap();
        let read = Header::decode(&bytes).unwrap();
        assert_eq!(
            read,
            Header {
                cookie: 0x1122_3344_5566_7788,
                ..header(command::WRITE_ZEROES, RequestFlags::FUA, 4096, 512)
            }
        );
        bytes[0] = 0;
        assert_eq!(Header::decode(&bytes), None);
    }

    #[test]
    fn ranges_end_where_the_device_does() {
        for (kind, beyond) in [
            (command::READ, ErrorCode::EINVAL),
            (command::WRITE, ErrorCode::ENOSPC),
            (command::WRITE_ZEROES, ErrorCode::ENOSPC),
            (command::TRIM, ErrorCode::EINVAL),
            (command::CACHE, ErrorCode::EINVAL),
            (command::BLOCK_STATUS, ErrorCode::EINVAL),
        ] {
            assert_eq!(
                code(header(kind, RequestFlags::empty(), MIB - 512, 512), &terms()),
                ErrorCode::OK
            );
            assert_eq!(
                code(header(kind, RequestFlags::empty(), MIB - 511, 512), &terms()),
                beyond
            );
            assert_eq!(
                code(header(kind, RequestFlags::empty(), u64::MAX, 512), &terms()),
                beyond
            );
        }
    }

    #[test]
    fn what_is_read_only_is_not_written() {
        let mut terms = terms();
        terms.geometry.read_only = true;
        for kind in [command::WRITE, command::WRITE_ZEROES, command::TRIM] {
            assert_eq!(
                code(header(kind, RequestFlags::empty(), 0, 512), &terms),
                ErrorCode::EPERM
            );
        }
        assert_eq!(
            code(header(command::FLUSH, RequestFlags::empty(), 0, 0), &terms),
            ErrorCode::OK
        );
        assert_eq!(
            code(header(command::READ, RequestFlags::empty(), 0, 512), &terms),
            ErrorCode::OK
        );
    }

    #[test]
    fn flags_go_with_their_requests_only() {
        let mut terms = terms();
        let ok = |kind, flag, terms: &Terms| code(header(kind, flag, 0, 512), terms) == ErrorCode::OK;
        assert!(ok(command::READ, RequestFlags::DF, &terms));
        assert!(ok(command::READ, RequestFlags::FUA, &terms));
        assert!(ok(
            command::WRITE_ZEROES,
            RequestFlags::NO_HOLE.with(RequestFlags::FAST_ZERO),
            &terms
        ));
        assert!(ok(command::BLOCK_STATUS, RequestFlags::REQ_ONE, &terms));
        assert!(!ok(command::WRITE, RequestFlags::DF, &terms));
        assert!(!ok(command::WRITE, RequestFlags(1 << 5), &terms));
        assert!(!ok(command::READ, RequestFlags::NO_HOLE, &terms));
        terms.structured = false;
        assert!(!ok(command::READ, RequestFlags::DF, &terms));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut terms = terms();
        assert_eq!(
            code(header(99, RequestFlags::empty(), 0, 0), &terms),
            ErrorCode::EINVAL
        );
        assert_eq!(
            code(header(command::FLUSH, RequestFlags::empty(), 0, 1), &terms),
            ErrorCode::EINVAL
        );
        assert_eq!(
            code(header(command::BLOCK_STATUS, RequestFlags::empty(), 0, 0), &terms),
            ErrorCode::EINVAL
        );
        terms.allocation = false;
        assert_eq!(
            code(header(command::BLOCK_STATUS, RequestFlags::empty(), 0, 1), &terms),
            ErrorCode::EINVAL
        );
        terms.geometry.size = 1 << 40;
        let long = header(command::READ, RequestFlags::empty(), 0, wire::MAX_PAYLOAD + 1);
        assert_eq!(code(long, &terms), ErrorCode::EOVERFLOW);
        assert_eq!(long.moved(), 0);
        terms.structured = false;
        assert_eq!(code(long, &terms), ErrorCode::EINVAL);
        // No payload moves, so these may be long.
        assert_eq!(
            code(header(command::TRIM, RequestFlags::empty(), 0, u32::MAX), &terms),
            ErrorCode::OK
        );
        terms.geometry.blocks.minimum = 512;
        assert_eq!(
            code(header(command::TRIM, RequestFlags::empty(), 0, u32::MAX), &terms),
            ErrorCode::EINVAL
        );
    }
}
