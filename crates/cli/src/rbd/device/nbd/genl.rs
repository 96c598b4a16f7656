//! Generic netlink, as far as the kernel's NBD client needs it: requests and replies as bytes
//! ([netlink(7)](https://man7.org/linux/man-pages/man7/netlink.7.html), `linux/genetlink.h`,
//! `linux/nbd-netlink.h`), and a socket for them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// `NLMSG_ERROR`: a result, 0 for success.
const RESULT: u16 = 2;
/// `NLM_F_REQUEST | NLM_F_ACK`: asks for a result behind all replies.
const REQUEST: u16 = 1 | 4;
/// Bytes of `nlmsghdr`, and of `genlmsghdr` behind it.
const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
/// The family `nlctrl`, which knows the others; its command `CTRL_CMD_GETFAMILY` and its
/// attributes.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// A request: a command, and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    command: u8,
    attributes: Vec<u8>,
}

/// An attribute: its length and number, its value, and zeros up to a multiple of four.
fn put(out: &mut Vec<u8>, number: u16, value: &[u8]) {
    let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_ne_bytes());
    out.extend_from_slice(&number.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

impl Request {
    pub(super) fn new(command: u8) -> Self {
        Self {
            command,
            attributes: Vec::new(),
        }
    }

    pub(super) fn with(mut self, number: u16, value: &[u8]) -> Self {
        put(&mut self.attributes, number, value);
        self
    }

    pub(super) fn with_u32(self, number: u16, value: u32) -> Self {
        self.with(number, &value.to_ne_bytes())
    }

    pub(super) fn with_u64(self, number: u16, value: u64) -> Self {
        self.with(number, &value.to_ne_bytes())
    }

    /// A text, which ends with a NUL.
    pub(super) fn with_text(self, number: u16, value: &str) -> Self {
        self.with(number, &[value.as_bytes(), &[0]].concat())
    }

    /// One file descriptor in the list of a list: `NBD_ATTR_SOCKETS`, which holds `NBD_SOCK_ITEM`s,
    /// which hold an `NBD_SOCK_FD`.
    pub(super) fn with_socket(self, number: u16, fd: BorrowedFd<'_>) -> Self {
        let (mut item, mut list) = (Vec::new(), Vec::new());
        put(&mut item, 1, &fd.as_raw_fd().to_ne_bytes());
        put(&mut list, 1, &item);
        self.with(number, &list)
    }

    /// The request's bytes for a family.
    fn encode(&self, family: u16, sequence: u32) -> Vec<u8> {
        let len = HEADER + GENERIC_HEADER + self.attributes.len();
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes());
        out.extend_from_slice(&family.to_ne_bytes());
        out.extend_from_slice(&REQUEST.to_ne_bytes());
        out.extend_from_slice(&sequence.to_ne_bytes());
        out.extend_from_slice(&0u32.to_ne_bytes());
        out.extend_from_slice(&[self.command, 1, 0, 0]);
        out.extend_from_slice(&self.attributes);
        out
    }
}

/// The kernel's answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Attributes.
    Reply(Vec<(u16, Vec<u8>)>),
    /// The end: 0, or the errno.
    Result(i32),
}

