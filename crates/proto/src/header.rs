//! `ceph_msg_header2` of Ceph's `src/include/msgr.h`: the first segment of every message frame.

use spirula_denc::{Decode, Encode, Reader, Result, Writer};

use crate::MsgType;

/// Message priorities (`CEPH_MSG_PRIO_*`): a higher value goes first.
pub mod priority {
    /// The priority of most messages.
    pub const DEFAULT: u16 = 127;
    /// Replies that unblock others, maps.
    pub const HIGH: u16 = 196;
    /// Peering, leases, heartbeats.
    pub const HIGHEST: u16 = 255;
}

/// The fixed header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MsgHeader2 {
    /// Number of the message within its session, from 1. Set by the messenger.
    pub seq: u64,
    /// Transaction id; a reply carries its request's.
    pub tid: u64,
    /// The message's type.
    pub kind: MsgType,
    /// See [`priority`].
    pub priority: u16,
    /// Version of the encoding.
    pub version: u16,
    /// Padding bytes before the data segment's content. Always 0 from us.
    pub data_pre_padding_len: u32,
    /// Offset of the data within its object, a hint for aligned receive buffers.
    pub data_off: u16,
    /// The last message received from the peer. Set by the messenger.
    pub ack_seq: u64,
    /// Bit 0: complete, bit 1: without CRC, bit 2: signed. The msgr2 frame has its own; unused.
    pub flags: u8,
    /// The oldest version whose readers understand the encoding; 0 means unknown.
    pub compat_version: u16,
    /// Zero.
    pub reserved: u16,
}

impl MsgHeader2 {
    /// Encoded size in bytes.
    pub const SIZE: usize = 41;
}

impl Encode for MsgHeader2 {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.seq);
        w.u64(self.tid);
        w.u16(self.kind.0);
        w.u16(self.priority);
        w.u16(self.version);
        w.u32(self.data_pre_padding_len);
        w.u16(self.data_off);
        w.u64(self.ack_seq);
        w.u8(self.flags);
        w.u16(self.compat_version);
        w.u16(self.reserved);
    }
}

impl Decode for MsgHeader2 {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            seq: r.u64()?,
            tid: r.u64()?,
            kind: MsgType(r.u16()?),
            priority: r.u16()?,
            version: r.u16()?,
            data_pre_padding_len: r.u32()?,
            data_off: r.u16()?,
            ack_seq: r.u64()?,
            flags: r.u8()?,
            compat_version: r.u16()?,
            reserved: r.u16()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spirula_denc::{decode_all, encode_to_vec};

    #[test]
    fn has_the_packed_layout() {
        let h = MsgHeader2 {
            seq: 1,
            tid: 2,
            kind: MsgType::OSD_OP,
            priority: 63,
            version: 8,
            data_off: 5,
            ack_seq: 9,
            compat_version: 3,
            ..Default::default()
        };
        let bytes = encode_to_vec(&h);
        assert_eq!(bytes.len(), MsgHeader2::SIZE);
        assert_eq!(bytes[16..22], [42, 0, 63, 0, 8, 0]);
        assert_eq!(decode_all(&bytes), Ok(h));
    }
}
