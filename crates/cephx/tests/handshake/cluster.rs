//! A monitor's database in memory, and the clients' and services' sides of handshakes with it.

use std::cell::Cell;
use std::result::Result;

use spirula_cephx::*;
use spirula_denc::{EntityType, UTime, decode_all, encode_to_vec};
use spirula_errno::Errno;

pub(crate) const T0: u32 = 1_700_000_000;
pub(crate) const HOUR: u32 = 3600;

pub(crate) fn at(sec: u32) -> Env<'static> {
    Env::system(UTime::from_secs(sec))
}

pub(crate) fn name(text: &str) -> AuthName {
    text.parse().unwrap()
}

/// A monitor's database.
pub(crate) struct Mon {
    pub(crate) db: KeyDatabase,
    pub(crate) next_id: Cell<u64>,
    pub(crate) insecure: bool,
    pub(crate) service_cipher: KeyType,
    pub(crate) allowed: Vec<KeyType>,
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
    fn allows(&self, kind: KeyType) -> bool {
        self.allowed.contains(&kind)
    }
    fn allow_insecure_global_id_reclaim(&self) -> bool {
        self.insecure
    }
}

impl Mon {
    pub(crate) fn new() -> Self {
        let mut mon = Self {
            db: KeyDatabase::default(),
            next_id: Cell::new(4100),
            insecure: false,
            service_cipher: KeyType::Aes256k,
            allowed: KeyType::ALL.to_vec(),
        };
        mon.add("client.admin", &[("mon", "allow *"), ("osd", "allow rw pool=p")]);
        mon.add("client.nomon", &[("osd", "allow *")]);
        mon.add("osd.0", &[("mon", "allow profile osd"), ("osd", "allow *")]);
        mon.add("mon.", &[("mon", "allow *")]);
        mon.rotate(T0);
        mon
    }
    pub(crate) fn add(&mut self, who: &str, caps: &[(&str, &str)]) {
        let caps = caps
            .iter()
            .map(|(s, c)| ((*s).to_owned(), (*c).to_owned()))
            .collect();
        let auth = EntityAuth {
            key: CryptoKey::generate(KeyType::Aes, &at(T0)).unwrap(),
            caps,
        };
        self.db.entities.insert(name(who), auth);
    }
    /// Gives an entity a new key of this type.
    pub(crate) fn rekey(&mut self, who: &str, kind: KeyType) {
        let key = CryptoKey::generate(kind, &at(T0)).unwrap();
        self.db.entities.get_mut(&name(who)).unwrap().key = key;
    }
    pub(crate) fn key(&self, who: &str) -> CryptoKey {
        self.db.entities[&name(who)].key.clone()
    }
    /// Rotates as a tick does, and through the form in which the monitor stores the secrets.
    pub(crate) fn rotate(&mut self, now: u32) {
        if let Some(next) = self
            .db
            .secrets
            .rotated(&TicketLifetimes::default(), self.service_cipher, &at(now))
            .unwrap()
        {
            self.db.secrets = decode_all(&encode_to_vec(&next)).unwrap();
        }
    }
    pub(crate) fn client(&self, who: &str) -> ClientHandshake {
        ClientHandshake::new(
            name(who),
            self.key(who),
            &[EntityType::MON, EntityType::OSD, EntityType::MGR],
        )
    }
}

/// A login with the state of both sides after it.
pub(crate) struct LoggedIn {
    pub(crate) server: ServerHandshake,
    pub(crate) accepted: Accepted,
    pub(crate) keys: ClientKeys,
}

pub(crate) fn more(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::More(payload) => payload,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn done(outcome: Outcome) -> Box<Accepted> {
    match outcome {
        Outcome::Done(accepted) => accepted,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn errno(outcome: &Outcome) -> Errno {
    match outcome {
        Outcome::Denied { errno, .. } => *errno,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn try_login(
    mon: &Mon,
    mut client: ClientHandshake,
    mode: ConnectionMode,
    env: &Env<'_>,
) -> Result<LoggedIn, Errno> {
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

pub(crate) fn login(mon: &Mon, who: &str, sec: u32) -> LoggedIn {
    try_login(mon, mon.client(who), ConnectionMode::Secure, &at(sec)).unwrap()
}

/// One `MAuth` round, if it is due. Returns whether there was one.
pub(crate) fn renew(mon: &Mon, server: &mut ServerHandshake, session: &mut ClientSession, sec: u32) -> bool {
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
pub(crate) fn osd_secrets(mon: &Mon, sec: u32) -> RotatingKeys {
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

/// An authorizer exchange in memory.
pub(crate) fn authorize(
    mut authorizer: Authorizer,
    keys: &dyn TicketKeys,
    env: &Env<'_>,
) -> Result<Box<Accepted>, Errno> {
    let mode = ConnectionMode::Secure;
    let mut service = AuthorizerVerifier::new();
    let challenge = match service.handle(method::CEPHX, mode, &authorizer.initial(env).unwrap(), keys, env) {
        Outcome::More(payload) => payload,
        denied => return Err(errno(&denied)),
    };
    let answer = authorizer.handle_more(&challenge, env).unwrap();
    let accepted = done(service.handle(method::CEPHX, mode, &answer, keys, env));
    let (session_key, secret) = authorizer.handle_done(&accepted.payload).unwrap();
    assert_eq!(
        (&session_key, &secret),
        (&accepted.session_key, &accepted.connection_secret)
    );
    assert_eq!(secret.len(), 64);
    Ok(accepted)
}
