//! The handshakes of cephx: a script decides which messages are honest, changed on the way, or made
//! up.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use spirula_cephx::wire::{
    Authenticate, Authorize, AuthorizeReply, Challenge, ChallengeBlob, RequestHeader, ResponseHeader,
    ServiceTicket, ServiceTicketInfo, ServiceTicketRequest, TicketBlob,
};
use spirula_cephx::{
    AuthCaps, AuthName, AuthTicket, AuthorizerVerifier, ClientHandshake, ClientSession, ConnectionMode,
    CryptoKey, EntityAuth, Env, ExpiringKey, KeyDatabase, KeyServer, KeyType, Outcome, RandomSource,
    RotatingKeys, RotatingSecrets, ServerHandshake, ServiceSecrets, TicketLifetimes, method,
};
use spirula_denc::{Decode, Encode, EntityType, Reader, UTime, decode_all, encode_to_vec};
use spirula_random::Rng;

use crate::input::Input;

const NOW: UTime = UTime::from_secs(1_700_000_000);
/// A time within the life of the monitors' ticket, when the tickets of other services are to be
/// renewed.
const LATER: UTime = UTime::from_secs(1_700_003_000);
/// The most steps of a script.
const STEPS: usize = 12;

/// The same "random" bytes in each run, so that failures can be repeated.
struct Seeded(RefCell<Rng>);

impl RandomSource for Seeded {
    fn fill(&self, buf: &mut [u8]) -> spirula_cephx::Result<()> {
        buf.copy_from_slice(&self.0.borrow_mut().bytes(buf.len()));
        Ok(())
    }
}

/// A monitor with four entities, and clients of it: `client.x` and `osd.0` have keys of type `aes`,
/// `client.y` one of `aes256k`.
struct Cluster {
    db: KeyDatabase,
    next_id: Cell<u64>,
    random: Seeded,
}

impl KeyServer for Cluster {
    fn lookup(&self, name: &AuthName) -> Option<EntityAuth> {
        self.db.entities.get(name).cloned()
    }

    fn service_secrets(&self) -> &ServiceSecrets {
        &self.db.secrets
    }

    fn new_global_id(&self) -> Option<u64> {
        self.next_id.set(self.next_id.get() + 1);
        Some(self.next_id.get())
    }
}

impl Cluster {
    fn new() -> Self {
        let mut new = Self {
            db: KeyDatabase::default(),
            next_id: Cell::new(4100),
            random: Seeded(RefCell::new(Rng::new(7))),
        };
        let client = AuthName::new(EntityType::CLIENT, "x");
        for (name, key) in [
            (client, key([1; 16])),
            (AuthName::new(EntityType::OSD, "0"), key([2; 16])),
            (AuthName::monitors(), key([3; 16])),
            (AuthName::new(EntityType::CLIENT, "y"), key256()),
        ] {
            let caps = ["mon", "osd"].map(|s| (s.to_owned(), "allow *".to_owned()));
            let auth = EntityAuth {
                key,
                caps: BTreeMap::from(caps),
            };
            new.db.entities.insert(name, auth);
        }
        if let Ok(Some(secrets)) =
            ServiceSecrets::default().rotated(&TicketLifetimes::default(), KeyType::Aes256k, &new.at(NOW))
        {
            new.db.secrets = secrets;
        }
        new
    }

    fn at(&self, now: UTime) -> Env<'_> {
        Env {
            now,
            random: &self.random,
        }
    }

    fn handshake(&self, who: Who) -> ClientHandshake {
        let (kind, id, key) = match who {
            Who::Client => (EntityType::CLIENT, "x", key([1; 16])),
            Who::Daemon => (EntityType::OSD, "0", key([2; 16])),
            Who::Client256 => (EntityType::CLIENT, "y", key256()),
        };
        ClientHandshake::new(AuthName::new(kind, id), key, &[EntityType::MON, EntityType::OSD])
    }

    /// An honest login.
    fn login(&self, who: Who) -> Option<(ServerHandshake, ClientSession)> {
        let env = self.at(NOW);
        let (mut server, mut client) = (ServerHandshake::new(), self.handshake(who));
        let mut say = |p: &[u8]| server.handle(method::CEPHX, ConnectionMode::Secure, p, self, &env);
        let Outcome::More(challenge) = say(&client.initial()) else {
            return None;
        };
        let Outcome::Done(accepted) = say(&client.handle_more(&challenge, &env).ok()?) else {
            return None;
        };
        let keys = client
            .handle_done(accepted.global_id, &accepted.payload, &env)
            .ok()?;
        Some((server, keys.session))
    }

    /// The keys with which an OSD verifies authorizers.
    fn osd_keys(&self) -> RotatingKeys {
        let mut keys = RotatingKeys::new(EntityType::OSD);
        if let Some(secrets) = self.db.secrets.of(EntityType::OSD) {
            keys.set(secrets.clone());
        }
        keys
    }
}

