//! Commands on objects' data.

use std::fs::File;
use std::io::{self, Read, Write};

use bytes::{Bytes, BytesMut};
use spirula_client::{Error, IoCtx};
use spirula_denc::UTime;
use spirula_proto::osd::OsdFlags;

use super::{Done, Tool, complain, shown};
use crate::ceph::common::errno::{describe, of};
use crate::ceph::common::text::local_time;

/// The exit code after output that nobody reads any more: as if the signal had ended the process.
const PIPE: i32 = 128 + 13;

/// The exit code after output that could not be written, once the reason is printed.
pub(super) fn unwritten(e: &io::Error) -> i32 {
    match e.kind() {
        io::ErrorKind::BrokenPipe => PIPE,
        _ => complain(1, format!("error writing to file: {}", describe(of(e)))),
    }
}

/// Writes to standard output.
pub(super) fn print(data: &[u8]) -> Done {
    let mut out = io::stdout().lock();
    let written = out.write_all(data).and_then(|()| out.flush());
    written.map_err(|e| unwritten(&e))
}

/// Input in pieces.
struct Input {
    source: Box<dyn Read>,
    path: String,
    piece: usize,
}

impl Input {
    fn open(path: &str, piece: u64) -> Result<Self, i32> {
        let source: Box<dyn Read> = match path {
            "-" => Box::new(io::stdin()),
            _ => Box::new(File::open(path).map_err(|e| Self::failed(path, &e))?),
        };
        Ok(Self {
            source,
            path: path.to_owned(),
            piece: usize::try_from(piece).unwrap_or(usize::MAX).max(1),
        })
    }

    fn failed(path: &str, e: &io::Error) -> i32 {
        complain(1, format!("error reading input file {path}: {}", describe(of(e))))
    }

    /// The next piece, of full size but for the last; empty at the end.
    fn next(&mut self) -> Result<Bytes, i32> {
        let mut data = BytesMut::zeroed(self.piece);
        let mut filled = 0;
        while filled < data.len() {
            match self.source.read(&mut data[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Self::failed(&self.path, &e)),
            }
        }
        data.truncate(filled);
        Ok(data.freeze())
    }
}

/// All of standard input, for values that are not on the command line.
pub(super) fn standard_input() -> Result<Vec<u8>, i32> {
    let mut value = Vec::new();
    io::stdin()
        .read_to_end(&mut value)
        .map_err(|e| Input::failed("-", &e))?;
    Ok(value)
}

/// Writes what is left of the input from `start` on; a first piece at 0 replaces the object where `whole`.
async fn write_all(
    io: &IoCtx,
    oid: &str,
    input: &mut Input,
    start: u64,
    whole: bool,
) -> Result<Result<(), Error>, i32> {
    let mut offset = start;
    loop {
        let piece = input.next()?;
        let len = piece.len() as u64;
        let written = if len == 0 {
            if offset != start {
                return Ok(Ok(()));
            }
            // No input at all: an empty object, or a hole up to the offset.
            let mut done = io.write_full(oid, Bytes::new()).await;
            if done.is_ok() && offset > 0 {
                done = io.truncate(oid, offset).await;
            }
            return Ok(done);
        } else if offset == 0 && whole {
            io.write_full(oid, piece).await
        } else {
            io.write(oid, offset, piece).await
        };
        if written.is_err() {
            return Ok(written);
        }
        offset += len;
    }
}

async fn read_all(io: &IoCtx, oid: &str, op_size: u64, out: &mut dyn Write) -> Result<(), Error> {
    let mut offset = 0;
    loop {
        let data = io.read(oid, offset, op_size).await?;
        let written = out.write_all(&data);
        written.map_err(|e| {
            eprintln!("error writing to file: {}", describe(of(&e)));
            Error::Os {
                what: "write",
                errno: -of(&e),
            }
        })?;
        if (data.len() as u64) < op_size {
            return out.flush().map_err(|e| Error::Os {
                what: "write",
                errno: -of(&e),
            });
        }
        offset += op_size;
    }
}

