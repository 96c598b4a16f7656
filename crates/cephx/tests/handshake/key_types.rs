//! Entities with keys of type `aes256k` beside those with `aes`.

use spirula_cephx::*;
use spirula_denc::{EntityType, UTime};
use spirula_errno::EACCES;

use crate::cluster::*;

/// The types of the session keys that a client has for the monitors and for OSDs.
fn session_kinds(mon: &Mon, who: &str) -> (KeyType, KeyType) {
    let l = login(mon, who, T0);
    let osd = l
        .keys
        .session
        .tickets()
        .authorizer(EntityType::OSD, &at(T0))
        .unwrap();
    let accepted = authorize(osd, &osd_secrets(mon, T0), &at(T0)).unwrap();
    (l.keys.session_key.kind(), accepted.session_key.kind())
}

#[test]
fn session_keys_are_of_the_strongest_type_that_both_sides_know() {
    use KeyType::{Aes, Aes256k};
    let mut mon = Mon::new();
    // Old clients get nothing that they do not know, whatever the services use.
    assert_eq!(session_kinds(&mon, "client.admin"), (Aes, Aes));
    mon.rekey("client.admin", Aes256k);
    assert_eq!(session_kinds(&mon, "client.admin"), (Aes256k, Aes256k));
    // Services that fetched secrets of the old type may not know the new one.
    mon.service_cipher = Aes;
    mon.db.secrets = ServiceSecrets::default();
    mon.rotate(T0);
    assert_eq!(session_kinds(&mon, "client.admin"), (Aes256k, Aes));
}

#[test]
fn a_daemon_with_an_aes256k_key_fetches_its_secrets() {
    let mut mon = Mon::new();
    mon.rekey("osd.0", KeyType::Aes256k);
    let client = login(&mon, "client.admin", T0);
    let osd = client
        .keys
        .session
        .tickets()
        .authorizer(EntityType::OSD, &at(T0))
        .unwrap();
    authorize(osd, &osd_secrets(&mon, T0), &at(T0)).unwrap();
}

#[test]
fn sessions_of_aes256k_entities_are_renewed_and_resumed() {
    let mut mon = Mon::new();
    mon.rekey("client.admin", KeyType::Aes256k);
    let mut l = login(&mon, "client.admin", T0);
    let mut now = T0;
    while now < T0 + 8 * 24 * HOUR {
        now += HOUR / 2;
        mon.rotate(now);
        while renew(&mon, &mut l.server, &mut l.keys.session, now) {}
        for service in [EntityType::AUTH, EntityType::OSD] {
            assert!(l.keys.session.tickets().has(service, UTime::from_secs(now)));
        }
    }
    let resumed = try_login(
        &mon,
        ClientHandshake::resume(l.keys.session),
        ConnectionMode::Secure,
        &at(now),
    )
    .unwrap();
    assert_eq!(resumed.accepted.global_id, l.accepted.global_id);
    assert_eq!(resumed.accepted.global_id_status, GlobalIdStatus::Reclaimed);
}

#[test]
fn a_rotation_to_another_type_leaves_the_standing_session_its_own() {
    let mut mon = Mon::new();
    let mut l = login(&mon, "client.admin", T0);
    mon.rekey("client.admin", KeyType::Aes256k);
    // The client only has its old key, of a type that its tickets must go on with.
    assert!(renew(&mon, &mut l.server, &mut l.keys.session, T0 + 45 * 60));
    let osd = l
        .keys
        .session
        .tickets()
        .authorizer(EntityType::OSD, &at(T0 + HOUR))
        .unwrap();
    let accepted = authorize(osd, &osd_secrets(&mon, T0 + HOUR), &at(T0 + HOUR)).unwrap();
    assert_eq!(accepted.session_key.kind(), KeyType::Aes);
    // A new login takes the new key.
    let old = ClientHandshake::resume(l.keys.session);
    let refused = try_login(&mon, old, ConnectionMode::Secure, &at(T0 + HOUR));
    assert_eq!(refused.err(), Some(EACCES));
}

#[test]
fn keys_of_another_type_with_the_same_bytes_open_nothing() {
    let mut mon = Mon::new();
    mon.rekey("client.admin", KeyType::Aes256k);
    let secret = mon.key("client.admin");
    let short = CryptoKey::from_parts(KeyType::Aes, secret.created(), &secret.secret()[..16]).unwrap();
    let client = ClientHandshake::new(name("client.admin"), short, &[EntityType::OSD]);
    let refused = try_login(&mon, client, ConnectionMode::Secure, &at(T0));
    assert_eq!(refused.err(), Some(EACCES));
}

#[test]
fn keys_of_a_type_that_is_not_allowed_are_refused_at_the_next_login_or_renewal() {
    let mut mon = Mon::new();
    let mut l = login(&mon, "client.admin", T0);
    mon.allowed = vec![KeyType::Aes256k];
    let refused = try_login(&mon, mon.client("client.admin"), ConnectionMode::Secure, &at(T0));
    assert_eq!(refused.err(), Some(EACCES));
    let request = l.keys.session.renewal(&at(T0 + 45 * 60)).unwrap().unwrap();
    let reply = l.server.handle_auth(&request, &mon, &at(T0 + 45 * 60));
    assert_eq!((reply.result, reply.payload.len()), (-EACCES, 0));
    mon.rekey("client.admin", KeyType::Aes256k);
    login(&mon, "client.admin", T0);
}
