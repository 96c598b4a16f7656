//! The group's guarantees: one sequence of transactions, which holds every transaction that was
//! reported as committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use spirula_mon::kv::{KvRead, Txn};
use spirula_mon::raft::{Applied, Store};
use spirula_proto::internal::quorum::LogVote;
use xxhash_rust::xxh64::xxh64;

/// The services to which proposals write.
const SERVICES: [&str; 2] = ["keys", "last"];

/// The reports of one process, between two snapshots at most.
#[derive(Debug, Clone, Default)]
pub(super) struct Stretch {
    /// The entry whose state it began with.
    from: u64,
    /// The transactions that it applied.
    applied: Vec<u64>,
    /// The last applied entry.
    to: u64,
}

impl Stretch {
    pub(super) fn after(from: u64) -> Self {
        Self {
            from,
            to: from,
            ..Self::default()
        }
    }
}

/// A state in a member's store.
struct Seen {
    index: u64,
    digest: u64,
    whose: String,
}

/// The facts that all reports must agree with.
#[derive(Default)]
pub(super) struct Truth {
    /// The one sequence of transactions, by their index in the log.
    sequence: BTreeMap<u64, Arc<Txn>>,
    places: BTreeMap<u64, u64>,
    stretches: Vec<(String, Stretch)>,
    states: Vec<Seen>,
    /// The highest entry that was reported as committed.
    pub(super) acknowledged: u64,
    /// Indices of the transactions that were reported as committed, by their numbers.
    reported: BTreeMap<u64, u64>,
    /// The last vote that each node has promised to follow.
    promises: BTreeMap<u64, (u64, u64)>,
    /// Snapshots that were installed.
    pub(super) snapshots: u64,
}

/// The transaction of this number: it sets a key, or removes it.
pub(super) fn transaction(number: u64, key: u64, value: Option<Bytes>, term: u64) -> Txn {
    let mut txn = Txn {
        term,
        ..Txn::default()
    };
    txn.put("last", "number", number.to_le_bytes().to_vec());
    match value {
        Some(v) => txn.put("keys", format!("{key:03}"), v),
        None => txn.remove("keys", format!("{key:03}")),
    }
    txn
}

/// The number of a transaction; `None` for the library's own and for barriers.
fn number_of(txn: &Txn) -> Option<u64> {
    let value = txn.ops.first()?.value.as_ref()?;
    value.as_ref().try_into().ok().map(u64::from_le_bytes)
}

impl Truth {
    /// Records a transaction at an index of the sequence.
    pub(super) fn put(&mut self, index: u64, txn: &Arc<Txn>) -> Result<(), String> {
        if let Some(known) = self.sequence.get(&index) {
            return match known == txn {
                true => Ok(()),
                false => Err(format!(
                    "entry {index} is {known:?} for one and {txn:?} for another"
                )),
            };
        }
        if let Some(n) = number_of(txn)
            && let Some(other) = self.places.insert(n, index)
        {
            return Err(format!("transaction {n} is entry {other} and entry {index}"));
        }
        self.sequence.insert(index, txn.clone());
        Ok(())
    }

    pub(super) fn knows(&self, index: u64) -> bool {
        self.sequence.contains_key(&index)
    }

    /// Takes a member's report of an applied transaction.
    pub(super) fn applied(
        &mut self,
        whose: &str,
        stretch: &mut Stretch,
        news: &Applied,
    ) -> Result<(), String> {
        match news {
            Applied::Txn { index, txn } => {
                if *index <= stretch.to {
                    return Err(format!("{whose} applies {index} after {}", stretch.to));
                }
                stretch.applied.push(*index);
                stretch.to = *index;
                self.put(*index, txn)
            }
            Applied::Snapshot { index } => {
                if *index < stretch.to {
                    return Err(format!(
                        "{whose} takes a snapshot of {index} after {}",
                        stretch.to
                    ));
                }
                self.snapshots += 1;
                let before = std::mem::replace(stretch, Stretch::after(*index));
                self.end(whose, before);
                Ok(())
            }
        }
    }

