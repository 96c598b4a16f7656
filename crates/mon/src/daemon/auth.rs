//! The handshake's questions, answered from the core's key database.

use std::rc::Rc;

use bytes::Bytes;
use spirula_cephx::{AuthName, ConnectionMode, Env, Outcome, ServerHandshake, method};
use spirula_denc::{EntityType, UTime};
use spirula_msgr::{AcceptAuth, AcceptReply, ConMode, SessionKeys};

use super::shell::Shell;

/// Authenticates one connection.
pub(super) struct MonAuth {
    shell: Rc<Shell>,
    handshake: ServerHandshake,
    method: u32,
    mode: ConnectionMode,
    accepted: Option<(AuthName, u64, String)>,
}

impl MonAuth {
    pub(super) fn new(shell: Rc<Shell>) -> Self {
        Self {
            shell,
            handshake: ServerHandshake::new(),
            method: method::CEPHX,
            mode: ConnectionMode::Crc,
            accepted: None,
        }
    }

    fn step(&mut self, payload: &[u8]) -> AcceptReply {
        let env = Env::system(UTime::now());
        let (handshake, method, mode) = (&mut self.handshake, self.method, self.mode);
        let outcome = self
            .shell
            .peek(|core| handshake.handle(method, mode, payload, core.auth(), &env));
        match outcome {
            Outcome::More(payload) => AcceptReply::More(payload.into()),
            Outcome::Done(a) => {
                let Ok(caps) = a.caps.text() else {
                    return bad(spirula_cephx::EACCES);
                };
                self.accepted = Some((a.name, a.global_id, caps));
                AcceptReply::Done {
                    global_id: a.global_id,
                    payload: a.payload.into(),
                    keys: SessionKeys {
                        session_key: a.session_key.secret().to_vec(),
                        connection_secret: a.connection_secret.to_vec(),
                    },
                }
            }
            Outcome::Denied { errno, why } => {
                tracing::info!("authentication refused: {why}");
                match errno {
                    // Not ready to tell (the secrets are still being committed): that is no verdict on the key.
                    spirula_cephx::EBUSY => AcceptReply::HangUp(errno),
                    _ => bad(errno),
                }
            }
        }
    }
}

fn bad(result: i32) -> AcceptReply {
    AcceptReply::Bad {
        result,
        allowed_methods: vec![method::CEPHX],
    }
}

impl AcceptAuth for MonAuth {
    /// Name, global id, capabilities and the handshake that goes on to renew tickets.
    type Info = Option<(AuthName, u64, String, ServerHandshake)>;

    async fn request(
        &mut self,
        _peer: EntityType,
        method: u32,
        con_mode: ConMode,
        payload: Bytes,
    ) -> AcceptReply {
        self.method = method;
        match ConnectionMode::from_wire(con_mode.0) {
            Some(mode) => self.mode = mode,
            None => return bad(spirula_cephx::EINVAL),
        }
        self.step(&payload)
    }

    async fn more(&mut self, payload: Bytes) -> AcceptReply {
        self.step(&payload)
    }

    fn into_info(self) -> Self::Info {
        let (name, global_id, caps) = self.accepted?;
        Some((name, global_id, caps, self.handshake))
    }
}
