//! The differences of a copy from the newest one, as their logs tell them.

use std::collections::BTreeSet;

use spirula_maps::EVersion;

use crate::pg::bug::Bug;
use crate::pg::config::PgConfig;
use crate::pg::log::PgLog;
use crate::pg::log::objects;
use crate::pg::message::LogUpdate;
use crate::pg::push::{Lacking, SyncPlan};

/// The newest version that both logs agree on; `None` if they do not overlap.
fn common(auth: &PgLog, other: &PgLog) -> Option<EVersion> {
    if let Some(e) = other.iter().rev().find(|e| auth.contains(e.version)) {
        return Some(e.version);
    }
    // Trimmed entries were durable everywhere, so up to the later tail both are the same.
    (other.head() >= auth.tail() && auth.head() >= other.tail()).then(|| auth.tail().max(other.tail()))
}

/// The objects that a copy with the log `other` lacks, and the update of its log. `exact`: the
/// copy's objects are as its log says.
pub(super) fn compare(
    auth: &PgLog,
    other: &PgLog,
    exact: bool,
    cfg: &PgConfig,
) -> Option<(SyncPlan, LogUpdate)> {
    let keep_to = common(auth, other)?;
    let (mut keys, mut divergent) = (BTreeSet::new(), BTreeSet::new());
    objects(auth.after(keep_to), &mut keys);
    if !cfg.has_bug(Bug::KeptDivergent) {
        objects(other.after(keep_to), &mut divergent);
    }
    keys.extend(divergent.iter().cloned());
    if cfg.has_bug(Bug::SkippedObject) {
        keys.pop_last();
    }
    let entries = auth.after(keep_to).cloned().collect();
    let lacking = |key| Lacking {
        had: (exact && !divergent.contains(&key)).then_some(keep_to),
        key,
    };
    Some((
        SyncPlan::Objects(keys.into_iter().map(lacking).collect()),
        LogUpdate {
            keep_to,
            replace: false,
            entries,
            dups: Vec::new(),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::log::{LogEntry, LogOp, Usage};
    use spirula_denc::UTime;
    use spirula_maps::{Epoch, HObject, ObjectName, ReqId};

    fn log(tail: u64, entries: &[(u32, u64, &'static str)]) -> PgLog {
        let entries = entries.iter().map(|&(epoch, v, name)| LogEntry {
            version: EVersion::new(Epoch::new(epoch), v),
            prior_version: EVersion::ZERO,
            user_version: v,
            reqid: ReqId {
                tid: v,
                ..ReqId::default()
            },
            object: HObject {
                oid: ObjectName::from_static(name),
                pool: 1,
                ..HObject::min()
            },
            op: LogOp::Modify,
            mtime: UTime::ZERO,
            return_code: 0,
            op_returns: Vec::new(),
            usage: Usage::default(),
            clones: Vec::new(),
            dirty: Default::default(),
        });
        let tail = EVersion::new(Epoch::new(u32::from(tail > 0)), tail);
        PgLog::from_entries(tail, tail, entries.collect())
    }

    fn lacking(auth: &PgLog, other: &PgLog) -> Option<(usize, EVersion, usize)> {
        let (plan, update) = compare(auth, other, true, &PgConfig::default())?;
        let SyncPlan::Objects(keys) = plan else { panic!() };
        Some((keys.len(), update.keep_to, update.entries.len()))
    }

    #[test]
    fn divergent_and_missing_entries_name_the_objects_to_bring_over() {
        let auth = log(0, &[(1, 1, "a"), (1, 2, "b"), (3, 3, "c"), (3, 4, "c")]);
        let behind = log(0, &[(1, 1, "a"), (1, 2, "b")]);
        assert_eq!(
            lacking(&auth, &behind),
            Some((1, EVersion::new(Epoch::new(1), 2), 2))
        );
        let divergent = log(0, &[(1, 1, "a"), (1, 2, "b"), (2, 3, "d")]);
        assert_eq!(
            lacking(&auth, &divergent),
            Some((2, EVersion::new(Epoch::new(1), 2), 2))
        );
    }

    #[test]
    fn logs_that_only_touch_still_compare_and_those_with_a_gap_do_not() {
        let auth = log(5, &[(1, 6, "a"), (1, 7, "b")]);
        assert_eq!(
            lacking(&auth, &log(5, &[])),
            Some((2, EVersion::new(Epoch::new(1), 5), 2))
        );
        assert_eq!(lacking(&auth, &log(3, &[(1, 4, "x")])), None);
    }
}