impl Tool {
    pub(super) async fn stat(&self, precise: bool) -> Done {
        let (io, words) = self.object_command(1)?;
        let oid = &words[0];
        let (size, mtime) = io
            .stat(oid)
            .await
            .map_err(|e| self.failed(" error stat-ing", oid, &e))?;
        let nsec = if precise { mtime.nsec } else { 0 };
        let mtime = local_time(UTime { nsec, ..mtime });
        println!("{}/{} mtime {mtime}, size {size}", self.pool_name(), shown(oid));
        Ok(())
    }

    pub(super) async fn touch(&self) -> Done {
        let (io, words) = self.object_command(1)?;
        let mtime = match words.get(1) {
            None => UTime::from_secs(UTime::now().sec),
            Some(text) => UTime::from_secs(
                text.parse()
                    .map_err(|_| complain(1, format!("Invalid value for timestamp: '{text}'")))?,
            ),
        };
        let touched = io.clone().with_mtime(mtime).create(&words[0], false).await;
        touched.map_err(|e| self.failed(" error touch-ing", &words[0], &e))
    }

    pub(super) async fn get(&self) -> Done {
        let (io, words) = self.object_command(2)?;
        let (oid, path) = (&words[0], &words[1]);
        let mut out: Box<dyn Write> = match path.as_str() {
            "-" => Box::new(io::stdout()),
            _ => Box::new(File::create(path).map_err(|e| {
                eprintln!("failed to open file: {}", describe(of(&e)));
                let errno = -of(&e);
                self.failed("error getting", oid, &Error::Os { what: "get", errno })
            })?),
        };
        let read = read_all(io, oid, self.sizes.op, &mut out).await;
        read.map_err(|e| self.failed("error getting", oid, &e))
    }

    pub(super) async fn put(&self) -> Done {
        let (io, words) = self.object_command(2)?;
        let (oid, path) = (&words[0], &words[1]);
        let mut input = Input::open(path, self.sizes.op)?;
        let (start, whole) = (self.sizes.offset.unwrap_or(0), self.sizes.offset.is_none());
        let written = write_all(io, oid, &mut input, start, whole).await?;
        written.map_err(|e| self.failed("error putting", oid, &e))
    }

    pub(super) async fn append(&self) -> Done {
        let (io, words) = self.object_command(2)?;
        let (oid, path) = (&words[0], &words[1]);
        let mut input = Input::open(path, self.sizes.op)?;
        loop {
            let piece = input.next()?;
            let last = piece.is_empty();
            let appended = io.append(oid, piece).await;
            appended.map_err(|e| self.failed("error appending", oid, &e))?;
            if last {
                return Ok(());
            }
        }
    }

    pub(super) async fn truncate(&self) -> Done {
        let (io, words) = self.object_command(2)?;
        let (oid, text) = (&words[0], &words[1]);
        let size: i64 = text
            .parse()
            .map_err(|_| complain(1, format!("Invalid value for size: '{text}'")))?;
        let Ok(size) = u64::try_from(size) else {
            eprintln!("error, cannot truncate to negative value");
            return Err(self.usage());
        };
        io.truncate(oid, size).await.map_err(|e| {
            let why = describe(e.errno());
            eprintln!("error truncating oid {} to {size}: {why}", shown(oid));
            complain(1, format!("error {}: {why}", -e.errno()))
        })
    }

    pub(super) async fn create(&self) -> Done {
        let (io, words) = self.object_command(1)?;
        let created = io.create(&words[0], true).await;
        created.map_err(|e| self.failed("error creating", &words[0], &e))
    }

    pub(super) async fn remove(&self) -> Done {
        let (io, words) = self.object_command(1)?;
        let flags = if self.args.force_full {
            OsdFlags::FULL_FORCE
        } else {
            OsdFlags::NONE
        };
        let io = io.clone().with_flags(flags);
        for oid in words {
            io.remove(oid).await.map_err(|e| {
                let pool = self.pool_name();
                let why = describe(e.errno());
                complain(1, format!("error removing {pool}>{}: {why}", shown(oid)))
            })?;
        }
        Ok(())
    }
}
