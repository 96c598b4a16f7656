//! How the members' copies differ from the newest one, told from the logs.

use std::collections::BTreeSet;

use spirula_maps::EVersion;

use super::Pg;
use super::bug::Bug;
use super::config::PgConfig;
use super::dups::DupBatch;
use super::log::PgLog;
use super::message::LogUpdate;
use super::push::{Lacking, SyncPlan};
use super::stored_copy::objects;

/// The newest version that both logs agree on; `None` where they do not overlap.
fn common(auth: &PgLog, other: &PgLog) -> Option<EVersion> {
    if let Some(e) = other.iter().rev().find(|e| auth.contains(e.version)) {
        return Some(e.version);
    }
    // What was trimmed was durable everywhere, so up to the later tail both are the same.
    (other.head() >= auth.tail() && auth.head() >= other.tail()).then(|| auth.tail().max(other.tail()))
}

/// What a copy with the log `other` lacks, and what its log must become. `exact`: its objects are as its log says.
fn compare(auth: &PgLog, other: &PgLog, exact: bool, cfg: &PgConfig) -> Option<(SyncPlan, LogUpdate)> {
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

impl Pg {
    /// What a copy with this log lacks of the one here. `exact`: its objects are as its log says.
    pub(super) fn plan_for(&self, theirs: &PgLog, exact: bool) -> SyncPlan {
        compare(&self.copy.log, theirs, exact, &self.site.cfg).map_or(SyncPlan::Backfill, |(plan, _)| plan)
    }

    /// What each member lacks; what their logs must become is noted for the activation.
    pub(super) fn plan_members(&mut self, members: &[i32]) -> Vec<(i32, SyncPlan)> {
        let me = self.site.whoami;
        let cfg = std::sync::Arc::clone(&self.site.cfg);
        let own = std::mem::take(&mut self.copy.log);
        let own_dups: Vec<DupBatch> = self.copy.dups.batches().cloned().collect();
        let mut plans = Vec::new();
        if let Some(p) = self.peering() {
            let auth_log = if p.auth == me {
                Some(&own)
            } else {
                p.logs.get(&p.auth)
            };
            let head = p
                .infos
                .get(&p.auth)
                .and_then(Option::as_ref)
                .map(|i| i.last_update);
            for &m in members {
                let info = p.infos.get(&m).and_then(Option::as_ref);
                if info.is_some_and(|i| !i.incomplete && Some(i.last_update) == head) {
                    continue;
                }
                let log = if m == me { Some(&own) } else { p.logs.get(&m) };
                let usable = info.is_some_and(|i| !i.incomplete);
                let compared = auth_log
                    .zip(log.filter(|_| usable))
                    .and_then(|(a, o)| compare(a, o, info.is_some_and(|i| !i.ahead), &cfg));
                let (plan, update) = compared.unwrap_or_else(|| {
                    let entries = auth_log.map(|l| l.iter().cloned().collect()).unwrap_or_default();
                    let dups = if p.auth == me {
                        own_dups.clone()
                    } else {
                        p.dups.clone()
                    };
                    (
                        SyncPlan::Backfill,
                        LogUpdate {
                            keep_to: EVersion::ZERO,
                            replace: true,
                            entries,
                            dups,
                        },
                    )
                });
                p.updates.insert(m, update);
                plans.push((m, plan));
            }
        }
        self.copy.log = own;
        plans
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::log::{LogEntry, LogOp, Usage};
    use spirula_denc::UTime;
    use spirula_maps::{HObject, ObjectName, ReqId};

    fn log(tail: u64, entries: &[(u32, u64, &'static str)]) -> PgLog {
        let entries = entries.iter().map(|&(epoch, v, name)| LogEntry {
            version: EVersion::new(epoch, v),
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
        let tail = EVersion::new(u32::from(tail > 0), tail);
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
        assert_eq!(lacking(&auth, &behind), Some((1, EVersion::new(1, 2), 2)));
        let divergent = log(0, &[(1, 1, "a"), (1, 2, "b"), (2, 3, "d")]);
        assert_eq!(lacking(&auth, &divergent), Some((2, EVersion::new(1, 2), 2)));
    }

    #[test]
    fn logs_that_only_touch_still_compare_and_those_with_a_gap_do_not() {
        let auth = log(5, &[(1, 6, "a"), (1, 7, "b")]);
        assert_eq!(lacking(&auth, &log(5, &[])), Some((2, EVersion::new(1, 5), 2)));
        assert_eq!(lacking(&auth, &log(3, &[(1, 4, "x")])), None);
    }
}
