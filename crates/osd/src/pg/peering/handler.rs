//! Leads an attempt to agree, as its primary.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::{EVersion, Epoch, OsdId};

use super::{Next, Peering, Prior, Stage, Told, Wait};
use crate::pg::bug::Bug;
use crate::pg::copying::Copying;
use crate::pg::dups::DupBatch;
use crate::pg::fetch::ReadError;
use crate::pg::history::History;
use crate::pg::info::PgInfo;
use crate::pg::leadership::Leadership;
use crate::pg::log::{self, PgLog, Usage};
use crate::pg::message::{LogUpdate, PeerBody, PeeringId};
use crate::pg::outbox::Outbox;
use crate::pg::output::{Ctx, Output, Page};
use crate::pg::perf::DropReason;
use crate::pg::promise::Promise;
use crate::pg::push::SyncPlan;
use crate::pg::recent::Recent;
use crate::pg::site::Site;
use crate::pg::store_queue::{Commit, Pending, StoreQueue};
use crate::pg::stored_copy::StoredCopy;

/// Objects counted in one step.
const COUNT_PAGE: usize = 512;
/// The time after which a member that had no room, and without which the PG can't serve, is
/// tried again.
const ROOM_AGAIN: Micros = Micros::from_secs(5);

/// Leads an attempt to agree.
pub(in crate::pg) struct Agreeing<'a> {
    pub(in crate::pg) site: &'a Site,
    pub(in crate::pg) copy: &'a mut StoredCopy,
    pub(in crate::pg) store: &'a mut StoreQueue,
    pub(in crate::pg) outbox: &'a mut Outbox,
    pub(in crate::pg) lead: &'a mut Leadership,
    pub(in crate::pg) peering: &'a mut Peering,
    pub(in crate::pg) copying: &'a mut Copying,
    pub(in crate::pg) recent: &'a mut Recent,
}

