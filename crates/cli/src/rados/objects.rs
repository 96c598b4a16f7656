//! Commands on objects' data.

use std::fs::File;
use std::io::{self, Read, Write};

use bytes::{Bytes, BytesMut};
use spirula_client::Error;
use spirula_client::errno::Errno;
use spirula_denc::UTime;
use spirula_maps::ObjectName;
use spirula_proto::osd::{AllocHintArgs, AllocHintFlags, OsdFlags};
use spirula_text::time;

use super::store::Store;
use super::{Done, OnObject, Tool, complain, last_words, shown};

/// The exit code after a closed pipe, as if SIGPIPE had ended the process.
const PIPE: i32 = 128 + 13;

/// Prints why output could not be written, and returns the exit code.
pub(super) fn unwritten(e: &io::Error) -> i32 {
    match e.kind() {
        io::ErrorKind::BrokenPipe => PIPE,
        _ => complain(1, format!("error writing to file: {}", Errno::from(e))),
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
    /// Opens a file, or standard input.
    fn open(path: Option<&String>, piece: u64) -> Result<Self, i32> {
        let path = path.map_or("-", String::as_str);
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
        complain(1, format!("error reading input file {path}: {}", Errno::from(e)))
    }

    /// The next piece, of full size except the last; empty at the end.
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

/// Writes the rest of the input from `start` on; with `whole`, a first piece at 0 replaces the
/// object.
async fn write_all(
    store: &Store,
    oid: &ObjectName,
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
            let mut done = store.write_full(oid, Bytes::new()).await;
            if done.is_ok() && offset > 0 {
                done = store.truncate(oid, offset).await;
            }
            return Ok(done);
        } else if offset == 0 && whole {
            store.write_full(oid, piece).await
        } else {
            store.write(oid, offset, piece).await
        };
        if written.is_err() {
            return Ok(written);
        }
        offset += len;
    }
}

async fn read_all(store: &Store, oid: &ObjectName, op_size: u64, out: &mut dyn Write) -> Result<(), Error> {
    let mut offset = 0;
    loop {
        let data = store.read(oid, offset, op_size).await?;
        let written = out.write_all(&data);
        written.map_err(|e| {
            eprintln!("error writing to file: {}", Errno::from(&e));
            Error::Os {
                what: "write",
                errno: Errno::from(&e),
            }
        })?;
        if (data.len() as u64) < op_size {
            return out.flush().map_err(|e| Error::Os {
                what: "write",
                errno: Errno::from(&e),
            });
        }
        offset += op_size;
    }
}

/// A number in decimal, as the C library reads it: blanks and a sign may stand before it.
pub(super) fn decimal(text: &str) -> Option<i64> {
    text.trim_start().parse().ok()
}

impl Tool {
    pub(super) async fn stat(&self, precise: bool) -> Done {
        let OnObject { store, oid, .. } = self.object_command(0..)?;
        let (size, mtime) = store
            .stat(&oid)
            .await
            .map_err(|e| self.failed(" error stat-ing", &oid, &e))?;
        let nsec = if precise { mtime.nsec } else { 0 };
        let mtime = time::local(UTime { nsec, ..mtime });
        println!("{}/{} mtime {mtime}, size {size}", self.pool_name(), shown(&oid));
        Ok(())
    }

