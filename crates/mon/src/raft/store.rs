//! The redb file below the log and the state machine.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use openraft::{Entry, EntryPayload, LogId, StoredMembership, Vote};
use redb::{
    Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
    WriteTransaction,
};
use spirula_denc::{Encode, Reader, Writer, decode_all, encode_to_vec};
use spirula_invariant::invariant;
use tokio::sync::watch;

use super::bug::Bug;
use super::reserve::ReservedFile;
use super::{Node, Runtime, Tokio, TxnData, Types, wire};
use crate::kv::{KvError, KvRead, Txn};

const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
const KV: TableDefinition<'static, (&str, &str), &[u8]> = TableDefinition::new("kv");
/// A snapshot that is being received.
const STAGE: TableDefinition<'static, (&str, &str), &[u8]> = TableDefinition::new("stage");

/// Version of the file's layout. 1: tables `log`, `meta`, `kv`; `stage` may come and go.
const FORMAT: &[u8] = b"1";

/// redb caches pages in memory up to this many bytes; the working set of a monitor is a few maps.
const CACHE_BYTES: usize = 4 << 20;

/// The store failed or holds something that this version cannot read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// redb failed: the disk, or a damaged file.
    #[error("store.db: {0}")]
    Redb(#[from] redb::Error),
    /// The file can't be opened, or is not the monitor's alone.
    #[error(transparent)]
    File(#[from] spirula_files::Error),
    /// A record does not decode.
    #[error("store.db: {0}")]
    Decode(#[from] spirula_denc::Error),
    /// Membership or vote does not parse.
    #[error("store.db: {0}")]
    Json(#[from] serde_json::Error),
    /// A snapshot that the next entries follow could not be installed.
    #[error("the state before these entries could not be installed")]
    NotInstalled,
    /// Entries do not follow those that there are.
    #[error("entries from {first} on would leave a gap in the log: the next is {next}")]
    Gap {
        /// The first of the entries.
        first: u64,
        /// The index that the log continues with.
        next: u64,
    },
    /// The file has another layout version.
    #[error("store.db has format {0}, which this version cannot read")]
    Format(String),
}

macro_rules! from_redb {
    ($($t:ident),*) => {$(
        impl From<redb::$t> for StoreError {
            fn from(e: redb::$t) -> Self {
                Self::Redb(e.into())
            }
        }
    )*};
}
from_redb!(
    DatabaseError,
    TransactionError,
    TableError,
    StorageError,
    CommitError,
    SetDurabilityError
);

type Result<T> = std::result::Result<T, StoreError>;

/// Shared handle of the open file.
#[derive(Clone)]
pub struct Store {
    db: Arc<Database>,
    snapshots: Arc<watch::Sender<Snapshots>>,
    /// A deliberate bug, for tests of the tests.
    #[cfg(any(test, feature = "bugs"))]
    bug: Option<Bug>,
}

/// The snapshots that were received since the store was opened, by their last entries.
#[derive(Debug, Default)]
struct Snapshots {
    /// The last entry of the one whose parts are staged.
    staged: Option<LogId<u64>>,
    /// The newest that openraft has begun to install: it purged the entries that it covers.
    awaited: Option<u64>,
    /// The newest that is on disk.
    installed: Option<u64>,
    /// Whether one could not be installed.
    failed: bool,
}

/// How far the state machine has applied the log.
#[derive(Debug, Clone, Default)]
pub(super) struct AppliedState {
    pub(super) last: Option<LogId<u64>>,
    pub(super) membership: StoredMembership<u64, Node>,
}

/// The whole key-value state, as a snapshot carries it.
#[derive(Default)]
pub enum Dump {
    /// Nothing: only tells how far the log may be purged.
    #[default]
    Empty,
    /// The state as it was when the snapshot was asked for, read from the file part by part.
    View(ReadTransaction),
    /// A received state, which waits in the file to be installed.
    Staged,
}

impl std::fmt::Debug for Dump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::View(_) => "View",
            Self::Staged => "Staged",
        })
    }
}

