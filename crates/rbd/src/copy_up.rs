//! Copies of a parent's data into an object of its clone, before that is written for the first
//! time.
//!
//! Where the clone has snapshots they must see the parent's data in the object too, as the write
//! makes it hide the parent from them once the clone is flattened. So the copy is made as if before
//! the first of them: under no snapshot at all (Ceph's `src/librbd/io/CopyupRequest.h`).

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use spirula_classes::rbd::Features;
use spirula_classes::rbd::object_state::{EXISTS, EXISTS_CLEAN};
use spirula_client::Piece;
use spirula_denc::{Encode, Writer};

use crate::Result;
use crate::change::Change;
use crate::cls;
use crate::object_map;
use crate::writing::Writing;

/// Blocks of this many bytes that hold only zeros are not copied.
const CHUNK: usize = 4096;

/// Input of the method `sparse_copyup`: data without runs of zeros.
struct SparseCopy {
    data: Bytes,
    /// The parts with data: lengths by offsets.
    extents: BTreeMap<u64, u64>,
}

impl SparseCopy {
    fn of(data: Bytes) -> Self {
        let mut extents: BTreeMap<u64, u64> = BTreeMap::new();
        let mut at = 0;
        for chunk in data.chunks(CHUNK) {
            let len = chunk.len() as u64;
            if chunk.iter().any(|b| *b != 0) {
                match extents.last_entry() {
                    Some(mut last) if last.key() + last.get() == at => *last.get_mut() += len,
                    _ => drop(extents.insert(at, len)),
                }
            }
            at += len;
        }
        Self { data, extents }
    }

    fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }
}

impl Encode for SparseCopy {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.extents);
        // As it is large: growing by doubling would take half as much again meanwhile.
        let bytes: u64 = self.extents.values().sum();
        w.reserve(usize::try_from(bytes).unwrap_or_default() + 4);
        let len = w.hole_u32();
        let start = w.len();
        for (offset, len) in &self.extents {
            // Both lie within the data.
            let (offset, len) = (*offset as usize, *len as usize);
            w.bytes(&self.data[offset..offset + len]);
        }
        w.fill_u32(len, (w.len() - start) as u32);
    }
}

impl Writing {
    /// Copies the parent's data into an object, unless the object exists, and then changes it.
    pub(crate) async fn copy_up(&self, object: u64, change: Option<Change>) -> Result<()> {
        let copy_ups = &self.copy_ups.0;
        let turn = Rc::clone(copy_ups.borrow_mut().entry(object).or_default());
        let waited = turn.try_lock().is_err();
        let done = {
            let _turn = turn.lock().await;
            self.copy_up_alone(object, change, waited).await
        };
        // This one and the one in the map: nobody else waits.
        if Rc::strong_count(&turn) == 2 {
            copy_ups.borrow_mut().remove(&object);
        }
        done
    }

    async fn copy_up_alone(&self, object: u64, change: Option<Change>, waited: bool) -> Result<()> {
        if waited
            && let Some(change) = &change
            && self.change_existing(object, change).await?
        {
            return Ok(());
        }
        let whole = Piece {
            object,
            offset: 0,
            len: self.site.fixed.layout.object_size.into(),
        };
        let data = self
            .view
            .read_parent(&self.header, self.site.snap, whole)
            .await?
            .unwrap_or_default();
        let copy = SparseCopy::of(data);
        if copy.is_empty() {
            return match change {
                Some(change) => self.change_any(object, change).await,
                None => Ok(()),
            };
        }
        let mut ops = vec![cls::rbd("sparse_copyup", &copy)?];
        // Not kept while its copy is on its way: an object may be large.
        drop(copy);
        let has_snapshots = !self.header.snapshots.is_empty();
        self.note_copy(object, change.as_ref()).await?;
        let apart = has_snapshots || change.as_ref().is_none_or(|c| c.compares);
        if apart {
            let copy = cls::change(
                &self.site.data,
                "copy from parent",
                self.site.fixed.object(object),
                ops,
            );
            copy.await?;
            return match change {
                Some(change) => self.change_any(object, change).await,
                None => Ok(()),
            };
        }
        ops.extend(change.map(|c| c.ops).unwrap_or_default());
        let io = self.writer();
        cls::change(&io, "write", self.site.fixed.object(object), ops).await
    }

    /// Marks the object as existing in the object maps of the image and of its snapshots.
    async fn note_copy(&self, object: u64, change: Option<&Change>) -> Result<()> {
        let Some(map) = &self.map else {
            return Ok(());
        };
        let header = &self.header;
        let clean = if header.has(Features::FAST_DIFF) {
            EXISTS_CLEAN
        } else {
            EXISTS
        };
        // The data is that of the oldest snapshot, and unchanged in later ones.
        let states = std::iter::once(EXISTS).chain(std::iter::repeat(clean));
        for (snap, state) in header.snapshots.keys().zip(states) {
            object_map::set_in_snapshot(&self.site.io, &self.site.fixed.id, *snap, object, (state, None))
                .await?;
        }
        let state = match change {
            Some(change) => change.state,
            None if header.snapshots.is_empty() => EXISTS,
            None => clean,
        };
        map.set(object, state).await
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::encode_to_vec;

    use super::*;

    #[test]
    fn zeros_are_left_out() {
        let mut data = vec![0; 5 * CHUNK + 10];
        data[CHUNK] = 1;
        data[3 * CHUNK - 1] = 2;
        data[5 * CHUNK + 9] = 3;
        let copy = SparseCopy::of(data.clone().into());
        let chunk = CHUNK as u64;
        assert_eq!(
            copy.extents,
            BTreeMap::from([(chunk, 2 * chunk), (5 * chunk, 10)])
        );
        let kept = [&data[CHUNK..3 * CHUNK], &data[5 * CHUNK..]].concat();
        assert_eq!(
            encode_to_vec(&copy),
            encode_to_vec(&(copy.extents.clone(), Bytes::from(kept)))
        );
        assert!(SparseCopy::of(vec![0; 9].into()).is_empty());
    }
}
