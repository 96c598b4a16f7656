//! A connection: the handshake on its socket, then the transmission phase.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use super::{Server, ended, transmission};
use crate::BlockDevice;
use crate::handshake::{Agreed, Negotiation, Step};

/// A stream of any kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// A stream to a client, encrypted or not.
pub(super) type Socket = Box<dyn Stream>;

/// Serves a client until one of the two ends.
pub(super) async fn serve<D: BlockDevice + 'static>(
    server: &Server<D>,
    socket: Socket,
    peer: &str,
    mut end: watch::Receiver<bool>,
) {
    let handshake = negotiate(server, socket, &mut end);
    let agreed = match tokio::time::timeout(server.limits.handshake, handshake).await {
        Ok(Ok(Some(agreed))) => agreed,
        Ok(Ok(None)) => return,
        Ok(Err(e)) => {
            tracing::debug!("NBD: handshake with {peer}: {e}");
            return;
        }
        Err(_) => {
            tracing::debug!("NBD: {peer} took too long for its handshake");
            return;
        }
    };
    let (socket, input, agreed) = agreed;
    let export = &server.exports[agreed.export];
    tracing::info!("NBD: {peer} uses {:?}", export.name);
    transmission::run(
        socket,
        input,
        export.device.clone(),
        agreed,
        &server.limits,
        &mut end,
    )
    .await;
    tracing::info!("NBD: {peer} leaves {:?}", export.name);
}

/// Runs the handshake. Returns the stream, the client's bytes behind the handshake, and its
/// choices; `None` if the session ends in order.
async fn negotiate<D: BlockDevice + 'static>(
    server: &Server<D>,
    mut socket: Socket,
    end: &mut watch::Receiver<bool>,
) -> io::Result<Option<(Socket, BytesMut, Agreed)>> {
    let mut negotiation = Negotiation::greeting(server.policy());
    let mut input = BytesMut::new();
    loop {
        let step = negotiation.step(&mut input, &server.infos());
        socket.write_all(&negotiation.take_output()).await?;
        socket.flush().await?;
        match step {
            Step::Again => {}
            Step::Read => {
                let read = tokio::select! {
                    () = ended(end), if !negotiation.is_closing() => {
                        negotiation.close();
                        continue;
                    }
                    read = socket.read_buf(&mut input) => read?,
                };
                if read == 0 {
                    return Ok(None);
                }
            }
            Step::StartTls => {
                let Some(tls) = &server.tls else {
                    return Ok(None);
                };
                socket = Box::new(tls.acceptor.accept(socket).await?);
                negotiation.secured();
            }
            Step::Transmit(agreed) => return Ok(Some((socket, input, agreed))),
            Step::Close => {
                socket.shutdown().await?;
                return Ok(None);
            }
        }
    }
}
