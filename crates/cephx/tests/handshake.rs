//! Both sides of every handshake against each other, in memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail as tests do"
)]

use std::cell::{Cell, RefCell};
use std::time::Duration;

use proptest::prelude::*;
use spirula_cephx::{
    Accepted, AuthName, Authorizer, AuthorizerVerifier, ClientHandshake, ClientKeys, ClientSession,
    ConnectionMode, CryptoKey, EACCES, EBUSY, EINVAL, EOPNOTSUPP, EPERM, EntityAuth, Env, Error,
    GlobalIdStatus, KeyDatabase, KeyServer, MonitorKey, Outcome, Renewed, RotatingKeys, ServerHandshake,
    ServiceSecrets, TicketLifetimes, method,
};
use spirula_denc::{EntityType, UTime, decode_all, encode_to_vec};

const T0: u32 = 1_700_000_000;
const HOUR: u32 = 3600;

fn at(sec: u32) -> Env<'static> {
    Env::system(UTime::from_secs(sec))
}

fn name(text: &str) -> AuthName {
    text.parse().unwrap()
}

/// A monitor's database.
struct Mon {
    db: KeyDatabase,
    next_id: Cell<u64>,
    insecure: bool,
}

impl KeyServer for Mon {
    fn lookup(&self, name: &AuthName) -> Option<EntityAuth> {
        self.db.entities.get(name).cloned()
    }
    fn service_secrets(&self) -> &ServiceSecrets {
        &self.db.secrets
    }
    fn new_global_id(&self) -> Option<u64> {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        (id != 0).then_some(id)
    }
    fn allow_insecure_global_id_reclaim(&self) -> bool {
        self.insecure
    }
}

impl Mon {
    fn new() -> Self {
        let mut mon = Self {
            db: KeyDatabase::default(),
            next_id: Cell::new(4100),
            insecure: false,
        };
        mon.add("client.admin", &[("mon", "allow *"), ("osd", "allow rw pool=p")]);
        mon.add("client.nomon", &[("osd", "allow *")]);
        mon.add("osd.0", &[("mon", "allow profile osd"), ("osd", "allow *")]);
        mon.add("mon.", &[("mon", "allow *")]);
        mon.rotate(T0);
        mon
    }
    fn add(&mut self, who: &str, caps: &[(&str, &str)]) {
        let caps = caps
            .iter()
            .map(|(s, c)| ((*s).to_owned(), (*c).to_owned()))
            .collect();
        let auth = EntityAuth {
            key: CryptoKey::generate(&at(T0)).unwrap(),
            caps,
        };
        self.db.entities.insert(name(who), auth);
    }
    fn key(&self, who: &str) -> CryptoKey {
        self.db.entities[&name(who)].key.clone()
    }
    /// Rotates as a tick does, and through the form in which the monitor stores the secrets.
    fn rotate(&mut self, now: u32) {
        if let Some(next) = self
            .db
            .secrets
            .rotated(&TicketLifetimes::default(), &at(now))
            .unwrap()
        {
            self.db.secrets = decode_all(&encode_to_vec(&next)).unwrap();
        }
    }
    fn client(&self, who: &str) -> ClientHandshake {
        ClientHandshake::new(
            name(who),
            self.key(who),
            &[EntityType::MON, EntityType::OSD, EntityType::MGR],
        )
    }
}

/// A login with everything that both sides then have.
struct LoggedIn {
    server: ServerHandshake,
    accepted: Accepted,
    keys: ClientKeys,
}

fn more(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::More(payload) => payload,
        other => panic!("{other:?}"),
    }
}

fn done(outcome: Outcome) -> Box<Accepted> {
    match outcome {
        Outcome::Done(accepted) => accepted,
        other => panic!("{other:?}"),
    }
}

fn errno(outcome: &Outcome) -> i32 {
    match outcome {
        Outcome::Denied { errno, .. } => *errno,
        other => panic!("{other:?}"),
    }
}

