//! `dir_suggest_changes`: what radosgw, while it lists, finds of objects whose operations were never
//! completed.

use std::time::Duration;

use spirula_denc::Reader;

use super::bi_log::{self, LogEntry};
use super::entry::{self, DirEntry, operation};
use super::header::{self, DirHeader};
use super::{keys, resharding};
use crate::method::{Nothing, Raw, input};
use crate::{Error, Object, Result, omap};

/// The object does not exist.
const REMOVE: u8 = b'r';
/// The object is this.
const UPDATE: u8 = b'u';
/// The bit of a suggestion that is to be logged.
const LOG: u8 = 0x80;

/// Seconds after which a pending operation counts as lost, where the header does not say it.
const DEFAULT_TAG_TIMEOUT: u64 = 120;

/// Input: suggestions until its end, each a byte and an entry.
pub(super) fn suggest_changes(object: &mut dyn Object, suggestions: Raw) -> Result<Nothing> {
    let mut header = header::read(object)?;
    resharding::refuse_in_progress(&header)?;
    let mut r = Reader::new(&suggestions.0);
    let mut changed = false;
    while !r.is_empty() {
        let (suggestion, entry) = r.get::<(u8, DirEntry)>().map_err(|_| Error::EINVAL)?;
        changed |= apply(object, &mut header, suggestion, entry)?;
    }
    if changed {
        header::write(object, header)?;
    }
    Ok(Nothing)
}

/// Applies one suggestion. Returns whether the header's sums have changed.
fn apply(object: &mut dyn Object, header: &mut DirHeader, suggestion: u8, mut new: DirEntry) -> Result<bool> {
    let index_key = keys::entry(&new.key);
    let Some(value) = omap::find(object, &index_key)? else {
        return Ok(false);
    };
    let mut old = match value.is_empty() {
        true => DirEntry::default(),
        false => input(&value)?,
    };
    let now = object.now().to_duration();
    let timeout = match header.tag_timeout {
        0 => DEFAULT_TAG_TIMEOUT,
        timeout => timeout,
    };
    let timeout = Duration::from_secs(timeout);
    old.pending
        .retain(|op| now <= op.timestamp.to_duration().saturating_add(timeout));
    // What was completed since then is newer than the suggestion.
    if new.index_version < old.index_version || !old.pending.is_empty() {
        return Ok(false);
    }
    let is_logging = suggestion & LOG != 0 && !header.sync_stopped;
    header.unaccount(&old);
    header.stats.entry(new.meta.category).or_default();
    match suggestion & !LOG {
        REMOVE => {
            omap::remove(object, index_key)?;
            if is_logging && old.exists {
                append(object, header, operation::DEL, &old)?;
            }
            Ok(old.exists)
        }
        UPDATE => {
            header.account(&new.meta);
            new.index_version = header.version;
            entry::write(object, index_key, &new)?;
            if is_logging {
                append(object, header, operation::ADD, &new)?;
            }
            Ok(true)
        }
        _ => Ok(old.exists),
    }
}

fn append(object: &mut dyn Object, header: &mut DirHeader, op: u8, entry: &DirEntry) -> Result<()> {
    let log = LogEntry {
        op,
        tag: entry.tag.clone(),
        ..LogEntry::of(&entry.key, entry.meta.mtime, entry.version)
    };
    bi_log::append(object, header, log)
}
