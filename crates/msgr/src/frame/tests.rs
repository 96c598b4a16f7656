use std::io::IoSlice;

use bytes::Bytes;
use proptest::prelude::*;
use spirula_buf::Pool;
use spirula_proto::{BytesList, MsgHeader2, MsgType, RawMessage};

use super::*;

/// Small limits, so that a breach would show.
const LIMITS: Limits = Limits {
    control: 4096,
    front: 8192,
    middle: 8192,
    data: 200_000,
};

fn pair(secure: bool) -> (Encoder, Decoder) {
    let pool = Pool::new(1 << 20);
    let (mut enc, mut dec) = (Encoder::new(pool.clone()), Decoder::new(LIMITS, pool));
    after_banner(&mut dec);
    drop((enc.take_transcript(), dec.take_transcript()));
    if secure {
        let secret = [9; SECRET_LEN];
        enc.set_secure(gcm_pair(&secret, true).unwrap().1);
        dec.set_secure(gcm_pair(&secret, false).unwrap().0);
    }
    dec.allow_messages();
    (enc, dec)
}

fn after_banner(dec: &mut Decoder) {
    let mut banner = BANNER_PREFIX.to_vec();
    banner.extend_from_slice(&[16, 0]);
    banner.extend_from_slice(&[0; 16]);
    feed(dec, &banner);
    assert!(matches!(
        dec.poll(),
        Ok(Progress::Frame(Frame::Banner {
            supported: 0,
            required: 0
        }))
    ));
}

/// Feeds as much of `bytes` as the decoder takes in one read.
fn feed(dec: &mut Decoder, bytes: &[u8]) -> usize {
    dec.read_with(|places| {
        let mut at = 0;
        for p in places {
            let n = p.len().min(bytes.len() - at);
            p[..n].copy_from_slice(&bytes[at..at + n]);
            at += n;
        }
        Ok(at)
    })
    .unwrap()
}

fn take(enc: &mut Encoder) -> Vec<u8> {
    let out = {
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        enc.slices(&mut slices, usize::MAX);
        slices.iter().flat_map(|s| s.iter().copied()).collect::<Vec<u8>>()
    };
    assert_eq!(out.len(), enc.pending());
    enc.wrote(out.len());
    assert_eq!((enc.pending(), enc.parts()), (0, 0));
    out
}

/// Everything that `bytes` decode to, fed in pieces of `cut` bytes.
fn decode(dec: &mut Decoder, bytes: &[u8], cut: usize) -> Result<Vec<Frame>, FrameError> {
    let mut out = Vec::new();
    let mut rest = bytes;
    loop {
        match dec.poll()? {
            Progress::Frame(f) => out.push(f),
            Progress::NeedRoom(n) => panic!("no room for {n}"),
            Progress::NeedBytes if rest.is_empty() => return Ok(out),
            Progress::NeedBytes => {
                let n = feed(dec, &rest[..cut.min(rest.len())]);
                assert!(n > 0);
                rest = &rest[n..];
            }
        }
    }
}

fn message(front: Vec<u8>, middle: Vec<u8>, data: Vec<Vec<u8>>) -> RawMessage {
    RawMessage {
        header: MsgHeader2 {
            seq: 1,
            tid: 5,
            kind: MsgType(42),
            ..Default::default()
        },
        front: front.into(),
        middle: middle.into(),
        data: data.into_iter().map(Bytes::from).collect::<BytesList>(),
    }
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    (0..=max, any::<u8>()).prop_map(|(n, b)| (0..n).map(|i| b.wrapping_add(i as u8)).collect())
}

fn messages() -> impl Strategy<Value = RawMessage> {
    let middle = prop_oneof![3 => Just(Vec::new()), 1 => bytes(5000)];
    let data = prop_oneof![
        2 => Just(Vec::new()),
        2 => proptest::collection::vec(bytes(3000), 0..4),
        1 => proptest::collection::vec(bytes(60_000), 1..3),
    ];
    (bytes(6000), middle, data).prop_map(|(f, m, d)| message(f, m, d))
}

