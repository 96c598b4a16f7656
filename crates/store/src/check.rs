//! Looks for rot in what the store keeps besides the contents of objects, and tells what it means.

use std::io;
use std::sync::Arc;

use crate::Result;
use crate::device::BlockIo;
use crate::event::{Event, Token};
use crate::exec::Job;
use crate::index::{Examined, Index, IndexDamage, IndexPage};
use crate::layout::{Superblock, is_log_header};
use crate::store::Store;

/// What a piece of a check has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
    /// The pages that the index file has now.
    pub pages: u64,
    /// Pages that were read.
    pub read: u64,
    /// What was damaged on the device and is written anew, as it was known otherwise: pages and
    /// tables of the index, and copies of its map and of the superblock.
    pub mended: u64,
    /// Pages of the index that are damaged: [`Store::judge_index`] tells what that means.
    pub damaged: Vec<IndexPage>,
}

/// What a piece has found, with what its owner has to write.
pub(crate) struct Found {
    examined: Examined,
    /// Whether the superblock has to be written anew, and the header of the log's own device.
    superblock: bool,
    log_header: bool,
}

/// Examines a piece of the index from `page` on, and with the last one the superblocks.
pub(crate) fn examine(
    index: &Index,
    main: &Arc<dyn BlockIo>,
    log: Option<&Arc<dyn BlockIo>>,
    page: u64,
) -> io::Result<Found> {
    let examined = index.examine(page)?;
    let is_last = examined.next.is_none();
    Ok(Found {
        superblock: is_last && !Superblock::is_whole(main),
        log_header: is_last && log.is_some_and(|log| !is_log_header(log)),
        examined,
    })
}

impl Store {
    /// Looks for rot in the next piece of the index, past all caches; an [`Event::Checked`] answers
    /// and says where to go on, from 0 at first. A piece is half a MiB at most. With the last one the
    /// copies of the superblock are read. The owner decides when the next piece is due.
    ///
    /// # Errors
    /// [`StoreError::Fatal`](crate::StoreError::Fatal),
    /// [`StoreError::Ruined`](crate::StoreError::Ruined).
    pub fn check_index(&mut self, from: u64, token: Token) -> Result<()> {
        self.check()?;
        self.checks += 1;
        self.exec.submit(Job::Examine(token, from));
        Ok(())
    }

    /// Tells what damaged pages mean; an [`Event::Judged`] answers. Reads a hundredth of the index.
    ///
    /// # Errors
    /// [`StoreError::Fatal`](crate::StoreError::Fatal),
    /// [`StoreError::Ruined`](crate::StoreError::Ruined).
    pub fn judge_index(&mut self, pages: Vec<IndexPage>, token: Token) -> Result<()> {
        self.check()?;
        self.checks += 1;
        self.exec.submit(Job::Judge(token, pages));
        Ok(())
    }

    pub(crate) fn examined(&mut self, token: Token, found: io::Result<Found>) {
        self.checks -= 1;
        let found = match found {
            Ok(found) => found,
            Err(e) => {
                self.io_failed("writing the index anew", &e);
                return; // Nothing is retried.
            }
        };
        let Examined {
            next,
            read,
            mut mended,
            rotten,
            torn: _, // A running OSD writes it anew, whatever it was.
        } = found.examined;
        if self.failed.is_none() && (found.superblock || found.log_header) {
            mended += u64::from(found.superblock) + u64::from(found.log_header);
            if let Err(e) = self.write_headers() {
                self.fail(e);
                return; // Nothing is retried.
            }
        }
        self.stats.index_mended += mended;
        self.stats.index_damaged += rotten.len() as u64;
        let checked = Checked {
            next,
            pages: self.state.index.file().pages(),
            read,
            mended,
            damaged: rotten.into_iter().map(IndexPage).collect(),
        };
        self.events.push_back(Event::Checked(token, checked));
    }

    /// Writes the superblock anew, and the header of the log's own device. Waits for the device.
    fn write_headers(&self) -> Result<()> {
        self.sb.write(&self.ground.io)?;
        match &self.log_dev {
            Some(log) => self.sb.write_log_header(&log.blocking()),
            None => Ok(()),
        }
    }

    pub(crate) fn judged(&mut self, token: Token, damage: Result<IndexDamage>) {
        self.checks -= 1;
        self.events.push_back(Event::Judged(token, damage));
    }
}
