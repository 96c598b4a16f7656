//! Connections: bytes that a peer may send at any time, in any pieces.

mod owner;
mod wire;

use bytes::Bytes;
use spirula_denc::{EntityAddr, EntityAddrVec, EntityType, Writer};
use spirula_maps::features;
use spirula_msgr::frame::{BANNER_PREFIX, Tag};

use crate::input::Input;
use owner::Owner;
use wire::Wire;

/// Frames of a script.
const STEPS: usize = 24;

/// The address of the accepting side.
fn bound() -> EntityAddr {
    EntityAddr::v2(([10, 0, 0, 1], 6789).into(), 0)
}

/// The first byte chooses the reading side (bit 0) and the sizes of pieces; the rest is its input.
pub(crate) fn raw(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.u8();
    let mut owner = Owner::new(how & 1 == 0, false, usize::from(how >> 1));
    owner.feed(input.rest());
}

/// The first byte chooses the reading side (bit 0), the mode (bit 1), whether the session is
/// already established (bit 2), and the sizes of pieces. Then come steps: 0: bytes as they are, 1:
/// a control frame, 2: a message, 3: a preamble with a valid checksum, 4: an honest peer's next
/// frame.
pub(crate) fn frames(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.u8();
    let (acceptor, secure) = (how & 1 == 0, how & 2 != 0);
    let mut owner = Owner::new(acceptor, secure, usize::from(how >> 3));
    let mut wire = Wire::default();
    let mut said = 0;
    if how & 4 != 0 {
        while said < HONEST {
            honest_frame(&mut wire, acceptor, secure, said);
            said += 1;
            deliver(&mut owner, &mut wire);
        }
        assert!(owner.stands(), "an honest peer was refused");
    }
    for _ in 0..STEPS {
        if input.is_empty() || owner.failed() {
            return;
        }
        let step = input.u8();
        match step & 7 {
            0 => wire.raw(input.blob()),
            1 => wire.control(input.u8(), input.blob()),
            2 => message(&mut wire, step, &mut input),
            3 => wire.preamble(input.array()),
            _ => {
                honest_frame(&mut wire, acceptor, secure, said);
                said += 1;
            }
        }
        deliver(&mut owner, &mut wire);
    }
}

/// Delivers the bytes on the wire; once the reader has keys, the sender uses them too.
fn deliver(owner: &mut Owner, wire: &mut Wire) {
    owner.feed(&wire.take());
    if let Some(nonce_at) = owner.take_secured() {
        wire.secure(owner::SECRET, nonce_at);
    }
}

/// A message: its header, the lengths of front, middle and data (two bytes, one, two), and these.
/// Bits of `step`: 3 takes the epilogue's status from the input too; 4 the whole header, of which
/// otherwise only the sequence number, the type and the version come from the input; 5 announces
/// empty segments at the end.
fn message(wire: &mut Wire, step: u8, input: &mut Input<'_>) {
    let status = if step & 8 == 0 { 0xe } else { input.u8() };
    let mut header = [0; 41];
    if step & 16 == 0 {
        header[0] = input.u8();
        header[16..18].copy_from_slice(&input.array::<2>());
        header[20] = input.u8();
    } else {
        header = input.array();
    }
    let lens = [input.u16(), u16::from(input.u8()), input.u16()];
    let segments = lens.map(|n| input.bytes(n.into()));
    wire.message(&header, segments, status, step & 32 != 0);
}

/// Frames until the session is established.
const HONEST: usize = 5;

/// The next frame of an honest peer of an acceptor (or connector), after `said` other frames.
fn honest_frame(wire: &mut Wire, acceptor: bool, secure: bool, said: usize) {
    let mut w = Writer::new();
    match said {
        0 => {
            w.bytes(BANNER_PREFIX);
            w.u16(16);
            w.u64(1);
            w.u64(0);
            wire.raw(w.as_slice());
        }
        1 => {
            w.u8(if acceptor {
                EntityType::CLIENT
            } else {
                EntityType::MON
            }
            .0);
            w.put(&EntityAddr::v2(([10, 0, 0, 9], 0).into(), 0));
            wire.control(Tag::HELLO.0, w.as_slice());
        }
        2 if acceptor => {
            w.u32(2);
            w.put(&vec![if secure { 2u32 } else { 1 }]);
            w.put(&Bytes::new());
            wire.control(Tag::AUTH_REQUEST.0, w.as_slice());
        }
        2 => {
            w.u64(4100);
            w.u32(if secure { 2 } else { 1 });
            w.put(&Bytes::new());
            wire.control(Tag::AUTH_DONE.0, w.as_slice());
        }
        // Nobody has a session key, so nothing is signed.
        3 => wire.control(Tag::AUTH_SIGNATURE.0, &[0; 32]),
        4 => {
            let addr = if acceptor {
                EntityAddr::v2(([10, 0, 0, 9], 0).into(), 7)
            } else {
                bound()
            };
            w.put(&EntityAddrVec(vec![addr]));
            if acceptor {
                w.put(&bound());
            }
            w.i64(4100);
            w.u64(1);
            w.u64(features::PACIFIC_ALL);
            w.u64(features::REQUIRED);
            w.u64(1);
            w.u64(0);
            let tag = if acceptor {
                Tag::CLIENT_IDENT
            } else {
                Tag::SERVER_IDENT
            };
            wire.control(tag.0, w.as_slice());
        }
        _ => wire.control(Tag::KEEPALIVE2.0, &[0; 8]),
    }
}
