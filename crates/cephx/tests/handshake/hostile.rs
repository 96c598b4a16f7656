//! Log output, bad randomness, and payloads that no honest client sends.

use std::cell::RefCell;
use std::time::Duration;

use proptest::prelude::*;
use spirula_cephx::*;
use spirula_denc::UTime;
use spirula_random::Rng;

use crate::cluster::*;

#[test]
fn nothing_that_is_logged_shows_a_secret() {
    let mon = Mon::new();
    let l = login(&mon, "osd.0", T0);
    let shown = format!(
        "{:?} {:?} {:?} {:?} {:?}",
        l.server,
        l.keys,
        osd_secrets(&mon, T0),
        mon.db,
        l.accepted.name
    );
    for key in [mon.key("osd.0"), l.keys.session_key.clone()] {
        let bytes = format!("{:?}", key.secret());
        let inner = bytes.trim_matches(['[', ']']).to_owned();
        assert!(!shown.contains(&inner) && !shown.contains(&key.to_base64()));
    }
}

/// Randomness that repeats for the same seed, as a simulation gives it.
struct Seeded(RefCell<Rng>);

impl RandomSource for Seeded {
    fn fill(&self, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(&self.0.borrow_mut().bytes(buf.len()));
        Ok(())
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let mon = Mon::new();
    let run = || {
        let random = Seeded(RefCell::new(Rng::new(7)));
        let env = Env {
            now: UTime::from_secs(T0).plus(Duration::from_nanos(5)),
            random: &random,
        };
        mon.next_id.set(9);
        try_login(&mon, mon.client("client.admin"), ConnectionMode::Secure, &env)
            .unwrap()
            .accepted
            .payload
    };
    assert_eq!(run(), run());
}

thread_local! {
    /// A monitor with a login on it, made once: hostile messages must leave both usable.
    static SEEN: (Mon, LoggedIn, RotatingKeys) = {
        let mon = Mon::new();
        let l = login(&mon, "client.admin", T0);
        let keys = osd_secrets(&mon, T0);
        (mon, l, keys)
    };
}

proptest! {
    #[test]
    fn no_side_minds_noise(mut bytes in proptest::collection::vec(any::<u8>(), 1..120), first in 0u8..25, kind in 0u8..5) {
        bytes[0] = first;
        let (env, mode) = (at(T0), ConnectionMode::Secure);
        let mut request = vec![0, kind];
        request.extend(&bytes);
        SEEN.with(|(mon, l, keys)| {
            let mut server = ServerHandshake::new();
            server.handle(method::CEPHX, mode, &bytes, mon, &env);
            let mut server = ServerHandshake::new();
            more(server.handle(method::CEPHX, mode, &mon.client("client.admin").initial(), mon, &env));
            errno(&server.handle(method::CEPHX, mode, &request, mon, &env));
            let verified = AuthorizerVerifier::new().handle(method::CEPHX, mode, &bytes, keys, &env);
            errno(&verified);
            let mut session = l.keys.session.clone();
            let _ = session.handle_reply(0, &request, &env);
            let mut client = ClientHandshake::resume(session);
            let _ = client.handle_more(&bytes, &env);
            prop_assert!(client.handle_done(1, &bytes, &env).is_err());
            Ok(())
        })?;
    }

    #[test]
    fn a_bent_reply_does_no_harm(at_byte in any::<prop::sample::Index>(), bit in 0u8..8) {
        let env = at(T0);
        SEEN.with(|(mon, _, _)| {
            let mut server = ServerHandshake::new();
            let mut client = mon.client("client.admin");
            let challenge = more(server.handle(method::CEPHX, ConnectionMode::Crc, &client.initial(), mon, &env));
            let answer = client.handle_more(&challenge, &env).unwrap();
            let mut accepted = done(server.handle(method::CEPHX, ConnectionMode::Crc, &answer, mon, &env));
            let at = at_byte.index(accepted.payload.len());
            accepted.payload[at] ^= 1 << bit;
            let _ = client.handle_done(accepted.global_id, &accepted.payload, &env);
        });
    }
}

#[test]
fn the_server_handles_a_session_after_bad_renewals() {
    let mon = Mon::new();
    let mut l = login(&mon, "client.admin", T0);
    for noise in [&[][..], &[0, 1], &[0, 2, 1, 0], &[0, 4]] {
        assert!(l.server.handle_auth(noise, &mon, &at(T0)).result < 0);
    }
    assert!(renew(&mon, &mut l.server, &mut l.keys.session, T0 + HOUR));
}
