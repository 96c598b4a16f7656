//! The usage log: bytes and requests by hour, user and bucket. Formats: `rgw_usage_log_entry` and
//! what is in it, of Ceph's `src/cls/rgw/cls_rgw_types.h`, and `cls_rgw_ops.h`.
//!
//! A record is stored twice in the omap: by its time first, and by its user first.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer, versioned};

use super::user::User;
use crate::error::unless;
use crate::method::{Nothing, Raw, input, to_bytes};
use crate::text::until_nul;
use crate::{Error, Object, Result};

/// Records that one call reads where the client leaves the number open, and that one trim reads.
const DEFAULT_MAX: u32 = 1000;

versioned! {
    /// What requests used.
    #[derive(Copy, Eq)]
    pub(super) struct Data("rgw_usage_data", version 1, compat 1) {
        pub(super) bytes_sent: u64;
        pub(super) bytes_received: u64;
        pub(super) ops: u64;
        pub(super) successful_ops: u64;
    }

    /// What S3 Select used.
    #[derive(Copy, Eq)]
    pub(super) struct SelectData("rgw_s3select_usage_data", version 1, compat 1) {
        pub(super) bytes_processed: u64;
        pub(super) bytes_returned: u64;
    }

    /// Some records.
    #[derive(Eq)]
    pub(super) struct Info("rgw_usage_log_info", version 1, compat 1) {
        pub(super) entries: Vec<Entry>;
    }

    /// Input of `user_usage_log_add`.
    #[derive(Eq)]
    pub(super) struct AddOp("rgw_cls_usage_log_add_op", version 2, compat 1) {
        pub(super) info: Info;
        /// Of no use: records name their users.
        pub(super) user: Bytes, since 2;
    }

    /// Input of `user_usage_log_read`.
    #[derive(Eq)]
    pub(super) struct ReadOp("rgw_cls_usage_log_read_op", version 2, compat 1) {
        /// The first hour, in seconds since the epoch.
        pub(super) start_epoch: u64;
        /// The end, excluded.
        pub(super) end_epoch: u64;
        /// Only this user's records, everybody's if empty.
        pub(super) owner: Bytes;
        /// If not empty, the omap key after which to begin.
        pub(super) iter: Bytes;
        pub(super) max_entries: u32;
        /// Only this bucket's records, those of all if empty.
        pub(super) bucket: Bytes, since 2;
    }

    /// A user and a bucket.
    #[derive(Eq, PartialOrd, Ord)]
    pub(super) struct UserBucket("rgw_user_bucket", version 1, compat 1) {
        pub(super) user: Bytes;
        pub(super) bucket: Bytes;
    }

    /// Output of `user_usage_log_read`.
    #[derive(Eq)]
    pub(super) struct ReadReply("rgw_cls_usage_log_read_ret", version 1, compat 1) {
        /// The sums.
        pub(super) usage: BTreeMap<UserBucket, Entry>;
        pub(super) truncated: bool;
        /// The last omap key if more follow.
        pub(super) next_iter: Bytes;
    }

    /// Input of `user_usage_log_trim`.
    #[derive(Eq)]
    pub(super) struct TrimOp("rgw_cls_usage_log_trim_op", version 3, compat 2) {
        /// The first hour, in seconds since the epoch.
        pub(super) start_epoch: u64;
        /// The end, excluded.
        pub(super) end_epoch: u64;
        /// Only this user's records, everybody's if empty.
        pub(super) user: Bytes;
        /// Only this bucket's records, those of all if empty.
        pub(super) bucket: Bytes, since 3;
    }
}

impl Data {
    fn add(&mut self, other: &Self) {
        for (sum, n) in [
            (&mut self.bytes_sent, other.bytes_sent),
            (&mut self.bytes_received, other.bytes_received),
            (&mut self.ops, other.ops),
            (&mut self.successful_ops, other.successful_ops),
        ] {
            *sum = sum.wrapping_add(n);
        }
    }
}

