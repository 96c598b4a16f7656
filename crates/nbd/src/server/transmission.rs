//! The transmission phase: requests are read in order, executed at once within the limits, and
//! answered as they end.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio::sync::{AcquireError, Semaphore, mpsc, watch};

use super::connection::Socket;
use super::input::Input;
use super::outbox::{self, Claim, Reply};
use super::{Limits, ended};
use crate::handshake::Agreed;
use crate::request::{Command, Header, Refusal, Terms, check};
use crate::{BlockDevice, DeviceError, ErrorCode, reply, wire};

/// Serves requests until the client disconnects or the server ends, and waits for those under way.
pub(super) async fn run<D: BlockDevice + 'static>(
    socket: Socket,
    buffer: BytesMut,
    device: Rc<D>,
    agreed: Agreed,
    limits: &Limits,
    end: &mut watch::Receiver<bool>,
) {
    let (reader, writer) = tokio::io::split(socket);
    let (replies, queue) = mpsc::unbounded_channel();
    let sender = tokio::task::spawn_local(outbox::send(writer, queue));
    let most = u32::try_from(limits.requests).unwrap_or(u32::MAX).max(1);
    let session = Session {
        device,
        agreed,
        requests: Arc::new(Semaphore::new(most as usize)),
        bytes: Arc::new(Semaphore::new(limits.bytes.max(wire::MAX_PAYLOAD as usize))),
        replies,
    };
    let mut input = Input::new(reader, buffer);
    let outcome = tokio::select! {
        biased;
        () = ended(end) => Ok(()),
        () = session.replies.closed() => Ok(()),
        outcome = session.serve(&mut input) => outcome,
    };
    if let Err(e) = outcome {
        tracing::debug!("NBD: a client's requests end: {e}");
    }
    // Requests that have begun are completed, even if nobody waits for the answers.
    let _ = session.requests.acquire_many(most).await;
    drop(session);
    let _ = sender.await;
}

/// State that the requests of a connection share.
struct Session<D> {
    device: Rc<D>,
    agreed: Agreed,
    requests: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    replies: mpsc::UnboundedSender<Reply>,
}

impl<D: BlockDevice + 'static> Session<D> {
    /// Begins requests until the client disconnects.
    async fn serve<R: AsyncRead + Unpin>(&self, input: &mut Input<R>) -> io::Result<()> {
        loop {
            let header = input.header().await?;
            let Some(header) = Header::decode(&header) else {
                return Err(io::Error::other("not a request"));
            };
            if header.payload() > wire::MAX_PAYLOAD {
                return Err(io::Error::other("a write that is too long"));
            }
            let claim = self.claim(&header).await.map_err(io::Error::other)?;
            let len = header.payload() as usize;
            match check(&header, &self.terms()) {
                Ok(Command::Disconnect) => return Ok(()),
                Ok(command) => {
                    let data = input.payload(len).await?;
                    self.begin(header.cookie, command, data, claim);
                }
                Err(refusal) => {
                    input.skip(len).await?;
                    let parts = vec![refused(header.cookie, refusal, self.agreed.structured)];
                    // A client that takes no replies is noticed elsewhere.
                    let _ = self.replies.send(Reply { parts, claim });
                }
            }
        }
    }

    async fn claim(&self, header: &Header) -> Result<Claim, AcquireError> {
        Ok(Claim {
            _request: self.requests.clone().acquire_owned().await?,
            _bytes: self.bytes.clone().acquire_many_owned(header.moved()).await?,
        })
    }

    fn terms(&self) -> Terms {
        Terms {
            geometry: self.device.geometry(),
            structured: self.agreed.structured,
            allocation: self.agreed.allocation,
        }
    }

    fn begin(&self, cookie: u64, command: Command, data: Bytes, claim: Claim) {
        let (device, replies) = (self.device.clone(), self.replies.clone());
        let structured = self.agreed.structured;
        tokio::task::spawn_local(async move {
            let parts = execute(device.as_ref(), cookie, command, data, structured).await;
            // The client may be gone; its request was executed all the same.
            let _ = replies.send(Reply { parts, claim });
        });
    }
}

fn refused(cookie: u64, refusal: Refusal, structured: bool) -> Bytes {
    if structured {
        reply::error(cookie, refusal.code, refusal.message)
    } else {
        reply::simple(cookie, refusal.code)
    }
}

/// Executes a request and makes its reply.
async fn execute<D: BlockDevice>(
    device: &D,
    cookie: u64,
    command: Command,
    data: Bytes,
    structured: bool,
) -> Vec<Bytes> {
    let mut fast = false;
    let done = match command {
        Command::Read { offset, len, whole } => match read(device, offset, len).await {
            Ok(data) => return reply::read(cookie, offset, data, structured, whole),
            Err(e) => Err(e),
        },
        Command::BlockStatus { offset, len, one } => match device.extents(offset, len).await {
            Ok(extents) => return vec![reply::block_status(cookie, len, one, &extents)],
            Err(e) => Err(e),
        },
        Command::Write { offset, fua } if !data.is_empty() => device.write(offset, data, fua).await,
        Command::Trim { offset, len, fua } if len > 0 => device.trim(offset, len, fua).await,
        Command::WriteZeroes {
            offset,
            len,
            how,
            fua,
        } if len > 0 => {
            fast = how.fast;
            device.write_zeroes(offset, len, how, fua).await
        }
        Command::Cache { offset, len } if len > 0 => device.cache(offset, len).await,
        Command::Flush => device.flush().await,
        // An empty range; the end of the connection does not get here.
        _ => Ok(()),
    };
    match done {
        Ok(()) => vec![reply::simple(cookie, ErrorCode::OK)],
        Err(e) => vec![failed(cookie, &e, fast, structured)],
    }
}

async fn read<D: BlockDevice>(device: &D, offset: u64, len: u32) -> Result<Bytes, DeviceError> {
    if len == 0 {
        return Ok(Bytes::new());
    }
    let data = device.read(offset, len).await?;
    if data.len() != len as usize {
        return Err(DeviceError::wrong_length());
    }
    Ok(data)
}

fn failed(cookie: u64, error: &DeviceError, fast: bool, structured: bool) -> Bytes {
    tracing::warn!("NBD: a request failed: {error}");
    let code = match error.code() {
        // It means "not fast", and nothing else.
        ErrorCode::ENOTSUP if !fast => ErrorCode::EIO,
        code => code,
    };
    if structured {
        reply::error(cookie, code, &error.message)
    } else {
        reply::simple(cookie, code)
    }
}