fn key(secret: [u8; 16]) -> CryptoKey {
    CryptoKey::from_parts(KeyType::Aes, NOW, &secret).unwrap_or_default()
}

fn key256() -> CryptoKey {
    CryptoKey::from_parts(KeyType::Aes256k, NOW, &[4; 32]).unwrap_or_default()
}

/// The entity that logs in.
#[derive(Clone, Copy)]
enum Who {
    Client,
    Daemon,
    Client256,
}

impl Who {
    /// A client, with one or the other type of key.
    fn client(aes256k: bool) -> Self {
        match aes256k {
            true => Self::Client256,
            false => Self::Client,
        }
    }
}

fn mode(choice: u8) -> ConnectionMode {
    if choice & 0x80 == 0 {
        ConnectionMode::Crc
    } else {
        ConnectionMode::Secure
    }
}

/// Steps of one byte, whose upper bits are details: 0 made-up handshake payload, 1 the honest
/// client's next payload, changed, 2 made-up `MAuth`, 3 the client's renewal, changed, 4 a daemon's
/// request for its secrets, changed.
pub(crate) fn server(data: &[u8]) {
    let mut input = Input::new(data);
    let cluster = Cluster::new();
    let mut server = ServerHandshake::new();
    let who = match input.u8() & 3 {
        0 => Who::Client,
        2 => Who::Client256,
        _ => Who::Daemon,
    };
    let (mut client, mut challenge, mut session) = (Some(cluster.handshake(who)), None::<Vec<u8>>, None);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let step = input.u8();
        let (mode, env) = (mode(step), cluster.at(if step & 0x40 == 0 { NOW } else { LATER }));
        let payload = match (step & 7, &mut client, &mut session) {
            (1, Some(client), _) => {
                let honest = match challenge.take() {
                    None => client.initial(),
                    Some(payload) => client.handle_more(&payload, &env).unwrap_or_default(),
                };
                input.mutate(honest)
            }
            (2, ..) => {
                server.handle_auth(input.blob(), &cluster, &env);
                continue;
            }
            (3 | 4, _, Some(session)) => {
                renew(&mut server, session, step & 7 == 4, &cluster, &env, &mut input);
                continue;
            }
            _ => input.blob().to_vec(),
        };
        let method = if step & 0x20 == 0 { method::CEPHX } else { 1 };
        match server.handle(method, mode, &payload, &cluster, &env) {
            Outcome::More(payload) => challenge = Some(payload),
            Outcome::Done(accepted) => {
                let done = client
                    .take()
                    .map(|c| c.handle_done(accepted.global_id, &accepted.payload, &env));
                session = done.and_then(Result::ok).map(|keys| keys.session);
            }
            Outcome::Denied { .. } => {}
        }
    }
}

fn renew(
    server: &mut ServerHandshake,
    session: &mut ClientSession,
    secrets: bool,
    cluster: &Cluster,
    env: &Env<'_>,
    input: &mut Input<'_>,
) {
    let honest = if secrets {
        Some(session.rotating_request())
    } else {
        session.renewal(env).ok().flatten()
    };
    let Some(honest) = honest else { return };
    let reply = server.handle_auth(&input.mutate(honest), cluster, env);
    let _ = session.handle_reply(reply.result, &reply.payload, env);
}

/// The first byte chooses the service (1) and type of key (2). Steps: 0 made-up payload, 1 the
/// honest client's next payload, changed.
pub(crate) fn authorizer(data: &[u8]) {
    let mut input = Input::new(data);
    let cluster = Cluster::new();
    let env = cluster.at(NOW);
    let keys = cluster.osd_keys();
    let choice = input.u8();
    let service = if choice & 1 == 0 {
        EntityType::OSD
    } else {
        EntityType::MON
    };
    let Some(mut honest) = cluster
        .login(Who::client(choice & 2 != 0))
        .and_then(|(_, session)| session.tickets().authorizer(service, &env).ok())
    else {
        return;
    };
    let (mut verifier, mut challenge) = (AuthorizerVerifier::new(), None::<Vec<u8>>);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let step = input.u8();
        let payload = if step & 1 == 0 {
            input.blob().to_vec()
        } else {
            let next = match challenge.take() {
                None => honest.initial(&env),
                Some(payload) => honest.handle_more(&payload, &env),
            };
            input.mutate(next.unwrap_or_default())
        };
        match verifier.handle(method::CEPHX, mode(step), &payload, &keys, &env) {
            Outcome::More(payload) => challenge = Some(payload),
            Outcome::Done(accepted) => {
                let _ = honest.clone().handle_done(&accepted.payload);
            }
            Outcome::Denied { .. } => {}
        }
    }
}