/// The last key of a part of a dump.
pub(super) struct At {
    service: String,
    key: String,
}

impl Dump {
    /// The keys after `after`, up to `most` bytes but at least one, and the last of them; `None` if
    /// none is left after these.
    pub(super) fn part(&self, after: Option<&At>, most: usize) -> Result<(Txn, Option<At>)> {
        let mut txn = Txn::default();
        let Self::View(tx) = self else {
            return Ok((txn, None));
        };
        let table = tx.open_table(KV)?;
        let from = match after {
            Some(at) => Bound::Excluded((at.service.as_str(), at.key.as_str())),
            None => Bound::Unbounded,
        };
        let (mut bytes, mut last) = (0, None);
        for item in table.range::<(&str, &str)>((from, Bound::Unbounded))? {
            if bytes >= most {
                return Ok((txn, last));
            }
            let (k, v) = item?;
            let (service, key) = k.value();
            bytes += service.len() + key.len() + v.value().len();
            last = Some(At {
                service: service.to_owned(),
                key: key.to_owned(),
            });
            txn.put(service, key, Bytes::copy_from_slice(v.value()));
        }
        Ok((txn, None))
    }
}

impl Store {
    /// Opens `path`, creating it if it is missing. It holds every key of the cluster: nobody else
    /// may read it.
    ///
    /// # Errors
    /// Where it can't be opened, belongs to somebody else, or holds something else.
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = std::fs::OpenOptions::new();
        let file = spirula_files::open(path, options.read(true).write(true).create(true))?;
        Self::open_on(ReservedFile::new(file)?)
    }

    /// Opens a store on other storage than a file; an empty one becomes a new store.
    ///
    /// # Errors
    /// Where it fails, or holds something else.
    pub fn open_on(storage: impl StorageBackend) -> Result<Self> {
        Self::over(
            Database::builder()
                .set_cache_size(CACHE_BYTES)
                .create_with_backend(storage)?,
        )
    }

    fn over(db: Database) -> Result<Self> {
        let tx = db.begin_write()?;
        {
            tx.open_table(LOG)?;
            tx.open_table(KV)?;
            let mut meta = tx.open_table(META)?;
            let found = meta.get("format")?.map(|v| v.value().to_vec());
            match found.as_deref() {
                None => {
                    meta.insert("format", FORMAT)?;
                }
                Some(FORMAT) => {}
                Some(other) => return Err(StoreError::Format(String::from_utf8_lossy(other).into_owned())),
            }
        }
        tx.commit()?;
        Ok(Self {
            db: Arc::new(db),
            snapshots: Arc::new(watch::Sender::default()),
            #[cfg(any(test, feature = "bugs"))]
            bug: None,
        })
    }

    /// The store with a deliberate bug.
    #[cfg(any(test, feature = "bugs"))]
    #[must_use]
    pub fn with_bug(mut self, bug: Option<Bug>) -> Self {
        self.bug = bug;
        self
    }

    /// Whether this bug is switched on.
    #[cfg(any(test, feature = "bugs"))]
    pub(super) fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether this bug is switched on.
    #[cfg(not(any(test, feature = "bugs")))]
    pub(super) fn has_bug(&self, _: Bug) -> bool {
        false
    }

    /// A change that is on disk when it is committed, unless this bug is switched on.
    fn begin(&self, lazy: Bug) -> Result<WriteTransaction> {
        match self.has_bug(lazy) {
            true => self.begin_lazy(),
            false => Ok(self.db.begin_write()?),
        }
    }

    /// A change that is on disk with the next durable one.
    fn begin_lazy(&self) -> Result<WriteTransaction> {
        let mut tx = self.db.begin_write()?;
        tx.set_durability(Durability::None)?;
        Ok(tx)
    }

    fn meta<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let tx = self.db.begin_read()?;
        let table = tx.open_table(META)?;
        json(table.get(key)?.map(|v| v.value().to_vec()))
    }

    fn set_meta<T: serde::Serialize>(&self, key: &str, value: &T) -> Result<()> {
        Self::put_meta(self.db.begin_write()?, key, value)
    }

    fn put_meta<T: serde::Serialize>(tx: WriteTransaction, key: &str, value: &T) -> Result<()> {
        tx.open_table(META)?
            .insert(key, serde_json::to_vec(value)?.as_slice())?;
        Ok(tx.commit()?)
    }

    pub(super) fn vote(&self) -> Result<Option<Vote<u64>>> {
        self.meta("vote")
    }

    pub(super) fn save_vote(&self, vote: &Vote<u64>) -> Result<()> {
        let tx = self.begin(Bug::LazyVote)?;
        let before: Option<Vote<u64>> = meta_in(&tx, "vote")?;
        invariant!(before.is_none_or(|before| *vote >= before), "votes that ascend";
            vote = vote, before = before.unwrap_or_default());
        Self::put_meta(tx, "vote", vote)
    }

    pub(super) fn purged(&self) -> Result<Option<LogId<u64>>> {
        self.meta("purged")
    }

    pub(super) fn last_entry(&self) -> Result<Option<LogId<u64>>> {
        let tx = self.db.begin_read()?;
        let table = tx.open_table(LOG)?;
        Ok(match table.last()? {
            None => None,
            Some((_, v)) => Some(decode_log_id(&mut Reader::new(v.value()))?),
        })
    }

    pub(super) fn entries<R: Runtime>(&self, from: u64, to: u64) -> Result<Vec<Entry<Types<R>>>> {
        let tx = self.db.begin_read()?;
        let table = tx.open_table(LOG)?;
        table
            .range(from..to)?
            .map(|item| decode_entry(item?.1.value()))
            .collect()
    }

    /// Appends entries; they are on disk when this returns. Does nothing and returns false if the
    /// snapshot that they follow is not installed yet ([`Store::installed_before`]).
    ///
    /// # Errors
    /// Also [`StoreError::Gap`].
    pub(super) fn append<R: Runtime>(&self, entries: &[Entry<Types<R>>]) -> Result<bool> {
        let Some(first) = entries.first().map(|e| e.log_id.index) else {
            return Ok(true);
        };
        let tx = self.begin(Bug::LazyAppend)?;
        {
            let mut table = tx.open_table(LOG)?;
            let mut last = match table.last()? {
                Some((_, v)) => Some(decode_log_id(&mut Reader::new(v.value()))?),
                None => self.purged()?,
            };
            let next = last.map_or(0, |id| id.index + 1);
            if first > next {
                let waits = self
                    .snapshots
                    .borrow()
                    .awaited
                    .is_some_and(|last| first <= last + 1);
                return match waits {
                    true => Ok(false),
                    false => Err(StoreError::Gap { first, next }),
                };
            }
            for e in entries {
                // Entries that others replace are truncated before.
                invariant!(wire::is_next(last.as_ref(), &e.log_id), "entries that continue the log";
                    entry = e.log_id, last = wire::shown(last.as_ref()));
                last = Some(e.log_id);
                table.insert(e.log_id.index, encode_entry(e)?.as_slice())?;
            }
        }
        tx.commit()?;
        Ok(true)
    }

    /// Waits until a snapshot that has all entries before `index` is on disk.
    ///
    /// openraft appends the entries after a snapshot while the state machine still installs it. A
    /// power cut between the two would leave a log with a gap, which could never be applied.
    pub(super) async fn installed_before(&self, index: u64) -> Result<()> {
        let mut snapshots = self.snapshots.subscribe();
        let found = snapshots.wait_for(|s| s.failed || s.installed.is_some_and(|last| index <= last + 1));
        // The sender is part of this store.
        match found.await.as_deref() {
            Ok(Snapshots { failed: false, .. }) => Ok(()),
            Ok(Snapshots { failed: true, .. }) | Err(_) => Err(StoreError::NotInstalled),
        }
    }

    /// Removes all entries from `index` on.
    pub(super) fn truncate(&self, index: u64) -> Result<()> {
        if self.has_bug(Bug::KeptTail) {
            return Ok(());
        }
        let tx = self.db.begin_write()?;
        let applied = applied_in(&tx)?;
        invariant!(applied.is_none_or(|last| last.index < index), "only entries that are not applied to be replaced";
            from = index, applied = wire::shown(applied.as_ref()));
        tx.open_table(LOG)?.retain_in(index.., |_, _| false)?;
        Ok(tx.commit()?)
    }

    /// Removes all entries up to and including `id`, except those that are not applied yet:
    /// openraft purges entries that a snapshot covers while it is still being installed, and if
    /// that is broken off the entries are needed.
    pub(super) fn purge(&self, id: LogId<u64>) -> Result<()> {
        let tx = self.db.begin_write()?;
        // Read in this transaction: a snapshot may be installed at any moment.
        let applied = applied_in(&tx)?;
        if applied.is_none_or(|last| last.index < id.index) {
            self.snapshots
                .send_modify(|s| s.awaited = s.awaited.max(Some(id.index)));
        }
        if let Some(applied) = applied {
            self.purge_in(&tx, if applied.index < id.index { applied } else { id })?;
        }
        Ok(tx.commit()?)
    }

    fn purge_in(&self, tx: &WriteTransaction, id: LogId<u64>) -> Result<()> {
        let applied = applied_in(tx)?;
        invariant!(applied >= Some(id), "only applied entries to be purged";
            to = id, applied = wire::shown(applied.as_ref()));
        tx.open_table(LOG)?.retain_in(..=id.index, |_, _| false)?;
        if meta_in::<LogId<u64>>(tx, "purged")?.is_none_or(|before| before.index < id.index) {
            tx.open_table(META)?
                .insert("purged", serde_json::to_vec(&id)?.as_slice())?;
        }
        Ok(())
    }

    pub(super) fn applied(&self) -> Result<AppliedState> {
        Ok(AppliedState {
            last: self.meta::<Option<LogId<u64>>>("applied")?.flatten(),
            membership: self.meta("membership")?.unwrap_or_default(),
        })
    }

    /// The index of the last entry that is applied, 0 before the first.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn applied_to(&self) -> Result<u64> {
        Ok(self.applied()?.last.map_or(0, |id| id.index))
    }

    /// The transaction at a place of the log and the term in which it was logged, as long as the
    /// log has it. It may not be committed.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn logged(&self, index: u64) -> Result<Option<(u64, Arc<Txn>)>> {
        let found = self.entries::<Tokio>(index, index.saturating_add(1))?;
        Ok(found.into_iter().find_map(|e| match e.payload {
            EntryPayload::Normal(t) => Some((e.log_id.leader_id.term, t.0)),
            _ => None,
        }))
    }

    /// Applies a batch and records its place in the log. Durable with the next append.
    pub(super) fn apply(&self, txns: &[Arc<Txn>], state: &AppliedState) -> Result<()> {
        let tx = self.begin_lazy()?;
        {
            let mut kv = tx.open_table(KV)?;
            for op in txns.iter().flat_map(|t| &t.ops) {
                let key = (op.service.as_str(), op.key.as_str());
                match &op.value {
                    Some(v) => kv.insert(key, v.as_ref())?,
                    None => kv.remove(key)?,
                };
            }
            if !self.has_bug(Bug::UncountedApply) {
                put_applied(&tx, state)?;
            }
        }
        Ok(tx.commit()?)
    }

    /// Stages a part of the snapshot up to `last` that is being received; the first one begins anew.
    pub(super) fn stage(&self, last: Option<LogId<u64>>, part: &Txn, first: bool) -> Result<()> {
        self.snapshots.send_if_modified(|s| {
            if first {
                s.staged = last;
            }
            invariant!(s.staged == last, "parts of one snapshot";
                part = wire::shown(last.as_ref()), staged = wire::shown(s.staged.as_ref()));
            false // Nobody waits for that.
        });
        let tx = self.begin_lazy()?;
        if first && !self.has_bug(Bug::MixedStage) {
            tx.delete_table(STAGE)?;
        }
        {
            let mut stage = tx.open_table(STAGE)?;
            for op in &part.ops {
                if let Some(v) = &op.value {
                    stage.insert((op.service.as_str(), op.key.as_str()), v.as_ref())?;
                }
            }
        }
        Ok(tx.commit()?)
    }

    /// Replaces the whole state by the staged one, and removes the entries that it covers; durable
    /// when this returns.
    pub(super) fn install_staged(&self, state: &AppliedState) -> Result<()> {
        let done = self.try_install_staged(state);
        self.snapshots.send_modify(|s| match &done {
            Ok(()) => s.installed = s.installed.max(state.last.map(|id| id.index)),
            Err(_) => s.failed = true,
        });
        done
    }

    fn try_install_staged(&self, state: &AppliedState) -> Result<()> {
        let staged = self.snapshots.borrow().staged;
        invariant!(staged == state.last, "the snapshot that was received";
            wanted = wire::shown(state.last.as_ref()), staged = wire::shown(staged.as_ref()));
        let tx = self.begin(Bug::LazySnapshot)?;
        if !self.has_bug(Bug::MixedSnapshot) {
            tx.delete_table(KV)?;
        }
        {
            let stage = tx.open_table(STAGE)?;
            let mut kv = tx.open_table(KV)?;
            for item in stage.iter()? {
                let (k, v) = item?;
                kv.insert(k.value(), v.value())?;
            }
            put_applied(&tx, state)?;
        }
        if let Some(last) = state.last {
            self.purge_in(&tx, last)?;
        }
        tx.delete_table(STAGE)?;
        Ok(tx.commit()?)
    }

    /// The whole state, and how far it is applied; later changes do not show in it.
    pub(super) fn view(&self) -> Result<(AppliedState, Dump)> {
        let tx = self.db.begin_read()?;
        let state = {
            let meta = tx.open_table(META)?;
            let of =
                |key: &str| -> Result<Option<Vec<u8>>> { Ok(meta.get(key)?.map(|v| v.value().to_vec())) };
            AppliedState {
                last: json(of("applied")?)?.flatten(),
                membership: json(of("membership")?)?.unwrap_or_default(),
            }
        };
        Ok((state, Dump::View(tx)))
    }

    /// This node's number in the group; 0 in stores from before there were groups.
    pub fn node(&self) -> Result<u64> {
        Ok(self.meta("node")?.unwrap_or(0))
    }

    /// Gives a new store its number, and the seed that its monitor needs until it is a member of a
    /// cluster.
    pub fn plant(&self, node: u64, seed: &[u8]) -> Result<()> {
        self.set_meta("node", &node)?;
        self.set_meta("seed", &seed)
    }

    /// The seed of [`Store::plant`], until [`Store::weed`].
    pub fn seed(&self) -> Result<Option<Vec<u8>>> {
        self.meta("seed")
    }

    /// Forgets the seed: the monitor is a member.
    pub fn weed(&self) -> Result<()> {
        let tx = self.db.begin_write()?;
        tx.open_table(META)?.remove("seed")?;
        Ok(tx.commit()?)
    }

    fn read<T>(&self, f: impl FnOnce(&redb::ReadOnlyTable<(&str, &str), &[u8]>) -> Result<T>) -> Result<T> {
        let tx = self.db.begin_read()?;
        f(&tx.open_table(KV)?)
    }
}

