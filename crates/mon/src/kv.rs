//! The replicated state: a key-value store whose keys belong to services, changed by atomic
//! batches.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};
use spirula_secret::HIDDEN;

/// One change of a [`Txn`]. Its value may be a key or what somebody stored, and is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Op {
    /// The service that owns the key, such as `osdmap`.
    pub service: String,
    /// The key within the service.
    pub key: String,
    /// The new value; `None` removes the key.
    pub value: Option<Bytes>,
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.value.is_some() { HIDDEN } else { "removed" };
        write!(f, "{}/{}: {value}", self.service, self.key)
    }
}

/// A batch of changes that the replicated log carries as one entry: all or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// The changes, in order.
    pub ops: Vec<Op>,
    /// The term of the log in which it was made, 0 for any. It only counts in that term, as it was
    /// made from a state that another leader may have changed since.
    pub term: u64,
}

impl Txn {
    /// Sets `key` of `service`.
    pub fn put(&mut self, service: &str, key: impl Into<String>, value: impl Into<Bytes>) {
        self.ops.push(Op {
            service: service.to_owned(),
            key: key.into(),
            value: Some(value.into()),
        });
    }

    /// Removes `key` of `service`; nothing happens if it is absent.
    pub fn remove(&mut self, service: &str, key: impl Into<String>) {
        self.ops.push(Op {
            service: service.to_owned(),
            key: key.into(),
            value: None,
        });
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Appends the changes of `other`.
    pub fn extend(&mut self, other: Txn) {
        self.ops.extend(other.ops);
    }
}

/// Version byte of an encoded [`Txn`]. 1: the first form, without a term. 2: with it.
const TXN_VERSION: u8 = 2;

impl Encode for Txn {
    fn encode(&self, w: &mut Writer) {
        TXN_VERSION.encode(w);
        self.term.encode(w);
        (self.ops.len() as u32).encode(w);
        for op in &self.ops {
            op.service.encode(w);
            op.key.encode(w);
            match &op.value {
                None => false.encode(w),
                Some(v) => {
                    true.encode(w);
                    v.encode(w);
                }
            }
        }
    }
}

impl Decode for Txn {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let term = match r.u8()? {
            1 => 0,
            TXN_VERSION => r.u64()?,
            _ => return Err(Error::Invalid("transaction version")),
        };
        let n = r.count(9)?;
        let mut ops = Vec::with_capacity(n);
        for _ in 0..n {
            let service = r.string()?;
            let key = r.string()?;
            let value = if r.bool()? {
                Some(Bytes::copy_from_slice(r.blob()?))
            } else {
                None
            };
            ops.push(Op { service, key, value });
        }
        Ok(Self { ops, term })
    }
}

/// Read access to the committed state. The core only reads through this, so a test may hand it a
/// map.
pub trait KvRead {
    /// The value of `key` of `service`. A damaged store answers as an error, never as an absent
    /// key.
    fn get(&self, service: &str, key: &str) -> std::result::Result<Option<Bytes>, KvError>;
    /// The first key of `service` that is not before `from`, with its value.
    fn next(&self, service: &str, from: &str) -> std::result::Result<Option<(String, Bytes)>, KvError>;
    /// All keys of `service` with their values, in key order.
    fn scan(&self, service: &str) -> std::result::Result<Vec<(String, Bytes)>, KvError>;
}

/// The store under the state could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("monitor store: {0}")]
pub struct KvError(pub String);

/// A [`KvRead`] in memory, for tests and for preparing the first state.
#[derive(Default, Clone)]
pub struct MemKv(BTreeMap<String, BTreeMap<String, Bytes>>);

impl fmt::Debug for MemKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: usize = self.0.values().map(BTreeMap::len).sum();
        write!(f, "MemKv({keys} keys)")
    }
}

impl MemKv {
    /// Applies a batch.
    pub fn apply(&mut self, txn: &Txn) {
        for op in &txn.ops {
            let pairs = self.0.entry(op.service.clone()).or_default();
            match &op.value {
                Some(v) => pairs.insert(op.key.clone(), v.clone()),
                None => pairs.remove(&op.key),
            };
        }
    }
}

impl KvRead for MemKv {
    fn get(&self, service: &str, key: &str) -> std::result::Result<Option<Bytes>, KvError> {
        Ok(self.0.get(service).and_then(|pairs| pairs.get(key)).cloned())
    }

    fn next(&self, service: &str, from: &str) -> std::result::Result<Option<(String, Bytes)>, KvError> {
        let pairs = self.0.get(service);
        let first = pairs.and_then(|pairs| pairs.range(from.to_owned()..).next());
        Ok(first.map(|(k, v)| (k.clone(), v.clone())))
    }

    fn scan(&self, service: &str) -> std::result::Result<Vec<(String, Bytes)>, KvError> {
        let pairs = self.0.get(service).into_iter().flatten();
        Ok(pairs.map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spirula_denc::{decode_all, encode_to_vec};

    #[test]
    fn a_transaction_round_trips() {
        let mut txn = Txn::default();
        txn.put("a", "k", &b"v"[..]);
        txn.remove("b", "k");
        txn.term = 3;
        let encoded = encode_to_vec(&txn);
        assert_eq!(decode_all::<Txn>(&encoded).unwrap(), txn);
        // As logs of the first version hold it.
        txn.term = 0;
        let first = [&[1], &encoded[9..]].concat();
        assert_eq!(decode_all::<Txn>(&first).unwrap(), txn);
    }

    #[test]
    fn values_are_not_printed() {
        let mut txn = Txn::default();
        txn.put("auth", "client.admin", &b"AQB"[..]);
        txn.remove("auth", "client.x");
        let shown = format!("{:?}", txn.ops);
        assert_eq!(shown, "[auth/client.admin: …, auth/client.x: removed]");
    }

    #[test]
    fn a_scan_stays_within_its_service() {
        let mut kv = MemKv::default();
        let mut txn = Txn::default();
        txn.put("a", "1", &b"x"[..]);
        txn.put("ab", "2", &b"y"[..]);
        kv.apply(&txn);
        assert_eq!(kv.scan("a").unwrap().len(), 1);
        assert_eq!(kv.next("a", "0").unwrap(), Some(("1".into(), "x".into())));
        assert_eq!(kv.next("a", "2").unwrap(), None);
    }
}