/// A monitor and an OSD that lie to their client. The first byte chooses the lie: 0 the challenge,
/// 1 the end of the login, 2 a renewal, 3 an authorizer's challenge, 4 its end; with 8 the client's
/// key is of type `aes256k`, with 64 the client is a daemon. The lies are changed honest messages,
/// or with 128 made-up ones.
pub(crate) fn client(data: &[u8]) {
    let mut input = Input::new(data);
    let cluster = Cluster::new();
    let env = cluster.at(NOW);
    let place = input.u8();
    let client = Who::client(place & 8 != 0);
    let mut lie = |honest: Vec<u8>| {
        if place & 0x80 == 0 {
            input.mutate(honest)
        } else {
            input.rest().to_vec()
        }
    };
    match place & 7 {
        0 => drop(cluster.handshake(client).handle_more(&lie(vec![1; 9]), &env)),
        1 => {
            let who = if place & 0x40 == 0 { client } else { Who::Daemon };
            let (mut server, mut client) = (ServerHandshake::new(), cluster.handshake(who));
            let mut say = |p: &[u8]| server.handle(method::CEPHX, mode(place), p, &cluster, &env);
            let Outcome::More(challenge) = say(&client.initial()) else {
                return;
            };
            let Ok(answer) = client.handle_more(&challenge, &env) else {
                return;
            };
            if let Outcome::Done(accepted) = say(&answer) {
                let _ = client.handle_done(accepted.global_id, &lie(accepted.payload), &env);
            }
        }
        2 => {
            let later = cluster.at(LATER);
            let Some((mut server, mut session)) = cluster.login(client) else {
                return;
            };
            if let Ok(Some(request)) = session.renewal(&later) {
                let reply = server.handle_auth(&request, &cluster, &later);
                let _ = session.handle_reply(reply.result, &lie(reply.payload), &later);
            }
        }
        choice => {
            let authorizer = cluster
                .login(client)
                .and_then(|(_, session)| session.tickets().authorizer(EntityType::OSD, &env).ok());
            let Some(mut authorizer) = authorizer else { return };
            let (keys, mut verifier) = (cluster.osd_keys(), AuthorizerVerifier::new());
            let mut say = |p: &[u8]| verifier.handle(method::CEPHX, mode(place), p, &keys, &env);
            let Outcome::More(challenge) = say(&authorizer.initial(&env).unwrap_or_default()) else {
                return;
            };
            if choice == 3 {
                let _ = authorizer.handle_more(&lie(challenge), &env);
            } else if let Outcome::Done(accepted) =
                say(&authorizer.handle_more(&challenge, &env).unwrap_or_default())
            {
                let _ = authorizer.handle_done(&lie(accepted.payload));
            }
        }
    }
}

fn twice<T: Decode + Encode>(data: &[u8]) {
    if let Ok(first) = Reader::new(data).get::<T>() {
        let encoded = encode_to_vec(&first);
        let again = decode_all::<T>(&encoded).map(|v| encode_to_vec(&v));
        assert!(
            again == Ok(encoded),
            "{} does not encode",
            std::any::type_name::<T>()
        );
    }
}

macro_rules! structures {
    ($($name:literal => $t:ty,)*) => {
        /// The kinds of the target `cephx_wire` by the first byte of its input, with their official
        /// names.
        pub(crate) const STRUCTURES: &[(&str, fn(&[u8]))] = &[$(($name, twice::<$t>),)*];
    };
}

structures! {
    "AuthCapsInfo" => AuthCaps,
    "AuthTicket" => AuthTicket,
    "CephXAuthenticate" => Authenticate,
    "CephXAuthorize" => Authorize,
    "CephXAuthorizeReply" => AuthorizeReply,
    "CephXChallengeBlob" => ChallengeBlob,
    "CephXRequestHeader" => RequestHeader,
    "CephXResponseHeader" => ResponseHeader,
    "CephXServerChallenge" => Challenge,
    "CephXServiceTicket" => ServiceTicket,
    "CephXServiceTicketInfo" => ServiceTicketInfo,
    "CephXServiceTicketRequest" => ServiceTicketRequest,
    "CephXTicketBlob" => TicketBlob,
    "CryptoKey" => CryptoKey,
    "EntityAuth" => EntityAuth,
    "EntityName" => AuthName,
    "ExpiringCryptoKey" => ExpiringKey,
    "RotatingSecrets" => RotatingSecrets,
    "rotating part of KeyServerData" => ServiceSecrets,
}

pub(crate) fn wire(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = usize::from(input.u8()) % STRUCTURES.len();
    STRUCTURES[kind].1(input.rest());
}
