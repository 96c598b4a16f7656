//! The connecting side of cephx, in the form for the messenger.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use spirula_cephx::{Authorizer, ClientHandshake, ClientSession, ConnectionSecret, CryptoKey, Env, method};
use spirula_denc::{EntityType, UTime};
use spirula_errno::{EINVAL, Errno};
use spirula_msgr::shell::Negotiated;
use spirula_msgr::{AuthStart, ConnectAuth, SessionKeys};

/// A login at a monitor.
pub struct MonLogin {
    handshake: Option<ClientHandshake>,
    session: Option<ClientSession>,
}

impl MonLogin {
    /// A login with a fresh or resumed handshake.
    pub fn new(handshake: ClientHandshake) -> Self {
        Self {
            handshake: Some(handshake),
            session: None,
        }
    }

    /// The session, once the connection is established.
    pub fn into_session(self) -> Option<ClientSession> {
        self.session
    }
}

fn keys(session_key: &CryptoKey, secret: &ConnectionSecret) -> SessionKeys {
    SessionKeys {
        session_key: session_key.secret().to_vec().into(),
        connection_secret: secret.to_vec().into(),
    }
}

impl ConnectAuth for MonLogin {
    fn start(&mut self) -> Result<AuthStart, Errno> {
        let handshake = self.handshake.as_ref().ok_or(EINVAL)?;
        Ok(AuthStart {
            method: method::CEPHX,
            payload: handshake.initial().into(),
        })
    }

    fn more(&mut self, payload: Bytes) -> Result<Bytes, Errno> {
        let handshake = self.handshake.as_mut().ok_or(EINVAL)?;
        let answer = handshake
            .handle_more(&payload, &Env::system(UTime::now()))
            .map_err(|e| e.errno())?;
        Ok(answer.into())
    }

    fn done(&mut self, result: Negotiated) -> Result<SessionKeys, Errno> {
        let handshake = self.handshake.take().ok_or(EINVAL)?;
        let env = Env::system(UTime::now());
        let done = handshake
            .handle_done(result.global_id, &result.payload, &env)
            .map_err(|e| e.errno())?;
        self.session = Some(done.session);
        Ok(keys(&done.session_key, &done.connection_secret))
    }
}

/// A login at a daemon with a ticket of the session.
pub struct ServiceLogin {
    session: Rc<RefCell<Option<ClientSession>>>,
    service: EntityType,
    authorizer: Option<Authorizer>,
}

impl ServiceLogin {
    /// A login at a daemon of kind `service` with the ticket that `session` has at that time.
    pub(crate) fn new(session: Rc<RefCell<Option<ClientSession>>>, service: EntityType) -> Self {
        Self {
            session,
            service,
            authorizer: None,
        }
    }
}

impl ConnectAuth for ServiceLogin {
    fn start(&mut self) -> Result<AuthStart, Errno> {
        let session = self.session.borrow();
        let session = session.as_ref().ok_or(EINVAL)?;
        let env = Env::system(UTime::now());
        let authorizer = session
            .tickets()
            .authorizer(self.service, &env)
            .map_err(|e| e.errno())?;
        let payload = authorizer.initial(&env).map_err(|e| e.errno())?.into();
        self.authorizer = Some(authorizer);
        Ok(AuthStart {
            method: method::CEPHX,
            payload,
        })
    }

    fn refused(&mut self, _method: u32, errno: Errno, _allowed_methods: &[u32]) -> Result<AuthStart, Errno> {
        // The service may have lost or rotated its secrets: the next attempt takes a new ticket.
        if let Some(session) = self.session.borrow_mut().as_mut() {
            session.tickets_mut().invalidate(self.service);
        }
        Err(errno)
    }

    fn more(&mut self, payload: Bytes) -> Result<Bytes, Errno> {
        let authorizer = self.authorizer.as_mut().ok_or(EINVAL)?;
        let env = Env::system(UTime::now());
        Ok(authorizer
            .handle_more(&payload, &env)
            .map_err(|e| e.errno())?
            .into())
    }

    fn done(&mut self, result: Negotiated) -> Result<SessionKeys, Errno> {
        let authorizer = self.authorizer.take().ok_or(EINVAL)?;
        let (session_key, secret) = authorizer.handle_done(&result.payload).map_err(|e| e.errno())?;
        Ok(keys(&session_key, &secret))
    }
}