impl SelectData {
    fn add(&mut self, other: &Self) {
        self.bytes_processed = self.bytes_processed.wrapping_add(other.bytes_processed);
        self.bytes_returned = self.bytes_returned.wrapping_add(other.bytes_returned);
    }
}

/// What one user's requests to one bucket used within an hour (`rgw_usage_log_entry`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The bucket's owner.
    owner: User,
    /// Who is charged if it is not the owner.
    payer: User,
    bucket: Bytes,
    /// The hour, in seconds since the epoch.
    epoch: u64,
    /// The sum of all categories.
    total: Data,
    /// By category: the kind of request, such as `get_obj`.
    categories: BTreeMap<Bytes, Data>,
    /// Version 4, of Squid.
    select: SelectData,
}

impl Encode for Entry {
    /// Version 3, which all releases read, if that holds everything.
    fn encode(&self, w: &mut Writer) {
        let version = if self.select == SelectData::default() {
            3
        } else {
            4
        };
        w.section(version, 1, |w| {
            w.put(&self.owner.to_bytes());
            w.put(&self.bucket);
            w.put(&self.epoch);
            w.put(&(self.total.bytes_sent, self.total.bytes_received));
            w.put(&(self.total.ops, self.total.successful_ops));
            w.put(&self.categories);
            w.put(&self.payer.to_bytes());
            if version == 4 {
                w.put(&self.select);
            }
        });
    }
}

impl Decode for Entry {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("rgw_usage_log_entry", 4, |version, r| {
            let mut entry = Self {
                owner: User::parse(&r.get::<Bytes>()?),
                bucket: r.get()?,
                epoch: r.get()?,
                total: Data {
                    bytes_sent: r.get()?,
                    bytes_received: r.get()?,
                    ops: r.get()?,
                    successful_ops: r.get()?,
                },
                ..Self::default()
            };
            match version {
                // Without categories, all is of one without a name.
                ..2 => drop(entry.categories.insert(Bytes::new(), entry.total)),
                2.. => entry.categories = r.get()?,
            }
            if version >= 3 {
                entry.payer = User::parse(&r.get::<Bytes>()?);
            }
            if version >= 4 {
                entry.select = r.get()?;
            }
            Ok(entry)
        })
    }
}

impl Entry {
    /// Who is charged: payer or owner.
    fn charged(&self) -> &User {
        match self.payer.is_empty() {
            true => &self.owner,
            false => &self.payer,
        }
    }

    /// Adds another record's usage; one without an owner takes that one's names and hour, too.
    fn aggregate(&mut self, other: Self) {
        if self.owner.is_empty() {
            self.owner = other.owner;
            self.payer = other.payer;
            self.bucket = other.bucket;
            self.epoch = other.epoch;
        }
        for (category, data) in other.categories {
            self.categories.entry(category).or_default().add(&data);
            self.total.add(&data);
        }
        self.select.add(&other.select);
    }

    fn key_by_time(&self, user: &[u8]) -> Bytes {
        let epoch = format!("{:011}", self.epoch);
        [epoch.as_bytes(), until_nul(user), until_nul(&self.bucket)]
            .join(&b'_')
            .into()
    }

    fn key_by_user(&self, user: &[u8]) -> Bytes {
        [&start_of_user(user, self.epoch)[..], until_nul(&self.bucket)]
            .concat()
            .into()
    }
}

/// What the keys of a user and an hour begin with.
fn start_of_user(user: &[u8], epoch: u64) -> Bytes {
    let epoch = format!("_{epoch:011}_");
    [until_nul(user), epoch.as_bytes()].concat().into()
}

pub(super) fn add(object: &mut dyn Object, op: AddOp) -> Result<Nothing> {
    let entries = op.info.entries;
    let key = |entry: &Entry| entry.key_by_time(&entry.charged().to_bytes());
    let old = object.omap_by_keys(&entries.iter().map(key).collect())?;
    let mut new = BTreeMap::new();
    for mut entry in entries {
        let by_time = key(&entry);
        let has_payer = !entry.payer.is_empty();
        if let Some(bytes) = old.get(&by_time) {
            entry.aggregate(input(bytes)?);
        }
        let charged = if has_payer { &entry.payer } else { &entry.owner };
        let by_user = entry.key_by_user(&charged.to_bytes());
        let value = to_bytes(&entry);
        new.insert(by_time, value.clone());
        new.insert(by_user, value);
    }
    if !new.is_empty() {
        object.omap_set(&new)?;
    }
    Ok(Nothing)
}

