//! Peering, the primary's side: agree with all members on one copy before serving.
//!
//! ```text
//! Waiting ── a down OSD may hold a newer copy, or members are too few; a new map decides
//! Flushing ── own transactions must be durable first
//! Infos ── what do the members have?
//! Strays ── what do others have, where the PG may have served since?
//! Logs ── how do the copies differ?
//! Acting ── members that lack much give way to others for a while
//! Syncing ── the holder of the newest copy brings the others up to it
//! Counting ── objects and bytes, after a split
//! UpThru ── the map must say that this OSD is up in this interval
//! Lease ── members of earlier intervals may answer reads a while longer
//! Activating ── every member remembers durably that it took part
//! ```
//!
//! Every acknowledged write was durable on all members of its interval, and they all remembered durably that the interval
//! was active before it took any write. So the newest copy, by epoch of the last activation and then by version, has
//! them all; it only must be found, which is what [`super::peering_prior`] is about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spirula_invariant::dropped;
use spirula_maps::EVersion;

use super::Pg;
use super::backend::Copies;
use super::backfill::{Backfill, BackfillState};
use super::bug::Bug;
use super::dups::DupBatch;
use super::force::Forced;
use super::history::History;
use super::info::PgInfo;
use super::lease::Promise;
use super::log::{LogEntry, PgLog};
use super::message::{LogUpdate, PeerBody, PeeringId};
use super::output::{Ctx, Output};
use super::peering_prior::Prior;
use super::perf::DropReason;
use super::push::SyncPlan;
use super::role::{Active, Role};
use super::store_queue::Commit;
use super::txn::Txn;

/// Where peering stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting(Wait),
    Flushing,
    Infos,
    Strays,
    Logs,
    Acting(Vec<i32>),
    Syncing(BTreeSet<i32>),
    Counting,
    UpThru,
    Lease,
    Activating(BTreeSet<i32>),
}

/// What peering waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wait {
    /// Fewer than `min_size` members are up.
    MinSize,
    /// OSDs that are down and may hold a newer copy.
    Down(Vec<i32>),
    /// No copy is complete.
    Incomplete,
    /// The pool's kind is not served.
    Unsupported,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MinSize => f.write_str("fewer members than min_size are up"),
            Self::Down(osds) => write!(f, "OSDs {osds:?} are down and may hold a newer copy"),
            Self::Incomplete => f.write_str("no copy is complete"),
            Self::Unsupported => f.write_str("the pool is erasure-coded, which is not served yet"),
        }
    }
}

/// An attempt to agree.
#[derive(Debug)]
pub(super) struct Peering {
    pub stage: Stage,
    /// When it last went on, microseconds.
    pub progress: u64,
    /// Begin anew at the next tick: a connection was lost.
    pub retry: bool,
    /// Begin anew at this time, in microseconds: a member may have room then.
    pub again: Option<u64>,
    /// OSDs whose answer is awaited.
    pub asked: BTreeSet<i32>,
    /// Every OSD that is up was asked.
    pub asked_all: bool,
    /// Until when others may answer reads in earlier intervals.
    pub promised: Promise,
    /// What the others have.
    pub infos: Copies,
    /// Their logs.
    pub logs: BTreeMap<i32, PgLog>,
    /// The requests that the holder of the newest copy remembers besides, if it is another OSD.
    pub dups: Vec<DupBatch>,
    /// Who has the newest copy.
    pub auth: i32,
    /// What each member's log will become.
    pub updates: BTreeMap<i32, LogUpdate>,
}

/// Microseconds after which a member that had no room, and without which the PG can't serve, is tried again.
const ROOM_AGAIN: u64 = 5_000_000;

impl Peering {
    fn new(usec: u64) -> Self {
        Self {
            stage: Stage::Flushing,
            progress: usec,
            retry: false,
            again: None,
            asked: BTreeSet::new(),
            asked_all: false,
            promised: Promise::default(),
            infos: BTreeMap::new(),
            logs: BTreeMap::new(),
            dups: Vec::new(),
            auth: -1,
            updates: BTreeMap::new(),
        }
    }
}

impl Peering {
    /// Whether copies of others than the members matter.
    fn wants_strays(&self) -> bool {
        matches!(
            self.stage,
            Stage::Strays | Stage::Waiting(Wait::Down(_) | Wait::Incomplete)
        )
    }

