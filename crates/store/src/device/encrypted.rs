//! Devices whose blocks are encrypted. The caller sees plaintext, the device below ciphertext of
//! the same length in the same place.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_buf::Pool;
use spirula_invariant::{impossible, invariant};

use super::{BlockIo, Device, Done, Io, IoKind};
use crate::config::{BLOCK, BLOCK64};
use crate::crypt::{Xts, XtsKey};

/// Most bytes that are encrypted and written at once. Larger writes are split.
const PART: usize = 1 << 20;
/// The most ciphertext that is being written, in bytes. Further writes wait as plaintext, which the
/// owner has counted.
const IN_FLIGHT: usize = 4 << 20;

/// The cipher of a device, and the length of its unencrypted start.
#[derive(Debug)]
struct Cipher {
    xts: Xts,
    clear: u64,
}

impl Cipher {
    fn new(key: &XtsKey, clear: u64) -> io::Result<Self> {
        Ok(Self {
            xts: Xts::new(key)?,
            clear,
        })
    }

    fn encrypt(&mut self, offset: u64, from: &[u8], to: &mut [u8]) -> io::Result<()> {
        for (i, (from, to)) in from.chunks(BLOCK).zip(to.chunks_mut(BLOCK)).enumerate() {
            let at = offset + (i * BLOCK) as u64;
            if at < self.clear {
                to.copy_from_slice(from);
            } else {
                self.xts.encrypt(at / BLOCK64, from, to)?;
            }
        }
        Ok(())
    }

    fn decrypt(&mut self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        for (i, block) in data.chunks_mut(BLOCK).enumerate() {
            let at = offset + (i * BLOCK) as u64;
            if at >= self.clear {
                self.xts.decrypt(at / BLOCK64, block)?;
            }
        }
        Ok(())
    }
}

/// Blocking I/O on an encrypted device.
#[derive(Debug)]
pub(crate) struct EncryptedIo {
    inner: Arc<dyn BlockIo>,
    cipher: Mutex<Cipher>,
}

impl EncryptedIo {
    /// Encrypts everything behind the first `clear` bytes of `inner`.
    ///
    /// # Errors
    /// When the cipher cannot be set up.
    pub(crate) fn new(inner: Arc<dyn BlockIo>, key: &XtsKey, clear: u64) -> io::Result<Self> {
        let cipher = Mutex::new(Cipher::new(key, clear)?);
        Ok(Self { inner, cipher })
    }

    fn cipher(&self) -> MutexGuard<'_, Cipher> {
        self.cipher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockIo for EncryptedIo {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)?;
        self.cipher().decrypt(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut sealed = Pool::new(0).get(data.len());
        self.cipher().encrypt(offset, data, &mut sealed)?;
        self.inner.write_at(offset, &sealed)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn is_sparse(&self) -> bool {
        self.inner.is_sparse()
    }

    fn holes(&self) -> io::Result<Vec<Range<u64>>> {
        self.inner.holes()
    }

    fn allocate(&self, part: Range<u64>) -> io::Result<()> {
        self.inner.allocate(part)
    }

    fn discard(&self, part: Range<u64>) -> io::Result<()> {
        self.inner.discard(part)
    }
}

/// A part of a write that waits for room.
struct Waiting {
    tag: u64,
    offset: u64,
    bufs: Vec<Bytes>,
    len: usize,
    durable: bool,
}

/// An operation of the device below.
enum Below {
    Read {
        tag: u64,
        offset: u64,
    },
    /// A part of a write, with its number of bytes.
    Write {
        tag: u64,
        len: usize,
    },
    Flush {
        tag: u64,
    },
}

/// A write whose parts are not all complete.
struct Write {
    parts: usize,
    result: io::Result<()>,
}

/// An encrypted device. The owner's thread does the work: writes are encrypted into memory of this
/// device before they are passed on, reads are decrypted in place.
pub(crate) struct EncryptedDevice {
    inner: Box<dyn Device>,
    cipher: Cipher,
    blocking: Arc<EncryptedIo>,
    cached: Arc<EncryptedIo>,
    pool: Pool,
    waiting: VecDeque<Waiting>,
    in_flight: usize,
    next_tag: u64,
    below: HashMap<u64, Below>,
    writes: HashMap<u64, Write>,
    /// Operations that completed without being passed on.
    done: Vec<Done>,
}

impl EncryptedDevice {
    /// Encrypts everything behind the first `clear` bytes of `inner`.
    ///
    /// # Errors
    /// When the cipher cannot be set up.
    pub(crate) fn new(inner: Box<dyn Device>, key: &XtsKey, clear: u64) -> io::Result<Self> {
        Ok(Self {
            cipher: Cipher::new(key, clear)?,
            blocking: Arc::new(EncryptedIo::new(inner.blocking(), key, clear)?),
            cached: Arc::new(EncryptedIo::new(inner.cached(), key, clear)?),
            inner,
            pool: Pool::new(IN_FLIGHT),
            waiting: VecDeque::new(),
            in_flight: 0,
            next_tag: 0,
            below: HashMap::new(),
            writes: HashMap::new(),
            done: Vec::new(),
        })
    }

