//! What each member lacks of the newest copy, and what its log must become.

use std::sync::Arc;

use spirula_maps::EVersion;

use super::Pg;
use super::dups::DupBatch;
use super::log::PgLog;
use super::message::LogUpdate;
use super::push::SyncPlan;

impl Pg {
    /// What a copy with this log lacks of the one here. `exact`: its objects are as its log says.
    pub(super) fn plan_for(&self, theirs: &PgLog, exact: bool) -> SyncPlan {
        let lacking = self
            .site
            .backend
            .lacking(&self.copy.log, theirs, exact, &self.site.cfg);
        lacking.map_or(SyncPlan::Backfill, |(plan, _)| plan)
    }

    /// What each member lacks; what their logs must become is noted for the activation.
    pub(super) fn plan_members(&mut self, members: &[i32]) -> Vec<(i32, SyncPlan)> {
        let me = self.site.whoami;
        let (cfg, backend) = (Arc::clone(&self.site.cfg), Arc::clone(&self.site.backend));
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
                    .and_then(|(a, o)| backend.lacking(a, o, info.is_some_and(|i| !i.ahead), &cfg));
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