fn json<T: serde::de::DeserializeOwned>(text: Option<Vec<u8>>) -> Result<Option<T>> {
    Ok(text.map(|t| serde_json::from_slice(&t)).transpose()?)
}

/// A record as this change has it so far.
fn meta_in<T: serde::de::DeserializeOwned>(tx: &WriteTransaction, key: &str) -> Result<Option<T>> {
    let meta = tx.open_table(META)?;
    json(meta.get(key)?.map(|v| v.value().to_vec()))
}

/// The last entry that is applied, as this change has it so far.
fn applied_in(tx: &WriteTransaction) -> Result<Option<LogId<u64>>> {
    Ok(meta_in::<Option<LogId<u64>>>(tx, "applied")?.flatten())
}

fn put_applied(tx: &WriteTransaction, state: &AppliedState) -> Result<()> {
    let before = applied_in(tx)?;
    invariant!(state.last > before, "an applied state that grows";
        applied = wire::shown(state.last.as_ref()), before = wire::shown(before.as_ref()));
    let mut meta = tx.open_table(META)?;
    meta.insert("applied", serde_json::to_vec(&state.last)?.as_slice())?;
    meta.insert("membership", serde_json::to_vec(&state.membership)?.as_slice())?;
    Ok(())
}

impl KvRead for Store {
    fn get(&self, service: &str, key: &str) -> std::result::Result<Option<Bytes>, KvError> {
        self.read(|t| Ok(t.get((service, key))?.map(|v| Bytes::copy_from_slice(v.value()))))
            .map_err(|e| KvError(e.to_string()))
    }

