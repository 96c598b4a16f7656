//! The arguments of operations: the union in `struct ceph_osd_op` of `src/include/rados.h`.

use std::cmp::Ordering;

use spirula_denc::{Decode, Encode, Reader, Writer};
use spirula_maps::Epoch;

use super::{AllocHintFlags, CopyFromFlags, OpCode, OpFlags, OsdOp};
use crate::macros::{packed, wire_enum};

packed! {
    /// A range of the object, with the truncation state that CephFS clients know.
    pub struct ExtentArgs {
        /// First byte; for [`OpCode::TRUNCATE`] the new size.
        pub offset: u64,
        /// Bytes; 0 in a read means to the end.
        pub length: u64,
        /// The size at the last truncation.
        pub truncate_size: u64,
        /// The number of the last truncation.
        pub truncate_seq: u32,
    }
}

wire_enum! {
    /// The comparison of a value (`CEPH_OSD_CMPXATTR_OP_*`): the given one stands on the left.
    pub struct CmpOp(u8) {
        /// Equal.
        EQ = 1, "eq";
        /// Not equal.
        NE = 2, "ne";
        /// Given > stored.
        GT = 3, "gt";
        /// Given ≥ stored.
        GTE = 4, "gte";
        /// Given < stored.
        LT = 5, "lt";
        /// Given ≤ stored.
        LTE = 6, "lte";
    }
}

impl CmpOp {
    /// Whether two values of this order compare so; `None` for an unknown comparison.
    pub fn holds(self, order: Ordering) -> Option<bool> {
        Some(match self {
            Self::EQ => order.is_eq(),
            Self::NE => order.is_ne(),
            Self::GT => order.is_gt(),
            Self::GTE => order.is_ge(),
            Self::LT => order.is_lt(),
            Self::LTE => order.is_le(),
            _ => return None,
        })
    }
}

wire_enum! {
    /// The type as which an attribute is compared (`CEPH_OSD_CMPXATTR_MODE_*`).
    pub struct CmpMode(u8) {
        /// As bytes.
        STRING = 1, "string";
        /// As numbers: decimal text stored, an encoded `u64` given.
        U64 = 2, "u64";
    }
}

packed! {
    /// An attribute; name and value are in the payload.
    pub struct XattrArgs {
        /// Bytes of the name.
        pub name_len: u32,
        /// Bytes of the value.
        pub value_len: u32,
        /// The comparison.
        pub cmp_op: CmpOp,
        /// Its mode.
        pub cmp_mode: CmpMode,
    }
}

packed! {
    /// A class method; class, method and input are in the payload.
    pub struct CallArgs {
        /// Bytes of the class's name.
        pub class_len: u8,
        /// Bytes of the method's name.
        pub method_len: u8,
        /// Zero.
        pub argc: u8,
        /// Bytes of input.
        pub input_len: u32,
    }
}

packed! {
    /// A listing.
    pub struct ListArgs {
        /// Most entries wanted.
        pub count: u64,
        /// The epoch in which the listing began.
        pub start_epoch: Epoch,
    }
}

wire_enum! {
    /// The action of a watch operation (`CEPH_OSD_WATCH_OP_*`).
    pub struct WatchOp(u8) {
        /// Stop watching.
        UNWATCH = 0, "unwatch";
        /// Watch, from clients before Giant.
        LEGACY_WATCH = 1, "legacy-watch";
        /// Watch.
        WATCH = 3, "watch";
        /// Take up a watch after the connection was lost.
        RECONNECT = 5, "reconnect";
        /// Keep the watch alive.
        PING = 7, "ping";
    }
}

packed! {
    /// A watch.
    pub struct WatchArgs {
        /// The client's cookie of the watch.
        pub cookie: u64,
        /// Unused.
        pub version: u64,
        /// The action.
        pub op: WatchOp,
        /// How often the client has registered.
        pub generation: u32,
        /// Seconds without a ping after which the watch is dropped; 0 for the OSD's default.
        pub timeout: u32,
    }
}

packed! {
    /// The version to assert.
    pub struct AssertVersionArgs {
        /// Zero.
        pub unused: u64,
        /// The user version.
        pub version: u64,
    }
}

packed! {
    /// The source of a copy; its name is in the payload.
    pub struct CopyFromArgs {
        /// The source's snapshot.
        pub snapid: u64,
        /// The source's version, or 0.
        pub version: u64,
        /// The flags of the copy.
        pub flags: CopyFromFlags,
        /// The flags for reading the source.
        pub src_fadvise_flags: OpFlags,
    }
}

