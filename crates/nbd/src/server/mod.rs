//! The server: listeners, and a task for each connection.

mod connection;
mod input;
mod outbox;
mod transmission;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::handshake::{Agreed, ExportInfo};
use crate::{BlockDevice, Error, Result, Tls, TlsPolicy, wire};

use connection::Socket;

/// A named device.
pub struct Export<D> {
    /// The name that clients ask for.
    pub name: String,
    /// A text for people, or empty.
    pub description: String,
    /// The device.
    pub device: Rc<D>,
}

impl<D: BlockDevice> Export<D> {
    fn info(&self) -> ExportInfo {
        ExportInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            geometry: self.device.geometry(),
        }
    }
}

/// The resources that clients may use.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections served at once; more wait to be accepted.
    pub connections: usize,
    /// Requests of a connection that are executed at once; more are not read.
    pub requests: usize,
    /// Bytes that these requests move, at least [`wire::MAX_PAYLOAD`].
    pub bytes: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long requests may take to end, and clients to take their replies, when the server ends.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            requests: 128,
            bytes: 64 << 20,
            handshake: Duration::from_secs(60),
            grace: Duration::from_secs(30),
        }
    }
}

/// A socket for clients.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port; 10809 is the protocol's own.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> std::io::Result<(Socket, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // A client that vanished would hold its connection for ever.
                let options = stream
                    .set_nodelay(true)
                    .and_then(|()| socket2::SockRef::from(&stream).set_keepalive(true));
                if let Err(e) = options {
                    tracing::debug!("NBD: {peer}: {e}");
                }
                Ok((Box::new(stream), peer.to_string()))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Box::new(stream), "a local client".into()))
            }
        }
    }
}

/// Serves exports.
pub struct Server<D> {
    exports: Vec<Export<D>>,
    tls: Option<Tls>,
    limits: Limits,
    slots: Arc<Semaphore>,
}

impl<D: BlockDevice + 'static> Server<D> {
    /// A server of these exports. A client that names none gets the only one.
    ///
    /// # Errors
    /// [`Error::ExportName`].
    pub fn new(exports: Vec<Export<D>>, tls: Option<Tls>, limits: Limits) -> Result<Rc<Self>> {
        let mut names = BTreeSet::new();
        for Export { name, .. } in &exports {
            let wrong = if name.len() > wire::MAX_STRING {
                Some("it is too long")
            } else if name.contains('\0') {
                Some("it contains a NUL")
            } else if !names.insert(name) {
                Some("another one has it")
            } else {
                None
            };
            if let Some(wrong) = wrong {
                return Err(Error::ExportName(name.clone(), wrong));
            }
        }
        let slots = Arc::new(Semaphore::new(limits.connections));
        Ok(Rc::new(Self {
            exports,
            tls,
            limits,
            slots,
        }))
    }

    /// Serves the clients of a listener until `end` is true or its sender is dropped. Then requests
    /// under way are completed and answered, and no client is accepted any more.
    ///
    /// Dropping the future breaks the connections; the device completes the requests that it has
    /// begun.
    pub async fn serve(self: &Rc<Self>, listener: Listener, mut end: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = ended(&mut end) => break,
                accepted = self.accept(&listener) => accepted,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((socket, peer, slot)) => {
                    let (server, end) = (self.clone(), end.clone());
                    connections.spawn_local(async move {
                        connection::serve(&server, socket, &peer, end).await;
                        drop(slot);
                    });
                }
                Err(e) => {
                    // Too many open files, mostly: it passes.
                    tracing::warn!("NBD: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.limits.grace, all).await.is_err() {
            tracing::warn!("NBD: connections broken off with requests under way");
        }
    }

    async fn accept(
        &self,
        listener: &Listener,
    ) -> std::io::Result<(Socket, String, tokio::sync::OwnedSemaphorePermit)> {
        let slot = self.slots.clone().acquire_owned().await;
        let slot = slot.map_err(std::io::Error::other)?;
        let (socket, peer) = listener.accept().await?;
        Ok((socket, peer, slot))
    }

    fn policy(&self) -> TlsPolicy {
        match &self.tls {
            None => TlsPolicy::Off,
            Some(tls) if tls.required => TlsPolicy::Required,
            Some(_) => TlsPolicy::Optional,
        }
    }

    fn infos(&self) -> Vec<ExportInfo> {
        self.exports.iter().map(Export::info).collect()
    }
}

/// Serves a client without a handshake until it disconnects, and completes its requests. The client
/// is the Linux kernel, which has the other end of this socket and gets the data of a handshake in
/// another way (`NBD_CMD_CONNECT` of its [netlink
/// interface](https://github.com/torvalds/linux/blob/master/include/uapi/linux/nbd-netlink.h)).
pub async fn transmit<D: BlockDevice + 'static>(stream: UnixStream, device: Rc<D>, limits: &Limits) {
    let agreed = Agreed {
        export: 0,
        structured: false,
        allocation: false,
    };
    // Nobody ends this but the client.
    let (_end, mut ends) = watch::channel(false);
    let socket = Box::new(stream);
    transmission::run(socket, BytesMut::new(), device, agreed, limits, &mut ends).await;
}

/// Waits for the end of the server.
async fn ended(end: &mut watch::Receiver<bool>) {
    // Without its sender nobody could end the server any more.
    let _ = end.wait_for(|ends| *ends).await;
}
