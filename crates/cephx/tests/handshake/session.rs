//! Renewals, and global ids that are reclaimed.

use spirula_cephx::*;
use spirula_denc::{EntityType, UTime, decode_all, encode_to_vec};
use spirula_errno::EACCES;

use crate::cluster::*;

#[test]
fn tickets_are_renewed_before_they_end() {
    let mut mon = Mon::new();
    let mut l = login(&mon, "client.admin", T0);
    let session = &mut l.keys.session;
    assert_eq!(session.renewal(&at(T0 + 45 * 60 - 1)).unwrap(), None);
    assert!(renew(&mon, &mut l.server, session, T0 + 45 * 60));
    assert!(!renew(&mon, &mut l.server, session, T0 + 45 * 60));
    assert!(
        session
            .tickets()
            .has(EntityType::OSD, UTime::from_secs(T0 + 90 * 60))
    );

    // The monitors' own ticket ends after three days; its renewal goes on with the old ticket as
    // proof.
    let mut now = T0;
    while now < T0 + 10 * 24 * HOUR {
        now += HOUR / 2;
        mon.rotate(now);
        while renew(&mon, &mut l.server, session, now) {}
        for service in [EntityType::AUTH, EntityType::OSD, EntityType::MGR] {
            assert!(session.tickets().has(service, UTime::from_secs(now)));
        }
    }
    let keys = osd_secrets(&mon, now);
    authorize(
        session.tickets().authorizer(EntityType::OSD, &at(now)).unwrap(),
        &keys,
        &at(now),
    )
    .unwrap();
}

#[test]
fn a_removed_entity_gets_no_more_tickets() {
    let mut mon = Mon::new();
    let mut l = login(&mon, "client.admin", T0);
    mon.db.entities.remove(&name("client.admin"));
    let request = l.keys.session.renewal(&at(T0 + HOUR)).unwrap().unwrap();
    let reply = l.server.handle_auth(&request, &mon, &at(T0 + HOUR));
    assert_eq!((reply.result, reply.payload.len()), (-EACCES, 0));
    let refused = l
        .keys
        .session
        .handle_reply(reply.result, &reply.payload, &at(T0 + HOUR));
    assert_eq!(refused.err(), Some(Error::Refused(EACCES)));
}

#[test]
fn a_session_reclaims_its_global_id_with_its_ticket_only() {
    let mut mon = Mon::new();
    let first = login(&mon, "client.admin", T0);
    let id = first.accepted.global_id;
    let again = ClientHandshake::resume(first.keys.session.clone());
    let again = try_login(&mon, again, ConnectionMode::Secure, &at(T0 + 60)).unwrap();
    assert_eq!(
        (again.accepted.global_id, again.accepted.global_id_status),
        (id, GlobalIdStatus::Reclaimed)
    );
    assert_eq!(again.accepted.connection_secret, again.keys.connection_secret);

    // Without the ticket, with one of another id, or of another entity: no.
    let (env, mode) = (at(T0 + 60), ConnectionMode::Crc);
    let steal = |thief: &LoggedIn, who: &str, id: u64| {
        let mut hello = encode_to_vec(&10u8);
        hello.extend(encode_to_vec(&name(who)));
        hello.extend(encode_to_vec(&id));
        let mut server = ServerHandshake::new();
        let challenge = more(server.handle(method::CEPHX, mode, &hello, &mon, &env));
        let mut client = ClientHandshake::resume(thief.keys.session.clone());
        let answer = client.handle_more(&challenge, &env).unwrap();
        errno(&server.handle(method::CEPHX, mode, &answer, &mon, &env))
    };
    let other = login(&mon, "client.admin", T0);
    assert_eq!(steal(&other, "client.admin", id), EACCES);
    assert_eq!(steal(&login(&mon, "osd.0", T0), "client.admin", id), EACCES);

    // A ticket whose secret is rotated away proves nothing either: its owner starts anew.
    for day in 1..20 {
        mon.rotate(T0 + day * 24 * HOUR);
    }
    let late = ClientHandshake::resume(first.keys.session);
    let late = try_login(&mon, late, mode, &at(T0 + 20 * 24 * HOUR)).unwrap();
    assert_eq!(late.accepted.global_id_status, GlobalIdStatus::New);
    assert_ne!(late.accepted.global_id, id);
    assert_eq!(late.keys.session.tickets().global_id(), late.accepted.global_id);
}

/// The answer with which a client resumes its session, with another old ticket.
fn resume_with(mon: &Mon, session: &ClientSession, ticket: wire::TicketBlob) -> Outcome {
    let (env, mode) = (at(T0 + 60), ConnectionMode::Crc);
    let mut server = ServerHandshake::new();
    let mut client = ClientHandshake::resume(session.clone());
    let challenge = more(server.handle(method::CEPHX, mode, &client.initial(), mon, &env));
    let answer = client.handle_more(&challenge, &env).unwrap();
    let mut answer: wire::Authenticate = decode_all(&answer[2..]).unwrap();
    answer.old_ticket = ticket;
    let payload = [&[0, 1][..], &encode_to_vec(&answer)].concat();
    server.handle(method::CEPHX, mode, &payload, mon, &env)
}

/// As after an upgrade: the ticket is sealed as Ceph does, with the secret of the same id.
#[test]
fn a_ticket_in_the_earlier_format_starts_a_new_session() {
    let mon = Mon::new();
    let first = login(&mon, "client.admin", T0);
    let old = wire::TicketBlob {
        secret_id: 2,
        blob: vec![0x5a; 128].into(),
    };
    let accepted = done(resume_with(&mon, &first.keys.session, old));
    assert_eq!(accepted.global_id_status, GlobalIdStatus::New);
    assert_ne!(accepted.global_id, first.accepted.global_id);
    // A client without a ticket claims an id that is not its own.
    let none = resume_with(&mon, &first.keys.session, wire::TicketBlob::default());
    assert_eq!(errno(&none), EACCES);
}

/// A client from before 16.2.1: version 2 of the answer, without its ticket.
fn legacy_reclaim(mon: &Mon, session: &ClientSession) -> Outcome {
    let (env, mode) = (at(T0 + 60), ConnectionMode::Crc);
    let mut server = ServerHandshake::new();
    let mut client = ClientHandshake::resume(session.clone());
    let challenge = more(server.handle(method::CEPHX, mode, &client.initial(), mon, &env));
    let answer = client.handle_more(&challenge, &env).unwrap();
    let mut old: wire::Authenticate = decode_all(&answer[2..]).unwrap();
    old.version = 2;
    old.old_ticket = wire::TicketBlob::default();
    let mut payload = answer[..2].to_vec();
    payload.extend(encode_to_vec(&old));
    server.handle(method::CEPHX, mode, &payload, mon, &env)
}

#[test]
fn reclaiming_without_proof_takes_the_permission() {
    let mut mon = Mon::new();
    let session = login(&mon, "client.admin", T0).keys.session;
    assert_eq!(errno(&legacy_reclaim(&mon, &session)), EACCES);
    mon.insecure = true;
    let accepted = done(legacy_reclaim(&mon, &session));
    assert_eq!(accepted.global_id_status, GlobalIdStatus::ReclaimedInsecurely);
}