proptest! {
    #[test]
    fn frames_survive_any_cut(
        secure: bool,
        cut in 1usize..20_000,
        control in bytes(4000),
        sent in proptest::collection::vec(messages(), 1..5),
    ) {
        let (mut enc, mut dec) = pair(secure);
        enc.control(Tag::HELLO, &control).unwrap();
        for m in &sent {
            enc.message(m.clone()).unwrap();
        }
        let wire = take(&mut enc);
        let mut got = decode(&mut dec, &wire, cut).unwrap().into_iter();
        match got.next() {
            Some(Frame::Control(Tag::HELLO, p)) => prop_assert_eq!(p, control),
            f => prop_assert!(false, "{:?}", f),
        }
        for want in &sent {
            let Some(Frame::Message(m)) = got.next() else { panic!("a message was wanted") };
            prop_assert_eq!(&m, want);
        }
        prop_assert!(got.next().is_none());
    }

    #[test]
    fn a_flipped_bit_never_passes(secure: bool, m in messages(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (mut enc, mut dec) = pair(secure);
        enc.message(m.clone()).unwrap();
        let mut wire = take(&mut enc);
        let at = at.index(wire.len());
        wire[at] ^= 1 << bit;
        match decode(&mut dec, &wire, usize::MAX) {
            Err(e) => prop_assert_eq!(dec.poll().unwrap_err(), e),
            // The epilogue's checksums of absent segments are ignored, as by the official decoder.
            Ok(frames) => {
                prop_assert!(!secure && at >= wire.len() - EPILOGUE_CRC);
                let [Frame::Message(got)] = frames.as_slice() else { panic!("{frames:?}") };
                prop_assert_eq!(got, &m);
            }
        }
    }

    #[test]
    fn garbage_neither_panics_nor_allocates(secure: bool, garbage in bytes(3000), tail in any::<[u8; 32]>()) {
        let (_, mut dec) = pair(secure);
        let mut wire = garbage;
        wire.extend_from_slice(&tail);
        let _ = decode(&mut dec, &wire, 1000);
    }

    /// Preambles with a right checksum but wrong contents reach the checks behind it.
    #[test]
    fn announced_lengths_are_checked_first(tag in 0u8..24, n in 0u8..6, lens in any::<[u32; 4]>(), flags in 0u8..4) {
        let (_, mut dec) = pair(false);
        let mut p = [0; PREAMBLE];
        p[0] = tag;
        p[1] = n;
        for (i, len) in lens.iter().enumerate() {
            p[2 + 6 * i..6 + 6 * i].copy_from_slice(&len.to_le_bytes());
        }
        p[26] = flags;
        let crc = preamble_crc(&p[..28]);
        p[28..].copy_from_slice(&crc.to_le_bytes());
        let mut wire = p.to_vec();
        wire.extend_from_slice(&[0; 100]);
        let over = lens.iter().take(usize::from(n)).any(|&l| l > 200_000);
        let result = decode(&mut dec, &wire, usize::MAX);
        if over {
            prop_assert!(result.is_err());
        }
    }
}

#[test]
fn a_list_of_buffers_is_on_the_wire_what_one_buffer_is() {
    for secure in [false, true] {
        let (mut one, _) = pair(secure);
        let (mut many, _) = pair(secure);
        // Some are small enough to be copied between the headers.
        let buffers: Vec<Vec<u8>> = (0..600usize).map(|n| vec![n as u8; 700 + n]).collect();
        let mut joined = message(vec![1; 100], Vec::new(), Vec::new());
        joined.data = Bytes::from(buffers.concat()).into();
        one.message(joined).unwrap();
        many.message(message(vec![1; 100], Vec::new(), buffers)).unwrap();
        let whole = take(&mut one);
        // In pieces, as a socket takes them.
        let mut written = Vec::new();
        while many.pending() > 0 {
            let mut slices = Vec::new();
            many.slices(&mut slices, 5000);
            let some: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
            drop(slices);
            many.wrote(some.len());
            written.extend(some);
        }
        assert!(written == whole, "secure: {secure}");
    }
}

#[test]
fn an_aborted_frame_is_dropped_and_the_next_one_delivered() {
    for data in [100, 100_000] {
        let (mut enc, mut dec) = pair(false);
        let m = message(vec![1; 50], vec![], vec![vec![2; data]]);
        enc.message(m.clone()).unwrap();
        let mut wire = take(&mut enc);
        let status = wire.len() - EPILOGUE_CRC;
        wire[status] = STATUS_ABORTED;
        // The sender fills up with zeros.
        wire[status - data..status].fill(0);
        enc.message(m).unwrap();
        wire.extend(take(&mut enc));
        let got = decode(&mut dec, &wire, 1000).unwrap();
        assert!(matches!(got.as_slice(), [Frame::Message(_)]));
    }
}

#[test]
fn a_message_before_the_session_stands_is_refused() {
    let pool = Pool::new(1 << 20);
    let (mut enc, _) = pair(false);
    let mut dec = Decoder::new(LIMITS, pool);
    after_banner(&mut dec);
    let m = message(vec![1], vec![], vec![]);
    enc.message(m.clone()).unwrap();
    let got = decode(&mut dec, &take(&mut enc), 1000);
    assert_eq!(got.unwrap_err(), FrameError::Unexpected(Tag::MESSAGE));
}

#[test]
fn a_handshake_that_never_ends_is_cut_off() {
    let pool = Pool::new(1 << 20);
    let (mut enc, _) = pair(false);
    let mut dec = Decoder::new(LIMITS, pool);
    after_banner(&mut dec);
    for _ in 0..17 {
        enc.control(Tag::HELLO, &[0; 4000]).unwrap();
    }
    let got = decode(&mut dec, &take(&mut enc), 100_000);
    assert_eq!(got.unwrap_err(), FrameError::HandshakeTooLong);
}

#[test]
fn wrong_banners_are_refused_at_once() {
    for wrong in [
        &b"ceph v027......"[..],
        b"GET / HTTP/1.1\r\n",
        b"ceph v2\n\xff\xff",
        b"ceph v2\n\x08\x00........",
    ] {
        let mut dec = Decoder::new(LIMITS, Pool::new(1 << 20));
        assert_eq!(decode(&mut dec, wrong, 1000).unwrap_err(), FrameError::Banner);
    }
}