packed! {
    /// Hints about future writes.
    pub struct AllocHintArgs {
        /// Size the object will have.
        pub expected_object_size: u64,
        /// Size of the writes.
        pub expected_write_size: u64,
        /// What else is expected.
        pub flags: AllocHintFlags,
    }
}

packed! {
    /// A pattern, which is in the payload, to write over a range.
    pub struct WriteSameArgs {
        /// First byte.
        pub offset: u64,
        /// Bytes to write, a multiple of the pattern.
        pub length: u64,
        /// Bytes of the pattern.
        pub data_length: u64,
    }
}

wire_enum! {
    /// A checksum algorithm (`CEPH_OSD_CHECKSUM_OP_TYPE_*`).
    pub struct ChecksumType(u8) {
        /// xxHash, 32 bits.
        XXHASH32 = 0, "xxhash32";
        /// xxHash, 64 bits.
        XXHASH64 = 1, "xxhash64";
        /// CRC-32C.
        CRC32C = 2, "crc32c";
    }
}

packed! {
    /// The range of a checksum operation; the initial value is in the payload.
    pub struct ChecksumArgs {
        /// First byte.
        pub offset: u64,
        /// Bytes; 0 with offset 0 means all.
        pub length: u64,
        /// Bytes that each checksum covers; 0 means one checksum for all.
        pub chunk_size: u32,
        /// The algorithm.
        pub kind: ChecksumType,
    }
}

/// The arguments of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpArgs {
    /// None, or none that are known.
    None,
    /// Ranges: reads and writes.
    Extent(ExtentArgs),
    /// Attributes.
    Xattr(XattrArgs),
    /// Class methods.
    Call(CallArgs),
    /// Listings.
    List(ListArgs),
    /// The snapshot to roll back to.
    Snap(u64),
    /// Watches.
    Watch(WatchArgs),
    /// The cookie of a notification, or of its acknowledgement.
    Notify(u64),
    /// A version to assert.
    AssertVersion(AssertVersionArgs),
    /// The source of a copy.
    CopyFrom(CopyFromArgs),
    /// The most bytes a copy may return.
    CopyGet(u64),
    /// Allocation hints.
    AllocHint(AllocHintArgs),
    /// Patterns.
    WriteSame(WriteSameArgs),
    /// Checksums.
    Checksum(ChecksumArgs),
}

/// A member of the union: the form of the arguments under some codes.
pub trait ArgsMember: Encode + Decode + Default {
    /// The arguments read as this member.
    fn read(raw: &[u8; OsdOp::ARGS]) -> Self {
        // Every member fits into the arguments, as the tests below assure.
        Reader::new(raw).get().unwrap_or_default()
    }

    /// Writes this member over the arguments; bytes behind it stay.
    fn write(&self, raw: &mut [u8; OsdOp::ARGS]) {
        let mut w = Writer::with_capacity(OsdOp::ARGS);
        self.encode(&mut w);
        raw[..w.len()].copy_from_slice(w.as_slice());
    }
}

macro_rules! members {
    ($($member:ty)*) => { $(impl ArgsMember for $member {})* };
}

// `u64` is the snapshot of a rollback, the cookie of a notification and the bound of a copy.
members!(u64 ExtentArgs XattrArgs CallArgs ListArgs WatchArgs AssertVersionArgs CopyFromArgs AllocHintArgs WriteSameArgs ChecksumArgs);

impl OpArgs {
    pub(super) fn from_raw(code: OpCode, raw: &[u8; OsdOp::ARGS]) -> Self {
        match code {
            c if c.uses_extent() => Self::Extent(ArgsMember::read(raw)),
            c if c.is_attr() => Self::Xattr(ArgsMember::read(raw)),
            OpCode::CALL => Self::Call(ArgsMember::read(raw)),
            c if c.is_pg() => Self::List(ArgsMember::read(raw)),
            OpCode::ROLLBACK => Self::Snap(ArgsMember::read(raw)),
            OpCode::WATCH => Self::Watch(ArgsMember::read(raw)),
            OpCode::NOTIFY | OpCode::NOTIFY_ACK => Self::Notify(ArgsMember::read(raw)),
            OpCode::ASSERT_VER => Self::AssertVersion(ArgsMember::read(raw)),
            OpCode::COPY_FROM | OpCode::COPY_FROM2 => Self::CopyFrom(ArgsMember::read(raw)),
            OpCode::COPY_GET => Self::CopyGet(ArgsMember::read(raw)),
            OpCode::SETALLOCHINT => Self::AllocHint(ArgsMember::read(raw)),
            OpCode::WRITESAME => Self::WriteSame(ArgsMember::read(raw)),
            OpCode::CHECKSUM => Self::Checksum(ArgsMember::read(raw)),
            _ => Self::None,
        }
    }

