//! Replays of recorded sessions with the monitor of Ceph 16.2.15 (`testdata/mon-16.2.15`, taken on
//! loopback with the `official` example, from a throw-away cluster), and noise at every state of
//! the handshake.

use std::io::IoSlice;
use std::rc::Rc;

use bytes::Bytes;
use proptest::prelude::*;
use spirula_buf::Pool;
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType};
use spirula_proto::{MsgHeader2, MsgType, RawMessage};

use super::*;
use crate::ModeLists;
use crate::config::Config;
use crate::control::{AuthDone, AuthReplyMore, AuthRequest, AuthRequestMore, ClientIdent, Control};
use crate::frame::{Decoder, Encoder, Frame, Limits, Progress, gcm_pair};

struct Recording {
    mode: ConMode,
    client: &'static [u8],
    server: &'static [u8],
    session_key: [u8; 16],
    secret: &'static [u8],
    global_seq: u64,
}

const CRC: Recording = Recording {
    mode: ConMode::CRC,
    client: include_bytes!("../../testdata/mon-16.2.15/crc.client"),
    server: include_bytes!("../../testdata/mon-16.2.15/crc.server"),
    session_key: [
        80, 160, 8, 18, 209, 145, 190, 125, 177, 102, 15, 238, 148, 234, 218, 183,
    ],
    secret: &[],
    global_seq: 1,
};

const SECURE: Recording = Recording {
    mode: ConMode::SECURE,
    client: include_bytes!("../../testdata/mon-16.2.15/secure.client"),
    server: include_bytes!("../../testdata/mon-16.2.15/secure.server"),
    session_key: [
        111, 218, 55, 122, 42, 200, 211, 54, 205, 50, 60, 99, 237, 124, 2, 21,
    ],
    secret: &[
        29, 197, 170, 157, 201, 156, 159, 70, 225, 13, 184, 161, 10, 234, 240, 99, 57, 16, 221, 40, 161, 33,
        222, 180, 178, 233, 194, 158, 167, 198, 48, 218, 118, 212, 157, 198, 90, 123, 98, 20, 47, 64, 28, 72,
        187, 112, 163, 234, 203, 167, 172, 173, 209, 144, 125, 103, 22, 154, 94, 10, 6, 233, 90, 108,
    ],
    global_seq: 2,
};

impl Recording {
    fn keys(&self) -> SessionKeys {
        SessionKeys {
            session_key: self.session_key.to_vec().into(),
            connection_secret: self.secret.to_vec().into(),
        }
    }

    /// The control frames of one direction, of which `plain` precede the negotiated mode.
    fn frames(&self, bytes: &[u8], plain: usize, from_client: bool) -> Vec<(Tag, Vec<u8>)> {
        let mut dec = Decoder::new(Limits::default(), Pool::new(1 << 20));
        feed(&mut dec, bytes);
        let mut out = Vec::new();
        while let Ok(Progress::Frame(f)) = dec.poll() {
            if let Frame::Control(tag, payload) = f {
                if tag == Tag::AUTH_SIGNATURE {
                    drop(dec.take_transcript());
                    dec.allow_messages();
                }
                out.push((tag, payload));
            }
            if out.len() == plain && self.mode == ConMode::SECURE {
                let secret = self.secret.first_chunk().unwrap();
                dec.set_secure(gcm_pair(secret, from_client).unwrap().0);
            }
        }
        out
    }
}

fn feed(dec: &mut Decoder, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n = dec
            .read_with(|places| {
                let n = places[0].len().min(bytes.len());
                places[0][..n].copy_from_slice(&bytes[..n]);
                Ok(n)
            })
            .unwrap();
        bytes = &bytes[n..];
    }
}

fn written(enc: &mut Encoder) -> Vec<u8> {
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    enc.slices(&mut slices, usize::MAX);
    slices.iter().flat_map(|s| s.iter().copied()).collect()
}

fn mon_addr() -> EntityAddr {
    "v2:127.0.0.1:43300/0".parse().unwrap()
}

fn config(kind: EntityType, num: i64, addrs: Vec<EntityAddr>, mode: ConMode) -> Config {
    let mut config = Config::new(
        EntityName::new(kind, num),
        EntityAddrVec(addrs),
        Pool::new(1 << 20),
    );
    config.modes = ModeLists::only(&[mode]).into();
    config
}

