//! Monitors towards each other.

use spirula_cephx::*;
use spirula_denc::EntityType;
use spirula_errno::EACCES;

use crate::cluster::*;

/// The recorded messages of a greeting.
struct Recorded {
    hello: Vec<u8>,
    answer: Vec<u8>,
    proof: Vec<u8>,
    done: Vec<u8>,
}

const MODE: ConnectionMode = ConnectionMode::Secure;

fn greeting(mon: &Mon) -> Greeting {
    Greeting::new(&name("mon.b"), mon.key("mon."), &at(T0)).unwrap()
}

fn say(server: &mut ServerHandshake, payload: &[u8], mon: &Mon) -> Outcome {
    server.handle(method::CEPHX, MODE, payload, mon, &at(T0))
}

fn greet(mon: &Mon) -> (Recorded, Box<Accepted>, (CryptoKey, ConnectionSecret)) {
    let (mut dialler, mut server) = (greeting(mon), ServerHandshake::new());
    let hello = dialler.initial();
    let answer = more(say(&mut server, &hello, mon));
    let proof = dialler.handle_more(&answer).unwrap();
    let accepted = done(say(&mut server, &proof, mon));
    let keys = dialler.handle_done(MODE, &accepted.payload).unwrap();
    let recorded = Recorded {
        hello,
        answer,
        proof,
        done: accepted.payload.clone(),
    };
    (recorded, accepted, keys)
}

#[test]
fn monitors_prove_themselves_with_their_shared_key() {
    let mon = Mon::new();
    let (first, accepted, (session_key, secret)) = greet(&mon);
    assert_eq!(
        (accepted.name.to_string().as_str(), accepted.global_id),
        ("mon.b", 0)
    );
    assert_eq!(accepted.global_id_status, GlobalIdStatus::Monitor);
    assert_eq!(
        (&session_key, &secret),
        (&accepted.session_key, &accepted.connection_secret)
    );
    assert_eq!((session_key.secret().len(), secret.len()), (16, 64));
    // Nothing is the same the next time.
    let (second, again, _) = greet(&mon);
    assert_ne!(again.session_key, session_key);
    assert_ne!(again.connection_secret, secret);
    assert_ne!((first.proof, first.done), (second.proof, second.done));
}

#[test]
fn a_recorded_greeting_is_good_for_nothing() {
    let mon = Mon::new();
    let (recorded, ..) = greet(&mon);
    // The eavesdropper repeats the dialling monitor's messages,
    let mut server = ServerHandshake::new();
    more(say(&mut server, &recorded.hello, &mon));
    assert_eq!(errno(&say(&mut server, &recorded.proof, &mon)), EACCES);
    // and the accepting one's,
    let mut dialler = greeting(&mon);
    dialler.handle_more(&recorded.answer).unwrap();
    assert_eq!(
        dialler.handle_done(MODE, &recorded.done).err(),
        Some(Error::WrongAnswer)
    );
    // or gives a monitor back its own proof.
    let mut dialler = greeting(&mon);
    let mut server = ServerHandshake::new();
    let answer = more(say(&mut server, &dialler.initial(), &mon));
    let proof = dialler.handle_more(&answer).unwrap();
    assert_eq!(dialler.handle_done(MODE, &proof).err(), Some(Error::WrongAnswer));
}

#[test]
fn no_bit_of_a_greeting_can_be_changed() {
    let mon = Mon::new();
    let flip = |bytes: &[u8], bit: usize| {
        let mut bent = bytes.to_vec();
        bent[bit / 8] ^= 1 << (bit % 8);
        bent
    };
    let bits = |bytes: &[u8]| bytes.len() * 8;
    for bit in 0..bits(&greeting(&mon).initial()) {
        let (mut dialler, mut server) = (greeting(&mon), ServerHandshake::new());
        let Outcome::More(answer) = say(&mut server, &flip(&dialler.initial(), bit), &mon) else {
            continue;
        };
        let Ok(proof) = dialler.handle_more(&answer) else {
            continue;
        };
        assert_eq!(
            errno(&say(&mut server, &proof, &mon)),
            EACCES,
            "bit {bit} of the hello"
        );
    }
    for bit in 0..37 * 8 {
        let (mut dialler, mut server) = (greeting(&mon), ServerHandshake::new());
        let answer = more(say(&mut server, &dialler.initial(), &mon));
        if let Ok(proof) = dialler.handle_more(&flip(&answer, bit)) {
            assert_eq!(
                errno(&say(&mut server, &proof, &mon)),
                EACCES,
                "bit {bit} of the answer"
            );
        }
    }
    for bit in 0..32 * 8 {
        let (mut dialler, mut server) = (greeting(&mon), ServerHandshake::new());
        let answer = more(say(&mut server, &dialler.initial(), &mon));
        let proof = dialler.handle_more(&answer).unwrap();
        assert_eq!(errno(&say(&mut server, &flip(&proof, bit), &mon)), EACCES);
    }
}

#[test]
fn only_the_shared_key_makes_a_monitor() {
    let mut mon = Mon::new();
    mon.add("mon.b", &[("mon", "allow *")]);
    for other in ["osd.0", "mon.b", "client.admin"] {
        let mut dialler = Greeting::new(&name("mon.b"), mon.key(other), &at(T0)).unwrap();
        let mut server = ServerHandshake::new();
        let answer = more(say(&mut server, &dialler.initial(), &mon));
        let proof = dialler.handle_more(&answer).unwrap();
        assert_eq!(errno(&say(&mut server, &proof, &mon)), EACCES, "{other}");
    }
    // An entity with such a name is a client like any other, and so is a client that logs in with
    // the monitors' key.
    for who in ["mon.b", "mon."] {
        let accepted = login(&mon, who, T0).accepted;
        assert_eq!(accepted.global_id_status, GlobalIdStatus::New);
        assert_ne!(accepted.global_id, 0);
    }
    // Nor does a ticket of the monitors' service make a monitor: they take no authorizers.
    let client = login(&mon, "client.admin", T0);
    let ticket = client.keys.session.tickets().authorizer(EntityType::MON, &at(T0));
    let payload = ticket.unwrap().initial(&at(T0)).unwrap();
    assert_eq!(errno(&say(&mut ServerHandshake::new(), &payload, &mon)), EACCES);
    // A monitor without the key takes nobody.
    mon.db.entities.remove(&name("mon."));
    let mut server = ServerHandshake::new();
    let mut dialler = Greeting::new(&name("mon.b"), mon.key("mon.b"), &at(T0)).unwrap();
    let answer = more(say(&mut server, &dialler.initial(), &mon));
    let proof = dialler.handle_more(&answer).unwrap();
    assert_eq!(errno(&say(&mut server, &proof, &mon)), EACCES);
}
