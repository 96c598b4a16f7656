//! Requests to the kernel's NBD client.

use std::io;
use std::os::fd::BorrowedFd;

use spirula_nbd::wire::TransmissionFlags;

use super::genl::{Request, Socket};

/// The client's netlink family.
const FAMILY: &str = "nbd";
/// Commands: `NBD_CMD_*` of `linux/nbd-netlink.h`.
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;
/// Attributes: `NBD_ATTR_*`.
const INDEX: u16 = 1;
const SIZE: u16 = 2;
const BLOCK_SIZE: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const BACKEND: u16 = 10;

/// The smallest request in bytes: a disk's sector, as in Ceph's tool.
const SECTOR: u64 = 512;

/// A new device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Device<'a> {
    /// The device's number; without one the first free one.
    pub(super) number: Option<u32>,
    pub(super) size: u64,
    pub(super) read_only: bool,
    pub(super) trim: bool,
    /// Seconds after which a request fails; without one it waits for ever.
    pub(super) timeout: Option<u64>,
    pub(super) cookie: Option<&'a str>,
}

impl Device<'_> {
    fn flags(&self) -> TransmissionFlags {
        let mut flags = TransmissionFlags::HAS_FLAGS
            .with(TransmissionFlags::SEND_FLUSH)
            .with(TransmissionFlags::SEND_FUA);
        if self.read_only {
            flags.insert(TransmissionFlags::READ_ONLY);
        }
        if self.trim {
            flags.insert(TransmissionFlags::SEND_TRIM.with(TransmissionFlags::SEND_WRITE_ZEROES));
        }
        flags
    }

    fn request(&self) -> Request {
        let mut request = Request::new(CONNECT)
            .with_u64(SIZE, self.size)
            .with_u64(BLOCK_SIZE, SECTOR)
            .with_u64(SERVER_FLAGS, self.flags().0.into());
        if let Some(number) = self.number {
            request = request.with_u32(INDEX, number);
        }
        if let Some(seconds) = self.timeout {
            request = request.with_u64(TIMEOUT, seconds);
        }
        if let Some(cookie) = self.cookie {
            request = request.with_text(BACKEND, cookie);
        }
        request
    }
}

/// Makes a device for the server at the other end of a socket and returns its number. The kernel
/// records this process as the server.
///
/// # Errors
/// `NotFound` where the kernel has no such client, otherwise its errno.
pub(super) fn connect(device: &Device<'_>, server: BorrowedFd<'_>) -> io::Result<u32> {
    let request = device.request().with_socket(SOCKETS, server);
    let reply = Socket::connect(FAMILY)?.call(&request)?;
    let index = reply.iter().find(|(number, _)| *number == INDEX);
    let index = index.and_then(|(_, value)| value.as_slice().try_into().ok());
    Ok(u32::from_ne_bytes(index.ok_or(io::ErrorKind::InvalidData)?))
}

/// Disconnects a device; its server notices.
///
/// # Errors
/// The kernel's errno.
pub(super) fn disconnect(number: u32) -> io::Result<()> {
    let request = Request::new(DISCONNECT).with_u32(INDEX, number);
    Socket::connect(FAMILY)?.call(&request).map(drop)
}

/// Gives a device another size.
///
/// # Errors
/// The kernel's errno.
pub(super) fn resize(number: u32, size: u64, cookie: Option<&str>) -> io::Result<()> {
    let mut request = Request::new(RECONFIGURE)
        .with_u32(INDEX, number)
        .with_u64(SIZE, size);
    if let Some(cookie) = cookie {
        request = request.with_text(BACKEND, cookie);
    }
    Socket::connect(FAMILY)?.call(&request).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_says_what_it_can_do() {
        let device = Device {
            number: None,
            size: 1 << 20,
            read_only: false,
            trim: true,
            timeout: None,
            cookie: None,
        };
        assert_eq!(device.flags().0, 0b110_1101);
        let snapshot = Device {
            read_only: true,
            trim: false,
            ..device
        };
        assert_eq!(snapshot.flags().0, 0b1111);
    }
}
