//! The manager's endpoint: a socket of its own, which admits peers that have a ticket for the
//! service MGR.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use spirula_buf::Pool;
use spirula_cephx::{CryptoKey, KeyServer, OsRandom, RandomSource, ServiceKeys, TicketKeys};
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType};
use spirula_monc::{Guests, TicketAuth};
use spirula_msgr::{Acceptor, Config, Modes};
use tokio::net::{TcpListener, TcpStream};

use super::shell::Shell;
use super::{Error, io_error};
use crate::core::MgrSession;

/// Memory for messages being received, all sessions together.
const RECEIVE_BYTES: usize = 4 << 20;

/// A bound endpoint.
pub(super) struct Endpoint {
    listener: TcpListener,
    /// The address, with a nonce that distinguishes this process from the one before.
    pub(super) addr: EntityAddr,
}

/// Binds one of `ports` at the monitor's address.
pub(super) async fn bind(ip: IpAddr, ports: RangeInclusive<u16>) -> Result<Endpoint, Error> {
    let listener = spirula_msgr::bind(ip, ports)
        .await
        .map_err(io_error("binding the manager's socket"))?;
    let at = listener.local_addr().map_err(io_error("the manager's socket"))?;
    let mut nonce = [0; 4];
    OsRandom
        .fill(&mut nonce)
        .map_err(|_| Error::Config("the system gives no random numbers".to_owned()))?;
    // Monitors have 0.
    let addr = EntityAddr::v2(at, u32::from_le_bytes(nonce).max(1));
    Ok(Endpoint { listener, addr })
}

/// Accepts connections in these modes until the task is dropped.
pub(super) async fn listen(shell: Rc<Shell>, endpoint: Endpoint, modes: Modes) {
    let Endpoint { listener, addr } = endpoint;
    let name = EntityName::new(EntityType::MGR, 0);
    let mut config = Config {
        nonce: addr.nonce,
        ..Config::new(name, EntityAddrVec::from(addr), Pool::new(RECEIVE_BYTES))
    };
    config.modes = modes;
    (config.limits.front, config.limits.middle, config.limits.data) = (4 << 20, 64 << 10, 16 << 20);
    let guests = super::guests(spirula_msgr::raise_open_files(), config.pool.clone());
    let acceptor = Rc::new(Acceptor::new(Rc::new(config)));
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let served = serve(shell.clone(), acceptor.clone(), (stream, from), guests.clone());
                tokio::task::spawn_local(served);
            }
            Err(e) => {
                tracing::warn!("accepting as manager: {e}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(
    shell: Rc<Shell>,
    acceptor: Rc<Acceptor>,
    (stream, from): (TcpStream, SocketAddr),
    guests: Guests,
) {
    let auth = TicketAuth::new(ManagerKeys(shell.clone()), from, shell.refusals());
    let (mut connection, accepted) = match acceptor.accept(stream, from, auth).await {
        Ok((connection, Some(accepted))) => (connection, accepted),
        Ok((_, None)) => return,
        Err(e) => {
            tracing::debug!("{from}: {e}");
            return;
        }
    };
    let Ok(caps) = accepted.caps.text() else { return };
    let Some(_seat) = guests.admit(&accepted.name, &mut connection) else {
        return;
    };
    let peer = connection.peer();
    let addr = peer.addrs.0.first().copied().unwrap_or(peer.socket_addr);
    let ip = peer.socket_addr.socket.map(|s| s.ip());
    let session = MgrSession::new(accepted.name, accepted.global_id, &caps, addr, ip);
    shell.session(connection, |c, id| c.open_mgr(id, session)).await;
}

/// The secrets with which tickets for managers are sealed: the monitor's own.
struct ManagerKeys(Rc<Shell>);

impl TicketKeys for ManagerKeys {
    fn ticket_key(&self, service: EntityType, secret_id: u64) -> Option<CryptoKey> {
        self.0.peek(|core| {
            let keys = ServiceKeys {
                secrets: core.auth().service_secrets(),
                service: EntityType::MGR,
            };
            keys.ticket_key(service, secret_id)
        })
    }
}
