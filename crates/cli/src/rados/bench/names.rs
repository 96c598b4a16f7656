//! Names of the objects that a benchmark leaves in the pool, for it or the official tool to read or
//! remove later.

use bytes::{Bytes, BytesMut};
use spirula_client::{IoCtx, Result, errno};
use spirula_denc::{Reader, Writer};

/// The object that describes the last run.
pub(super) const LAST_RUN: &str = "benchmark_last_metadata";
/// The prefix of all benchmark objects' names.
pub(super) const PREFIX: &str = "benchmark_data";

/// The prefix of the names of all runs' objects on this host.
pub(super) fn host_prefix() -> String {
    let system = rustix::system::uname();
    let host: String = system.nodename().to_string_lossy().chars().take(29).collect();
    format!("{PREFIX}_{host}")
}

/// The name of an object of the run that process `pid` made on this host.
pub(super) fn object(pid: i32, number: u64) -> String {
    format!("{}_{pid}_object{number}", host_prefix())
}

/// The description of a run, as its object holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) object_size: u64,
    pub(super) operations: u64,
    pub(super) pid: i32,
    pub(super) op_size: u64,
}

impl Run {
    fn encode(&self) -> Bytes {
        let mut w = Writer::with_capacity(24);
        w.u64(self.object_size);
        w.i32(i32::try_from(self.operations).unwrap_or(i32::MAX));
        w.i32(self.pid);
        w.u64(self.op_size);
        w.into_vec().into()
    }

    fn decode(data: &[u8]) -> spirula_denc::Result<Self> {
        let mut r = Reader::new(data);
        let (object_size, operations, pid) = (r.u64()?, r.i32()?, r.i32()?);
        // Old versions wrote whole objects only.
        let op_size = if r.is_empty() { object_size } else { r.u64()? };
        Ok(Self {
            object_size,
            operations: u64::try_from(operations).unwrap_or(0),
            pid,
            op_size,
        })
    }

    /// Operations that fill one object.
    pub(super) fn per_object(&self) -> u64 {
        self.object_size.checked_div(self.op_size).unwrap_or(1).max(1)
    }

    /// The number of objects.
    pub(super) fn objects(&self) -> u64 {
        self.operations.div_ceil(self.per_object())
    }

    /// Reads the description of a run.
    pub(super) async fn load(io: &IoCtx, name: &str) -> Result<Self> {
        let data = io.read(name, 0, 24).await?;
        if data.is_empty() {
            return Err(spirula_client::Error::Os {
                what: "benchmark",
                errno: errno::ENOENT,
            });
        }
        Ok(Self::decode(&data)?)
    }

    /// Writes the description.
    pub(super) async fn store(&self, io: &IoCtx, name: &str) -> Result<()> {
        io.write_full(name, self.encode()).await
    }
}

/// Fills the data of an operation: its number as text, then `z`. The text ends with a NUL and never
/// fills the block.
pub(super) fn fill(block: &mut [u8], number: u64) {
    let text = format!("I'm the {number:>16}th op!\0");
    let len = text.len().min(block.len());
    block[..len].copy_from_slice(&text.as_bytes()[..len]);
    if let (true, Some(last)) = (len < text.len(), block.last_mut()) {
        *last = 0;
    }
}

/// A block to fill.
pub(super) fn block(size: u64) -> BytesMut {
    let mut block = BytesMut::new();
    block.resize(usize::try_from(size).unwrap_or(0), b'z');
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_described_as_by_the_official_tool() {
        // Recorded from `rados bench 1 write -b 4096 -O 8192 --no-cleanup`.
        let recorded = b"\0\x20\0\0\0\0\0\0\x07\0\0\0\xbd\x34\0\0\0\x10\0\0\0\0\0\0";
        let run = Run::decode(recorded).unwrap();
        assert_eq!((run.object_size, run.op_size, run.operations), (8192, 4096, 7));
        assert_eq!((run.per_object(), run.objects()), (2, 4));
        assert_eq!(run.encode(), &recorded[..]);
        assert_eq!(Run::decode(&recorded[..16]).unwrap().op_size, 8192);
        assert!(Run::decode(&recorded[..15]).is_err());
    }

    #[test]
    fn blocks_begin_with_their_number() {
        let mut block = block(40);
        fill(&mut block, 12);
        assert_eq!(&block[..], b"I'm the               12th op!\0zzzzzzzzz");
        let mut small = [b'z'; 9];
        fill(&mut small, 3);
        assert_eq!(&small, b"I'm the \0");
        fill(&mut [], 3);
    }
}
