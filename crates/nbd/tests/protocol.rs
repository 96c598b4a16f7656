//! The transmission phase, seen by a client that sends arbitrary bytes.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helper fails the test"
)]

mod common;

use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use common::{Memory, Running, pattern, run};
use spirula_nbd::wire::{self, RequestFlags, allocation, command, option};
use spirula_nbd::{BlockDevice, ErrorCode, Limits, WriteBehind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const MIB: usize = 1 << 20;

struct Client {
    stream: UnixStream,
    structured: bool,
}

/// The answer to a request: its cookie, an error, and data.
type Answer = (u64, ErrorCode, Bytes);

impl Client {
    async fn new(server: &Running, structured: bool) -> Self {
        let mut stream = UnixStream::connect(&server.socket).await.unwrap();
        stream.read_exact(&mut [0; 18]).await.unwrap();
        stream.write_all(&3_u32.to_be_bytes()).await.unwrap();
        let mut client = Self { stream, structured };
        if structured {
            client.option(option::STRUCTURED_REPLY, &[]).await;
            let mut query = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0f".to_vec();
            query.extend(allocation::NAME.as_bytes());
            client.option(option::SET_META_CONTEXT, &query).await;
        }
        client.option(option::GO, b"\0\0\0\x04disk\0\0").await;
        client
    }

    async fn option(&mut self, kind: u32, data: &[u8]) {
        self.stream.write_u64(wire::OPTION_MAGIC).await.unwrap();
        self.stream.write_u32(kind).await.unwrap();
        self.stream.write_u32(data.len() as u32).await.unwrap();
        self.stream.write_all(data).await.unwrap();
        loop {
            assert_eq!(self.stream.read_u64().await.unwrap(), wire::OPTION_REPLY_MAGIC);
            assert_eq!(self.stream.read_u32().await.unwrap(), kind);
            let reply = self.stream.read_u32().await.unwrap();
            let len = self.stream.read_u32().await.unwrap();
            self.take(len as usize).await;
            assert!(reply < 1 << 31, "refused: {reply:x}");
            if reply == wire::option_reply::ACK {
                return;
            }
        }
    }

    async fn take(&mut self, len: usize) -> Bytes {
        let mut data = vec![0; len];
        self.stream.read_exact(&mut data).await.unwrap();
        data.into()
    }

    async fn send(&mut self, kind: u16, flags: u16, offset: u64, len: usize, data: &[u8]) -> u64 {
        let cookie = (u64::from(kind) << 48) + offset;
        let mut out = wire::REQUEST_MAGIC.to_be_bytes().to_vec();
        out.extend(flags.to_be_bytes());
        out.extend(kind.to_be_bytes());
        out.extend(cookie.to_be_bytes());
        out.extend(offset.to_be_bytes());
        out.extend((len as u32).to_be_bytes());
        out.extend(data);
        self.stream.write_all(&out).await.unwrap();
        cookie
    }

    /// The next answer; `len` is the length of a simple one's data on success.
    async fn answer(&mut self, len: usize) -> Answer {
        let magic = self.stream.read_u32().await.unwrap();
        if magic == wire::SIMPLE_REPLY_MAGIC {
            let code = ErrorCode(self.stream.read_u32().await.unwrap());
            let cookie = self.stream.read_u64().await.unwrap();
            let len = if code == ErrorCode::OK && !self.structured {
                len
            } else {
                0
            };
            return (cookie, code, self.take(len).await);
        }
        assert_eq!(magic, wire::STRUCTURED_REPLY_MAGIC);
        assert_eq!(self.stream.read_u16().await.unwrap(), wire::chunk::FLAG_DONE);
        let kind = self.stream.read_u16().await.unwrap();
        let cookie = self.stream.read_u64().await.unwrap();
        let len = self.stream.read_u32().await.unwrap() as usize;
        let mut payload = self.take(len).await;
        match kind {
            wire::chunk::ERROR => (cookie, ErrorCode(payload.get_u32()), payload.split_off(2)),
            wire::chunk::OFFSET_DATA => (cookie, ErrorCode::OK, payload.split_off(8)),
            _ => (cookie, ErrorCode::OK, payload),
        }
    }

    async fn code(&mut self, kind: u16, flags: u16, offset: u64, len: usize, data: &[u8]) -> ErrorCode {
        let cookie = self.send(kind, flags, offset, len, data).await;
        let brings = if kind == command::READ { len } else { 0 };
        let (answered, code, _) = self.answer(brings).await;
        assert_eq!(answered, cookie);
        code
    }

    async fn write(&mut self, flags: u16, offset: u64, data: &[u8]) {
        let code = self.code(command::WRITE, flags, offset, data.len(), data).await;
        assert_eq!(code, ErrorCode::OK);
    }

    async fn read(&mut self, offset: u64, len: usize) -> Bytes {
        self.send(command::READ, 0, offset, len, &[]).await;
        let (_, code, data) = self.answer(len).await;
        assert_eq!(code, ErrorCode::OK);
        data
    }

    async fn flush(&mut self) -> ErrorCode {
        self.code(command::FLUSH, 0, 0, 0, &[]).await
    }

    async fn is_closed(&mut self) -> bool {
        self.stream.read(&mut [0]).await.map_or(true, |n| n == 0)
    }
}

/// Lets the server do all that it can without waiting.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[test]
fn every_connection_sees_what_was_answered() {
    run(async {
        let device = Memory::new(MIB);
        let server = Running::one(device.clone()).await;
        let mut one = Client::new(&server, false).await;
        let mut two = Client::new(&server, true).await;
        let data = pattern(70_000, 1);
        one.write(0, 4321, &data).await;
        assert_eq!(two.read(4321, data.len()).await, data);
        two.write(0, 4321, &data[1..]).await;
        assert_eq!(one.read(4321, 69_999).await, data[1..]);
        server.stop().await;
    });
}

#[test]
fn flush_and_fua_make_durable() {
    run(async {
        let device = Memory::new(MIB);
        let server = Running::one(device.clone()).await;
        let mut one = Client::new(&server, true).await;
        let mut two = Client::new(&server, true).await;
        let durable = |at: usize| device.durable.borrow()[at];
        one.write(0, 0, b"a").await;
        assert_eq!(durable(0), 0);
        one.write(RequestFlags::FUA.0, 1, b"b").await;
        assert_eq!((durable(0), durable(1)), (0, b'b'));
        // A flush covers the answered writes of other connections.
        assert_eq!(two.flush().await, ErrorCode::OK);
        assert_eq!(durable(0), b'a');
        let zero = one
            .code(command::WRITE_ZEROES, RequestFlags::FUA.0, 0, 2, &[])
            .await;
        assert_eq!((zero, durable(0), durable(1)), (ErrorCode::OK, 0, 0));
        server.stop().await;
    });
}

#[test]
fn answers_come_as_requests_end() {
    run(async {
        let device = Memory::new(MIB);
        device.held.set(Some(4096));
        let server = Running::one(device.clone()).await;
        let mut client = Client::new(&server, true).await;
        let slow = client.send(command::READ, 0, 4096, 512, &[]).await;
        let quick = client.send(command::WRITE, 0, 8192, 4, b"data").await;
        assert_eq!(client.answer(0).await.0, quick);
        // The end of the connection waits for the read.
        client.send(command::DISC, 0, 0, 0, &[]).await;
        settle().await;
        device.gate.add_permits(1);
        assert_eq!(client.answer(512).await.0, slow);
        assert!(client.is_closed().await);
        server.stop().await;
    });
}

#[test]
fn refused_requests_leave_the_connection_usable() {
    run(async {
        let device = Memory::new(MIB);
        let read_only = Rc::new(Memory {
            read_only: true,
            ..Memory::unshared(MIB)
        });
        let server = Running::one(device.clone()).await;
        let other = Running::one(read_only.clone()).await;
        let long = pattern(200_000, 2);
        for structured in [false, true] {
            let mut client = Client::new(&server, structured).await;
            let end = MIB as u64 - 1000;
            let beyond = client.code(command::WRITE, 0, end, long.len(), &long).await;
            assert_eq!(beyond, ErrorCode::ENOSPC);
            assert_eq!(
                client.code(command::READ, 0, end, 1001, &[]).await,
                ErrorCode::EINVAL
            );
            assert_eq!(client.code(77, 0, 0, 0, &[]).await, ErrorCode::EINVAL);
            assert_eq!(client.code(command::TRIM, 0, 0, 0, &[]).await, ErrorCode::OK);
            let fast = RequestFlags::FAST_ZERO.with(RequestFlags::NO_HOLE).0;
            let zeroes = client.code(command::WRITE_ZEROES, fast, 0, 512, &[]).await;
            assert_eq!(zeroes, ErrorCode::ENOTSUP);
            client.write(0, end, &long[..1000]).await;
            device.broken.set(Some(spirula_errno::EDQUOT));
            assert_eq!(
                client.code(command::WRITE, 0, 0, 1, b"x").await,
                ErrorCode::ENOSPC
            );
            device.broken.set(Some(spirula_errno::ENOTSUP));
            assert_eq!(client.code(command::WRITE, 0, 0, 1, b"x").await, ErrorCode::EIO);
            device.broken.set(None);
            let mut client = Client::new(&other, structured).await;
            let denied = client.code(command::WRITE, 0, 0, long.len(), &long).await;
            assert_eq!(denied, ErrorCode::EPERM);
            assert_eq!(client.read(0, 512).await.len(), if structured { 12 } else { 512 });
        }
        let mut client = Client::new(&server, true).await;
        client.stream.write_all(&[b'x'; 28]).await.unwrap();
        assert!(client.is_closed().await, "what is no request ends the connection");
        server.stop().await;
        other.stop().await;
    });
}

#[test]
fn a_client_that_vanishes_cancels_nothing() {
    run(async {
        let device = Memory::new(MIB);
        device.held.set(Some(512));
        let server = Running::one(device.clone()).await;
        let mut client = Client::new(&server, false).await;
        client.send(command::WRITE, 0, 512, 4, b"data").await;
        settle().await;
        drop(client);
        settle().await;
        device.gate.add_permits(1);
        settle().await;
        assert_eq!(device.data.borrow()[512..516], *b"data");
        server.stop().await;
    });
}

#[test]
fn requests_beyond_the_limits_wait() {
    run(async {
        let device = Memory::new(64 * MIB);
        device.held.set(Some(0));
        let limits = Limits {
            requests: 3,
            bytes: 0,
            ..Limits::default()
        };
        let server = Running::start(vec![("disk", device.clone())], |_| None, limits).await;
        let mut client = Client::new(&server, false).await;
        for _ in 0..5 {
            client.send(command::READ, 0, 0, 512, &[]).await;
        }
        settle().await;
        assert_eq!(device.logged("read"), 3, "requests");
        device.gate.add_permits(5);
        for _ in 0..5 {
            client.answer(512).await;
        }
        device.log.borrow_mut().clear();
        // Two of the longest do not fit together.
        client.send(command::READ, 0, 0, 20 * MIB, &[]).await;
        client.send(command::READ, 0, 0, 20 * MIB, &[]).await;
        settle().await;
        assert_eq!(device.logged("read"), 1, "bytes");
        device.gate.add_permits(2);
        client.answer(20 * MIB).await;
        client.answer(20 * MIB).await;
        // Nobody sends a write of 4 GiB.
        client.send(command::WRITE, 0, 0, u32::MAX as usize, &[]).await;
        assert!(client.is_closed().await);
        server.stop().await;
    });
}

#[test]
fn a_server_that_ends_answers_what_it_has_begun() {
    run(async {
        let device = Memory::new(MIB);
        device.held.set(Some(512));
        let server = Running::one(device.clone()).await;
        let mut client = Client::new(&server, false).await;
        let mut undecided = UnixStream::connect(&server.socket).await.unwrap();
        undecided.read_exact(&mut [0; 18]).await.unwrap();
        let cookie = client.send(command::WRITE, 0, 512, 4, b"data").await;
        settle().await;
        server.end.send(true).unwrap();
        settle().await;
        assert!(UnixStream::connect(&server.socket).await.is_err());
        // A client that is still in the handshake is told.
        undecided.write_all(&3_u32.to_be_bytes()).await.unwrap();
        undecided.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").await.unwrap();
        let mut reply = [0; 20];
        undecided.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply[12..16], wire::option_reply::ERR_SHUTDOWN.to_be_bytes());
        drop(undecided);
        device.gate.add_permits(1);
        assert_eq!(client.answer(0).await.0, cookie);
        assert!(client.is_closed().await);
        server.stop().await;
    });
}

