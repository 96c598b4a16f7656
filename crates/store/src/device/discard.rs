//! Discards on block devices: an ioctl that no library wraps.

// The kernel reads two integers, which the call owns.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::ioctl::{Setter, ioctl, opcode};

/// `BLKDISCARD` of `linux/fs.h`.
const BLKDISCARD: rustix::ioctl::Opcode = opcode::none(0x12, 119);

/// Tells a block device that the contents of `part` are not needed any more.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if the device has no use for that; else the device's error.
pub(super) fn discard(device: &File, part: &Range<u64>) -> io::Result<()> {
    let range = [part.start, part.end - part.start];
    // SAFETY: BLKDISCARD reads an array of two 64-bit integers, offset and length in bytes.
    Ok(unsafe { ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new(range)) }?)
}
