//! Exports differences of an image to a file (Ceph's `src/tools/rbd/action/Export.cc`).

use std::collections::VecDeque;
use std::io::Write;
use std::rc::Rc;

use bytes::Bytes;
use spirula_client::errno;
use spirula_denc::Extent;
use tokio::task::JoinHandle;

use crate::diff::{DiffOptions, Difference, Differences};
use crate::diff_file::{Format, Record, write, write_banner, write_data};
use crate::image::Image;
use crate::progress::Meter;
use crate::transfer::{AT_ONCE, WINDOW, is_zero, parts};
use crate::view::View;
use crate::{Error, Progress, Result};

/// Differences of an image, with the data of the next ones read ahead.
struct Reads {
    image: Rc<View>,
    differences: Differences,
    queue: VecDeque<(Difference, Option<JoinHandle<Result<Bytes>>>)>,
    bytes: u64,
    at_end: bool,
}

/// The data of a difference.
enum Content {
    Zeros,
    Data(Bytes),
    /// More data than is kept in memory. It is not all zeros.
    Large,
}

impl Reads {
    /// Whether the data of a difference is read at once.
    fn is_small(difference: &Difference) -> bool {
        difference.len <= WINDOW / 2
    }

    async fn fill(&mut self) -> Result<()> {
        while !self.at_end && self.queue.len() < AT_ONCE && self.bytes < WINDOW / 2 {
            let Some(difference) = self.differences.next().await? else {
                self.at_end = true;
                return Ok(());
            };
            let Difference {
                offset,
                len,
                has_data,
            } = difference;
            let read = (has_data && Self::is_small(&difference)).then(|| {
                let image = Rc::clone(&self.image);
                self.bytes += len;
                tokio::task::spawn_local(async move { image.read(offset, len).await })
            });
            self.queue.push_back((difference, read));
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<(Difference, Content)>> {
        self.fill().await?;
        let Some((difference, read)) = self.queue.pop_front() else {
            return Ok(None);
        };
        let content = match read {
            Some(read) => {
                let data = read.await.unwrap_or(Err(Error::os("image", errno::EIO)))?;
                self.bytes -= difference.len;
                match is_zero(&data) {
                    true => Content::Zeros,
                    false => Content::Data(data),
                }
            }
            None if difference.has_data && !self.is_zero(&difference).await? => Content::Large,
            None => Content::Zeros,
        };
        Ok(Some((difference, content)))
    }

    async fn is_zero(&self, difference: &Difference) -> Result<bool> {
        for Extent { offset, len } in parts(difference.offset, difference.len) {
            if !is_zero(&self.image.read(offset, len).await?) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        let reads = self.queue.iter().filter_map(|(_, read)| read.as_ref());
        reads.for_each(JoinHandle::abort);
    }
}

impl Image {
    /// Writes the differences of the image, or of the snapshot that is read, to `out`.
    ///
    /// # Errors
    /// As [`Image::differences`], and where `out` can't be written; `ECANCELED` where the progress'
    /// listener ends it.
    pub async fn export_diff(
        &self,
        options: &DiffOptions,
        format: Format,
        out: &mut impl Write,
        progress: &Progress,
    ) -> Result<()> {
        let differences = self.differences(options).await?;
        let (image, header) = (Rc::clone(&self.inner.view), self.header());
        write_banner(out, format)?;
        let snapshot = image.site.snap.and_then(|id| header.snapshots.get(&id));
        let from = options.from.clone().map(Record::From);
        let to = snapshot.map(|s| Record::To(s.name.clone()));
        let protected = snapshot.filter(|_| format == Format::V2);
        let protected = protected.map(|s| Record::Protected(s.protected));
        let size = image.size();
        for record in [from, to, protected, Some(Record::Size(size))].iter().flatten() {
            write(out, record, format)?;
        }
        let meter = Meter::new(progress, size);
        let mut reads = Reads {
            image,
            differences,
            queue: VecDeque::new(),
            bytes: 0,
            at_end: false,
        };
        while let Some((Difference { offset, len, .. }, content)) = reads.next().await? {
            let record = match content {
                Content::Zeros => Record::Zero { offset, len },
                _ => Record::Write { offset, len },
            };
            write(out, &record, format)?;
            match content {
                Content::Zeros => {}
                Content::Data(data) => write_data(out, &data)?,
                Content::Large => {
                    for Extent { offset, len } in parts(offset, len) {
                        write_data(out, &reads.image.read(offset, len).await?)?;
                    }
                }
            }
            meter.reached(offset)?;
        }
        write(out, &Record::End, format)
    }
}
