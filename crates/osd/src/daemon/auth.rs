//! Whom the daemon lets in: whoever has a ticket for the service OSD.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use bytes::Bytes;
use spirula_cephx::caps::{ClassCall, OsdCap, OsdRequest};
use spirula_cephx::{
    Accepted, AuthName, AuthorizerVerifier, ConnectionMode, Env, Outcome, RotatingKeys, method,
};
use spirula_denc::{EntityType, UTime};
use spirula_msgr::{AcceptAuth, AcceptReply, ConMode, SessionKeys};

use crate::pg::cluster::PoolView;
use crate::pg::op::Access;

/// The secrets with which tickets for this service are sealed.
pub(super) type Secrets = Rc<RefCell<RotatingKeys>>;

/// Authenticates one connection.
pub(super) struct TicketAuth {
    secrets: Secrets,
    verifier: AuthorizerVerifier,
    mode: ConnectionMode,
    accepted: Option<Box<Accepted>>,
}

/// An authenticated peer.
#[derive(Debug)]
pub(super) struct PeerInfo {
    pub(super) name: AuthName,
    pub(super) global_id: u64,
    /// Its capabilities; `None` where the ticket's text is none that is understood.
    pub(super) caps: Option<OsdCap>,
}

impl PeerInfo {
    /// The number of the OSD that it is.
    pub(super) fn osd(&self) -> Option<i32> {
        (self.name.kind == EntityType::OSD)
            .then(|| self.name.id.parse().ok())
            .flatten()
    }
}

impl TicketAuth {
    pub(super) fn new(secrets: Secrets) -> Self {
        Self {
            secrets,
            verifier: AuthorizerVerifier::new(),
            mode: ConnectionMode::Crc,
            accepted: None,
        }
    }

    fn step(&mut self, auth_method: u32, payload: &[u8]) -> AcceptReply {
        let env = Env::system(UTime::now());
        let secrets = self.secrets.borrow();
        match self
            .verifier
            .handle(auth_method, self.mode, payload, &*secrets, &env)
        {
            Outcome::More(payload) => AcceptReply::More(payload.into()),
            Outcome::Done(accepted) => {
                let reply = AcceptReply::Done {
                    global_id: accepted.global_id,
                    payload: Bytes::copy_from_slice(&accepted.payload),
                    keys: SessionKeys {
                        session_key: accepted.session_key.secret().to_vec(),
                        connection_secret: accepted.connection_secret.to_vec(),
                    },
                };
                self.accepted = Some(accepted);
                reply
            }
            Outcome::Denied { errno, why } => {
                tracing::debug!("a peer is refused: {why}");
                AcceptReply::Bad {
                    result: errno,
                    allowed_methods: vec![method::CEPHX],
                }
            }
        }
    }
}

impl AcceptAuth for TicketAuth {
    type Info = Option<PeerInfo>;

    async fn request(
        &mut self,
        _: EntityType,
        auth_method: u32,
        con_mode: ConMode,
        payload: Bytes,
    ) -> AcceptReply {
        self.mode = ConnectionMode::from_wire(con_mode.0).unwrap_or(ConnectionMode::Crc);
        self.verifier = AuthorizerVerifier::new();
        self.step(auth_method, &payload)
    }

    async fn more(&mut self, payload: Bytes) -> AcceptReply {
        self.step(method::CEPHX, &payload)
    }

    fn into_info(self) -> Self::Info {
        self.accepted.map(|a| {
            let caps = a.caps.text().ok().and_then(|text| OsdCap::parse(&text).ok());
            PeerInfo {
                name: a.name,
                global_id: a.global_id,
                caps,
            }
        })
    }
}

/// A client's capabilities, with the address they may be bound to.
#[derive(Debug)]
pub(super) struct CapAccess {
    pub(super) caps: Option<OsdCap>,
    pub(super) addr: Option<IpAddr>,
}

impl Access for CapAccess {
    fn allows(
        &self,
        pool: &PoolView,
        nspace: &[u8],
        key: &[u8],
        read: bool,
        write: bool,
        calls: &[ClassCall<'_>],
    ) -> bool {
        let Some(caps) = &self.caps else { return false };
        caps.is_allow_all()
            || caps.is_capable(&OsdRequest {
                pool: &pool.name,
                namespace: nspace,
                application: &pool.applications,
                object: key,
                read,
                write,
                classes: calls,
                addr: self.addr,
            })
    }
}
