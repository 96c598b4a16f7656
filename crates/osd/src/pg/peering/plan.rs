//! The objects that each member lacks of the newest copy, and the update of its log.

use std::sync::Arc;

use spirula_invariant::invariant;
use spirula_maps::{EVersion, OsdId, OsdOrNone, Positions};

use crate::pg::compare::compare;
use crate::pg::info::PgInfo;
use crate::pg::message::LogUpdate;
use crate::pg::peering::handler::Agreeing;
use crate::pg::push::SyncPlan;

impl Agreeing<'_> {
    /// The objects that each member lacks, and the changes that others are to make again; what the
    /// members' logs must become is noted for the activation.
    pub(in crate::pg) fn plan_members(&mut self, members: &[OsdId]) -> Vec<(OsdId, SyncPlan)> {
        let me = self.site.whoami;
        let (cfg, backend) = (Arc::clone(&self.site.cfg), Arc::clone(&self.site.backend));
        let (p, own) = (&mut *self.peering, &self.copy.log);
        let mut plans = Vec::new();
        let auth_log = if p.auth == Some(me) {
            Some(own)
        } else {
            p.auth.and_then(|auth| p.logs.get(&auth))
        };
        let newest = p.newest().cloned();
        let head = newest.as_ref().map(|i| i.last_update);
        let parts = backend.parts(&self.site.interval.place.acting, &p.infos);
        invariant!(
            head.is_some(),
            "the newest copy to be one whose OSD has said what it has";
            pg = self.site.pgid, epoch = self.site.map.epoch(), authority = OsdOrNone(p.auth)
        );
        // An OSD that lost what it said was durable may lack changes that nobody remembers. The holder
        // can't have them made again then, and is not asked to a second time.
        let must_replay = newest.as_ref().is_some_and(|n| !backend.is_whole(&p.infos, n));
        let may_replay = self.lead.unfit.is_empty() || must_replay;
        let replays = |copy: &PgInfo, newest: &PgInfo| may_replay && backend.replays(copy, newest);
        for &m in members {
            let info = p.infos.get(&m).and_then(Option::as_ref);
            let part = parts.get(&m).copied().unwrap_or_default();
            let usable = info.is_some_and(|i| !i.incomplete && i.part == part);
            if usable && info.is_some_and(|i| Some(i.last_update) == head) {
                continue;
            }
            if let Some((copy, newest)) = info.filter(|_| usable).zip(newest.as_ref())
                && replays(copy, newest)
            {
                let update = LogUpdate {
                    keep_to: newest.last_update,
                    replace: false,
                    entries: Vec::new(),
                    dups: Vec::new(),
                };
                plans.push((m, SyncPlan::Replay(copy.last_update)));
                p.updates.insert(m, update);
                continue;
            }
            let log = if m == me { Some(own) } else { p.logs.get(&m) };
            let compared = auth_log
                .zip(log.filter(|_| usable))
                .and_then(|(a, o)| compare(a, o, info.is_some_and(|i| !i.ahead), &cfg));
            let (plan, update) = compared.unwrap_or_else(|| {
                let entries = auth_log.map(|l| l.iter().cloned().collect()).unwrap_or_default();
                let dups = if p.auth == Some(me) {
                    self.copy.dups.batches().cloned().collect()
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
        if plans.iter().any(|(_, plan)| !matches!(plan, SyncPlan::Replay(_))) {
            // What members lack may have to be made of copies that belong elsewhere.
            let is_behind = |copy: &PgInfo| newest.as_ref().is_some_and(|n| replays(copy, n));
            let strays = p
                .infos
                .iter()
                .filter(|(o, _)| !members.contains(o) && self.site.is_up(**o));
            let behind = strays.filter_map(|(o, i)| Some((*o, i.as_ref().filter(|i| is_behind(i))?)));
            plans.extend(behind.map(|(o, copy)| (o, SyncPlan::Replay(copy.last_update))));
        }
        plans
    }

    /// The members that can serve without those that lack much; `None` if all are to be waited for.
    ///
    /// Where they are too few, those that lack much are waited for, but not those that have no room.
    pub(in crate::pg) fn temporary_members(&self, plans: &[(OsdId, SyncPlan)]) -> Option<Vec<OsdId>> {
        let p = &*self.peering;
        let best = p.newest()?;
        let few = self.site.cfg.sync_objects;
        // A member that was just copied to in the background lacks what was written meanwhile,
        // however much that is: the copying must end somewhere. The epoch that it notes is one
        // older than the members'.
        let copied_to = |o: &OsdId| {
            let info = p.infos.get(o).and_then(Option::as_ref);
            info.is_some_and(|i| i.last_epoch_started.next() == best.last_epoch_started)
        };
        let much = |(osd, plan): &&(OsdId, SyncPlan)| match plan {
            _ if self.lead.roomless.contains(osd) => true,
            SyncPlan::Objects(keys) => {
                keys.len() > few || !copied_to(osd) && self.site.is_heavy(keys.len(), best.usage)
            }
            SyncPlan::Replay(_) => false,
            // Any of them may have to be copied.
            SyncPlan::Backfill => {
                let all = usize::try_from(best.usage.objects).unwrap_or(0);
                all > few || self.site.is_heavy(all, best.usage)
            }
        };
        let slow: Vec<OsdId> = plans.iter().filter(much).map(|(o, _)| *o).collect();
        let roomless = slow.iter().copied().filter(|o| self.lead.roomless.contains(o));
        let roomless: Vec<OsdId> = roomless.collect();
        self.members_without(&slow, best)
            .or_else(|| self.members_without(&roomless, best))
    }

    /// The members without those `left_out`, and instead of these OSDs whose copies belong elsewhere;
    /// `None` if nobody is left out, or the others are too few to serve.
    fn members_without(&self, left_out: &[OsdId], best: &PgInfo) -> Option<Vec<OsdId>> {
        if left_out.is_empty() {
            return None;
        }
        let p = &*self.peering;
        let acting = &self.site.interval.place.acting;
        let mut members: Vec<OsdId> = acting.osds().filter(|o| !left_out.contains(o)).collect();
        // Copies that belong elsewhere can serve as well as any.
        let equal = |i: &PgInfo| !i.incomplete && i.age() == best.age();
        let up = |o: &OsdId| self.site.is_up(*o);
        let strays = p
            .infos
            .iter()
            .filter(|(_, i)| i.as_ref().is_some_and(equal))
            .map(|(o, _)| *o);
        members.extend(strays.filter(|o| !acting.contains(*o) && up(o)));
        // Each part once. The next attempt gives a member what it lacks.
        let parts = self
            .site
            .backend
            .parts(&Positions::from(members.clone()), &p.infos);
        let holds = |o: &OsdId| {
            let info = p.infos.get(o).and_then(Option::as_ref);
            info.is_some_and(|i| parts.get(o) == Some(&i.part))
        };
        members.retain(|o| acting.contains(*o) || holds(o));
        members.truncate(self.site.pool.size as usize);
        let would_do = |o: &Vec<OsdId>| {
            let acting = Positions::from(o.clone());
            self.site.backend.is_enough(&acting, self.site.pool.min_size)
        };
        Some(members).filter(would_do)
    }
}
