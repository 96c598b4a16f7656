//! The accepting side of cephx at a daemon other than a monitor: a client with a ticket for the
//! daemon's service is let in.

use std::net::SocketAddr;

use bytes::Bytes;
use spirula_cephx::{Accepted, AuthorizerVerifier, ConnectionMode, Env, Outcome, TicketKeys, method};
use spirula_denc::{EntityType, UTime};
use spirula_errno::{EACCES, Errno};
use spirula_msgr::{AcceptAuth, AcceptReply, ConMode, SessionKeys};

use crate::RefusalLog;

/// Authenticates one connection by a ticket that was sealed with one of the service's keys. Yields
/// the ticket's holder; `None` for a connection that resumes a session authenticated before.
pub struct TicketAuth<K> {
    keys: K,
    verifier: AuthorizerVerifier,
    mode: ConnectionMode,
    claimed: EntityType,
    accepted: Option<Box<Accepted>>,
    from: SocketAddr,
    refusals: RefusalLog,
}

impl<K: TicketKeys> TicketAuth<K> {
    /// For a connection from `from` to a service that opens tickets with `keys`.
    pub fn new(keys: K, from: SocketAddr, refusals: RefusalLog) -> Self {
        Self {
            keys,
            verifier: AuthorizerVerifier::new(),
            mode: ConnectionMode::Crc,
            claimed: EntityType::CLIENT,
            accepted: None,
            from,
            refusals,
        }
    }

    fn step(&mut self, auth_method: u32, payload: &[u8]) -> AcceptReply {
        let env = Env::system(UTime::now());
        match self
            .verifier
            .handle(auth_method, self.mode, payload, &self.keys, &env)
        {
            Outcome::More(payload) => AcceptReply::More(payload.into()),
            // Otherwise a client could have the connection modes of daemons.
            Outcome::Done(accepted) if !is_believable(self.claimed, accepted.name.kind) => {
                tracing::info!("{} connects as a {}", accepted.name, self.claimed.name());
                bad(EACCES)
            }
            Outcome::Done(accepted) => {
                let reply = AcceptReply::Done {
                    global_id: accepted.global_id,
                    payload: Bytes::copy_from_slice(&accepted.payload),
                    keys: SessionKeys {
                        session_key: accepted.session_key.secret().to_vec().into(),
                        connection_secret: accepted.connection_secret.to_vec().into(),
                    },
                };
                self.accepted = Some(accepted);
                reply
            }
            Outcome::Denied { errno, why } => {
                self.refusals.refused(self.from, self.verifier.holder(), &why);
                bad(errno)
            }
        }
    }
}

/// Whether an entity of the type `proven` may call itself one of the type `claimed`: tools are
/// clients, whatever their key.
pub fn is_believable(claimed: EntityType, proven: EntityType) -> bool {
    claimed == EntityType::CLIENT || claimed == proven
}

fn bad(errno: Errno) -> AcceptReply {
    AcceptReply::Bad {
        errno,
        allowed_methods: vec![method::CEPHX],
    }
}

impl<K: TicketKeys> AcceptAuth for TicketAuth<K> {
    type Info = Option<Box<Accepted>>;

    async fn request(
        &mut self,
        claimed: EntityType,
        auth_method: u32,
        con_mode: ConMode,
        payload: Bytes,
    ) -> AcceptReply {
        self.mode = ConnectionMode::from_wire(con_mode.0).unwrap_or(ConnectionMode::Crc);
        self.claimed = claimed;
        self.verifier = AuthorizerVerifier::new();
        self.step(auth_method, &payload)
    }

    async fn more(&mut self, payload: Bytes) -> AcceptReply {
        self.step(method::CEPHX, &payload)
    }

    fn into_info(self) -> Self::Info {
        self.accepted
    }
}
