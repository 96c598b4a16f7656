//! Damage in the store that is mended where the daemon starts: parts of the index are cut out, and the
//! PGs that lost something are made whole from other OSDs.
//!
//! A copy of a PG that lost objects is marked as incomplete, as one that is being copied to: it never
//! counts as the newest, and a backfill compares all of its objects with those of another member. What
//! of an object is there and is not what its info says is removed first, so that it is copied as a
//! whole.

use bytes::Bytes;
use spirula_denc::{decode_all, encode_to_vec};
use spirula_maps::PgId;
use spirula_store::{Config, Event, Lost, ObjectKey, Store, StoreError, Token, Transaction};

use super::OsdError;
use super::config::OsdConfig;
use super::store_io::StoreIo;
use crate::pg::info::PgInfo;
use crate::pg::key::{self, KeyRange};

/// Objects that are removed in one transaction.
const AT_ONCE: usize = 256;
/// How often the store may say that it is damaged where nothing is found that is.
const FRUITLESS: u32 = 3;
/// The most PGs that are named in a line.
const MOST_NAMED: usize = 20;

/// What is known of the damage of a store, from one start within the process to the next.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Pages of the index that were found to be damaged.
    pages: Vec<u64>,
    /// Lines for the cluster log.
    pub(super) news: Vec<String>,
    fruitless: u32,
}

impl Damage {
    /// Notes the pages because of which the store has stopped.
    ///
    /// # Errors
    /// It has stopped so again and again, and nothing was found to be damaged.
    pub(super) fn found(&mut self, pages: &[u64], error: OsdError) -> Result<(), OsdError> {
        self.fruitless += 1;
        if self.fruitless > FRUITLESS {
            return Err(error);
        }
        tracing::error!("{error}: the store is opened anew");
        self.pages.extend(pages);
        Ok(())
    }

    /// Forgets all: the store was made anew.
    pub(super) fn remade(&mut self, line: String) {
        *self = Self {
            news: vec![line],
            ..Self::default()
        };
    }

    /// Opens the store, after the damage that is known was cut out of its index.
    ///
    /// # Errors
    /// [`StoreError::Ruined`], without pages if they can't be cut out; and others.
    pub(super) fn open(&mut self, cfg: &OsdConfig, config: Config) -> Result<Store, StoreError> {
        let (log, key) = (cfg.log_device.as_deref(), cfg.encryption_key.as_ref());
        if !self.pages.is_empty() {
            let mended = match spirula_store::mend(&cfg.device, log, key, &self.pages) {
                Err(StoreError::Ruined { detail, .. }) => {
                    let pages = [].into();
                    return Err(StoreError::Ruined { detail, pages });
                }
                mended => mended?,
            };
            self.pages.clear();
            if !mended.lost.is_empty() {
                self.fruitless = 0;
            }
            for lost in mended.lost {
                tracing::error!("cut out of the index: {lost}");
            }
        }
        Store::open(&cfg.device, log, key, config)
    }
}

/// Acts on what the store has lost. Returns what that was, in words; `None` if nothing.
///
/// # Errors
/// The store fails, or is damaged further.
pub(super) fn settle(io: &mut StoreIo) -> Result<Option<String>, OsdError> {
    let Some(lost) = io.store.lost()? else {
        return Ok(None);
    };
    for keys in lost.torn.chunks(AT_ONCE) {
        let mut txn = Transaction::new();
        for key in keys {
            txn.remove(key);
        }
        submit(&mut io.store, txn)?;
    }
    let mut pgs = Vec::new();
    let mut txn = Transaction::new();
    for (k, v) in io.load_records(&key::all_infos())? {
        let Some(pgid) = key::parse_info_key(&k) else {
            continue;
        };
        let damaged = |source| OsdError::Damaged {
            what: format!("PG {pgid}"),
            source,
        };
        let mut info: PgInfo = decode_all(&v).map_err(damaged)?;
        if is_affected(pgid, &info, &lost) {
            info.incomplete = true;
            txn.meta_put(k, encode_to_vec(&info));
            pgs.push(pgid);
        }
    }
    submit(&mut io.store, txn)?;
    io.store.settle_lost()?;
    Ok(Some(words(&pgs)))
}