/// Asserts that our connector, given the recorded answers, sends the recorded bytes.
fn replay_connector(r: &Recording) {
    let said = r.frames(r.client, 3, true);
    let request = AuthRequest::parse(&said[1].1).unwrap();
    let more = AuthRequestMore::parse(&said[2].1).unwrap();
    let ident = ClientIdent::parse(&said[4].1).unwrap();

    let mut config = config(EntityType::CLIENT, -1, vec![], r.mode);
    config.nonce = ident.addrs.0[0].nonce;
    let mut hs = Handshake::connector(Rc::new(config), mon_addr(), EntityType::MON, r.global_seq);
    feed(hs.decoder(), r.server);
    loop {
        match hs.poll().unwrap() {
            Step::StartAuth => hs
                .start_auth(AuthStart {
                    method: request.method,
                    payload: request.payload.clone(),
                })
                .unwrap(),
            Step::AuthReply(_) => hs.more(more.payload.clone()).unwrap(),
            Step::AuthDone { con_mode, .. } => {
                assert_eq!(con_mode, r.mode);
                hs.keys(&r.keys()).unwrap();
            }
            Step::Ready => break,
            step => panic!("{step:?}"),
        }
    }
    let (peer, mut inbound, mut outbound) = hs.finish().unwrap();
    assert_eq!(peer.name, EntityName::new(EntityType::MON, 0));
    assert!(peer.lossy);
    let get_map = MsgHeader2 {
        kind: MsgType::MON_GET_MAP,
        version: 1,
        compat_version: 1,
        priority: 127,
        ..Default::default()
    };
    let message = RawMessage {
        header: get_map,
        ..Default::default()
    };
    outbound.message(message, inbound.seq()).unwrap();
    match inbound.poll().unwrap() {
        InboundEvent::Message(m) => {
            assert_eq!(
                (m.kind(), m.front.len(), m.header.ack_seq),
                (MsgType::MON_MAP, 205, 1)
            );
        }
        e => panic!("{e:?}"),
    }
    match inbound.poll().unwrap() {
        InboundEvent::KeepaliveAck(stamp) => outbound.keepalive(stamp).unwrap(),
        e => panic!("{e:?}"),
    }
    assert!(matches!(inbound.poll().unwrap(), InboundEvent::NeedBytes));
    assert_eq!(written(outbound.encoder()), r.client);
}

/// Our acceptor with the recorded answers, after all of `client`.
fn accept_recorded(r: &Recording, client: &[u8]) -> Result<(Step, Handshake), SessionError> {
    let said = r.frames(r.server, 3, false);
    let more = AuthReplyMore::parse(&said[1].1).unwrap();
    let done = AuthDone::parse(&said[2].1).unwrap();
    let from = spirula_denc::decode_all(&said[0].1[1..]).unwrap();
    let config = config(EntityType::MON, 0, vec![mon_addr()], r.mode);
    let mut hs = Handshake::acceptor(Rc::new(config), from, 1);
    feed(hs.decoder(), client);
    loop {
        match hs.poll()? {
            Step::AuthRequest { .. } => hs.reply(AcceptReply::More(more.payload.clone()))?,
            Step::AuthMore(_) => hs.reply(AcceptReply::Done {
                global_id: done.global_id,
                payload: done.payload.clone(),
                keys: r.keys(),
            })?,
            step => return Ok((step, hs)),
        }
    }
}

/// Asserts that our acceptor, given the recorded answers, sends the recorded bytes up to its ident,
/// and accepts the client's.
fn replay_acceptor(r: &Recording) {
    let done = AuthDone::parse(&r.frames(r.server, 3, false)[2].1).unwrap();
    let (step, hs) = accept_recorded(r, r.client).unwrap();
    assert_eq!(step, Step::Ready);
    let (peer, mut inbound, mut outbound) = hs.finish().unwrap();
    assert_eq!(peer.name.num, i64::try_from(done.global_id).unwrap());
    assert!(matches!(inbound.poll().unwrap(), InboundEvent::Message(m) if m.kind() == MsgType::MON_GET_MAP));
    assert!(matches!(inbound.poll().unwrap(), InboundEvent::Keepalive(_)));
    let ours = written(outbound.encoder());
    let ident = match r.mode {
        ConMode::SECURE => 96 + 16 + 80,
        _ => 32 + 4 + 87,
    };
    let same = ours.iter().zip(r.server).take_while(|(a, b)| a == b).count();
    // The bytes after the signature differ: another sequence number, and one address less.
    assert!(same + ident >= ours.len(), "{same} of {} bytes", ours.len());
}

#[test]
fn a_message_that_came_before_is_no_message() {
    let (_, hs) = accept_recorded(&CRC, CRC.client).unwrap();
    let (_, mut inbound, _) = hs.finish().unwrap();
    while !matches!(inbound.poll().unwrap(), InboundEvent::NeedBytes) {}
    let seq = inbound.seq();
    for (number, came_before) in [(seq, true), (seq + 2, false), (seq + 1, true), (seq + 3, false)] {
        let mut enc = Encoder::new(Pool::new(1 << 20));
        drop(enc.take_transcript());
        let mut message = RawMessage::default();
        message.header.seq = number;
        enc.message(message).unwrap();
        feed(inbound.decoder(), &written(&mut enc));
        match inbound.poll().unwrap() {
            InboundEvent::Repeated => assert!(came_before, "{number}"),
            InboundEvent::Message(m) => assert!(!came_before && m.header.seq == number, "{number}"),
            e => panic!("{e:?}"),
        }
    }
}

