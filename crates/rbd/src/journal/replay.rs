//! Replays the events of a journal (Ceph's `src/librbd/journal/Replay.cc`). To apply an event twice
//! has no further effect.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use spirula_classes::rbd::SnapshotNamespace;
use spirula_client::errno;

use super::event::{Event, Operation};
use crate::cls::tell;
use crate::error::unless;
use crate::image::Inner;
use crate::message::Task;
use crate::{Error, Progress, Result};

/// The image to which events are applied.
pub(super) struct Replay {
    image: Rc<Inner>,
    /// A write that may continue in the next event.
    write: Option<(u64, BytesMut)>,
    /// Operations that have begun and not ended, by number.
    begun: BTreeMap<u64, Operation>,
}

impl Replay {
    /// Replays to `image`, which must not append events of its own.
    pub(super) fn new(image: Rc<Inner>) -> Self {
        Self {
            image,
            write: None,
            begun: BTreeMap::new(),
        }
    }

    /// Applies an event, or the operation that the event completes.
    ///
    /// # Errors
    /// `ENOSYS` where the image would have to change in a way that is not supported here.
    pub(super) async fn apply(&mut self, event: Event) -> Result<()> {
        if let Event::Write { offset, data } = &event {
            return self.write(*offset, data).await;
        }
        self.flush().await?;
        let image = Rc::clone(&self.image);
        match event {
            Event::Write { .. } | Event::Flush | Event::DemotePromote => Ok(()),
            Event::Discard {
                offset,
                len,
                granularity,
            } => {
                let len = self.within(offset, len);
                image.discard_in(offset, len, granularity).await
            }
            Event::WriteSame { offset, len, data } => {
                let len = self.within(offset, len);
                let mut at = 0;
                while at < len && !data.is_empty() {
                    let part = (data.len() as u64).min(len - at);
                    // No longer than the data.
                    self.write(offset + at, &data.slice(..part as usize)).await?;
                    at += part;
                }
                Ok(())
            }
            Event::CompareAndWrite { offset, old, new } => {
                let len = new.len() as u64;
                if self.within(offset, len) < len {
                    return Ok(());
                }
                let done = image.compare_and_write(offset, old, new).await;
                unless(done, errno::EILSEQ).map(drop)
            }
            Event::Begin { number, operation } => {
                self.begun.insert(number, operation);
                Ok(())
            }
            Event::End { number, result } => match self.begun.remove(&number) {
                Some(operation) if result >= 0 => self.operate(operation).await,
                // The operation failed, and its caller knows; or it was committed before.
                _ => Ok(()),
            },
            Event::Unknown(kind) => {
                tracing::error!("the journal has an event of unknown kind {kind}");
                Err(Error::os("journal", errno::ENOSYS))
            }
        }
    }

    /// Ends the replay: runs the operations whose end is missing in the journal.
    pub(super) async fn finish(mut self) -> Result<()> {
        self.flush().await?;
        for operation in std::mem::take(&mut self.begun).into_values() {
            self.operate(operation).await?;
        }
        Ok(())
    }

    /// How much of a range lies within the image.
    fn within(&self, offset: u64, len: u64) -> u64 {
        len.min(self.image.view.size().saturating_sub(offset))
    }

    async fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        // Writes were cut into events; events of one write become one write again.
        let whole = u64::from(self.image.site.fixed.layout.object_size);
        if let Some((from, before)) = &mut self.write
            && from.checked_add(before.len() as u64) == Some(offset)
            && !offset.is_multiple_of(whole)
        {
            before.extend_from_slice(data);
            return Ok(());
        }
        self.flush().await?;
        self.write = Some((offset, BytesMut::from(data)));
        Ok(())
    }

    /// Writes the data that waited for more.
    async fn flush(&mut self) -> Result<()> {
        let Some((offset, data)) = self.write.take() else {
            return Ok(());
        };
        let mut data: Bytes = data.freeze();
        // No longer than it was.
        data.truncate(self.within(offset, data.len() as u64) as usize);
        match data.is_empty() {
            true => Ok(()),
            false => Rc::clone(&self.image).write(offset, data.into()).await,
        }
    }

    async fn operate(&self, operation: Operation) -> Result<()> {
        let image = &self.image;
        let task = match operation {
            Operation::SnapCreate { namespace, name } => Task::SnapCreate { name, namespace },
            Operation::SnapRemove { namespace, name } => Task::SnapRemove { name, namespace },
            Operation::SnapRename { id, to, .. } => Task::SnapRename { id, name: to },
            Operation::SnapProtect { name, .. } => Task::SnapProtect { name },
            Operation::SnapUnprotect { name, .. } => Task::SnapUnprotect { name },
            Operation::Rename(name) => Task::Rename { name },
            Operation::Resize(size) => Task::Resize {
                size,
                allow_shrink: true,
            },
            Operation::Flatten => Task::Flatten,
            Operation::SnapRollback { namespace, name } => {
                return match namespace {
                    SnapshotNamespace::User => image.begin_operation().await?.roll_back(&name).await,
                    _ => Err(Error::os("journal", errno::ENOSYS)),
                };
            }
            Operation::SnapLimit(limit) => {
                return unless(
                    image.begin_operation().await?.set_snapshot_limit(limit).await,
                    errno::ERANGE,
                )
                .map(drop);
            }
            Operation::UpdateFeatures { features, enabled } => Task::UpdateFeatures { features, enabled },
            Operation::MetadataSet { key, value } => {
                let values = BTreeMap::from([(key, Bytes::from(value))]);
                return tell(&image.site.io, image.site.header_oid(), "metadata_set", &values).await;
            }
            Operation::MetadataRemove { key } => {
                let removed = tell(&image.site.io, image.site.header_oid(), "metadata_remove", &key).await;
                return unless(removed, errno::ENOENT).map(drop);
            }
        };
        let done = image.perform(&task, &Progress::untold()).await;
        match task.errno_where_done() {
            Some(errno) => unless(done, errno).map(drop),
            None => done,
        }
    }
}