    fn hand_on(&mut self, kind: IoKind, of: Below) {
        self.next_tag += 1;
        let tag = self.next_tag;
        self.below.insert(tag, of);
        self.inner.queue(Io { tag, kind });
    }

    /// Encrypts and passes on waiting parts, as far as there is room.
    fn start_writes(&mut self) {
        while let Some(next) = self.waiting.front() {
            if self.in_flight > 0 && self.in_flight + next.len > IN_FLIGHT {
                return; // A completion makes room.
            }
            let Some(part) = self.waiting.pop_front() else {
                impossible!("a part that waits for its turn"; operation = self.next_tag)
            };
            let mut sealed = self.pool.get(part.len);
            match encrypt_all(&mut self.cipher, &part, &mut sealed) {
                Ok(()) => {
                    self.in_flight += part.len;
                    let kind = IoKind::Write {
                        offset: part.offset,
                        bufs: vec![sealed.freeze()],
                        durable: part.durable,
                    };
                    let (tag, len) = (part.tag, part.len);
                    self.hand_on(kind, Below::Write { tag, len });
                }
                Err(e) => self.part_done(part.tag, Err(e)),
            }
        }
    }

    fn part_done(&mut self, tag: u64, result: io::Result<()>) {
        let Some(write) = self.writes.get_mut(&tag).filter(|w| w.parts > 0) else {
            impossible!("a write with parts under way"; operation = tag)
        };
        write.parts -= 1;
        if write.result.is_ok() {
            write.result = result;
        }
        if write.parts == 0
            && let Some(Write { result, .. }) = self.writes.remove(&tag)
        {
            self.done.push(Done {
                tag,
                result,
                buf: None,
            });
        }
    }

    fn below_done(&mut self, done: Done) {
        match self.below.remove(&done.tag) {
            Some(Below::Read { tag, offset }) => {
                let Done {
                    mut result, mut buf, ..
                } = done;
                if let (Ok(()), Some(buf)) = (&result, &mut buf) {
                    result = self.cipher.decrypt(offset, buf);
                }
                self.done.push(Done { tag, result, buf });
            }
            Some(Below::Write { tag, len }) => {
                invariant!(len <= self.in_flight, "ciphertext that is being written"; operation = tag, bytes = len);
                self.in_flight -= len;
                self.part_done(tag, done.result);
            }
            Some(Below::Flush { tag }) => self.done.push(Done { tag, ..done }),
            None => impossible!("the completion of an operation that was handed on"; operation = done.tag),
        }
    }
}

impl Device for EncryptedDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn queue(&mut self, io: Io) {
        let tag = io.tag;
        match io.kind {
            IoKind::Read { offset, .. } => self.hand_on(io.kind, Below::Read { tag, offset }),
            IoKind::Flush => self.hand_on(IoKind::Flush, Below::Flush { tag }),
            IoKind::Write {
                offset,
                bufs,
                durable,
            } => {
                let parts = split(tag, offset, bufs, durable);
                let write = Write {
                    parts: parts.len(),
                    result: Ok(()),
                };
                invariant!(write.parts > 0, "bytes to be written"; operation = tag, offset = offset);
                let before = self.writes.insert(tag, write);
                invariant!(before.is_none(), "an operation with a number of its own"; operation = tag);
                self.waiting.extend(parts);
                self.start_writes();
            }
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, out: &mut Vec<Done>) {
        let mut below = Vec::new();
        self.inner.reap(&mut below);
        for done in below {
            self.below_done(done);
        }
        self.start_writes();
        out.append(&mut self.done);
    }

    fn blocking(&self) -> Arc<dyn BlockIo> {
        Arc::clone(&self.blocking) as Arc<dyn BlockIo>
    }

    fn cached(&self) -> Arc<dyn BlockIo> {
        Arc::clone(&self.cached) as Arc<dyn BlockIo>
    }

    fn read_cached(&mut self, offset: u64, buf: &mut [u8]) -> bool {
        self.inner.read_cached(offset, buf) && self.cipher.decrypt(offset, buf).is_ok()
    }

