//! The part that the owner of connections provides: authentication.

use std::future::Future;

use bytes::Bytes;
use spirula_denc::EntityType;
use spirula_errno::Errno;

use crate::config::ConMode;
use crate::session::{AcceptReply, AuthStart, SessionKeys};

/// Authenticates one accepted connection. Rounds may wait, for a replicated global id for instance.
pub trait AcceptAuth {
    /// The properties of an authenticated peer: name, capabilities, expiry.
    type Info;

    /// Handles the start of a client's authentication, or a new start after a refusal. `con_mode`
    /// decides how long the connection secret in the payload must be.
    fn request(
        &mut self,
        peer: EntityType,
        method: u32,
        con_mode: ConMode,
        payload: Bytes,
    ) -> impl Future<Output = AcceptReply>;

    /// The client's answer to [`AcceptReply::More`].
    fn more(&mut self, payload: Bytes) -> impl Future<Output = AcceptReply>;

    /// The peer's properties. Called once the session is established, after [`AcceptReply::Done`]
    /// and the peer's valid signature.
    fn into_info(self) -> Self::Info;
}

/// The contents of AUTH_DONE, for the connecting side.
#[derive(Debug, Clone)]
pub struct Negotiated {
    /// Our global id.
    pub global_id: u64,
    /// The connection's mode.
    pub con_mode: ConMode,
    /// The method's payload.
    pub payload: Bytes,
}

/// Authenticates one outgoing connection. A refusal is an errno, which ends the attempt.
pub trait ConnectAuth {
    /// The first payload.
    ///
    /// # Errors
    /// An errno where there is nothing to authenticate with.
    fn start(&mut self) -> Result<AuthStart, Errno>;

    /// Handles the server's refusal with `result`. Fails unless there is another way.
    ///
    /// # Errors
    /// The errno to give up with.
    fn refused(&mut self, method: u32, errno: Errno, allowed_methods: &[u32]) -> Result<AuthStart, Errno> {
        let _ = (method, allowed_methods);
        Err(errno)
    }

    /// Handles the server's next round.
    ///
    /// # Errors
    /// An errno where the payload is not what the method has.
    fn more(&mut self, payload: Bytes) -> Result<Bytes, Errno>;

    /// Handles the server's success: verifies the server in turn and returns the connection's keys.
    ///
    /// # Errors
    /// An errno where the server could not prove itself.
    fn done(&mut self, result: Negotiated) -> Result<SessionKeys, Errno>;
}