fn try_login(
    mon: &Mon,
    mut client: ClientHandshake,
    mode: ConnectionMode,
    env: &Env<'_>,
) -> Result<LoggedIn, i32> {
    let mut server = ServerHandshake::new();
    let challenge = match server.handle(method::CEPHX, mode, &client.initial(), mon, env) {
        Outcome::More(payload) => payload,
        denied => return Err(errno(&denied)),
    };
    let answer = client.handle_more(&challenge, env).unwrap();
    match server.handle(method::CEPHX, mode, &answer, mon, env) {
        Outcome::Done(accepted) => {
            let keys = client
                .handle_done(accepted.global_id, &accepted.payload, env)
                .unwrap();
            Ok(LoggedIn {
                server,
                accepted: *accepted,
                keys,
            })
        }
        denied => Err(errno(&denied)),
    }
}

fn login(mon: &Mon, who: &str, sec: u32) -> LoggedIn {
    try_login(mon, mon.client(who), ConnectionMode::Secure, &at(sec)).unwrap()
}

/// One `MAuth` round, where one is due. Whether there was one.
fn renew(mon: &Mon, server: &mut ServerHandshake, session: &mut ClientSession, sec: u32) -> bool {
    let Some(request) = session.renewal(&at(sec)).unwrap() else {
        return false;
    };
    let reply = server.handle_auth(&request, mon, &at(sec));
    assert_eq!(reply.result, 0);
    assert!(matches!(
        session.handle_reply(reply.result, &reply.payload, &at(sec)),
        Ok(Renewed::Tickets)
    ));
    true
}

/// The secrets that osd.0 has.
fn osd_secrets(mon: &Mon, sec: u32) -> RotatingKeys {
    let mut osd = login(mon, "osd.0", sec);
    let reply = osd
        .server
        .handle_auth(&osd.keys.session.rotating_request(), mon, &at(sec));
    let mut keys = RotatingKeys::new(EntityType::OSD);
    match osd
        .keys
        .session
        .handle_reply(reply.result, &reply.payload, &at(sec))
    {
        Ok(Renewed::Secrets(secrets)) => keys.set(secrets),
        other => panic!("{other:?}"),
    }
    keys
}

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
    assert_eq!(
        errno(&ServerHandshake::new().handle(method::CEPHX, mode, &hello, &mon, &env)),
        EBUSY
    );
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

    // The monitors' own ticket ends after three days; its renewal goes on with the old ticket as proof.
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
    assert_eq!((reply.result, reply.payload.len()), (EACCES, 0));
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

    // A ticket whose secret is rotated away proves nothing either.
    for day in 1..20 {
        mon.rotate(T0 + day * 24 * HOUR);
    }
    let late = ClientHandshake::resume(first.keys.session);
    let late = try_login(&mon, late, mode, &at(T0 + 20 * 24 * HOUR));
    assert_eq!(late.err(), Some(EACCES));
}