#[test]
fn keys_are_not_printed() {
    let shown = format!("{:?}", SECURE.keys());
    assert_eq!(shown, "SessionKeys { session_key: …, connection_secret: … }");
}

#[test]
fn recorded_sessions_are_reproduced_in_crc_mode() {
    replay_connector(&CRC);
    replay_acceptor(&CRC);
}

#[test]
fn recorded_sessions_are_reproduced_in_secure_mode() {
    replay_connector(&SECURE);
    replay_acceptor(&SECURE);
}

#[test]
fn a_replayed_session_under_other_keys_fails_at_the_signature() {
    let other = Recording {
        session_key: SECURE.session_key,
        ..CRC
    };
    let result = accept_recorded(&other, CRC.client);
    assert_eq!(result.err(), Some(SessionError::Signature));
}

/// Drives a handshake to its end over the bytes it has, answering all questions.
fn answer_all(hs: &mut Handshake) {
    for _ in 0..100 {
        let answered = match hs.poll() {
            Ok(Step::AuthRequest { .. }) => hs.reply(AcceptReply::More(Bytes::new())),
            Ok(Step::AuthMore(_)) => hs.reply(AcceptReply::Done {
                global_id: 1,
                payload: Bytes::new(),
                keys: SessionKeys::default(),
            }),
            Ok(Step::StartAuth | Step::AuthBad { .. }) => hs.start_auth(AuthStart {
                method: 2,
                payload: Bytes::new(),
            }),
            Ok(Step::AuthReply(_)) => hs.more(Bytes::new()),
            Ok(Step::AuthDone { .. }) => hs.keys(&SessionKeys::default()),
            Ok(Step::NeedBytes | Step::Ready) | Err(_) => return,
        };
        if answered.is_err() {
            return;
        }
    }
    panic!("a handshake without end");
}

/// Both halves of a session that stands.
fn halves() -> (Inbound, Outbound) {
    let Ok((Step::Ready, hs)) = accept_recorded(&CRC, CRC.client) else {
        panic!("no session")
    };
    let (_, inbound, outbound) = hs.finish().unwrap();
    (inbound, outbound)
}

#[test]
#[should_panic(expected = "expected acknowledgements that ascend, acked 7, received 6")]
fn nothing_is_acknowledged_and_then_not() {
    let mut out = halves().1;
    out.message(RawMessage::default(), 7).unwrap();
    out.ack(6).unwrap();
}

#[test]
#[should_panic(expected = "expected no more to be written than was pending")]
fn no_more_is_written_than_was_encoded() {
    let mut out = halves().1;
    let pending = out.encoder().pending();
    out.encoder().wrote(pending + 1);
}

#[test]
#[should_panic(expected = "expected messages from a peer that has signed the handshake")]
fn no_message_is_taken_from_a_peer_that_has_not_signed() {
    let config = Rc::new(config(EntityType::MON, 0, vec![mon_addr()], ConMode::CRC));
    Handshake::acceptor(config, mon_addr(), 1)
        .decoder()
        .allow_messages();
}

proptest! {
    /// Well-formed frames in any order, with any payload: an error or a wait, never a panic.
    #[test]
    fn any_frames_in_any_order_are_survived(
        acceptor: bool,
        frames in proptest::collection::vec((0u8..24, proptest::collection::vec(any::<u8>(), 0..80)), 0..12),
    ) {
        let config = Rc::new(config(EntityType::MON, 0, vec![mon_addr()], ConMode::CRC));
        let mut hs = if acceptor {
            Handshake::acceptor(config, mon_addr(), 1)
        } else {
            Handshake::connector(config, mon_addr(), EntityType::CLIENT, 1)
        };
        // Past HELLO the interesting states begin.
        feed(hs.decoder(), &CRC.client[..26 + 32 + 36 + 4]);
        let mut enc = Encoder::new(Pool::new(1 << 20));
        for (tag, payload) in &frames {
            enc.control(Tag(*tag), payload).unwrap();
        }
        feed(hs.decoder(), &written(&mut enc));
        answer_all(&mut hs);
    }

    /// A recorded client with a byte changed on the way.
    #[test]
    fn a_changed_handshake_is_noticed(at in any::<prop::sample::Index>(), to: u8) {
        let mut bytes = CRC.client.to_vec();
        let sent = 26 + 36 + 36 + 36 + 40 + 36 + 40;
        let at = at.index(sent);
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        let result = accept_recorded(&CRC, &bytes);
        if let Ok((Step::Ready, mut hs)) = result {
            // Each side signs the bytes it received, so it is the client that sees the difference.
            let signature = 26 + (36 + 36) + (36 + 13) + (36 + 621) + (36 + 32);
            let ours = written(hs.encoder());
            prop_assert_ne!(&ours[..signature], &CRC.server[..signature]);
        }
    }
}