    fn drop_cached(&mut self, part: Range<u64>) {
        self.inner.drop_cached(part);
    }
}

/// Splits a write into parts: at least one.
fn split(tag: u64, mut offset: u64, bufs: Vec<Bytes>, durable: bool) -> Vec<Waiting> {
    let part = |offset| Waiting {
        tag,
        offset,
        bufs: Vec::new(),
        len: 0,
        durable,
    };
    let mut out = Vec::new();
    let mut last = part(offset);
    for mut buf in bufs {
        while !buf.is_empty() {
            if last.len == PART {
                out.push(std::mem::replace(&mut last, part(offset)));
            }
            let piece = buf.split_to(buf.len().min(PART - last.len));
            offset += piece.len() as u64;
            last.len += piece.len();
            last.bufs.push(piece);
        }
    }
    out.push(last);
    out
}

fn encrypt_all(cipher: &mut Cipher, part: &Waiting, to: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    for buf in &part.bufs {
        cipher.encrypt(part.offset + at as u64, buf, &mut to[at..at + buf.len()])?;
        at += buf.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Way;
    use crate::device::{Fault, SimDisk};

    const CLEAR: u64 = 8192;

    fn key() -> XtsKey {
        let mut key = XtsKey::new([7; 64]);
        key[0] = 8;
        key
    }

    fn finish(device: &mut EncryptedDevice, count: usize) -> Vec<Done> {
        let mut out = Vec::new();
        for _ in 0..10_000 {
            device.kick();
            device.reap(&mut out);
            if out.len() == count {
                return out;
            }
        }
        panic!("never complete");
    }

    fn write(device: &mut EncryptedDevice, tag: u64, offset: u64, bufs: Vec<Bytes>) {
        let kind = IoKind::Write {
            offset,
            bufs,
            durable: true,
        };
        device.queue(Io { tag, kind });
    }

    #[test]
    fn large_writes_go_in_parts_and_in_little_memory() {
        let disk = SimDisk::new(16 << 20, 3);
        let mut device = EncryptedDevice::new(Box::new(disk.device()), &key(), CLEAR).unwrap();
        let text: Vec<u8> = (0..10 << 20).map(|i: u32| (i / 5) as u8).collect();
        let (a, b) = text.split_at((3 << 20) + 4096);
        let bufs = vec![Bytes::copy_from_slice(a), Bytes::copy_from_slice(b)];
        write(&mut device, 1, CLEAR, bufs);
        assert!(device.in_flight <= IN_FLIGHT && !device.waiting.is_empty());
        let done = finish(&mut device, 1);
        assert!(done[0].tag == 1 && done[0].result.is_ok());
        let mut raw = vec![0; text.len()];
        disk.read_at(CLEAR, &mut raw).unwrap();
        assert!(raw.chunks(16).zip(text.chunks(16)).all(|(a, b)| a != b));
        device.blocking().read_at(CLEAR, &mut raw).unwrap();
        assert!(raw == text);
        let buf = Pool::new(0).get(8192);
        let offset = CLEAR + 4096;
        device.queue(Io {
            tag: 2,
            kind: IoKind::Read {
                offset,
                buf,
                way: Way::Direct,
            },
        });
        let read = finish(&mut device, 1).remove(0);
        assert!(read.tag == 2 && read.buf.unwrap()[..] == text[4096..12_288]);
    }

    #[test]
    fn the_start_is_in_the_clear() {
        let disk = SimDisk::new(1 << 20, 3);
        let mut device = EncryptedDevice::new(Box::new(disk.device()), &key(), CLEAR).unwrap();
        write(&mut device, 1, 4096, vec![Bytes::from(vec![9; 8192])]);
        finish(&mut device, 1);
        let mut raw = [0; 8192];
        disk.read_at(4096, &mut raw).unwrap();
        assert!(raw[..4096] == [9; 4096] && raw[4096..] != [9; 4096]);
    }

    #[test]
    fn a_write_fails_when_one_of_its_parts_does() {
        let disk = SimDisk::new(16 << 20, 3);
        let mut device = EncryptedDevice::new(Box::new(disk.device()), &key(), CLEAR).unwrap();
        disk.arm(Fault {
            fail_write: Some(2),
            ..Fault::default()
        });
        write(&mut device, 1, CLEAR, vec![Bytes::from(vec![9; 5 << 20])]);
        let done = finish(&mut device, 1);
        assert!(done[0].result.is_err());
        write(&mut device, 2, CLEAR, vec![Bytes::from(vec![9; 4096])]);
        assert!(finish(&mut device, 1)[0].result.is_ok());
    }
}