#[test]
fn block_status_tells_of_holes() {
    run(async {
        let device = Memory::new(MIB);
        let server = Running::one(device.clone()).await;
        let mut client = Client::new(&server, true).await;
        client.write(0, 128 << 10, b"data").await;
        client.send(command::BLOCK_STATUS, 0, 0, MIB, &[]).await;
        let (_, code, mut extents) = client.answer(0).await;
        assert_eq!((code, extents.get_u32()), (ErrorCode::OK, allocation::ID));
        let mut all = Vec::new();
        while !extents.is_empty() {
            all.push((extents.get_u32() >> 10, extents.get_u32()));
        }
        assert_eq!(all, [(128, 3), (64, 0), (832, 3)]);
        server.stop().await;
    });
}

#[test]
fn writes_behind_are_answered_before_they_are_done() {
    run(async {
        let memory = Memory::new(MIB);
        memory.held.set(Some(512));
        let device = Rc::new(WriteBehind::new(memory.clone(), 64 << 10));
        let server = Running::one(device.clone()).await;
        let mut client = Client::new(&server, true).await;
        let mut other = Client::new(&server, true).await;
        client.write(0, 512, b"one").await;
        client.write(0, 512, b"two").await;
        assert_eq!(memory.data.borrow()[512], 0);
        assert_eq!(client.read(4096, 512).await.len(), 12, "elsewhere nothing waits");
        let read = other.send(command::READ, 0, 500, 100, &[]).await;
        client.send(command::FLUSH, 0, 0, 0, &[]).await;
        settle().await;
        assert_eq!((memory.logged("read 500"), memory.logged("flush")), (0, 0));
        memory.gate.add_permits(1);
        settle().await;
        assert_eq!(memory.logged("flush"), 0, "the second write is still under way");
        memory.gate.add_permits(1);
        assert_eq!(client.answer(0).await.1, ErrorCode::OK);
        assert_eq!(memory.durable.borrow()[512..515], *b"two");
        let (cookie, _, data) = other.answer(100).await;
        assert_eq!((cookie, &data[12..15]), (read, &b"two"[..]));
        // More than fits is not answered before it is done, nor is FUA.
        for (flags, len) in [(0, 64 << 10 | 1), (RequestFlags::FUA.0, 1)] {
            client
                .send(command::WRITE, flags, 512, len, &pattern(len, 3))
                .await;
            settle().await;
            memory.gate.add_permits(1);
            assert_eq!(client.answer(0).await.1, ErrorCode::OK);
            assert_eq!(memory.data.borrow()[512], pattern(1, 3)[0]);
        }
        // A full house waits for room.
        client.write(0, 512, &pattern(64 << 10, 4)).await;
        client.send(command::WRITE, 0, 900_000, 1, b"x").await;
        settle().await;
        assert_eq!(memory.logged("write 900000"), 0);
        memory.gate.add_permits(1);
        assert_eq!(client.answer(0).await.1, ErrorCode::OK);
        assert_eq!(client.flush().await, ErrorCode::OK);
        server.stop().await;
    });
}

#[test]
fn a_lost_write_is_told_for_ever() {
    run(async {
        let memory = Memory::new(MIB);
        let device = Rc::new(WriteBehind::new(memory.clone(), 1 << 20));
        let server = Running::one(device.clone()).await;
        let mut client = Client::new(&server, true).await;
        memory.broken.set(Some(spirula_errno::ENOSPC));
        client.write(0, 512, b"lost").await;
        settle().await;
        memory.broken.set(None);
        assert_eq!(client.flush().await, ErrorCode::ENOSPC);
        assert_eq!(client.flush().await, ErrorCode::ENOSPC);
        assert_eq!(
            client.code(command::WRITE, 0, 0, 1, b"x").await,
            ErrorCode::ENOSPC
        );
        assert_eq!(client.read(0, 512).await.len(), 12);
        assert!(device.flush().await.unwrap_err().message.contains("lost"));
        server.stop().await;
    });
}
