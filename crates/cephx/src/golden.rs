//! A login of an official client of Ceph 20.2.4 at an official monitor of 20.2.4, with a key of
//! type `aes256k`, recorded on the wire and reproduced to the byte. The session key and the secret
//! of the monitors' service are from that monitor's log.

use std::cell::RefCell;

use spirula_denc::{EntityType, Reader, UTime, Writer, decode_all};

use crate::key::{AES256_KEY_LEN, ConnectionSecret};
use crate::rfc8009::UsageKeys;
use crate::seal::{Usage, answer, open_from, seal_into};
use crate::ticket::{IssuedTicket, put_tickets};
use crate::wire::{ChallengeBlob, ResponseHeader, ServiceTicket, ServiceTicketInfo, TicketBlob, request};
use crate::{AuthName, ClientHandshake, CryptoKey, Env, KeyType, RandomSource, Result};

/// The key of `client.gold`.
const KEY: &str = "AgAitAZr/dI3IiAA60SyZlCoHJkQj7gfihh00neJRuL0BBt31gxOHb9XY5c=";
/// The session key that the monitor made.
const SESSION_KEY: &str = "AgAjtAZrG9+GNCAA2hkip7CVafSF5Ef+T5a9+BEtTT9TRwOuhmAP0tWLVW4=";
/// The secret, with the id 2, that the monitor sealed the ticket with.
const SERVICE_SECRET: &str = "AgDrswZr/iDeNiAAG/wv2sFKEAbd4Hw1tyIP8uddjDydDLS/oU+aR7QqpK4=";
const GLOBAL_ID: u64 = 4161;
/// The payload of `AUTH_REQUEST`.
const HELLO: &str = "0a0800000004000000676f6c640000000000000000";
/// The payload of `AUTH_REPLY_MORE`.
const CHALLENGE: &str = "0149267a4c2dab4b93";
/// The payload of `AUTH_REQUEST_MORE`.
const ANSWER: &str = "000103d1ee198d52c61d94cfd2fd1a2aa730830100000000000000000000000020000000";
/// The payload of `AUTH_DONE`.
const DONE: &str = "0001000000000101000000200000000166000000459cdd1374e821891147e9d3a75299ba66f4114982d3b621cc90e351119fedd0891baf4ee27b8c4a\
     f6dfe59bd422c4d5816a59ab6d60fccbd826fa12df7fe02e92cde60e2475ad67c8d68a77e1d46dc857d4a670d6531b00506a5a33a7a885cf174ec066\
     908f00a2000000010200000000000000950000005fb450ae5b187b6ae2986937681fcdd256bcf2dc21a7be8ef0604bf370acdf0a557e4fca71a7afd7\
     c1affa78d0a5897a69fee2391a0507b2ac211d9387d4e678543f8a7aafc02c66dce80150db13eea9e489ba82aaa39172a2772e6b69dc7915c1b2c3c2\
     35eebdb8e2184391a4c97ac4949ba563bb0fa0c70657b56357610adc52eb8744c0dea07312499332c3725f57e85fd7f22679000000750000007ecb27\
     40a8ab764c3a4f2e6b2455ac05ee79085c48431c6ad7751b0b15617414e68d67799449d7f83b569108732ee1f1f0283e8496cc3f400bb15ad1c2c4af\
     f297a47e512c913b29cc3a059cd36a9bd3e201afc41fa76957ac1d198337b32dc1f10033ce400330654c8e60d0c85f0128e8adab9bd700000000";

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

fn key(text: &str) -> CryptoKey {
    CryptoKey::from_base64(text).unwrap()
}

/// The random bytes of a recorded handshake, one after the other.
#[derive(Default)]
struct Replay(RefCell<Vec<u8>>);

impl RandomSource for Replay {
    fn fill(&self, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(&self.0.borrow_mut().drain(..buf.len()).collect::<Vec<_>>());
        Ok(())
    }
}

fn env(random: &Replay) -> Env<'_> {
    Env {
        now: UTime::from_secs(1_795_601_443),
        random,
    }
}