    fn next(&self, service: &str, from: &str) -> std::result::Result<Option<(String, Bytes)>, KvError> {
        self.read(|t| {
            let Some(item) = t.range((service, from)..)?.next() else {
                return Ok(None);
            };
            let (k, v) = item?;
            let (s, key) = k.value();
            Ok((s == service).then(|| (key.to_owned(), Bytes::copy_from_slice(v.value()))))
        })
        .map_err(|e| KvError(e.to_string()))
    }

    fn scan(&self, service: &str) -> std::result::Result<Vec<(String, Bytes)>, KvError> {
        self.read(|t| {
            let mut out = Vec::new();
            for item in t.range((service, "")..)? {
                let (k, v) = item?;
                let (s, key) = k.value();
                if s != service {
                    break;
                }
                out.push((key.to_owned(), Bytes::copy_from_slice(v.value())));
            }
            Ok(out)
        })
        .map_err(|e| KvError(e.to_string()))
    }
}

/// Kinds of log entry on disk.
const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

pub(super) fn encode_entry<R: Runtime>(e: &Entry<Types<R>>) -> Result<Vec<u8>> {
    let mut w = Writer::new();
    e.log_id.leader_id.term.encode(&mut w);
    e.log_id.leader_id.node_id.encode(&mut w);
    e.log_id.index.encode(&mut w);
    match &e.payload {
        EntryPayload::Blank => BLANK.encode(&mut w),
        EntryPayload::Normal(t) => {
            NORMAL.encode(&mut w);
            Bytes::from(encode_to_vec(t.0.as_ref())).encode(&mut w);
        }
        EntryPayload::Membership(m) => {
            MEMBERSHIP.encode(&mut w);
            serde_json::to_string(m)?.encode(&mut w);
        }
    }
    Ok(w.into_vec())
}

pub(super) fn decode_entry<R: Runtime>(buf: &[u8]) -> Result<Entry<Types<R>>> {
    let mut r = Reader::new(buf);
    let log_id = decode_log_id(&mut r)?;
    let payload = match r.u8()? {
        BLANK => EntryPayload::Blank,
        NORMAL => EntryPayload::Normal(TxnData(Arc::new(decode_all(r.blob()?)?))),
        MEMBERSHIP => EntryPayload::Membership(serde_json::from_str(&r.string()?)?),
        _ => return Err(spirula_denc::Error::Invalid("kind of log entry").into()),
    };
    Ok(Entry { log_id, payload })
}

/// The place of an entry, with which it begins.
fn decode_log_id(r: &mut Reader<'_>) -> Result<LogId<u64>> {
    let leader = openraft::CommittedLeaderId::new(r.u64()?, r.u64()?);
    Ok(LogId::new(leader, r.u64()?))
}
