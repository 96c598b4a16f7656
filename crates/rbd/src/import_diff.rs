//! Imports diffs into images (Ceph's `src/tools/rbd/action/Import.cc`).

use std::io::Read;
use std::rc::Rc;

use bytes::Bytes;
use spirula_client::errno::{self, Errno};
use spirula_denc::Extent;

use crate::diff_file::{Record, RecordReader};
use crate::image::Image;
use crate::transfer::{Writes, parts};
use crate::{Error, Result};

/// Why a diff is not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The image lacks the snapshot at which the diff begins.
    #[error("start snapshot '{0}' does not exist in the image, aborting")]
    NoStart(String),
    /// The image already has the snapshot with which the diff ends.
    #[error("end snapshot '{0}' already exists, aborting")]
    EndExists(String),
    /// The file can't be read, or the image can't be changed.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl ImportError {
    /// The errno that a user sees.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NoStart(_) => errno::EINVAL,
            Self::EndExists(_) => errno::EEXIST,
            Self::Failed(e) => e.errno(),
        }
    }
}

/// Progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportNews {
    /// The image has this size from now on.
    Size(u64),
    /// The records before this offset of the image are imported.
    Offset(u64),
    /// A record of an unknown kind is skipped.
    Unknown(u8),
}

impl Image {
    /// Applies a diff to the image, and takes the snapshot with which it ends. Runs of zeros of
    /// `block` bytes are not written.
    ///
    /// # Errors
    /// [`ImportError::NoStart`] and [`ImportError::EndExists`], `EBADMSG` where the file is cut,
    /// and as [`Image::write`] and [`Image::resize`].
    pub async fn import_diff(
        &self,
        file: &mut RecordReader<impl Read>,
        block: u64,
        mut told: impl FnMut(ImportNews),
    ) -> std::result::Result<(), ImportError> {
        let mut writes = Writes::new(Rc::clone(&self.inner));
        let (mut end, mut is_protected) = (None, false);
        loop {
            match file.record()? {
                Record::End => break,
                Record::From(name) => {
                    self.refresh().await?;
                    if self.header().user_snapshot(&name).is_none() {
                        return Err(ImportError::NoStart(name));
                    }
                }
                Record::To(name) => {
                    self.refresh().await?;
                    if self.header().user_snapshot(&name).is_some() {
                        return Err(ImportError::EndExists(name));
                    }
                    end = Some(name).filter(|n| !n.is_empty());
                }
                Record::Protected(protected) => is_protected = protected,
                Record::Size(size) => {
                    writes.finish().await?;
                    if size != self.size() {
                        self.resize(size, true).await?;
                    }
                    told(ImportNews::Size(size));
                }
                Record::Write { offset, len } => {
                    self.check_room(offset, len)?;
                    for Extent { offset, len } in parts(offset, len) {
                        // No longer than a part.
                        let mut data = vec![0; len as usize];
                        file.data(&mut data)?;
                        writes.write(offset, Bytes::from(data), block, false).await?;
                    }
                    told(ImportNews::Offset(offset));
                }
                Record::Zero { offset, len } => {
                    writes.discard(offset, len).await?;
                    told(ImportNews::Offset(offset));
                }
                Record::Unknown { tag, len } => {
                    told(ImportNews::Unknown(tag));
                    file.skip(len)?;
                }
            }
        }
        writes.finish().await?;
        if let Some(end) = end {
            self.create_snapshot(&end).await?;
            if is_protected {
                self.protect_snapshot(&end).await?;
            }
        }
        Ok(())
    }

    /// Fails with `EINVAL` where a range lies outside the image, before its data is read.
    fn check_room(&self, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(Error::os("import", errno::EINVAL)),
        }
    }
}