fn keys(key: &CryptoKey, usage: u32) -> UsageKeys {
    let secret: &[u8; AES256_KEY_LEN] = key.secret().try_into().unwrap();
    UsageKeys::derive(secret, usage)
}

#[test]
fn our_client_says_what_the_official_one_said_and_understands_the_official_monitor() {
    // Version and request type, then the client's challenge.
    let random = Replay(RefCell::new(unhex(ANSWER)[3..11].to_vec()));
    let name: AuthName = "client.gold".parse().unwrap();
    let mut client = ClientHandshake::new(name, key(KEY), &[]);
    assert_eq!(client.initial(), unhex(HELLO));
    let said = client.handle_more(&unhex(CHALLENGE), &env(&random)).unwrap();
    assert_eq!(said, unhex(ANSWER));
    let keys = client
        .handle_done(GLOBAL_ID, &unhex(DONE), &env(&random))
        .unwrap();
    assert_eq!(keys.session_key, key(SESSION_KEY));
    assert_eq!(keys.session_key.kind(), KeyType::Aes256k);
    assert_eq!(keys.connection_secret.len(), 64);
}

#[test]
fn our_monitor_expects_the_official_answer() {
    let said = unhex(ANSWER);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let challenges = ChallengeBlob {
        server_challenge: number(&unhex(CHALLENGE)[1..]),
        client_challenge: number(&said[3..11]),
    };
    assert_eq!(answer(&key(KEY), &challenges), Ok(number(&said[11..19])));
}

#[test]
fn our_monitor_seals_to_the_official_bytes() {
    let (entity, done) = (key(KEY), unhex(DONE));
    // Reads the reply, and takes the random bytes before each sealed part out of it.
    let random = Replay::default();
    let confounders = |key: &CryptoKey, usage: Usage, sealed: &[u8]| {
        let with = keys(key, usage as u32).open_with_confounder(sealed).unwrap();
        random.0.borrow_mut().extend_from_slice(&with[..16]);
    };
    let mut r = Reader::new(&done);
    let header: ResponseHeader = r.get().unwrap();
    assert_eq!(header.request_type, request::AUTH_SESSION_KEY);
    assert_eq!((r.u8().unwrap(), r.u32().unwrap(), r.u32().unwrap()), (1, 1, 32));
    r.u8().unwrap();
    let mut sealed = r.clone();
    confounders(&entity, Usage::SessionKey, sealed.blob().unwrap());
    let session: ServiceTicket = open_from(&mut r, &entity, Usage::SessionKey).unwrap();
    assert!(!r.bool().unwrap());
    let blob: TicketBlob = decode_all(r.blob().unwrap()).unwrap();
    let mut outer = Reader::new(r.blob().unwrap());
    let mut sealed = outer.clone();
    confounders(
        &session.session_key,
        Usage::ConnectionSecret,
        sealed.blob().unwrap(),
    );
    let secret: ConnectionSecret =
        open_from(&mut outer, &session.session_key, Usage::ConnectionSecret).unwrap();

    // The ticket, which only monitors and services open: there the official usage is 0x30.
    assert_eq!(blob.secret_id, 2);
    let plain = keys(&key(SERVICE_SECRET), 0x30).open(&blob.blob).unwrap();
    let info: ServiceTicketInfo = decode_all(&plain[9..]).unwrap();
    assert_eq!(info.session_key, session.session_key);
    assert_eq!(
        (info.ticket.name.to_string().as_str(), info.ticket.global_id),
        ("client.gold", GLOBAL_ID)
    );

    let env = env(&random);
    let mut w = Writer::new();
    w.put(&header);
    let ticket = IssuedTicket {
        service: EntityType::AUTH,
        session: session.clone(),
        blob,
    };
    put_tickets(&mut w, &entity, &[ticket], None, &env).unwrap();
    let mut sealed = Writer::new();
    seal_into(
        &mut sealed,
        &session.session_key,
        Usage::ConnectionSecret,
        &secret,
        &env,
    )
    .unwrap();
    w.blob(sealed.as_slice());
    w.blob(&[]);
    assert_eq!(w.into_vec(), done);
}