    /// Takes the reports of a process that has ended, or goes on from a snapshot.
    pub(super) fn end(&mut self, whose: &str, stretch: Stretch) {
        self.stretches.push((whose.to_owned(), stretch));
    }

    /// Records that a transaction was reported as committed.
    pub(super) fn acknowledge(&mut self, index: u64, txn: &Arc<Txn>) -> Result<(), String> {
        match self.sequence.get(&index) {
            Some(t) if t == txn => {}
            // One of an earlier term does not count, wherever it came into the log.
            None if txn.term != 0 => return Ok(()),
            other => return Err(format!("entry {index} is {other:?}, and was reported as {txn:?}")),
        }
        self.acknowledged = self.acknowledged.max(index);
        if let Some(n) = number_of(txn) {
            self.reported.insert(index, n);
        }
        Ok(())
    }

    /// Records a node's answer to a leader that it follows, or a candidate that it votes for.
    pub(super) fn promised(&mut self, node: u64, vote: &LogVote) -> Result<(), String> {
        let to = (vote.term, vote.node);
        let before = self.promises.insert(node, to).unwrap_or_default();
        match to < before {
            true => Err(format!("node {node} follows {to:?} after {before:?}")),
            false => Ok(()),
        }
    }

    /// Keeps the state in a member's store, which is checked at the end.
    pub(super) fn state(&mut self, whose: &str, store: &Store) -> Result<(), String> {
        let index = store.applied_to().map_err(|e| e.to_string())?;
        let mut pairs = Vec::new();
        for service in SERVICES {
            let found = store.scan(service).map_err(|e| e.to_string())?;
            pairs.extend(found.into_iter().map(|(k, v)| (format!("{service}/{k}"), v)));
        }
        self.states.push(Seen {
            index,
            digest: digest(pairs.iter().map(|(k, v)| (k, v))),
            whose: whose.to_owned(),
        });
        Ok(())
    }

    /// Checks what can only be known at the end.
    pub(super) fn judge(&mut self) -> Result<(), String> {
        for (whose, s) in &self.stretches {
            let meant: BTreeSet<u64> = self
                .sequence
                .range(s.from..=s.to)
                .map(|(i, _)| *i)
                .filter(|i| *i > s.from)
                .collect();
            let had: BTreeSet<u64> = s.applied.iter().copied().collect();
            if meant != had {
                let missing: Vec<_> = meant.difference(&had).collect();
                return Err(format!(
                    "{whose} went from {} to {} without {missing:?}",
                    s.from, s.to
                ));
            }
        }
        for (index, number) in &self.reported {
            if self.places.get(number) != Some(index) {
                return Err(format!(
                    "transaction {number} was reported as entry {index}, and is lost"
                ));
            }
        }
        self.states.sort_by_key(|s| s.index);
        let mut sequence = self.sequence.iter().peekable();
        let mut state: BTreeMap<String, Bytes> = BTreeMap::new();
        for seen in &self.states {
            while let Some((_, txn)) = sequence.next_if(|(i, _)| **i <= seen.index) {
                for op in &txn.ops {
                    let key = format!("{}/{}", op.service, op.key);
                    match &op.value {
                        Some(v) => state.insert(key, v.clone()),
                        None => state.remove(&key),
                    };
                }
            }
            if digest(state.iter()) != seen.digest {
                return Err(format!(
                    "the state of {} as of entry {} is another",
                    seen.whose, seen.index
                ));
            }
        }
        Ok(())
    }

    pub(super) fn transactions(&self) -> usize {
        self.reported.len()
    }
}

fn digest<'a>(pairs: impl Iterator<Item = (&'a String, &'a Bytes)>) -> u64 {
    // The services are in order, and so are the keys.
    pairs.fold(0, |h, (k, v)| xxh64(v, xxh64(k.as_bytes(), h)))
}