    pub(super) async fn touch(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(0..)?;
        let mtime = match rest.first() {
            None => UTime::from_secs(UTime::now().sec),
            Some(text) => {
                let time = decimal(text)
                    .ok_or_else(|| complain(1, format!("Invalid value for timestamp: '{text}'")))?;
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "32 bits go on the wire"
                )]
                UTime::from_secs(time as u32)
            }
        };
        let touched = io.clone().with_mtime(mtime).create(&oid, false).await;
        touched.map_err(|e| self.failed(" error touch-ing", &oid, &e))
    }

    pub(super) async fn get(&self) -> Done {
        let OnObject { store, oid, rest, .. } = self.object_command(1..)?;
        let mut out: Box<dyn Write> = match rest.first().map(String::as_str) {
            None | Some("-") => Box::new(io::stdout()),
            Some(path) => Box::new(File::create(path).map_err(|e| {
                eprintln!("failed to open file: {}", Errno::from(&e));
                let errno = Errno::from(&e);
                self.failed("error getting", &oid, &Error::Os { what: "get", errno })
            })?),
        };
        let read = read_all(&store, &oid, self.sizes.op, &mut out).await;
        read.map_err(|e| self.failed("error getting", &oid, &e))
    }

    pub(super) async fn put(&self) -> Done {
        let OnObject { store, oid, rest, .. } = self.object_command(1..)?;
        let mut input = Input::open(rest.first(), self.sizes.op)?;
        let (start, whole) = (self.sizes.offset.unwrap_or(0), self.sizes.offset.is_none());
        let written = write_all(&store, &oid, &mut input, start, whole).await?;
        written.map_err(|e| self.failed("error putting", &oid, &e))
    }

    pub(super) async fn append(&self) -> Done {
        let OnObject { store, oid, rest, .. } = self.object_command(1..)?;
        let mut input = Input::open(rest.first(), self.sizes.op)?;
        loop {
            let piece = input.next()?;
            let last = piece.is_empty();
            let appended = store.append(&oid, piece).await;
            appended.map_err(|e| self.failed("error appending", &oid, &e))?;
            if last {
                return Ok(());
            }
        }
    }

    pub(super) async fn truncate(&self) -> Done {
        let OnObject { store, oid, rest, .. } = self.object_command(1..)?;
        let text = rest.first().map(String::as_str).unwrap_or_default();
        let size = decimal(text).ok_or_else(|| complain(1, format!("Invalid value for size: '{text}'")))?;
        let Ok(size) = u64::try_from(size) else {
            eprintln!("error, cannot truncate to negative value");
            return Err(self.usage());
        };
        store.truncate(&oid, size).await.map_err(|e| {
            let why = e.errno();
            eprintln!("error truncating oid {} to {size}: {why}", shown(&oid));
            last_words(e.errno())
        })
    }

    pub(super) async fn create(&self) -> Done {
        let OnObject { io, oid, .. } = self.object_command(0..)?;
        let created = io.create(&oid, true).await;
        created.map_err(|e| self.failed("error creating", &oid, &e))
    }

    pub(super) async fn remove(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(0..)?;
        let flags = if self.args.force_full {
            OsdFlags::FULL_FORCE.with(OsdFlags::FULL_TRY)
        } else {
            OsdFlags::empty()
        };
        let store = Store::new(&io.clone().with_flags(flags), self.args.striper);
        for oid in std::iter::once(oid).chain(rest.iter().map(ObjectName::from)) {
            store.remove(&oid).await.map_err(|e| {
                let (pool, nspace) = (self.pool_name(), io.namespace());
                let slash = if nspace.is_empty() { "" } else { "/" };
                let why = e.errno();
                complain(
                    1,
                    format!("error removing {pool}>{nspace}{slash}{}: {why}", shown(&oid)),
                )
            })?;
        }
        Ok(())
    }

    pub(super) async fn mapext(&self) -> Done {
        let OnObject { io, oid, .. } = self.object_command(0..)?;
        let extents = io.mapext(&oid, 0, u64::MAX).await;
        for (offset, len) in extents.map_err(|e| self.failed("mapext error on", &oid, &e))? {
            println!("{offset:x}\t{len:x}");
        }
        Ok(())
    }

    pub(super) async fn set_alloc_hint(&self) -> Done {
        let OnObject { io, oid, rest, .. } = self.object_command(2..)?;
        let mut sizes = [0; 2];
        for ((size, text), name) in sizes.iter_mut().zip(rest).zip(["object", "write"]) {
            *size = decimal(text).map(i64::cast_unsigned).ok_or_else(|| {
                eprintln!(
                    "couldn't parse expected_{name}_size: Expected option value to be integer, got '{text}'"
                );
                self.usage()
            })?;
        }
        let [expected_object_size, expected_write_size] = sizes;
        let hint = AllocHintArgs {
            expected_object_size,
            expected_write_size,
            flags: AllocHintFlags::empty(),
        };
        let set = io.set_alloc_hint(&oid, hint).await;
        set.map_err(|e| self.failed("error setting alloc-hint", &oid, &e))
    }
}