/// The records that a client asks for.
struct Range {
    start_epoch: u64,
    end_epoch: u64,
    user: Bytes,
    bucket: Bytes,
    /// If not empty, the key after which to begin.
    after: Bytes,
    max: u32,
}

impl Range {
    /// The key after which to begin.
    fn after(&self) -> Bytes {
        match (self.after.is_empty(), self.user.is_empty()) {
            (false, _) => self.after.clone(),
            (true, true) => format!("{:011}", self.start_epoch).into(),
            (true, false) => start_of_user(&self.user, self.start_epoch),
        }
    }

    /// Calls `visit` with a page of the records. Returns the last key if more may follow.
    fn scan(&self, object: &mut dyn Object, mut visit: impl FnMut(Entry)) -> Result<Option<Bytes>> {
        let end = format!("{:011}", self.end_epoch);
        let of_user = [&self.user[..], b"_"].concat();
        let page = object.omap_vals(&self.after(), b"", self.max.into())?;
        let mut last = Bytes::new();
        for (key, value) in page.items {
            let past = match self.user.is_empty() {
                true => key[..] >= *end.as_bytes(),
                false => !key.starts_with(&of_user),
            };
            if past {
                return Ok(None);
            }
            last = key;
            let entry: Entry = input(&value)?;
            let other_bucket = !self.bucket.is_empty() && self.bucket != entry.bucket;
            if other_bucket || entry.epoch < self.start_epoch {
                continue;
            }
            if entry.epoch >= self.end_epoch {
                return Ok(None);
            }
            visit(entry);
        }
        Ok(page.more.then_some(last))
    }
}

pub(super) fn read(object: &mut dyn Object, op: ReadOp) -> Result<ReadReply> {
    let range = Range {
        start_epoch: op.start_epoch,
        end_epoch: op.end_epoch,
        user: op.owner,
        bucket: op.bucket,
        after: op.iter,
        max: if op.max_entries == 0 {
            DEFAULT_MAX
        } else {
            op.max_entries
        },
    };
    let mut usage: BTreeMap<UserBucket, Entry> = BTreeMap::new();
    let more = range.scan(object, |entry| {
        let of = UserBucket {
            user: entry.charged().to_bytes(),
            bucket: entry.bucket.clone(),
        };
        usage.entry(of).or_default().aggregate(entry);
    })?;
    Ok(ReadReply {
        usage,
        truncated: more.is_some(),
        next_iter: more.unwrap_or_default(),
    })
}

/// Removes a page of records; ENODATA where none is left. As in Ceph, records with a payer stay:
/// they are stored under that name, and looked for under the owner's.
pub(super) fn trim(object: &mut dyn Object, op: Raw) -> Result<Nothing> {
    object.stat()?;
    let op: TrimOp = input(&op.0)?;
    let range = Range {
        start_epoch: op.start_epoch,
        end_epoch: op.end_epoch,
        user: op.user,
        bucket: op.bucket,
        after: Bytes::new(),
        max: DEFAULT_MAX,
    };
    let mut keys = BTreeSet::new();
    let more = range.scan(object, |entry| {
        let owner = entry.owner.to_bytes();
        keys.extend([entry.key_by_time(&owner), entry.key_by_user(&owner)]);
    })?;
    match (keys.is_empty(), more) {
        (true, None) => return Err(Error::ENODATA),
        (true, Some(_)) => {}
        (false, _) => object.omap_remove(&keys)?,
    }
    Ok(Nothing)
}

pub(super) fn clear(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    unless(object.omap_clear(), &[Error::ENOENT])?;
    Ok(Nothing)
}
