//! Requests that have left the end of the log: the answer of each is kept, so that a request that
//! is sent again late is still not executed again (`pg_log_dup_t` of Ceph's `src/osd/osd_types.h`;
//! the encoding is ours).
//!
//! They are kept, stored and forgotten in the batches in which the log is trimmed: each is one
//! record.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_denc::{Decode, Encode, Reader, Result, Writer};
use spirula_invariant::invariant;
use spirula_maps::{EVersion, ReqId};

use super::log::LogEntry;

/// Version of the encoding of [`DupBatch`]. 1: the first.
const VERSION: u8 = 1;

/// How a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dup {
    /// The request.
    pub reqid: ReqId,
    /// The request's place in the log.
    pub version: EVersion,
    /// The version that the client was told.
    pub user_version: u64,
    /// The result of the request.
    pub return_code: i32,
    /// Result and data of each op, for requests that asked for them.
    pub op_returns: Box<[(i32, Bytes)]>,
}

impl Dup {
    fn of(e: LogEntry) -> Self {
        Self {
            reqid: e.reqid,
            version: e.version,
            user_version: e.user_version,
            return_code: e.return_code,
            op_returns: e.op_returns.into(),
        }
    }

    /// The approximate bytes that it takes in memory, with its place in the index.
    fn weight(&self) -> usize {
        2 * size_of::<Self>() + self.op_returns.iter().map(|(_, d)| 40 + d.len()).sum::<usize>()
    }
}

/// Requests that left the log together, in order. The batch is named by the version of the first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DupBatch(Vec<Dup>);

impl DupBatch {
    /// The batch of entries that leave the log; `None` if no request of a client is among them.
    pub fn of(entries: Vec<LogEntry>) -> Option<Self> {
        // Not collected in place: that would keep the memory of the entries.
        let mut dups = Vec::with_capacity(entries.len());
        dups.extend(entries.into_iter().filter(|e| e.reqid.tid != 0).map(Dup::of));
        (!dups.is_empty()).then_some(Self(dups))
    }

    /// The batch's name.
    pub fn name(&self) -> EVersion {
        self.0.first().map_or(EVersion::ZERO, |d| d.version)
    }

    /// The batch as stored.
    pub fn to_bytes(&self) -> Bytes {
        let mut w = Writer::with_capacity(16 + self.0.len() * 64);
        w.put(self);
        w.into_vec().into()
    }
}

impl Encode for Dup {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.reqid);
        w.put(&self.version);
        w.u64(self.user_version);
        w.i32(self.return_code);
        w.put(&*self.op_returns);
    }
}

impl Decode for Dup {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            reqid: r.get()?,
            version: r.get()?,
            user_version: r.u64()?,
            return_code: r.i32()?,
            op_returns: r.get::<Vec<(i32, Bytes)>>()?.into(),
        })
    }
}

impl Encode for DupBatch {
    fn encode(&self, w: &mut Writer) {
        w.section(VERSION, 1, |w| w.put(&self.0));
    }
}

impl Decode for DupBatch {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("forgotten requests", VERSION, |_, r| Ok(Self(r.get()?)))
    }
}

/// The requests of a PG that have left its log.
#[derive(Debug, Clone, Default)]
pub struct Dups {
    /// Batches, oldest first.
    batches: VecDeque<DupBatch>,
    /// The batch and place of each request.
    by_reqid: HashMap<ReqId, (EVersion, usize)>,
    bytes: usize,
}

impl Dups {
    /// The requests of these batches, which ascend.
    pub fn from_batches(batches: Vec<DupBatch>) -> Self {
        let mut dups = Self::default();
        batches.into_iter().for_each(|b| dups.push(b));
        dups
    }

    /// The approximate bytes that they take in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All batches, oldest first.
    pub fn batches(&self) -> impl Iterator<Item = &DupBatch> {
        self.batches.iter()
    }

    /// The number of requests remembered.
    pub fn count(&self) -> usize {
        self.by_reqid.len()
    }

    /// Adds a batch that is newer than all others.
    pub fn push(&mut self, batch: DupBatch) {
        let name = batch.name();
        for (i, d) in batch.0.iter().enumerate() {
            self.by_reqid.insert(d.reqid, (name, i));
        }
        self.bytes += batch.0.iter().map(Dup::weight).sum::<usize>();
        self.batches.push_back(batch);
    }

    /// Forgets the oldest batches beyond `max` requests or `max_bytes` bytes; returns their names.
    pub fn trim(&mut self, max: usize, max_bytes: usize) -> Vec<EVersion> {
        let mut gone = Vec::new();
        while self.count() > max || self.bytes > max_bytes {
            let Some(batch) = self.batches.pop_front() else {
                break;
            };
            let name = batch.name();
            for d in &batch.0 {
                if self.by_reqid.get(&d.reqid).is_some_and(|(n, _)| *n == name) {
                    self.by_reqid.remove(&d.reqid);
                }
            }
            let weight = batch.0.iter().map(Dup::weight).sum::<usize>();
            invariant!(self.bytes >= weight, "requests that are forgotten to have been counted"; batch = batch.name());
            self.bytes -= weight;
            gone.push(name);
        }
        gone
    }

    /// How a request was answered.
    pub fn find(&self, reqid: &ReqId) -> Option<&Dup> {
        let (name, at) = *self.by_reqid.get(reqid)?;
        let batch = self.batches.binary_search_by_key(&name, DupBatch::name).ok()?;
        self.batches.get(batch)?.0.get(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spirula_denc::decode_all;
    use spirula_maps::Epoch;

    use super::*;

    fn batch(from: u64, n: u64) -> DupBatch {
        let dup = |v| Dup {
            reqid: ReqId {
                tid: v,
                ..ReqId::default()
            },
            version: EVersion::new(Epoch::new(3), v),
            user_version: v + 1,
            return_code: -5,
            op_returns: vec![(-5, Bytes::from_static(b"x"))].into(),
        };
        DupBatch((from..from + n).map(dup).collect())
    }

    fn tid(tid: u64) -> ReqId {
        ReqId {
            tid,
            ..ReqId::default()
        }
    }

    #[test]
    fn requests_are_found_until_their_batch_is_trimmed() {
        let batches = vec![batch(1, 10), batch(11, 5), batch(16, 10)];
        let mut dups = Dups::from_batches(batches.clone());
        assert_eq!(dups.find(&tid(12)).map(|d| d.user_version), Some(13));
        assert!(dups.trim(25, usize::MAX).is_empty());
        assert_eq!(dups.trim(15, usize::MAX), [EVersion::new(Epoch::new(3), 1)]);
        assert_eq!((dups.find(&tid(10)), dups.count()), (None, 15));
        assert_eq!(dups.find(&tid(25)).map(|d| d.version.version), Some(25));
        assert_eq!(dups.trim(15, 1).len(), 2);
        assert_eq!((dups.count(), dups.bytes), (0, 0));
        for b in batches {
            assert_eq!(decode_all(&b.to_bytes()), Ok(b));
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(b in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_all::<DupBatch>(&b);
        }
    }
}
