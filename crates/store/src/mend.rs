//! Mends a store that is not open: cuts damaged parts out of its index, or makes it anew.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::config::Config;
use crate::device::{BlockIo, FileIo};
use crate::index::Index;
use crate::layout::{INDEX_MAPS, LOG_START, Superblock};
use crate::open::{make_index, zero};
use crate::unlock::{Unlocked, unlock};
use crate::{EncryptionKey, Result, StoreError};

/// How many damaged pages that are met on the way are cut out, too.
const TRIES: usize = 64;

/// What was mended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mended {
    /// The parts of the index that were cut out, in words: what was in them is lost.
    pub lost: Vec<String>,
}

/// Cuts the damaged ones of these pages out of the index of the store at `path`, which must not be
/// open, and other damaged pages that this meets. Where none is damaged, as when the device only
/// failed for a while, nothing is changed.
///
/// The store tells what is lost when it is opened ([`Store::lost`](crate::Store::lost)).
///
/// # Errors
/// [`StoreError::Ruined`] if what is damaged can't be cut out; else as
/// [`Store::open`](crate::Store::open).
pub fn mend(path: &Path, log: Option<&Path>, key: Option<&EncryptionKey>, pages: &[u64]) -> Result<Mended> {
    let (dev, _) = open(path, log, key)?;
    mend_on(&dev, pages)
}

/// As [`mend`], on an open device as [`unlock`] gives it.
///
/// # Errors
/// As [`mend`].
pub fn mend_on(dev: &Arc<dyn BlockIo>, pages: &[u64]) -> Result<Mended> {
    let mut sb = Superblock::read(dev)?;
    let mut pages: BTreeSet<u64> = pages.iter().copied().collect();
    let mut mended = Mended::default();
    for _ in 0..TRIES {
        match cut(dev, &mut sb, &pages) {
            Ok(lost) => {
                mended.lost.extend(lost);
                return Ok(mended);
            }
            // Another one, on the way to these.
            Err(StoreError::IndexPage { page, .. }) if pages.insert(page) => {}
            Err(e) => return Err(e.into_ruin()),
        }
    }
    Err(StoreError::ruined("too much of the index is damaged", Vec::new()))
}

fn cut(dev: &Arc<dyn BlockIo>, sb: &mut Superblock, pages: &BTreeSet<u64>) -> Result<Vec<String>> {
    let devices = [Arc::clone(dev), Arc::clone(dev)];
    // If it can't be opened, what its library keeps for itself is damaged.
    let index = Index::open_at(devices, sb, &Config::default(), false).map_err(StoreError::into_ruin)?;
    let pages: Vec<u64> = pages.iter().copied().collect();
    let rotten = index.rotten_of(&pages)?;
    if rotten.is_empty() {
        return Ok(Vec::new());
    }
    if !sb.lost {
        // From now on builds that do not know of lost ranges refuse the store.
        sb.lost = true;
        sb.count_mount()?;
        sb.write(dev)?;
    }
    index.cut(rotten)
}

/// Makes the store at `path` anew, empty: with its identity, size and log, and encrypted as before.
/// It must not be open. Everything in it is lost. Where it ends in between, the store is ruined, and
/// this can be done again.
///
/// # Errors
/// As [`Store::open`](crate::Store::open), or an I/O error.
pub fn remake(path: &Path, log: Option<&Path>, key: Option<&EncryptionKey>) -> Result<()> {
    let (dev, log) = open(path, log, key)?;
    remake_on(&dev, log.as_ref())
}

/// As [`remake`], on open devices as [`unlock`] gives them.
///
/// # Errors
/// As [`remake`].
pub fn remake_on(dev: &Arc<dyn BlockIo>, log: Option<&Arc<dyn BlockIo>>) -> Result<()> {
    let mut sb = Superblock::read(dev)?;
    let log_io = match (sb.separate_log, log) {
        (false, _) => dev,
        (true, Some(log)) => log,
        (true, None) => return Err(StoreError::NotAStore("its log device must be given".into())),
    };
    // Without its maps the index can't be taken for a sound one, and the superblock still tells whose
    // store it is.
    zero(dev, INDEX_MAPS[0], LOG_START - INDEX_MAPS[0])?;
    if sb.separate_log {
        sb.write_log_header(log_io)?;
    }
    zero(log_io, sb.log_start(), sb.log_blocks * crate::config::BLOCK64)?;
    let group = u64::from(sb.group_blocks) * crate::config::BLOCK64;
    let data = u64::from(sb.fixed_groups()) * group..u64::from(sb.groups()) * group;
    // Where that is not possible the space stays taken.
    if let Err(error) = dev.discard(data) {
        tracing::debug!(%error, "the space of the old store is not given back");
    }
    make_index(dev, &sb)?;
    sb.lost = false;
    sb.count_mount()?;
    sb.write(dev)
}

fn open(path: &Path, log: Option<&Path>, key: Option<&EncryptionKey>) -> Result<Unlocked> {
    let open = |path: &Path| match FileIo::open(path) {
        Ok(io) => Ok(Arc::new(io) as Arc<dyn BlockIo>),
        Err(e) => Err(StoreError::open(path, e)),
    };
    unlock(open(path)?, log.map(open).transpose()?, key)
}