fn bytes<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Decodes consecutive attributes, up to the first incomplete one.
fn attributes(mut data: &[u8]) -> Vec<(u16, Vec<u8>)> {
    /// `NLA_TYPE_MASK`: two bits say how the value is written.
    const NUMBER: u16 = 0x3fff;
    let mut found = Vec::new();
    while let (Some(len), Some(number)) = (bytes(data, 0), bytes(data, 2)) {
        let len = usize::from(u16::from_ne_bytes(len));
        let Some(value) = data.get(4..len) else { break };
        found.push((u16::from_ne_bytes(number) & NUMBER, value.to_vec()));
        data = data.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// The answers to one request in a datagram; answers to other requests are skipped.
fn decode(mut data: &[u8], sequence: u32) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let (Some(len), Some(kind), Some(to)) = (bytes(data, 0), bytes(data, 4), bytes(data, 8)) {
        let len = u32::from_ne_bytes(len) as usize;
        let Some(body) = data.get(HEADER..len) else { break };
        if u32::from_ne_bytes(to) == sequence {
            answers.push(match u16::from_ne_bytes(kind) {
                RESULT => Answer::Result(bytes(body, 0).map_or(0, i32::from_ne_bytes)),
                _ => Answer::Reply(attributes(body.get(GENERIC_HEADER..).unwrap_or_default())),
            });
        }
        data = data.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    answers
}

/// A netlink socket for a family.
pub(super) struct Socket {
    fd: OwnedFd,
    family: u16,
    sequence: u32,
}

impl Socket {
    /// Connects to the family of this name.
    ///
    /// # Errors
    /// `NotFound` where the kernel has no such family.
    pub(super) fn connect(name: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC))?;
        let mut socket = Self {
            fd,
            family: CONTROL,
            sequence: 0,
        };
        let reply = socket.call(&Request::new(GET_FAMILY).with_text(FAMILY_NAME, name))?;
        let id = reply.iter().find(|(number, _)| *number == FAMILY_ID);
        let id = id.and_then(|(_, value)| bytes(value, 0)).map(u16::from_ne_bytes);
        socket.family = id.ok_or(io::ErrorKind::InvalidData)?;
        Ok(socket)
    }

    /// Sends a request and returns the attributes of all replies.
    ///
    /// # Errors
    /// The kernel's errno.
    pub(super) fn call(&mut self, request: &Request) -> io::Result<Vec<(u16, Vec<u8>)>> {
        self.sequence += 1;
        let message = request.encode(self.family, self.sequence);
        sendto(
            &self.fd,
            &message,
            SendFlags::empty(),
            &SocketAddrNetlink::new(0, 0),
        )?;
        let mut buffer = [0; 16 << 10];
        let mut replies = Vec::new();
        loop {
            let (len, _) = recv(&self.fd, &mut buffer, RecvFlags::empty())?;
            for answer in decode(buffer.get(..len).unwrap_or_default(), self.sequence) {
                match answer {
                    Answer::Reply(more) => replies.extend(more),
                    Answer::Result(0) => return Ok(replies),
                    Answer::Result(e) => return Err(io::Error::from_raw_os_error(e.saturating_abs())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn a_request_is_as_the_kernel_reads_it() {
        let request = Request::new(1)
            .with_u32(1, 5)
            .with_u64(2, 0x1_0000)
            .with_text(10, "ab");
        let want = [
            56, 0, 0, 0, 29, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0, // nlmsghdr
            1, 1, 0, 0, // genlmsghdr
            8, 0, 1, 0, 5, 0, 0, 0, // the index
            12, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, // the size
            7, 0, 10, 0, b'a', b'b', 0, 0, // a text
        ];
        let mut want = want.to_vec();
        want[0] = u8::try_from(want.len()).unwrap();
        assert_eq!(request.encode(29, 7), want);
        let sockets = Request::new(1).with_socket(7, io::stdin().as_fd());
        assert_eq!(
            sockets.attributes,
            [16, 0, 7, 0, 12, 0, 1, 0, 8, 0, 1, 0, 0, 0, 0, 0]
        );
    }

    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&u32::try_from(HEADER + body.len()).unwrap().to_ne_bytes());
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(&0u16.to_ne_bytes());
        out.extend_from_slice(&sequence.to_ne_bytes());
        out.extend_from_slice(&0u32.to_ne_bytes());
        out.extend_from_slice(body);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn answers_are_read_and_those_to_others_are_not() {
        let mut attributes = vec![1, 1, 0, 0];
        put(&mut attributes, 1, &5u32.to_ne_bytes());
        put(&mut attributes, 0x8000 | 2, b"x");
        let mut data = message(RESULT, 6, &(-1i32).to_ne_bytes());
        data.extend(message(29, 7, &attributes));
        data.extend(message(RESULT, 7, &(-16i32).to_ne_bytes()));
        let want = vec![
            Answer::Reply(vec![(1, 5u32.to_ne_bytes().to_vec()), (2, b"x".to_vec())]),
            Answer::Result(-16),
        ];
        assert_eq!(decode(&data, 7), want);
        for len in 0..data.len() {
            // Whatever is cut off, nothing else is made of it.
            let answers = decode(&data[..len], 7);
            assert!(answers.len() <= want.len());
        }
        assert_eq!(decode(&[0; 64], 0), vec![]);
    }

    /// The kernel of every machine has the family that knows the others.
    #[test]
    fn the_kernel_answers() {
        let mut socket = Socket::connect("nlctrl").unwrap();
        assert_eq!(socket.family, CONTROL);
        let missing = socket.call(&Request::new(GET_FAMILY).with_text(FAMILY_NAME, "no such family"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