impl Agreeing<'_> {
    /// Moves the attempt to this stage.
    fn enter(&mut self, stage: Stage, cx: &Ctx<'_>) {
        let before = &self.peering.stage;
        invariant!(
            stage.may_follow(before),
            "an attempt to agree to go through its stages in their order";
            pg = self.site.pgid, epoch = self.site.map.epoch(), attempt = self.lead.id.round, before = before.standing().name(), next = stage.standing().name()
        );
        self.recent.enter(stage.standing(), cx.now);
        self.peering.stage = stage;
    }

    /// Begins the attempt: first, all transactions that this OSD has submitted must be durable.
    pub(in crate::pg) fn begin(&mut self, cx: &mut Ctx<'_>) {
        if self.site.pool.layout.is_none() {
            return self.wait_for(Wait::Unsupported, cx);
        }
        self.record_alive(cx);
        if self.store.commits.is_empty() {
            self.ask_members(cx);
        }
    }

    /// Goes on once the last of this OSD's transactions is durable.
    pub(in crate::pg) fn quiesced(&mut self, cx: &mut Ctx<'_>) {
        if self.peering.stage == Stage::Flushing {
            self.ask_members(cx);
        }
    }

    /// Handles another OSD's info on its copy: it was asked, or its copy belongs elsewhere.
    pub(in crate::pg) fn notified(
        &mut self,
        from: OsdId,
        id: PeeringId,
        told: Told,
        promised: Promise,
        cx: &mut Ctx<'_>,
    ) {
        let p = &mut *self.peering;
        if id == self.lead.id && p.asked.remove(&from) {
            p.progress = cx.usec;
            p.promised = p.promised.max(promised.from(cx.usec));
            p.infos.insert(from, told.info);
            p.kept_since.extend(told.kept_since.map(|e| (from, e)));
            self.infos_complete(cx);
        } else if told.info.is_some() && p.wants_strays() && !p.knows_of(from) && self.may_matter(from) {
            // It takes part only once it was asked in this attempt.
            self.ask(vec![from], cx);
        }
    }

    /// Handles another OSD's log.
    pub(in crate::pg) fn log_received(
        &mut self,
        from: OsdId,
        log: PgLog,
        dups: Vec<DupBatch>,
        cx: &mut Ctx<'_>,
    ) {
        let p = &mut *self.peering;
        if p.stage != Stage::Logs || !p.asked.contains(&from) {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, from = from);
        }
        let told = p.infos.get(&from).and_then(Option::as_ref);
        if told.is_none_or(|i| i.last_update != log.head()) {
            // It is asked again in the next attempt.
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        }
        p.asked.remove(&from);
        p.progress = cx.usec;
        p.logs.insert(from, log);
        if p.auth == Some(from) {
            p.dups = dups;
        }
        self.logs_complete(cx);
    }

    /// Handles that a member is now equal to the newest copy.
    pub(in crate::pg) fn sync_done(&mut self, osd: OsdId, cx: &mut Ctx<'_>) {
        let Stage::Syncing(left) = &mut self.peering.stage else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, of = osd);
        };
        let last = left.remove(&osd) && left.is_empty();
        self.peering.progress = cx.usec;
        if last {
            self.copying.unreadable = None;
            self.all_synced(cx);
        }
    }

    /// Handles that a member has no room for all that it lacks. Others serve without it, if they
    /// are enough; else it is tried again.
    pub(in crate::pg) fn sync_refused(&mut self, osd: OsdId, cx: &mut Ctx<'_>) {
        let again = !self.lead.roomless.insert(osd);
        let pause = if again { ROOM_AGAIN } else { Micros::ZERO };
        self.peering.progress = cx.usec;
        self.peering.again.get_or_insert(cx.usec + pause);
    }

    /// Handles that the holder could not go on. The object that it can't read is named until the
    /// next attempt ends.
    pub(in crate::pg) fn sync_failed(&mut self, unreadable: Option<Bytes>) {
        self.peering.retry = true;
        self.copying.unreadable = unreadable;
        let Some(auth) = self.peering.auth else {
            impossible!("the newest copy to be found before its holder gives up"; pg = self.site.pgid, epoch = self.site.map.epoch());
        };
        if !self.lead.unfit.insert(auth) {
            // So all are that have it: each is asked in its turn.
            self.lead.unfit = BTreeSet::from([auth]);
        }
    }

    /// Handles that a member remembers durably that it took part.
    pub(in crate::pg) fn member_activated(&mut self, from: OsdId, cx: &mut Ctx<'_>) {
        let Stage::Activating(left) = &mut self.peering.stage else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, from = from);
        };
        let last = left.remove(&from) && left.is_empty();
        self.peering.progress = cx.usec;
        if last {
            self.peering.next = Some(Next::Serve);
        }
    }

    /// Handles a new map within the interval: OSDs came or went, or this one is recorded as up.
    pub(in crate::pg) fn recheck(&mut self, cx: &mut Ctx<'_>) {
        let lost_helper = self.has_lost_helper();
        let (p, site) = (&mut *self.peering, self.site);
        match p.stage {
            Stage::Strays | Stage::Waiting(Wait::Down(_) | Wait::Incomplete) => {
                p.asked.retain(|o| site.is_up(*o));
                p.asked_all = false;
                // Noted only if it does not come back to where it was.
                p.stage = Stage::Strays;
                self.infos_complete(cx);
                self.recent.enter(self.peering.stage.standing(), cx.now);
            }
            Stage::UpThru => self.activate(cx),
            // The holder of the newest copy need not be a member: being marked down ends no
            // interval then, but makes the holder forget what it was asked for, even if it lives.
            Stage::Logs | Stage::Syncing(_) if lost_helper => p.next = Some(Next::Anew),
            _ => {}
        }
    }

    /// Whether an OSD that works for this attempt has been down since the attempt began.
    fn has_lost_helper(&self) -> bool {
        let (map, since) = (&self.site.map, self.lead.id.epoch);
        let was_down = |o: OsdId| map.osd(o).is_none_or(|v| !v.up || v.up_from > since);
        OsdId::below(map.max_osd()).any(|o| self.peering.awaits(o) && was_down(o))
    }

    /// Asks the monitors for an acting set, an empty one for the one that should be; and waits for
    /// it.
    fn change_acting(&mut self, acting: Vec<OsdId>, cx: &mut Ctx<'_>) {
        self.site.want_acting(acting.clone(), cx);
        self.enter(Stage::Acting(acting), cx);
    }

    /// Time passes.
    pub(in crate::pg) fn tick(&mut self, cx: &mut Ctx<'_>) {
        let patience = Micros::from_secs(self.site.cfg.peering_retry.into());
        let p = &*self.peering;
        let patient = matches!(
            p.stage,
            Stage::Waiting(_) | Stage::Syncing(_) | Stage::Counting | Stage::UpThru | Stage::Lease
        );
        let again = p.again.is_some_and(|at| cx.usec >= at) && p.awaits_room(&self.lead.roomless);
        if p.retry || again || !patient && cx.usec.saturating_sub(p.progress) > patience {
            self.peering.next = Some(Next::Anew);
        } else if p.stage == Stage::Lease {
            self.activate(cx);
        } else if let Stage::Acting(acting) = &p.stage {
            self.site.want_acting(acting.clone(), cx);
        } else {
            self.record_alive(cx);
        }
    }

    /// Has the monitors record that this OSD is up in this interval, if they have not and it may
    /// come to serve.
    fn record_alive(&self, cx: &mut Ctx<'_>) {
        let enough = self.site.is_enough() || self.site.cfg.has_bug(Bug::NoMinSize);
        if enough && !self.site.interval.is_recorded(&*self.site.map) {
            cx.out.push(Output::Alive {
                epoch: self.site.interval.seen,
            });
        }
    }

    pub(in crate::pg) fn wait_for(&mut self, wait: Wait, cx: &Ctx<'_>) {
        self.enter(Stage::Waiting(wait), cx);
    }

    fn ask_members(&mut self, cx: &mut Ctx<'_>) {
        let me = self.site.whoami;
        invariant!(
            self.store.commits.is_empty(),
            "an attempt to agree to begin with what is durable";
            pg = self.site.pgid, epoch = self.site.map.epoch()
        );
        let mine = self.copy.account();
        let others: Vec<OsdId> = self
            .site
            .interval
            .members()
            .into_iter()
            .filter(|&o| o != me)
            .collect();
        let promised = self.lead.promised.unwrap_or_default();
        self.enter(Stage::Infos, cx);
        let p = &mut *self.peering;
        p.promised = promised;
        p.infos.insert(me, mine);
        p.kept_since.extend(cx.kept_since.map(|e| (me, e)));
        self.ask(others, cx);
        self.infos_complete(cx);
    }

    pub(in crate::pg) fn ask(&mut self, osds: Vec<OsdId>, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        for osd in osds {
            invariant!(osd != self.site.whoami, "an attempt to know what this OSD has"; pg = self.site.pgid, epoch = self.site.map.epoch(), osd = osd);
            self.outbox.send(osd, id, PeerBody::Query, false, cx);
            let p = &mut *self.peering;
            p.asked.insert(osd);
        }
    }

    fn infos_complete(&mut self, cx: &mut Ctx<'_>) {
        let p = &mut *self.peering;
        let asks = matches!(
            p.stage,
            Stage::Infos | Stage::Strays | Stage::Waiting(Wait::Down(_) | Wait::Incomplete)
        );
        if !asks || !p.asked.is_empty() {
            // The last answer goes on.
            return;
        }
        match self.prior() {
            Prior::Enough => self.choose(cx),
            Prior::Ask(osds) => self.ask_strays(osds, cx),
            Prior::AskAll => self.ask_all(cx),
            Prior::Down(osds) => self.wait_for(Wait::Down(osds), cx),
        }
    }

    fn ask_strays(&mut self, osds: Vec<OsdId>, cx: &mut Ctx<'_>) {
        if osds.is_empty() {
            // Nobody is waited for: noted only if it stays.
            self.peering.stage = Stage::Strays;
        } else {
            self.enter(Stage::Strays, cx);
        }
        self.peering.progress = cx.usec;
        self.ask(osds, cx);
    }

    /// Asks every OSD that is up and was not asked.
    fn ask_all(&mut self, cx: &mut Ctx<'_>) {
        let map = Arc::clone(&self.site.map);
        let p = &mut *self.peering;
        p.asked_all = true;
        let up = |o: &OsdId| map.osd(*o).is_some_and(|v| v.up);
        let new = OsdId::below(map.max_osd())
            .filter(|o| up(o) && !p.knows_of(*o))
            .collect();
        self.ask_strays(new, cx);
        self.infos_complete(cx);
    }

    fn choose(&mut self, cx: &mut Ctx<'_>) {
        let (me, members) = (self.site.whoami, self.site.interval.members());
        let enough = self.site.is_enough() || self.site.cfg.has_bug(Bug::NoMinSize);
        let better_without = self.site.is_better_without_temporary();
        let (unfit, backend) = (self.lead.unfit.clone(), &self.site.backend);
        let p = &mut *self.peering;
        let best = backend.authority(&p.infos, &unfit, &[&[me], &members]);
        if best.is_none() && p.infos.values().any(Option::is_some) {
            return if p.asked_all {
                self.wait_for(Wait::Incomplete, cx)
            } else {
                self.ask_all(cx)
            };
        }
        if !enough {
            return if better_without {
                self.change_acting(Vec::new(), cx)
            } else {
                self.wait_for(Wait::MinSize, cx)
            };
        }
        let Some((auth, best)) = best else {
            // Nobody has it, nobody can have had it: it is new, and there is nothing to compare.
            p.auth = Some(me);
            let empty = LogUpdate {
                keep_to: EVersion::ZERO,
                replace: true,
                entries: Vec::new(),
                dups: Vec::new(),
            };
            p.updates = members.iter().map(|m| (*m, empty.clone())).collect();
            return self.activate(cx);
        };
        p.auth = Some(auth);
        let head = best.last_update;
        let parts = backend.parts(&self.site.interval.place.acting, &p.infos);
        let differs = |m: &OsdId| {
            let info = p.infos.get(m).and_then(Option::as_ref);
            info.is_none_or(|i| i.incomplete || i.last_update != head || parts.get(m) != Some(&i.part))
        };
        let behind: Vec<OsdId> = members.iter().copied().filter(differs).collect();
        let has_log = |m: &OsdId| {
            p.infos
                .get(m)
                .and_then(Option::as_ref)
                .is_some_and(|i| !i.incomplete)
        };
        let mut wanted: BTreeSet<OsdId> = behind.iter().copied().filter(has_log).collect();
        if !behind.is_empty() {
            wanted.insert(auth);
        }
        let logs_of_others: Vec<OsdId> = wanted.into_iter().filter(|&o| o != me).collect();
        p.asked = logs_of_others.iter().copied().collect();
        self.enter(Stage::Logs, cx);
        for osd in logs_of_others {
            self.outbox.send(osd, self.lead.id, PeerBody::GetLog, false, cx);
        }
        self.logs_complete(cx);
    }

    fn logs_complete(&mut self, cx: &mut Ctx<'_>) {
        if self.peering.stage == Stage::Logs && self.peering.asked.is_empty() {
            self.sync_or_activate(cx);
        }
    }

    fn sync_or_activate(&mut self, cx: &mut Ctx<'_>) {
        let members = self.site.interval.members();
        let plans = self.plan_members(&members);
        let id = self.lead.id;
        if let Some(acting) = self.temporary_members(&plans) {
            return self.change_acting(acting, cx);
        }
        let waits_for_room = plans.iter().any(|(o, _)| self.lead.roomless.contains(o));
        let p = &mut *self.peering;
        if waits_for_room && !p.asked_all {
            // Others than members may have copies that can serve.
            return self.ask_all(cx);
        }
        let targets: Vec<(OsdId, SyncPlan)> =
            plans.into_iter().filter(|(_, plan)| !is_nothing(plan)).collect();
        let Some(auth) = p.auth else {
            impossible!("the newest copy to be found before members get it"; pg = self.site.pgid, epoch = self.site.map.epoch());
        };
        p.progress = cx.usec;
        self.enter(Stage::Syncing(targets.iter().map(|(o, _)| *o).collect()), cx);
        if targets.is_empty() {
            self.all_synced(cx);
        } else {
            let parts = self
                .site
                .backend
                .parts(&self.site.interval.place.acting, &self.peering.infos);
            // Copies that belong elsewhere are as good to be read, once they have the newest changes.
            let newest = self.peering.newest();
            let is_new = |o: OsdId, i: &PgInfo| {
                let is_current = newest.is_some_and(|n| self.site.backend.is_current(o, i, n));
                is_current || targets.iter().any(|(target, _)| *target == o)
            };
            let others = self.peering.infos.iter().filter(|(o, _)| !parts.contains_key(o));
            let strays: Vec<_> = others
                .filter(|(o, _)| self.site.is_up(**o))
                .filter_map(|(o, i)| Some((*o, i.as_ref().filter(|i| is_new(*o, i))?.part)))
                .collect();
            let parts = parts.into_iter().chain(strays).collect();
            self.outbox
                .send(auth, id, PeerBody::StartSync { targets, parts }, false, cx);
        }
    }

    fn all_synced(&mut self, cx: &mut Ctx<'_>) {
        if self.peering.newest().is_some_and(|i| i.usage_invalid) {
            self.enter(Stage::Counting, cx);
            self.count(cx);
        } else {
            self.activate(cx);
        }
    }

    /// Makes every member remember durably that it took part. Objects are equal everywhere.
    pub(in crate::pg) fn activate(&mut self, cx: &mut Ctx<'_>) {
        let (id, members, pg_num) = (self.lead.id, self.site.interval.members(), self.site.pool.pg_num);
        let recorded =
            self.site.interval.is_recorded(&*self.site.map) || self.site.cfg.has_bug(Bug::NoUpThru);
        let is_read_elsewhere = self.is_read_elsewhere(cx.usec);
        if !recorded {
            return self.enter(Stage::UpThru, cx);
        }
        if is_read_elsewhere {
            return self.enter(Stage::Lease, cx);
        }
        self.enter(Stage::Activating(members.iter().copied().collect()), cx);
        let p = &mut *self.peering;
        invariant!(
            p.asked.is_empty() && members.iter().all(|m| p.infos.contains_key(m)),
            "all members to have said what they have before the PG is activated";
            pg = self.site.pgid, epoch = id.epoch
        );
        let mut info = p.newest().cloned().unwrap_or_default();
        let all = || p.infos.values().flatten();
        info.last_epoch_started = all().map(|i| i.last_epoch_started).fold(id.epoch, Epoch::max);
        info.last_user_version = all().map(|i| i.last_user_version).fold(0, u64::max);
        info.last_acting = self.site.interval.place.acting.clone();
        info.history = History::since(info.last_epoch_started);
        let scrubs = all()
            .map(|i| &i.scrubs)
            .max_by_key(|s| (s.age(), s.listed))
            .cloned();
        info.scrubs = scrubs.unwrap_or_default().begun_by(cx.now);
        info.incomplete = false;
        info.ahead = false;
        info.pg_num = pg_num;
        p.progress = cx.usec;
        let parts = self
            .site
            .backend
            .parts(&self.site.interval.place.acting, &p.infos);
        let mut updates = std::mem::take(&mut p.updates);
        for m in members {
            info.part = parts.get(&m).copied().unwrap_or_default();
            let keep = LogUpdate {
                keep_to: info.last_update,
                replace: false,
                entries: Vec::new(),
                dups: Vec::new(),
            };
            let log = updates.remove(&m).unwrap_or(keep);
            if m == self.site.whoami {
                let (what, store) = (Commit::Activate { id, primary: m }, &mut *self.store);
                self.copy
                    .activate(self.site, (info.clone(), log), what, store, cx);
                self.copying.target = None;
            } else {
                self.outbox.send(
                    m,
                    id,
                    PeerBody::Activate {
                        info: info.clone(),
                        log,
                    },
                    false,
                    cx,
                );
            }
        }
    }

    /// Counts objects and bytes anew, before activation.
    fn count(&mut self, cx: &mut Ctx<'_>) {
        self.peering.counted = Usage::default();
        let all = self.site.range();
        self.store.list(all, COUNT_PAGE, Pending::Count, cx);
    }

    /// Counts the objects that the store has listed.
    pub(in crate::pg) fn counted(&mut self, r: Result<Page, ReadError>, cx: &mut Ctx<'_>) {
        let p = &mut *self.peering;
        if p.stage != Stage::Counting {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid);
        }
        let Ok((objects, next)) = r else {
            p.retry = true;
            // The store may read it the next time; till then the PG says where it stands.
            return;
        };
        for (key, info) in objects {
            p.counted = p.counted.plus(log::usage_of(&key, &info));
        }
        if let Some(from) = next {
            let rest = self.site.range().rest(from);
            return self.store.list(rest, COUNT_PAGE, Pending::Count, cx);
        }
        if let Some(Some(info)) = p.auth.and_then(|auth| p.infos.get_mut(&auth)) {
            info.usage = p.counted;
            info.usage_invalid = false;
        }
        self.activate(cx);
    }
}

fn is_nothing(plan: &SyncPlan) -> bool {
    matches!(plan, SyncPlan::Objects(keys) if keys.is_empty())
}
