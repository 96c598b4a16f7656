//! The cluster log: the last entries, replicated in batches.
//!
//! Keys: the entry's number in twenty digits; value: an encoded `LogEntry`.

use std::collections::VecDeque;

use bytes::Bytes;
use spirula_denc::{EntityName, EntityType, Fsid, UTime, encode_to_vec};
use spirula_proto::Payload;
use spirula_proto::mon::{LogEntry, LogPriority, MLog, NamedEntity, PaxosVersion};
use spirula_text::{cut, one_line};

use super::state::{Published, Service, Source};
use super::stored;
use crate::core::{Identity, LoadError, Topic};
use crate::kv::Txn;

const SERVICE: &str = "log";
/// The number of entries kept.
const KEEP: usize = 500;
/// The number of debug entries kept among them, when a batch is added.
const KEEP_DEBUG: usize = 50;
/// The most entries that wait for the next batch; a client that logs faster loses the oldest.
const MAX_PENDING: usize = 1000;

/// Longest text of an entry in bytes.
const MAX_TEXT: usize = 4 << 10;

/// The log.
#[derive(Debug, Default)]
pub struct ClusterLog {
    fsid: Fsid,
    entries: VecDeque<(u64, LogEntry)>,
    pending: VecDeque<LogEntry>,
    /// Numbers given so far, committed or not.
    next: u64,
    own_seq: u64,
}

impl Service for ClusterLog {
    const NAMES: &'static [&'static str] = &[SERVICE];

    fn load(from: Source<'_>) -> Result<Self, LoadError> {
        let mut log = Self {
            fsid: from.me.fsid,
            next: 1,
            ..Self::default()
        };
        for (key, value) in from.kv.scan(SERVICE)? {
            log.apply(SERVICE, &key, Some(&value))?;
        }
        Ok(log)
    }

    fn apply(&mut self, _: &str, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        let Ok(n) = key.parse::<u64>() else { return Ok(()) };
        match value {
            // A state that was loaded may have what is told of only now.
            Some(_) if n <= self.version() => {}
            Some(v) => {
                self.entries.push_back((n, stored("log entry", v)?));
                self.next = self.next.max(n + 1);
            }
            None => self.entries.retain(|(m, _)| *m != n),
        }
        Ok(())
    }

    fn publish(&self, topic: &Topic, next: u64) -> Option<Published> {
        let Topic::Log(level) = topic else { return None };
        let last = self.version();
        if next > last && next != 0 {
            return None;
        }
        // From the start means from now on, as for `ceph -w`.
        let from = if next == 0 { last + 1 } else { next };
        let entries = self.since(from, *level);
        let message = |entries| {
            MLog {
                paxos: PaxosVersion(last),
                fsid: self.fsid,
                entries,
            }
            .to_message()
        };
        let entries = Some(entries).filter(|e| !e.is_empty());
        Some(Published {
            messages: entries.map(message).into_iter().collect(),
            next: last + 1,
        })
    }
}

impl ClusterLog {
    /// Number of the last committed entry.
    pub fn version(&self) -> u64 {
        self.entries.back().map_or(0, |(n, _)| *n)
    }

    /// Adds an entry to the next batch: one line of bounded length, whatever foreign names and
    /// texts it contains.
    pub(crate) fn add(&mut self, mut entry: LogEntry) {
        entry.message = cut(one_line(&entry.message), MAX_TEXT);
        entry.name.id = one_line(&entry.name.id);
        entry.channel = one_line(&entry.channel);
        match entry.priority {
            LogPriority::DEBUG => tracing::debug!(target: "cluster", "{}", entry.message),
            priority => tracing::info!(target: "cluster", "{priority} {}", entry.message),
        }
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back(entry);
    }

    /// Drops the waiting entries, which do not belong to the new leader.
    pub(crate) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    /// An entry by this monitor.
    pub(crate) fn own_entry(
        &mut self,
        me: &Identity,
        now: UTime,
        priority: LogPriority,
        channel: &str,
        message: String,
    ) -> LogEntry {
        self.own_seq += 1;
        LogEntry {
            name: NamedEntity {
                kind: u32::from(EntityType::MON.0),
                id: me.name.clone(),
            },
            rank: EntityName::new(EntityType::MON, 0),
            addrs: me.addrs.clone(),
            stamp: now,
            seq: self.own_seq,
            priority,
            message,
            channel: channel.to_owned(),
        }
    }

    /// The waiting entries as a transaction that also drops the oldest ones.
    pub(crate) fn flush(&mut self) -> Txn {
        let mut txn = Txn::default();
        for e in std::mem::take(&mut self.pending) {
            txn.put(SERVICE, format!("{:020}", self.next), encode_to_vec(&e));
            self.next += 1;
        }
        if !txn.is_empty() {
            let surplus = (self.entries.len() + txn.ops.len())
                .saturating_sub(KEEP)
                .min(self.entries.len());
            for (n, _) in self.entries.iter().take(surplus) {
                txn.remove(SERVICE, format!("{n:020}"));
            }
            // Debug entries displace no entries that are worth keeping.
            let left = self.entries.iter().skip(surplus);
            let debug: Vec<u64> = left
                .filter(|(_, e)| e.priority == LogPriority::DEBUG)
                .map(|(n, _)| *n)
                .collect();
            let surplus = debug.len().saturating_sub(KEEP_DEBUG);
            for n in debug.into_iter().take(surplus) {
                txn.remove(SERVICE, format!("{n:020}"));
            }
        }
        txn
    }

    /// Entries from number `from` on, at or above a level.
    fn since(&self, from: u64, least: LogPriority) -> Vec<LogEntry> {
        let wanted = self
            .entries
            .iter()
            .filter(|(n, e)| *n >= from && e.priority >= least);
        wanted.map(|(_, e)| e.clone()).collect()
    }

    /// The last `num` entries of a channel (`*` for all) at or above a level.
    pub fn last(&self, num: usize, level: &str, channel: &str) -> Vec<&LogEntry> {
        let least = level_of(level);
        let mut out: Vec<&LogEntry> = self
            .entries
            .iter()
            .rev()
            .map(|(_, e)| e)
            .filter(|e| e.priority >= least && (channel == "*" || e.channel == channel))
            .take(num)
            .collect();
        out.reverse();
        out
    }
}

fn level_of(name: &str) -> LogPriority {
    match name {
        "debug" => LogPriority::DEBUG,
        "sec" => LogPriority::SEC,
        "warn" | "warning" => LogPriority::WARN,
        "error" | "err" => LogPriority::ERROR,
        _ => LogPriority::INFO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_loaded_and_is_told_of_again_is_there_once() {
        let mut log = ClusterLog::default();
        let entry = Bytes::from(encode_to_vec(&LogEntry::default()));
        for n in [1, 2, 3, 2, 3, 4] {
            log.apply(SERVICE, &format!("{n:020}"), Some(&entry)).unwrap();
        }
        let numbers: Vec<u64> = log.entries.iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
    }
}
