//! The handshake's questions, answered from the core's key database; while there is none, monitors
//! are let in with the key that `mkfs` was given.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use spirula_cephx::{
    AuthName, ConnectionMode, CryptoKey, EntityAuth, Env, GlobalIdStatus, KeyServer, Outcome,
    ServerHandshake, ServiceSecrets, method,
};
use spirula_denc::{EntityType, UTime};
use spirula_errno::Errno;
use spirula_msgr::{AcceptAuth, AcceptReply, ConMode, SessionKeys};

use super::hub::Hub;

/// Authenticates one connection.
pub(super) struct MonAuth {
    hub: Rc<Hub>,
    from: SocketAddr,
    handshake: ServerHandshake,
    method: u32,
    mode: ConnectionMode,
    claimed: EntityType,
    accepted: Option<Login>,
}

/// The result of a login.
pub(super) struct Login {
    pub(super) name: AuthName,
    pub(super) global_id: u64,
    pub(super) caps: String,
    /// Whether the peer has proved to hold the key of `mon.` and greeted as a monitor.
    pub(super) is_monitor: bool,
}

impl MonAuth {
    pub(super) fn new(hub: Rc<Hub>, from: SocketAddr) -> Self {
        Self {
            hub,
            from,
            handshake: ServerHandshake::new(),
            method: method::CEPHX,
            mode: ConnectionMode::Crc,
            claimed: EntityType::CLIENT,
            accepted: None,
        }
    }

    fn step(&mut self, payload: &[u8]) -> AcceptReply {
        let env = Env::system(UTime::now());
        let (handshake, method, mode) = (&mut self.handshake, self.method, self.mode);
        let mut handle = |keys: &dyn KeyServer| handshake.handle(method, mode, payload, keys, &env);
        let (outcome, serves) = match self.hub.shell() {
            Some(shell) => shell.peek(|core| (handle(core.auth()), core.serves())),
            None => (handle(&SeedKeys::new(self.hub.shared_key())), false),
        };
        match outcome {
            // Not in quorum: a peer that is no monitor is to look for another one.
            Outcome::Done(a) if !serves && a.global_id_status != GlobalIdStatus::Monitor => {
                AcceptReply::HangUp(spirula_errno::EBUSY)
            }
            Outcome::Denied { .. } if !serves => AcceptReply::HangUp(spirula_errno::EBUSY),
            Outcome::More(payload) => AcceptReply::More(payload.into()),
            // Otherwise a client could have the connection modes of monitors.
            Outcome::Done(a) if !spirula_monc::is_believable(self.claimed, a.name.kind) => {
                tracing::info!("{} connects as a {}", a.name, self.claimed.name());
                bad(spirula_errno::EACCES)
            }
            Outcome::Done(a) => {
                let Ok(caps) = a.caps.text() else {
                    return bad(spirula_errno::EACCES);
                };
                self.accepted = Some(Login {
                    name: a.name,
                    global_id: a.global_id,
                    caps,
                    is_monitor: a.global_id_status == GlobalIdStatus::Monitor,
                });
                AcceptReply::Done {
                    global_id: a.global_id,
                    payload: a.payload.into(),
                    keys: SessionKeys {
                        session_key: a.session_key.secret().to_vec().into(),
                        connection_secret: a.connection_secret.to_vec().into(),
                    },
                }
            }
            // Not ready to tell (the secrets are still being committed): that is no verdict on the
            // key.
            Outcome::Denied {
                errno: spirula_errno::EBUSY,
                ..
            } => AcceptReply::HangUp(spirula_errno::EBUSY),
            Outcome::Denied { errno, why } => {
                self.hub
                    .refusals
                    .refused(self.from, self.handshake.claimed(), &why);
                bad(errno)
            }
        }
    }
}

/// The keys of a monitor that has no state yet: that of `mon.`.
struct SeedKeys {
    key: Option<CryptoKey>,
    secrets: ServiceSecrets,
}

impl SeedKeys {
    fn new(key: Option<CryptoKey>) -> Self {
        Self {
            key,
            secrets: ServiceSecrets::default(),
        }
    }
}

impl KeyServer for SeedKeys {
    fn lookup(&self, name: &AuthName) -> Option<EntityAuth> {
        let key = self.key.clone().filter(|_| *name == AuthName::monitors())?;
        Some(EntityAuth {
            key,
            ..EntityAuth::default()
        })
    }

    fn service_secrets(&self) -> &ServiceSecrets {
        &self.secrets
    }

    fn new_global_id(&self) -> Option<u64> {
        None
    }
}

fn bad(errno: Errno) -> AcceptReply {
    AcceptReply::Bad {
        errno,
        allowed_methods: vec![method::CEPHX],
    }
}

impl AcceptAuth for MonAuth {
    /// The login, and the handshake that goes on to renew tickets.
    type Info = Option<(Login, ServerHandshake)>;

    async fn request(
        &mut self,
        claimed: EntityType,
        method: u32,
        con_mode: ConMode,
        payload: Bytes,
    ) -> AcceptReply {
        self.method = method;
        self.claimed = claimed;
        match ConnectionMode::from_wire(con_mode.0) {
            Some(mode) => self.mode = mode,
            None => return bad(spirula_errno::EINVAL),
        }
        self.step(&payload)
    }

    async fn more(&mut self, payload: Bytes) -> AcceptReply {
        self.step(&payload)
    }

    fn into_info(self) -> Self::Info {
        Some((self.accepted?, self.handshake))
    }
}