/// A client from before 16.2.1: version 2 of the answer, without its ticket.
fn legacy_reclaim(mon: &Mon, session: &ClientSession) -> Outcome {
    let (env, mode) = (at(T0 + 60), ConnectionMode::Crc);
    let mut server = ServerHandshake::new();
    let mut client = ClientHandshake::resume(session.clone());
    let challenge = more(server.handle(method::CEPHX, mode, &client.initial(), mon, &env));
    let answer = client.handle_more(&challenge, &env).unwrap();
    let mut old: spirula_cephx::wire::Authenticate = decode_all(&answer[2..]).unwrap();
    old.version = 2;
    old.old_ticket = spirula_cephx::wire::TicketBlob::default();
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

/// An authorizer exchange in memory.
fn authorize(
    mut authorizer: Authorizer,
    keys: &dyn spirula_cephx::TicketKeys,
    env: &Env<'_>,
) -> Result<Box<Accepted>, i32> {
    let mode = ConnectionMode::Secure;
    let mut service = AuthorizerVerifier::new();
    let challenge = match service.handle(method::CEPHX, mode, &authorizer.initial().unwrap(), keys, env) {
        Outcome::More(payload) => payload,
        denied => return Err(errno(&denied)),
    };
    let answer = authorizer.handle_more(&challenge).unwrap();
    let accepted = done(service.handle(method::CEPHX, mode, &answer, keys, env));
    let (session_key, secret) = authorizer.handle_done(&accepted.payload).unwrap();
    assert_eq!(
        (&session_key, &secret),
        (&accepted.session_key, &accepted.connection_secret)
    );
    assert_eq!(secret.len(), 64);
    Ok(accepted)
}

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
    let first = authorizer.initial().unwrap();
    let mut service = AuthorizerVerifier::new();
    let challenge = more(service.handle(method::CEPHX, mode, &first, &keys, &env));
    let answer = authorizer.handle_more(&challenge).unwrap();
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
        // A bent bit in the ticket's padding or the version changes nothing that counts; nothing may be accepted.
        let outcome = AuthorizerVerifier::new().handle(method::CEPHX, mode, &bent, &keys, &env);
        assert!(!matches!(outcome, Outcome::Done(_)));
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
        EACCES
    );
    // A client is no service, so there are no secrets for it.
    assert_eq!(
        ours.server
            .handle_auth(&ours.keys.session.rotating_request(), &mon, &at(T0))
            .result,
        EACCES
    );
    assert_eq!(ours.server.handle_auth(&[1], &mon, &at(T0)).result, EPERM);
    assert_eq!(ours.server.handle_auth(&[0, 9], &mon, &at(T0)).result, EINVAL);
    assert_eq!(
        ServerHandshake::new().handle_auth(&stolen, &mon, &at(T0)).result,
        EACCES
    );
}

#[test]
fn monitors_authenticate_to_each_other_with_their_shared_key() {
    let (mon, env) = (Mon::new(), at(T0));
    let lifetimes = TicketLifetimes::default();
    let connect = |key: &CryptoKey| Authorizer::for_monitor(&name("mon.b"), key, &lifetimes, &env).unwrap();
    let mut authorizer = connect(&mon.key("mon."));
    let mut server = ServerHandshake::new();
    let mode = ConnectionMode::Secure;
    let challenge = more(server.handle(method::CEPHX, mode, &authorizer.initial().unwrap(), &mon, &env));
    let answer = authorizer.handle_more(&challenge).unwrap();
    let accepted = done(server.handle(method::CEPHX, mode, &answer, &mon, &env));
    assert_eq!(
        (accepted.name.to_string().as_str(), accepted.global_id),
        ("mon.b", 0)
    );
    assert_eq!(
        authorizer.handle_done(&accepted.payload).unwrap().1,
        accepted.connection_secret
    );

    let stranger = connect(&mon.key("osd.0"));
    assert_eq!(
        authorize(stranger, &MonitorKey(mon.key("mon.")), &env).err(),
        Some(EACCES)
    );
    // An ordinary ticket of the monitors' service does not make a monitor.
    let client = login(&mon, "client.admin", T0);
    let ticket = client
        .keys
        .session
        .tickets()
        .authorizer(EntityType::MON, &env)
        .unwrap();
    assert_eq!(
        authorize(ticket, &MonitorKey(mon.key("mon.")), &env).err(),
        Some(EACCES)
    );
}

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
struct Seeded(RefCell<u64>);

impl spirula_cephx::RandomSource for Seeded {
    fn fill(&self, buf: &mut [u8]) -> spirula_cephx::Result<()> {
        for byte in buf {
            let mut x = self.0.borrow_mut();
            *x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = x.to_le_bytes()[7];
        }
        Ok(())
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let mon = Mon::new();
    let run = || {
        let random = Seeded(RefCell::new(7));
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
    /// A monitor with a login on it, made once: what is thrown at them must leave both usable.
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
            prop_assert!(errno(&server.handle(method::CEPHX, mode, &request, mon, &env)) < 0);
            let verified = AuthorizerVerifier::new().handle(method::CEPHX, mode, &bytes, keys, &env);
            prop_assert!(errno(&verified) < 0);
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