    /// Whether members that have no room are all that it waits for.
    pub(super) fn awaits_room(&self, roomless: &BTreeSet<i32>) -> bool {
        matches!(&self.stage, Stage::Syncing(left) if left.iter().all(|o| roomless.contains(o)))
    }

    pub(super) fn knows_of(&self, osd: i32) -> bool {
        self.asked.contains(&osd) || self.infos.contains_key(&osd)
    }

    /// Whether an OSD is at work for this attempt.
    fn awaits(&self, osd: i32) -> bool {
        match &self.stage {
            Stage::Syncing(left) => left.contains(&osd) || self.auth == osd,
            Stage::Activating(left) => left.contains(&osd),
            Stage::Infos | Stage::Strays | Stage::Logs => self.asked.contains(&osd),
            Stage::Waiting(_)
            | Stage::Flushing
            | Stage::Acting(_)
            | Stage::Counting
            | Stage::UpThru
            | Stage::Lease => false,
        }
    }
}

impl Pg {
    /// Peering in progress. All callers run in that role.
    pub(super) fn peering(&mut self) -> Option<&mut Peering> {
        if let Role::Peering(p) = &mut self.role {
            Some(p)
        } else {
            None
        }
    }

    pub(super) fn begin_peering(&mut self, cx: &mut Ctx<'_>) {
        self.lead.begin(self.site.map.epoch());
        self.copying.leave_attempt();
        self.store.forget_attempt();
        self.role = Role::Peering(Box::new(Peering::new(cx.usec)));
        if !self.site.pool.replicated {
            return self.wait_for(Wait::Unsupported);
        }
        self.record_alive(cx);
        if self.store.commits.is_empty() {
            self.ask_members(cx);
        }
    }

    /// Has the monitors record that this OSD is up in this interval, where they have not and it may come to serve.
    fn record_alive(&self, cx: &mut Ctx<'_>) {
        let enough = self.site.is_enough() || self.site.cfg.has_bug(Bug::NoMinSize);
        if enough && !self.site.interval.is_recorded(&*self.site.map) {
            cx.out.push(Output::Alive {
                epoch: self.site.interval.seen,
            });
        }
    }

    pub(super) fn wait_for(&mut self, wait: Wait) {
        if let Some(p) = self.peering() {
            p.stage = Stage::Waiting(wait);
        }
    }

    /// The last of this OSD's transactions is durable.
    pub(super) fn quiesced(&mut self, cx: &mut Ctx<'_>) {
        match &self.role {
            Role::Peering(p) if p.stage == Stage::Flushing => self.ask_members(cx),
            Role::Replica(_) | Role::Stray => self.answer_query(cx),
            _ => {}
        }
    }

    fn ask_members(&mut self, cx: &mut Ctx<'_>) {
        let me = self.site.whoami;
        let mine = self.copy.account();
        let others: Vec<i32> = self
            .site
            .interval
            .members()
            .into_iter()
            .filter(|&o| o != me)
            .collect();
        let promised = self.lead.promised.unwrap_or_default();
        let Some(p) = self.peering() else { return };
        p.promised = promised;
        p.stage = Stage::Infos;
        p.infos.insert(me, mine);
        self.ask(others, cx);
        self.infos_complete(cx);
    }

    pub(super) fn ask(&mut self, osds: Vec<i32>, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        for osd in osds {
            self.outbox.send(osd, id, PeerBody::Query, false, cx);
            if let Some(p) = self.peering() {
                p.asked.insert(osd);
            }
        }
    }

    /// An OSD says what it has: asked, or because its copy belongs elsewhere.
    pub(super) fn notified(
        &mut self,
        from: i32,
        id: PeeringId,
        info: Option<PgInfo>,
        promised: Promise,
        cx: &mut Ctx<'_>,
    ) {
        let current = id == self.lead.id;
        match &mut self.role {
            Role::Peering(p) => {
                if current && p.asked.remove(&from) {
                    p.progress = cx.usec;
                    p.promised = p.promised.max(promised.from(cx.usec));
                    p.infos.insert(from, info);
                    self.infos_complete(cx);
                } else if info.is_some() && p.wants_strays() && !p.knows_of(from) && self.may_matter(from) {
                    // It takes part only once it was asked in this attempt.
                    self.ask(vec![from], cx);
                }
            }
            Role::Active(_) => self.copy_announced(from, id, info.as_ref(), cx),
            _ => {}
        }
    }