    pub(super) fn to_raw(&self) -> [u8; OsdOp::ARGS] {
        let mut raw = [0; OsdOp::ARGS];
        match self {
            Self::None => {}
            Self::Extent(v) => v.write(&mut raw),
            Self::Xattr(v) => v.write(&mut raw),
            Self::Call(v) => v.write(&mut raw),
            Self::List(v) => v.write(&mut raw),
            Self::Snap(v) | Self::Notify(v) | Self::CopyGet(v) => v.write(&mut raw),
            Self::Watch(v) => v.write(&mut raw),
            Self::AssertVersion(v) => v.write(&mut raw),
            Self::CopyFrom(v) => v.write(&mut raw),
            Self::AllocHint(v) => v.write(&mut raw),
            Self::WriteSame(v) => v.write(&mut raw),
            Self::Checksum(v) => v.write(&mut raw),
        }
        raw
    }

    /// The extent, if the arguments are one.
    pub fn extent(&self) -> Option<&ExtentArgs> {
        match self {
            Self::Extent(e) => Some(e),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_survive_their_packed_form() {
        let extent = ExtentArgs {
            offset: 1,
            length: 2,
            truncate_size: 3,
            truncate_seq: 4,
        };
        let watch = WatchArgs {
            cookie: 9,
            op: WatchOp::RECONNECT,
            generation: 2,
            timeout: 30,
            ..WatchArgs::default()
        };
        let hint = AllocHintArgs {
            expected_object_size: 1,
            expected_write_size: 2,
            flags: AllocHintFlags(3),
        };
        let xattr = XattrArgs {
            name_len: 1,
            value_len: 2,
            cmp_op: CmpOp::GT,
            cmp_mode: CmpMode::U64,
        };
        let call = CallArgs {
            class_len: 4,
            method_len: 5,
            argc: 0,
            input_len: 6,
        };
        let same = WriteSameArgs {
            offset: 1,
            length: 8,
            data_length: 2,
        };
        let sum = ChecksumArgs {
            offset: 1,
            length: 2,
            chunk_size: 3,
            kind: ChecksumType::CRC32C,
        };
        let copy = CopyFromArgs {
            snapid: 1,
            version: 2,
            flags: CopyFromFlags(3),
            src_fadvise_flags: OpFlags(4),
        };
        for (code, args) in [
            (OpCode::READ, OpArgs::Extent(extent)),
            (OpCode::WATCH, OpArgs::Watch(watch)),
            (OpCode::SETALLOCHINT, OpArgs::AllocHint(hint)),
            (OpCode::CMPXATTR, OpArgs::Xattr(xattr)),
            (OpCode::CALL, OpArgs::Call(call)),
            (
                OpCode::PGNLS,
                OpArgs::List(ListArgs {
                    count: 1,
                    start_epoch: Epoch::new(2),
                }),
            ),
            (OpCode::ROLLBACK, OpArgs::Snap(7)),
            (OpCode::NOTIFY, OpArgs::Notify(7)),
            (OpCode::COPY_GET, OpArgs::CopyGet(7)),
            (OpCode::WRITESAME, OpArgs::WriteSame(same)),
            (OpCode::CHECKSUM, OpArgs::Checksum(sum)),
            (OpCode::COPY_FROM2, OpArgs::CopyFrom(copy)),
            (
                OpCode::ASSERT_VER,
                OpArgs::AssertVersion(AssertVersionArgs {
                    unused: 0,
                    version: 5,
                }),
            ),
            (OpCode::DELETE, OpArgs::None),
        ] {
            assert_eq!(OsdOp::new(code, args.clone()).args(), args);
        }
    }

    #[test]
    fn comparisons_have_the_given_value_on_the_left() {
        assert_eq!(CmpOp::GT.holds(2.cmp(&1)), Some(true));
        assert_eq!(CmpOp::LTE.holds("b".cmp("a")), Some(false));
        assert_eq!(CmpOp(9).holds(1.cmp(&1)), None);
    }
}
