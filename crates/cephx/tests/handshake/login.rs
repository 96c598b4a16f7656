//! Logins: which succeed, and with which rights.

use spirula_cephx::*;
use spirula_denc::{EntityType, UTime};
use spirula_errno::{EACCES, EBUSY, EINVAL, EOPNOTSUPP, EPERM};

use crate::cluster::*;

#[test]
fn both_sides_of_a_login_agree() {
    let mon = Mon::new();
    for (mode, len) in [(ConnectionMode::Secure, 64), (ConnectionMode::Crc, 0)] {
        let l = try_login(&mon, mon.client("client.admin"), mode, &at(T0)).unwrap();
        assert_eq!(l.accepted.name, name("client.admin"));
        assert_eq!(l.accepted.caps.text().unwrap(), "allow *");
        assert_eq!(l.accepted.global_id_status, GlobalIdStatus::New);
        assert_eq!(l.accepted.session_key, l.keys.session_key);
        assert_eq!(l.accepted.connection_secret, l.keys.connection_secret);
        assert_eq!(l.keys.connection_secret.len(), len);
        assert_eq!(l.keys.session.tickets().global_id(), l.accepted.global_id);
        for service in [
            EntityType::MON,
            EntityType::OSD,
            EntityType::MGR,
            EntityType::AUTH,
        ] {
            assert!(l.keys.session.tickets().has(service, UTime::from_secs(T0)));
        }
        assert!(
            !l.keys
                .session
                .tickets()
                .has(EntityType::MDS, UTime::from_secs(T0))
        );
        assert_eq!(l.keys.session.renewal(&at(T0)).unwrap(), None);
    }
}

#[test]
fn what_is_refused_and_with_which_errno() {
    let mon = Mon::new();
    let (mode, env) = (ConnectionMode::Crc, at(T0));
    let denied = |client| try_login(&mon, client, mode, &env).err().unwrap();
    let want = [EntityType::OSD];
    assert_eq!(
        denied(ClientHandshake::new(
            name("client.admin"),
            mon.key("osd.0"),
            &want
        )),
        EACCES
    );
    assert_eq!(
        denied(ClientHandshake::new(
            name("client.nobody"),
            mon.key("osd.0"),
            &want
        )),
        EACCES
    );
    assert_eq!(denied(mon.client("client.nomon")), EACCES);

    let hello = mon.client("client.admin").initial();
    let mut server = ServerHandshake::new();
    // `none` is not offered; the client may then ask for another method.
    assert_eq!(
        errno(&server.handle(method::NONE, mode, &hello, &mon, &env)),
        EOPNOTSUPP
    );
    more(server.handle(method::CEPHX, mode, &hello, &mon, &env));
    assert_eq!(
        errno(&server.handle(method::CEPHX, mode, &[0, 1], &mon, &env)),
        EPERM
    );
    assert_eq!(
        errno(&server.handle(method::CEPHX, mode, &hello, &mon, &env)),
        EACCES
    );

    for start in [&[][..], &[10], &[0], &[20, 8, 0, 0, 0], &hello[..hello.len() - 1]] {
        let outcome = ServerHandshake::new().handle(method::CEPHX, mode, start, &mon, &env);
        assert_eq!(errno(&outcome), EACCES, "{start:?}");
    }
    let mut server = ServerHandshake::new();
    more(server.handle(method::CEPHX, mode, &hello, &mon, &env));
    assert_eq!(
        errno(&server.handle(method::CEPHX, mode, &[0, 9], &mon, &env)),
        EINVAL
    );

    mon.next_id.set(0);
    assert_eq!(denied(mon.client("client.admin")), EBUSY);
}

#[test]
fn global_ids_are_taken_by_those_who_proved_who_they_are() {
    let mon = Mon::new();
    let (mode, env, before) = (ConnectionMode::Crc, at(T0), mon.next_id.get());
    let want = [EntityType::OSD];
    for _ in 0..10 {
        // A hello alone, a wrong key, an unknown name, a name that may not talk to monitors.
        let hello = mon.client("client.admin").initial();
        more(ServerHandshake::new().handle(method::CEPHX, mode, &hello, &mon, &env));
        for (who, key) in [
            ("client.admin", "osd.0"),
            ("client.x", "osd.0"),
            ("client.nomon", "client.nomon"),
        ] {
            let client = ClientHandshake::new(name(who), mon.key(key), &want);
            assert_eq!(try_login(&mon, client, mode, &env).err(), Some(EACCES));
        }
    }
    assert_eq!(mon.next_id.get(), before);
    login(&mon, "client.admin", T0);
    assert_eq!(mon.next_id.get(), before + 1);
}

#[test]
fn a_replayed_answer_is_good_for_nothing() {
    let mon = Mon::new();
    let (mode, env) = (ConnectionMode::Crc, at(T0));
    let mut client = mon.client("client.admin");
    let mut first = ServerHandshake::new();
    let challenge = more(first.handle(method::CEPHX, mode, &client.initial(), &mon, &env));
    let answer = client.handle_more(&challenge, &env).unwrap();
    let mut second = ServerHandshake::new();
    more(second.handle(method::CEPHX, mode, &client.initial(), &mon, &env));
    assert_eq!(
        errno(&second.handle(method::CEPHX, mode, &answer, &mon, &env)),
        EACCES
    );
    done(first.handle(method::CEPHX, mode, &answer, &mon, &env));
    assert_eq!(
        errno(&first.handle(method::CEPHX, mode, &answer, &mon, &env)),
        EACCES
    );
    // Nor does a client answer two challenges.
    assert_eq!(client.handle_more(&challenge, &env), Err(Error::OutOfOrder));
}

#[test]
fn a_monitor_without_the_key_is_found_out() {
    let (mon, env) = (Mon::new(), at(T0));
    let mut fake = Mon::new();
    fake.db.secrets = mon.db.secrets.clone();
    let real = try_login(&mon, mon.client("client.admin"), ConnectionMode::Crc, &env).unwrap();
    let mut client = fake.client("client.admin");
    let challenge = more(ServerHandshake::new().handle(
        method::CEPHX,
        ConnectionMode::Crc,
        &client.initial(),
        &mon,
        &env,
    ));
    client.handle_more(&challenge, &env).unwrap();
    assert_eq!(
        client.handle_done(5, &real.accepted.payload, &env).err(),
        Some(Error::Decrypt)
    );
}