    /// What an OSD has, for a primary that serves.
    fn copy_announced(&mut self, from: i32, id: PeeringId, info: Option<&PgInfo>, cx: &mut Ctx<'_>) {
        if !self.backfill_info(from, id, info, cx) {
            self.retire_stray(from, info, cx);
        }
    }

    /// Has a copy deleted that is not needed: there are as many members as there should be.
    fn retire_stray(&mut self, osd: i32, info: Option<&PgInfo>, cx: &mut Ctx<'_>) {
        let place = &self.site.interval.place;
        let complete = place.acting.count() >= self.site.pool.size as usize;
        let wanted = place.acting.contains(osd) || place.raw.contains(osd) || place.up.contains(osd);
        if info.is_some() && complete && !wanted {
            self.outbox.send(osd, self.lead.id, PeerBody::Remove, false, cx);
        }
    }

    fn infos_complete(&mut self, cx: &mut Ctx<'_>) {
        let Some(p) = self.peering() else { return };
        let asks = matches!(
            p.stage,
            Stage::Infos | Stage::Strays | Stage::Waiting(Wait::Down(_) | Wait::Incomplete)
        );
        if !asks || !p.asked.is_empty() {
            return;
        }
        match self.prior() {
            Prior::Enough => self.choose(cx),
            Prior::Ask(osds) => self.ask_strays(osds, cx),
            Prior::AskAll => self.ask_all(cx),
            Prior::Down(osds) => self.wait_for(Wait::Down(osds)),
        }
    }

    fn ask_strays(&mut self, osds: Vec<i32>, cx: &mut Ctx<'_>) {
        if let Some(p) = self.peering() {
            p.stage = Stage::Strays;
            p.progress = cx.usec;
        }
        self.ask(osds, cx);
    }

    /// Asks every OSD that is up and was not asked.
    fn ask_all(&mut self, cx: &mut Ctx<'_>) {
        let map = Arc::clone(&self.site.map);
        let Some(p) = self.peering() else { return };
        p.asked_all = true;
        let up = |o: &i32| map.osd(*o).is_some_and(|v| v.up);
        let new = (0..map.max_osd()).filter(|o| up(o) && !p.knows_of(*o)).collect();
        self.ask_strays(new, cx);
        self.infos_complete(cx);
    }

    /// A new map within the interval: OSDs came or went, or this one is recorded as up.
    pub(super) fn recheck_peering(&mut self, cx: &mut Ctx<'_>) {
        let map = Arc::clone(&self.site.map);
        let lost_helper = self.has_lost_helper();
        let Some(p) = self.peering() else { return };
        match p.stage {
            Stage::Strays | Stage::Waiting(Wait::Down(_) | Wait::Incomplete) => {
                p.asked.retain(|o| map.osd(*o).is_some_and(|v| v.up));
                p.asked_all = false;
                p.stage = Stage::Strays;
                self.infos_complete(cx);
            }
            Stage::UpThru => self.activate(cx),
            // The holder of the newest copy need not be a member: that it was marked down ends no interval, but makes it
            // forget what it was asked for, even if it lives.
            Stage::Logs | Stage::Syncing(_) if lost_helper => self.begin_peering(cx),
            _ => {}
        }
    }

    /// Whether an OSD that is at work for this attempt has been down since that began.
    fn has_lost_helper(&self) -> bool {
        let Role::Peering(p) = &self.role else {
            return false;
        };
        let was_down = |o: i32| {
            self.site
                .map
                .osd(o)
                .is_none_or(|v| !v.up || v.up_from > self.lead.id.epoch)
        };
        (0..self.site.map.max_osd()).any(|o| p.awaits(o) && was_down(o))
    }