fn words(pgs: &[PgId]) -> String {
    let some: Vec<String> = pgs.iter().take(MOST_NAMED).map(PgId::to_string).collect();
    let more = match pgs.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    match pgs.is_empty() {
        true => "damaged parts of the index were cut out, and no pg lost anything".to_owned(),
        false => format!(
            "damaged parts of the index were cut out: the copies of pg {}{more} here are incomplete, and are made whole from \
             others",
            some.join(", ")
        ),
    }
}

/// The ranges of a PG's objects, and of what is staged for them.
fn ranges(pgid: PgId, pg_num: u32) -> [KeyRange; 3] {
    let staged = KeyRange {
        from: key::stage_key(pgid, 0),
        to: [&key::stage_key(pgid, u8::MAX)[..], &[0]].concat().into(),
    };
    [
        key::pg_range(pgid, pg_num),
        key::coded_stage_range(pgid, pg_num),
        staged,
    ]
}

/// Whether a PG's copy has lost something.
fn is_affected(pgid: PgId, info: &PgInfo, lost: &Lost) -> bool {
    let ranges = ranges(pgid, info.pg_num.max(1));
    let overlaps = |after: &Option<ObjectKey>, upto: &Option<ObjectKey>| {
        ranges.iter().any(|r| {
            after
                .as_ref()
                .is_none_or(|after| after.as_slice() < r.to.as_ref())
                && upto
                    .as_ref()
                    .is_none_or(|upto| upto.as_slice() >= r.from.as_ref())
        })
    };
    let has = |key: &ObjectKey| {
        let key = Bytes::copy_from_slice(key.as_slice());
        ranges.iter().any(|r| r.contains(&key))
    };
    lost.ranges.iter().any(|r| overlaps(&r.after, &r.upto)) || lost.torn.iter().any(has)
}

/// Submits a transaction and waits until it is durable.
fn submit(store: &mut Store, txn: Transaction) -> Result<(), StoreError> {
    store.submit(txn, Token(0))?;
    let mut events = Vec::new();
    loop {
        store.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Committed(Token(0)) => return Ok(()),
                Event::Fatal(e) => return Err(e),
                // Of the store's own start.
                _ => {}
            }
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use spirula_maps::PoolId;
    use spirula_store::LostObjects;

    use super::*;

    #[test]
    fn the_copies_that_lost_something_are_found() {
        let pg = |pool: u32, seed| PgId::new(PoolId::new(pool), seed);
        let info = PgInfo {
            pg_num: 4,
            ..PgInfo::default()
        };
        let key = |bytes: &Bytes| Some(ObjectKey::new(bytes));
        let range = key::pg_range(pg(1, 2), 4);
        let inside: Bytes = [&range.from[..], b"x"].concat().into();
        let affected = |after: Option<ObjectKey>, upto: Option<ObjectKey>| -> Vec<u32> {
            let lost = Lost {
                ranges: vec![LostObjects { after, upto }],
                torn: Vec::new(),
            };
            (0..4)
                .filter(|seed| is_affected(pg(1, *seed), &info, &lost))
                .collect()
        };
        assert_eq!(affected(key(&inside), key(&inside)), [2]);
        assert_eq!(affected(None, None), [0, 1, 2, 3]);
        // The ranges of hashes are in the order of reversed bits: 0, 2, 1, 3.
        assert_eq!(affected(None, key(&range.from)), [0, 2]);
        assert_eq!(affected(key(&inside), key(&range.to)), [1, 2]);
        let torn = |key: Bytes| Lost {
            ranges: Vec::new(),
            torn: vec![ObjectKey::new(&key)],
        };
        assert!(is_affected(pg(1, 2), &info, &torn(inside.clone())));
        assert!(!is_affected(pg(1, 1), &info, &torn(inside.clone())));
        assert!(!is_affected(pg(2, 2), &info, &torn(inside)));
        let staged = key::repair_key(pg(1, 3));
        assert!(is_affected(pg(1, 3), &info, &torn(staged.clone())));
        assert!(!is_affected(pg(1, 2), &info, &torn(staged)));
    }
}
