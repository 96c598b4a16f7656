//! Tickets at the services.

use spirula_cephx::*;
use spirula_denc::{EntityType, UTime};
use spirula_errno::{EACCES, EINVAL, EOPNOTSUPP, EPERM};

use crate::cluster::*;

#[test]
fn a_ticket_opens_its_service_with_the_entitys_rights() {
    let mon = Mon::new();
    let client = login(&mon, "client.admin", T0);
    let keys = osd_secrets(&mon, T0);
    let tickets = client.keys.session.tickets();
    let accepted = authorize(
        tickets.authorizer(EntityType::OSD, &at(T0)).unwrap(),
        &keys,
        &at(T0),
    )
    .unwrap();
    assert_eq!(accepted.name, name("client.admin"));
    assert_eq!(accepted.global_id, client.accepted.global_id);
    assert_eq!(accepted.caps.text().unwrap(), "allow rw pool=p");
    assert_eq!(accepted.expires, UTime::from_secs(T0 + HOUR));

    // OSDs towards each other do the same.
    let osd = login(&mon, "osd.0", T0);
    let peer = osd
        .keys
        .session
        .tickets()
        .authorizer(EntityType::OSD, &at(T0))
        .unwrap();
    assert_eq!(
        authorize(peer, &keys, &at(T0)).unwrap().caps.text().unwrap(),
        "allow *"
    );

    // A ticket of another service is none of ours, and no ticket is no authorizer.
    let manager = tickets.authorizer(EntityType::MGR, &at(T0)).unwrap();
    assert_eq!(authorize(manager, &keys, &at(T0)).err(), Some(EACCES));
    assert_eq!(
        tickets.authorizer(EntityType::MDS, &at(T0)).err(),
        Some(Error::NoTicket(EntityType::MDS))
    );
    assert!(tickets.authorizer(EntityType::OSD, &at(T0 + HOUR)).is_err());
}

#[test]
fn overheard_authorizers_can_not_be_replayed() {
    let (mon, env, mode) = (Mon::new(), at(T0), ConnectionMode::Crc);
    let client = login(&mon, "client.admin", T0);
    let keys = osd_secrets(&mon, T0);
    let mut authorizer = client
        .keys
        .session
        .tickets()
        .authorizer(EntityType::OSD, &env)
        .unwrap();
    let first = authorizer.initial(&env).unwrap();
    let mut service = AuthorizerVerifier::new();
    let challenge = more(service.handle(method::CEPHX, mode, &first, &keys, &env));
    let answer = authorizer.handle_more(&challenge, &env).unwrap();
    done(service.handle(method::CEPHX, mode, &answer, &keys, &env));

    for replay in [[&answer, &answer], [&first, &answer], [&first, &first]] {
        let mut service = AuthorizerVerifier::new();
        more(service.handle(method::CEPHX, mode, replay[0], &keys, &env));
        assert_eq!(
            errno(&service.handle(method::CEPHX, mode, replay[1], &keys, &env)),
            EACCES
        );
        assert_eq!(
            errno(&service.handle(method::CEPHX, mode, replay[1], &keys, &env)),
            EACCES
        );
    }
    assert_eq!(
        errno(&AuthorizerVerifier::new().handle(method::NONE, mode, &first, &keys, &env)),
        EOPNOTSUPP
    );
    for cut in 0..first.len() {
        let outcome = AuthorizerVerifier::new().handle(method::CEPHX, mode, &first[..cut], &keys, &env);
        assert_eq!(errno(&outcome), EACCES);
    }
    for bit in 0..first.len() * 8 {
        let mut bent = first.clone();
        bent[bit / 8] ^= 1 << (bit % 8);
        // The version of the ticket is not looked at; of all else each bit counts.
        let outcome = AuthorizerVerifier::new().handle(method::CEPHX, mode, &bent, &keys, &env);
        match bit / 8 {
            13 => assert!(matches!(outcome, Outcome::More(_))),
            _ => assert_eq!(errno(&outcome), EACCES, "bit {bit}"),
        }
    }
}

#[test]
fn old_tickets_are_refused_when_time_or_rotation_ends_them() {
    let mut mon = Mon::new();
    let client = login(&mon, "client.admin", T0);
    let authorizer = || {
        client
            .keys
            .session
            .tickets()
            .authorizer(EntityType::OSD, &at(T0))
            .unwrap()
    };
    let stale = osd_secrets(&mon, T0);
    // The service's clock may be ahead by a lifetime, not more.
    assert!(authorize(authorizer(), &stale, &at(T0 + 2 * HOUR)).is_ok());
    assert_eq!(
        authorize(authorizer(), &stale, &at(T0 + 2 * HOUR + 1)).err(),
        Some(EACCES)
    );
    assert!(!stale.needs_renewal(&TicketLifetimes::default(), UTime::from_secs(T0 + 2 * HOUR)));
    assert!(stale.needs_renewal(&TicketLifetimes::default(), UTime::from_secs(T0 + 2 * HOUR + 31)));
    for hour in 1..6 {
        mon.rotate(T0 + hour * HOUR);
    }
    let fresh = osd_secrets(&mon, T0 + 5 * HOUR);
    assert_eq!(
        authorize(authorizer(), &fresh, &at(T0 + HOUR)).err(),
        Some(EACCES)
    );
}

#[test]
fn tickets_are_only_renewed_for_their_own_session() {
    let mon = Mon::new();
    let (mut ours, theirs) = (login(&mon, "client.admin", T0), login(&mon, "client.admin", T0));
    let stolen = theirs.keys.session.renewal(&at(T0 + HOUR)).unwrap().unwrap();
    assert_eq!(
        ours.server.handle_auth(&stolen, &mon, &at(T0 + HOUR)).result,
        -EACCES
    );
    // A client is no service, so there are no secrets for it.
    assert_eq!(
        ours.server
            .handle_auth(&ours.keys.session.rotating_request(), &mon, &at(T0))
            .result,
        -EACCES
    );
    assert_eq!(ours.server.handle_auth(&[1], &mon, &at(T0)).result, -EPERM);
    assert_eq!(ours.server.handle_auth(&[0, 9], &mon, &at(T0)).result, -EINVAL);
    assert_eq!(
        ServerHandshake::new().handle_auth(&stolen, &mon, &at(T0)).result,
        -EACCES
    );
}
