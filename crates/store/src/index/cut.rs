//! Cuts damaged leaves out of the index, whose other entries are not affected.
//!
//! The library can't remove a page that it can't read. So a leaf with one entry stands in for the
//! damaged one, in memory alone, and the library removes that entry: then the leaf is gone from its
//! tree, in the same commit that notes the lost range.

use redb::ReadableTable;

use super::damage::{Kind, describe};
use super::file::Rotten;
use super::lost::{self, LostKind, LostRange};
use super::tree::{Place, leaf_of};
use super::{Index, OBJECTS, PAIRS, STATE, begin};
use crate::config::BLOCK;
use crate::{Result, StoreError};

/// The record of the lost ranges.
const LOST: &str = "lost";
/// The record of how many leaves were ever cut out.
const CUT: &str = "cut";

impl Index {
    /// Which of these pages are damaged.
    pub(crate) fn rotten_of(&self, pages: &[u64]) -> Result<Vec<Rotten>> {
        let mut rotten = Vec::new();
        for page in pages.iter().filter(|page| **page < self.file.pages()) {
            let found = self.file.examine_page(*page);
            rotten.extend(found.map_err(|e| StoreError::io("read the index", e))?);
        }
        Ok(rotten)
    }

    /// Cuts damaged leaves out, and forgets damaged pages that nothing needs. Returns what is lost,
    /// in words.
    ///
    /// # Errors
    /// [`StoreError::Ruined`] if other pages are damaged that are needed, or too much was cut out.
    pub(crate) fn cut(&self, rotten: Vec<Rotten>) -> Result<Vec<String>> {
        let places = self.places(&rotten)?;
        let ruin = |text: String| Err(StoreError::ruined(text, rotten.iter().map(|r| r.page).collect()));
        if let Some(place) = places.iter().find(|p| Kind::of(p) == Kind::Vital) {
            return ruin(describe(place));
        }
        let ranges = self.lost()?;
        if ranges.len() + places.len() > lost::MOST {
            return ruin(format!("{} parts of it are lost", ranges.len() + places.len()));
        }
        let Some(keys) = places.iter().map(|p| self.lend(p)).collect::<Option<Vec<_>>>() else {
            self.file.take_back();
            return ruin("a key that does not fit its page".to_owned());
        };
        let cut = self.take_out(&places, &keys, ranges);
        self.file.take_back();
        cut?;
        let pages = |place: &Place| place.extent.clone();
        let gone: Vec<u64> = places.iter().flat_map(pages).collect();
        self.file.erase(&gone);
        self.file.forget(&rotten);
        self.file
            .sync()
            .map_err(|e| StoreError::io("write the index", e))?;
        self.unreadable.clear();
        Ok(places.iter().map(describe).collect())
    }

    /// Lets a leaf with one entry stand in for a damaged one; returns the key of the entry.
    fn lend(&self, place: &Place) -> Option<Vec<u8>> {
        let key = match &place.keys {
            (_, Some(upper)) => upper.clone(),
            (Some(lower), None) => [lower.as_slice(), &[0]].concat(),
            (None, None) => vec![0],
        };
        let len = (place.extent.end - place.extent.start) as usize * BLOCK;
        self.file.lend(place.extent.start, &leaf_of(&key, &[], len)?);
        Some(key)
    }

    fn take_out(&self, places: &[Place], keys: &[Vec<u8>], mut ranges: Vec<LostRange>) -> Result<()> {
        let range = |place: &Place| {
            let (after, upto) = place.keys.clone();
            LostRange {
                kind: match Kind::of(place) {
                    Kind::Objects => LostKind::Objects,
                    Kind::Pairs | Kind::Vital => LostKind::Pairs,
                },
                after: after.map(Into::into),
                upto: upto.map(Into::into),
            }
        };
        ranges.extend(places.iter().map(range));
        self.library.with(|db| {
            let txn = begin(db)?;
            for (place, key) in places.iter().zip(keys) {
                let mut table = match Kind::of(place) {
                    Kind::Objects => txn.open_table(OBJECTS)?,
                    Kind::Pairs | Kind::Vital => txn.open_table(PAIRS)?,
                };
                let stood_in = table.remove(key.as_slice())?.is_some();
                if !stood_in {
                    return Err(StoreError::damaged("index", "a leaf is not where it was found"));
                }
            }
            {
                let mut state = txn.open_table(STATE)?;
                let count = state.get(CUT)?.and_then(|v| v.value().try_into().ok());
                let count = u64::from_le_bytes(count.unwrap_or_default()) + places.len() as u64;
                state.insert(CUT, count.to_le_bytes().as_slice())?;
                match ranges.is_empty() {
                    true => drop(state.remove(LOST)?),
                    false => drop(state.insert(LOST, lost::encode(&ranges).as_slice())?),
                }
            }
            txn.commit()?;
            Ok(())
        })
    }

    /// The lost ranges on which the owner has not acted.
    pub(crate) fn lost(&self) -> Result<Vec<LostRange>> {
        let record = self.library.with(|db| state_record(db, LOST))?;
        match record {
            None => Ok(Vec::new()),
            Some(record) => {
                let ranges = lost::decode(&record);
                ranges.ok_or_else(|| StoreError::damaged("index", "the record of lost ranges"))
            }
        }
    }

    /// How many leaves were ever cut out: the space of what was in them is not free again.
    pub(crate) fn cuts(&self) -> Result<u64> {
        let record = self.library.with(|db| state_record(db, CUT))?;
        let count = record.and_then(|r| r.try_into().ok());
        Ok(count.map_or(0, u64::from_le_bytes))
    }

    /// Notes that the owner has acted on all lost ranges.
    pub(crate) fn settle_lost(&self) -> Result<()> {
        self.library.with(|db| {
            let txn = begin(db)?;
            txn.open_table(STATE)?.remove(LOST)?;
            txn.commit()?;
            Ok(())
        })
    }
}

fn state_record(db: &redb::Database, name: &str) -> Result<Option<Vec<u8>>> {
    use redb::ReadableDatabase;
    let table = db.begin_read()?.open_table(STATE)?;
    Ok(table.get(name)?.map(|v| v.value().to_vec()))
}