    fn choose(&mut self, cx: &mut Ctx<'_>) {
        let (me, members) = (self.site.whoami, self.site.interval.members());
        let enough = self.site.is_enough() || self.site.cfg.has_bug(Bug::NoMinSize);
        let better_without = self.is_better_without_temporary();
        let (unfit, backend) = (self.lead.unfit.clone(), Arc::clone(&self.site.backend));
        let Some(p) = self.peering() else { return };
        let best = backend.authority(&p.infos, &unfit, &[&[me], &members]);
        if best.is_none() && p.infos.values().any(Option::is_some) {
            return if p.asked_all {
                self.wait_for(Wait::Incomplete)
            } else {
                self.ask_all(cx)
            };
        }
        if !enough {
            return if better_without {
                self.change_acting(Vec::new(), cx)
            } else {
                self.wait_for(Wait::MinSize)
            };
        }
        let Some((auth, best)) = best else {
            // Nobody has it, nobody can have had it: it is new, and there is nothing to compare.
            p.auth = me;
            let empty = LogUpdate {
                keep_to: EVersion::ZERO,
                replace: true,
                entries: Vec::new(),
                dups: Vec::new(),
            };
            p.updates = members.iter().map(|m| (*m, empty.clone())).collect();
            return self.activate(cx);
        };
        p.auth = auth;
        let head = best.last_update;
        let differs = |m: &i32| {
            let info = p.infos.get(m).and_then(Option::as_ref);
            info.is_none_or(|i| i.incomplete || i.last_update != head)
        };
        let behind: Vec<i32> = members.iter().copied().filter(differs).collect();
        let has_log = |m: &i32| {
            p.infos
                .get(m)
                .and_then(Option::as_ref)
                .is_some_and(|i| !i.incomplete)
        };
        let mut wanted: BTreeSet<i32> = behind.iter().copied().filter(has_log).collect();
        if !behind.is_empty() {
            wanted.insert(auth);
        }
        let logs_of_others: Vec<i32> = wanted.into_iter().filter(|&o| o != me).collect();
        p.stage = Stage::Logs;
        p.asked = logs_of_others.iter().copied().collect();
        for osd in logs_of_others {
            self.outbox.send(osd, self.lead.id, PeerBody::GetLog, false, cx);
        }
        self.logs_complete(cx);
    }

