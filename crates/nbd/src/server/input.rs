//! The client's bytes in the transmission phase.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::request::Header;

/// Bytes read at once where headers are expected.
const READ_SIZE: usize = 64 << 10;

/// A stream, with bytes that were read and not used yet.
pub(super) struct Input<R> {
    reader: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Input<R> {
    pub(super) fn new(reader: R, buffer: BytesMut) -> Self {
        Self { reader, buffer }
    }

    async fn fill(&mut self) -> io::Result<()> {
        if self.buffer.capacity() - self.buffer.len() < Header::LEN {
            self.buffer.reserve(READ_SIZE);
        }
        if self.reader.read_buf(&mut self.buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// The next request's header. Dropping the future loses no bytes.
    pub(super) async fn header(&mut self) -> io::Result<[u8; Header::LEN]> {
        while self.buffer.len() < Header::LEN {
            self.fill().await?;
        }
        let mut header = [0; Header::LEN];
        self.buffer.copy_to_slice(&mut header);
        Ok(header)
    }

    /// The data of a request.
    pub(super) async fn payload(&mut self, len: usize) -> io::Result<Bytes> {
        if self.buffer.len() >= len {
            return Ok(self.buffer.split_to(len).freeze());
        }
        let mut out = BytesMut::with_capacity(len);
        out.put_slice(&self.buffer);
        self.buffer.clear();
        while out.len() < len {
            let missing = len - out.len();
            if self.reader.read_buf(&mut (&mut out).limit(missing)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(out.freeze())
    }

    /// Skips the data of a refused request.
    pub(super) async fn skip(&mut self, mut len: usize) -> io::Result<()> {
        loop {
            let here = len.min(self.buffer.len());
            self.buffer.advance(here);
            len -= here;
            if len == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }
}
