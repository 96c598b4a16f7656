//! The steps in which an object of a destination gets the source's content: one for each copied
//! snapshot, oldest first, and one for the image as it is. Each is written under the snapshots of
//! the steps before, so that these keep their content.
//!
//! All clients write the same under the same snapshots, and a step fails where the object has
//! already been written under that newest snapshot or a newer one (`assert_snapc_seq`). So an
//! interrupted copy and two concurrent ones do no harm; a client's write comes after all steps.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use spirula_classes::rbd::migration::Migration;
use spirula_maps::SnapContext;

use crate::Snapshot;

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The snapshot of the source; `None` for the source as it is.
    pub(super) source: Option<u64>,
    /// The first snapshot of the destination that shows the step's content; `None` for the image as
    /// it is.
    pub(super) target: Option<u64>,
    /// The snapshots that are targets of steps, in order, and how many of them come before this
    /// step.
    targets: Rc<[u64]>,
    before: usize,
}

impl Step {
    fn earlier(&self) -> &[u64] {
        self.targets.get(..self.before).unwrap_or_default()
    }

    /// The newest snapshot under which the step is written; 0 for none.
    pub(super) fn newest(&self) -> u64 {
        self.earlier().last().copied().unwrap_or_default()
    }

    /// The snapshots under which the step is written.
    pub(super) fn context(&self) -> SnapContext {
        SnapContext {
            seq: self.newest(),
            snaps: self.earlier().iter().rev().copied().collect(),
        }
    }
}

/// The newest snapshot of the destination that was copied from the source.
pub(super) fn newest_copied(record: &Migration) -> u64 {
    record.snap_seqs.values().next_back().copied().unwrap_or_default()
}

/// The steps for a destination with these snapshots, in order.
pub(super) fn steps(record: &Migration, snapshots: &BTreeMap<u64, Snapshot>) -> Vec<Step> {
    let since = (Bound::Excluded(newest_copied(record)), Bound::Unbounded);
    let newer = snapshots.range(since).next();
    let targets: Rc<[u64]> = record.snap_seqs.values().copied().collect();
    let copied = record.snap_seqs.iter().map(|(s, t)| (Some(*s), Some(*t)));
    // Snapshots that were taken since then see the source's last content, too.
    let last = std::iter::once((None, newer.map(|(id, _)| *id)));
    let all = copied.chain(last).enumerate();
    all.map(|(before, (source, target))| Step {
        source,
        target,
        targets: Rc::clone(&targets),
        before,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use spirula_classes::rbd::migration::{DESTINATION, state};
    use spirula_classes::rbd::{ImageFlags, SnapshotNamespace};

    use spirula_maps::PoolId;

    use super::*;

    fn record(snap_seqs: &[(u64, u64)]) -> Migration {
        Migration {
            header_type: DESTINATION,
            pool_id: PoolId::new(1).into(),
            pool_namespace: Bytes::new(),
            image_name: Bytes::new(),
            image_id: Bytes::new(),
            snap_seqs: snap_seqs.iter().copied().collect(),
            overlap: 0,
            flatten: false,
            mirroring: false,
            state: state::EXECUTING,
            state_description: Bytes::new(),
            mirror_image_mode: 0,
            source_spec: Bytes::new(),
        }
    }

    fn snapshots(ids: &[u64]) -> BTreeMap<u64, Snapshot> {
        let snapshot = |id: &u64| Snapshot {
            id: *id,
            name: String::new(),
            namespace: SnapshotNamespace::User,
            size: 0,
            timestamp: Default::default(),
            children: 0,
            protected: false,
            flags: ImageFlags::empty(),
            parent_overlap: None,
        };
        ids.iter().map(|id| (*id, snapshot(id))).collect()
    }

    type Shown = (Option<u64>, Option<u64>, u64, Vec<u64>);

    fn shown(steps: &[Step]) -> Vec<Shown> {
        let show = |s: &Step| (s.source, s.target, s.context().seq, s.context().snaps);
        steps.iter().map(show).collect()
    }

    #[test]
    fn each_step_is_written_under_the_snapshots_of_those_before() {
        let steps = steps(&record(&[(3, 10), (7, 12)]), &snapshots(&[10, 12]));
        assert_eq!(
            shown(&steps),
            [
                (Some(3), Some(10), 0, vec![]),
                (Some(7), Some(12), 10, vec![10]),
                (None, None, 12, vec![12, 10]),
            ]
        );
    }

    #[test]
    fn the_oldest_snapshot_since_shows_what_the_source_was() {
        let steps = steps(&record(&[(3, 10)]), &snapshots(&[10, 15, 16]));
        assert_eq!(shown(&steps).last(), Some(&(None, Some(15), 10, vec![10])));
    }

    /// Other clients still count a removed snapshot.
    #[test]
    fn a_removed_snapshot_remains_a_step() {
        let steps = steps(&record(&[(3, 10), (7, 12)]), &snapshots(&[12]));
        assert_eq!(shown(&steps)[1], (Some(7), Some(12), 10, vec![10]));
        assert_eq!(super::steps(&record(&[]), &snapshots(&[])).len(), 1);
    }
}