    /// Another OSD's log.
    pub(super) fn log_received(
        &mut self,
        from: i32,
        (tail, head): (EVersion, EVersion),
        entries: Vec<LogEntry>,
        dups: Vec<DupBatch>,
        cx: &mut Ctx<'_>,
    ) {
        let ascend = entries.is_sorted_by(|a, b| a.version < b.version)
            && dups.is_sorted_by(|a, b| a.name() < b.name());
        if !ascend {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        }
        if matches!(self.role, Role::Active(_)) {
            return self.backfill_log(from, &PgLog::from_entries(tail, head, entries), cx);
        }
        let pgid = self.site.pgid;
        let Some(p) = self
            .peering()
            .filter(|p| p.stage == Stage::Logs && p.asked.contains(&from))
        else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = pgid, from = from);
        };
        if p.asked.remove(&from) {
            p.progress = cx.usec;
            p.logs.insert(from, PgLog::from_entries(tail, head, entries));
            if from == p.auth {
                p.dups = dups;
            }
            self.logs_complete(cx);
        }
    }

    fn logs_complete(&mut self, cx: &mut Ctx<'_>) {
        if self
            .peering()
            .is_some_and(|p| p.stage == Stage::Logs && p.asked.is_empty())
        {
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
        let Some(p) = self.peering() else { return };
        if waits_for_room && !p.asked_all {
            // Others than members may have copies that can serve.
            return self.ask_all(cx);
        }
        let targets: Vec<(i32, SyncPlan)> = plans.into_iter().filter(|(_, plan)| !is_nothing(plan)).collect();
        let auth = p.auth;
        p.stage = Stage::Syncing(targets.iter().map(|(o, _)| *o).collect());
        p.progress = cx.usec;
        if targets.is_empty() {
            self.all_synced(cx);
        } else {
            self.outbox
                .send(auth, id, PeerBody::StartSync(targets), false, cx);
        }
    }

    /// A member is equal to the newest copy now.
    pub(super) fn sync_done(&mut self, osd: i32, cx: &mut Ctx<'_>) {
        if matches!(self.role, Role::Active(_)) {
            return self.backfill_copied(osd, cx);
        }
        let Some(p) = self.peering() else { return };
        if let Stage::Syncing(left) = &mut p.stage {
            p.progress = cx.usec;
            if left.remove(&osd) && left.is_empty() {
                self.all_synced(cx);
            }
        }
    }

    /// A member has no room for all that it lacks. Others serve without it, if they are enough; else it is tried again.
    pub(super) fn sync_refused(&mut self, osd: i32, cx: &mut Ctx<'_>) {
        if matches!(self.role, Role::Active(_)) {
            return self.backfill_refused(osd, cx);
        }
        let again = !self.lead.roomless.insert(osd);
        let pause = if again { ROOM_AGAIN } else { 0 };
        if let Some(p) = self.peering() {
            p.progress = cx.usec;
            p.again.get_or_insert(cx.usec + pause);
        }
    }

    /// The holder could not go on.
    pub(super) fn sync_failed(&mut self, cx: &mut Ctx<'_>) {
        let Some(p) = self.peering() else {
            return self.backfill_failed(cx);
        };
        p.retry = true;
        let auth = p.auth;
        if !self.lead.unfit.insert(auth) {
            // So all are that have it: each is asked in its turn.
            self.lead.unfit = BTreeSet::from([auth]);
        }
    }

    fn all_synced(&mut self, cx: &mut Ctx<'_>) {
        let Some(p) = self.peering() else { return };
        let invalid = p
            .infos
            .get(&p.auth)
            .and_then(Option::as_ref)
            .is_some_and(|i| i.usage_invalid);
        if invalid {
            p.stage = Stage::Counting;
            self.count(cx);
        } else {
            self.activate(cx);
        }
    }

    /// Every member shall remember that it took part. Objects are equal everywhere.
    pub(super) fn activate(&mut self, cx: &mut Ctx<'_>) {
        let (id, members, pg_num) = (self.lead.id, self.site.interval.members(), self.site.pool.pg_num);
        let recorded =
            self.site.interval.is_recorded(&*self.site.map) || self.site.cfg.has_bug(Bug::NoUpThru);
        let is_read_elsewhere = self.is_read_elsewhere(cx.usec);
        let Some(p) = self.peering() else { return };
        if !recorded {
            p.stage = Stage::UpThru;
            return;
        }
        if is_read_elsewhere {
            p.stage = Stage::Lease;
            return;
        }
        let mut info = p.infos.get(&p.auth).cloned().flatten().unwrap_or_default();
        let all = || p.infos.values().flatten();
        info.last_epoch_started = all().map(|i| i.last_epoch_started).fold(id.epoch, u32::max);
        info.last_user_version = all().map(|i| i.last_user_version).fold(0, u64::max);
        info.last_acting = members.clone();
        info.history = History::since(info.last_epoch_started);
        info.incomplete = false;
        info.ahead = false;
        info.pg_num = pg_num;
        p.stage = Stage::Activating(members.iter().copied().collect());
        p.progress = cx.usec;
        let mut updates = std::mem::take(&mut p.updates);
        for m in members {
            info.part = self.site.part_of(m);
            let keep = LogUpdate {
                keep_to: info.last_update,
                replace: false,
                entries: Vec::new(),
                dups: Vec::new(),
            };
            let log = updates.remove(&m).unwrap_or(keep);
            if m == self.site.whoami {
                self.apply_activation(info.clone(), log, id, m, cx);
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

    /// Takes over info and log, as primary or replica; objects are equal already.
    pub(super) fn apply_activation(
        &mut self,
        info: PgInfo,
        update: LogUpdate,
        id: PeeringId,
        primary: i32,
        cx: &mut Ctx<'_>,
    ) {
        let mut txn = Txn {
            objects: self.no_stages(),
            meta: Vec::new(),
        };
        self.copy.take_over(self.site.pgid, info, update, &mut txn);
        self.copying.target = None;
        self.store.submit(txn, Commit::Activate { id, primary }, cx);
    }

    /// This OSD remembers that it took part.
    pub(super) fn activation_committed(&mut self, id: PeeringId, primary: i32, cx: &mut Ctx<'_>) {
        if id != self.lead.id {
            return;
        }
        if primary == self.site.whoami {
            self.member_activated(primary, cx);
        } else if matches!(self.role, Role::Replica(_) | Role::Stray) {
            self.outbox.send(primary, id, PeerBody::Activated, true, cx);
        }
    }

    /// A member remembers that it took part.
    pub(super) fn member_activated(&mut self, from: i32, cx: &mut Ctx<'_>) {
        if matches!(self.role, Role::Active(_)) {
            return self.backfill_noted(from, cx);
        }
        let Some(p) = self.peering() else { return };
        if let Stage::Activating(left) = &mut p.stage {
            p.progress = cx.usec;
            if left.remove(&from) && left.is_empty() {
                self.become_active(cx);
            }
        }
    }

    fn become_active(&mut self, cx: &mut Ctx<'_>) {
        let at = self.copy.info.last_update;
        let me = self.site.whoami;
        let peers = self
            .site
            .interval
            .members()
            .into_iter()
            .filter(|&o| o != me)
            .map(|o| (o, at))
            .collect();
        let place = &self.site.interval.place;
        let to_be = place.up.osds();
        let to_be = to_be.filter(|o| !place.acting.contains(*o)).collect();
        let temporary = place.up != place.acting;
        let infos = self
            .peering()
            .map(|p| std::mem::take(&mut p.infos))
            .unwrap_or_default();
        self.role = Role::Active(Active {
            peers,
            local: at,
            committed: at,
            in_flight: Default::default(),
            lease: Default::default(),
            backfill: Box::new(Backfill::new(to_be, temporary)),
            trimmer: Default::default(),
            repairs: Default::default(),
            sent: cx.usec,
        });
        self.update_trim_queue();
        self.survey_targets(cx);
        if self.backfill_state() == BackfillState::Idle {
            self.lead.forced = Forced::default();
        }
        for (osd, info) in &infos {
            self.retire_stray(*osd, info.as_ref(), cx);
        }
        for op in std::mem::take(&mut self.ops.held) {
            self.handle_op(op, cx);
        }
    }

    /// A connection to or from another OSD was lost, and messages with it.
    pub fn handle_peer_reset(&mut self, osd: i32, cx: &mut Ctx<'_>) {
        match &mut self.role {
            Role::Peering(p) => {
                p.retry |= p.awaits(osd);
            }
            Role::Active(_) => {
                self.resend_writes(Some(osd), cx);
                self.lease_reset(osd);
                self.backfill_reset(osd, cx);
            }
            _ => {}
        }
        self.source_peer_reset(osd, cx);
        self.repair_reset(osd, cx);
        self.turn_released(osd);
    }

    /// A time has come for which an alarm was set.
    pub fn handle_alarm(&mut self, cx: &mut Ctx<'_>) {
        self.check_watches(cx);
        self.pump_feeds(cx);
    }

    /// Time passes; to be called about once a second.
    pub fn handle_tick(&mut self, cx: &mut Ctx<'_>) {
        let patience = u64::from(self.site.cfg.peering_retry) * 1_000_000;
        match &self.role {
            Role::Peering(p) => {
                let patient = matches!(
                    p.stage,
                    Stage::Waiting(_) | Stage::Syncing(_) | Stage::Counting | Stage::UpThru | Stage::Lease
                );
                let again = p.again.is_some_and(|at| cx.usec >= at) && p.awaits_room(&self.lead.roomless);
                if p.retry || again || !patient && cx.usec.saturating_sub(p.progress) > patience {
                    self.begin_peering(cx);
                } else if p.stage == Stage::Lease {
                    self.activate(cx);
                } else if let Stage::Acting(acting) = &p.stage {
                    self.want_acting(acting.clone(), cx);
                } else {
                    self.record_alive(cx);
                }
            }
            Role::Active(a) if cx.usec.saturating_sub(a.sent) > patience => self.resend_writes(None, cx),
            Role::Stray => self.announce(cx),
            _ => {}
        }
        self.lease_tick(cx);
        self.backfill_tick(cx);
        self.check_watches(cx);
        self.trim_on(cx);
        self.repair_tick(cx);
        self.retry_copies(cx);
        self.recall_dropped(cx);
        self.ops
            .contexts
            .evict(self.site.shares.contexts, self.site.shares.context_bytes);
    }
}

fn is_nothing(plan: &SyncPlan) -> bool {
    matches!(plan, SyncPlan::Objects(keys) if keys.is_empty())
}
