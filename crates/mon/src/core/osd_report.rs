//! OSDs: booting, dying, reporting.

use std::collections::BTreeMap;
use std::time::Duration;

use spirula_denc::{EntityAddr, UTime};
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::osdmap::{MAX_OSD_LIMIT, WEIGHT_IN, WEIGHT_OUT};
use spirula_maps::{CleanInterval, Epoch, OsdId, OsdOrNone, Positions};
use spirula_maps::{CrushBlob, Incremental, OsdMap, OsdState, OsdXInfo, PgId, PoolFlags};
use spirula_proto::internal::report::{
    BootDenied, Fullness, OsdBoot, OsdGoingDown, OsdReport, OsdReportReply,
};
use spirula_proto::mon::LogPriority;

use super::failure;
use super::store_damage;
use super::write::Change;
use super::{DropReason, Monitor, SessionId, Turn, View, Waiter};
use crate::command::errno;

/// The most bytes that are kept of an OSD's metadata.
const MAX_METADATA: usize = 64 << 10;
/// The most addresses of an OSD on one network: of either protocol and family.
const MAX_ADDRESSES: usize = 8;

/// The CRUSH weight of an OSD that has none yet: `osd_crush_initial_weight` as it is for this OSD,
/// or its size in TiB.
fn initial_weight(view: &View, osd: OsdId, b: &OsdBoot) -> f64 {
    const OPTION: &str = "osd_crush_initial_weight";
    let host = b.metadata.get("hostname").map_or("", String::as_str);
    let config = &view.state.config;
    let mut config = config.for_daemon("osd", &osd.to_string(), host, &b.device_class);
    let set = config.remove(OPTION).and_then(|text| text.parse().ok());
    match set.unwrap_or_else(|| view.values.float(OPTION)) {
        weight if weight >= 0.0 => weight,
        _ => {
            let tib = b.size as f64 / (1u64 << 40) as f64;
            // Official OSDs round to four decimals too, and never down to nothing.
            ((tib * 10_000.0).round() / 10_000.0).max(0.0001)
        }
    }
}

impl View {
    /// The extended info of an OSD that boots, and its weight if it is marked in.
    fn after_boot(&self, map: &OsdMap, osd: OsdId, b: &OsdBoot) -> (OsdXInfo, Option<u32>) {
        let (known, state) = (map.exists(osd), map.state(osd));
        let mut x = map.osd_xinfo.get(osd.index()).copied().unwrap_or_default();
        failure::after_boot(&mut x, b.boot_epoch != Epoch::NONE, self.now, &self.values);
        x.features = b.features;
        let wanted = self.values.flag("mon_osd_auto_mark_in")
            || state.contains(OsdState::AUTOOUT) && self.values.flag("mon_osd_auto_mark_auto_out_in")
            || (!known || state.contains(OsdState::NEW)) && self.values.flag("mon_osd_auto_mark_new_in");
        if !wanted || map.is_flagged(osd, OsdState::NOIN) {
            return (x, None);
        }
        let weight = match std::mem::take(&mut x.old_weight) {
            0 => WEIGHT_IN,
            old => old,
        };
        (x, Some(weight))
    }

    /// The CRUSH map with the OSD in its place; `None` if it is there already.
    fn place(
        &self,
        map: &OsdMap,
        osd: OsdId,
        b: &OsdBoot,
    ) -> Result<Option<spirula_crush::CrushMap>, (errno::Errno, String)> {
        let mut crush = (**map.crush.map()).clone();
        let fail = |e: spirula_crush::Error| (e.errno(), e.to_string());
        let mut changed = false;
        let name = format!("osd.{osd}");
        // An OSD that is to stay where it is names no place.
        if !b.crush_location.is_empty() {
            let weight = spirula_crush::weight_from_f64(initial_weight(self, osd, b)).map_err(fail)?;
            changed |= crush
                .create_or_move_item(osd.item(), weight, &name, &b.crush_location)
                .map_err(fail)?;
        }
        let class = self.given_class(osd).unwrap_or_else(|| b.device_class.clone());
        if !class.is_empty() && crush.class_of(osd.item()).is_none() && crush.item_type(osd.item()).is_some()
        {
            changed |= crush.set_device_class(osd.item(), &class).map_err(fail)?;
        }
        Ok(changed.then_some(crush))
    }

    /// The first OSDMap that must stay: the last ones do, and everything since the oldest epoch in
    /// which all PGs were clean.
    pub(crate) fn first_needed_osdmap(&self) -> Epoch {
        let keep = u32::try_from(self.values.uint("mon_min_osdmap_epochs"))
            .unwrap_or(500)
            .max(1);
        let recent = self.state.osd.map.epoch.before(keep);
        let clean = self
            .state
            .stats
            .pgs
            .values()
            .map(|s| s.effective_last_epoch_clean())
            .min();
        // Without any statistics it is not known which epochs are still needed.
        let clean = if self.state.osd.map.pools.is_empty() {
            recent
        } else {
            clean.unwrap_or(Epoch::NONE)
        };
        let beacons = self.state.osd.map.osds().filter(|o| self.state.osd.map.is_up(*o));
        let reported = beacons
            .map(|o| {
                self.state
                    .osd
                    .lives
                    .get(o)
                    .map_or(Epoch::NONE, |l| l.min_last_epoch_clean)
            })
            .min();
        recent.min(clean).min(reported.unwrap_or(recent))
    }

    /// Completes a map's changes with their consequences.
    pub(super) fn finish_incremental(&mut self, inc: &mut Incremental) {
        let mut next = (*self.state.osd.map).clone();
        if next
            .apply(&Incremental {
                full_crc: 0,
                ..inc.clone()
            })
            .is_err()
        {
            return; // Encoding will refuse it with the reason.
        }
        let full: Vec<OsdId> = next
            .osds()
            .filter(|o| next.state(*o).contains(OsdState::FULL))
            .collect();
        let back: Vec<OsdId> = next
            .osds()
            .filter(|o| next.state(*o).contains(OsdState::BACKFILLFULL))
            .collect();
        let near: Vec<OsdId> = next
            .osds()
            .filter(|o| next.state(*o).contains(OsdState::NEARFULL))
            .collect();
        for (id, pool) in &next.pools {
            let devices = next
                .crush
                .map()
                .rule_device_shares(u32::from(pool.crush_rule))
                .unwrap_or_default();
            let any = |list: &[OsdId]| list.iter().any(|o| devices.contains_key(&o.item()));
            let quota = pool.flags.contains(PoolFlags::FULL_QUOTA);
            let mut flags = pool.flags;
            flags.remove(
                PoolFlags::FULL
                    .with(PoolFlags::BACKFILLFULL)
                    .with(PoolFlags::NEARFULL),
            );
            if any(&full) || quota {
                flags.insert(PoolFlags::FULL);
            } else if any(&back) {
                flags.insert(PoolFlags::BACKFILLFULL);
            } else if any(&near) {
                flags.insert(PoolFlags::NEARFULL);
            }
            if flags != pool.flags {
                let mut changed = pool.clone();
                changed.flags = flags;
                inc.new_pools.insert(*id, changed);
            }
        }
        drop_stale_mappings(inc, &next);
    }
}

/// The outcome of an OSD's boot.
enum Booted {
    /// The OSD is up, in the next map at the latest.
    Up,
    /// Another process has the OSD's id: that one first goes down, then the OSD comes back in the
    /// next epoch.
    DownFirst,
}

impl Turn<'_> {
    /// Gives a PG these acting members for a while, or none, as an OSD asks.
    fn temporary_members(&mut self, osd: OsdId, pg: PgId, acting: Positions) {
        let map = self.view.state.osd.map.clone();
        // As in Ceph the PG's primary has its say, and nobody else.
        let sane = map.has_pg(pg)
            && map
                .pool_of(pg)
                .is_some_and(|p| acting.slots().len() <= usize::from(p.size))
            && acting.slots().iter().all(|o| o.is_some_and(|o| map.is_up(o)))
            && map.map_pg(pg).acting_primary == Some(osd);
        let pending = self.changes.osd.as_ref().and_then(|inc| inc.new_pg_temp.get(&pg));
        if !sane {
            return dropped!(self.dropped, DropReason::ReportStale; osd = osd, pg = pg);
        }
        let have = pending.or_else(|| map.pg_temp.get(&pg));
        if have.map(Positions::slots).unwrap_or_default() != acting.slots() {
            self.pending_osd().new_pg_temp.insert(pg, acting);
            // Mostly it leads the next interval, too, which begins with this map: so it need not
            // ask for that to be recorded.
            self.note_up_thru(osd, map.epoch.next());
        }
    }

    /// Notes in the next map that an OSD was up in this epoch.
    fn note_up_thru(&mut self, osd: OsdId, epoch: Epoch) {
        let newest = self.view.state.osd.map.epoch;
        invariant!(epoch <= newest.next(), "no epoch behind the next one"; osd = osd, epoch = epoch, newest = newest);
        if self.view.state.osd.map.is_up(osd) {
            let up_thru = self.pending_osd().new_up_thru.entry(osd).or_default();
            *up_thru = epoch.max(*up_thru);
        }
    }

    /// Marks an OSD up, and creates it and its place in the CRUSH map if they are missing.
    fn boot(&mut self, osd: OsdId, b: &OsdBoot) -> Result<Booted, (errno::Errno, String)> {
        let map = self.view.state.osd.map.clone();
        if b.osd != osd || osd.index() >= MAX_OSD_LIMIT as usize {
            return Err((errno::EPERM, format!("osd.{} with the key of osd.{osd}", b.osd)));
        }
        if b.fsid != self.view.me.fsid {
            return Err((errno::EINVAL, format!("its store belongs to cluster {}", b.fsid)));
        }
        let index = osd.index();
        let known = map.exists(osd);
        let uuid = map.osd_uuid.get(index).copied().unwrap_or_default();
        if known && !uuid.is_zero() && uuid != b.uuid {
            return Err((
                errno::EEXIST,
                format!("its store is {}, the map says {uuid}", b.uuid),
            ));
        }
        let bytes = |m: &BTreeMap<String, String>| m.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        if bytes(&b.metadata) + bytes(&b.crush_location) > MAX_METADATA {
            return Err((errno::EINVAL, "it says too much of itself".to_owned()));
        }
        let addrs = [
            &b.public_addrs,
            &b.cluster_addrs,
            &b.heartbeat_front,
            &b.heartbeat_back,
        ];
        if addrs.iter().any(|a| a.0.len() > MAX_ADDRESSES) {
            return Err((errno::EINVAL, "it has too many addresses".to_owned()));
        }
        if b.public_addrs.v2().is_none() {
            return Err((errno::EINVAL, "it has no msgr2 address".to_owned()));
        }
        if map.is_flagged(osd, OsdState::NOUP) {
            return Err((errno::EAGAIN, "noup is set".to_owned()));
        }
        if map.is_up(osd) && map.client_addrs[index] == b.public_addrs {
            return Ok(Booted::Up);
        }
        if map.is_up(osd) {
            self.mark_down(osd, None);
            return Ok(Booted::DownFirst);
        }
        let crush = self.view.place(&map, osd, b)?;
        let (xinfo, weight) = self.view.after_boot(&map, osd, b);
        let now = self.view.now;
        let inc = self.pending_osd();
        if let Some(crush) = crush {
            inc.crush = CrushBlob::new(crush).raw().clone();
        }
        if !known {
            if osd.index() >= map.max_osd as usize {
                inc.new_max_osd = osd.item() + 1;
            }
            inc.new_state.insert(osd, OsdState::EXISTS);
        }
        come_up(inc, &map, osd, b, now);
        inc.new_xinfo.insert(osd, xinfo);
        if let Some(w) = weight {
            inc.new_weight.insert(osd, w);
            inc.new_last_in_change = now;
        }
        let metadata = serde_json::to_vec(&b.metadata).unwrap_or_default();
        self.changes.txn.put("osd_metadata", format!("{osd}"), metadata);
        let addrs = b.public_addrs.clone();
        self.log_event(LogPriority::INFO, format!("osd.{osd} {addrs} boot"));
        Ok(Booted::Up)
    }

    /// Marks an OSD in or out in the next map.
    pub(crate) fn set_weight(&mut self, osd: OsdId, weight: u32) {
        let was = self.view.state.osd.map.weight(osd);
        let now = self.view.now;
        let inc = self.pending_osd();
        inc.new_weight.insert(osd, weight);
        if (was == WEIGHT_OUT) != (weight == WEIGHT_OUT) {
            inc.new_last_in_change = now;
        }
    }

    fn fullness(&mut self, osd: OsdId, state: Fullness) {
        let all = OsdState::NEARFULL
            .with(OsdState::BACKFILLFULL)
            .with(OsdState::FULL);
        let want = match state {
            Fullness::NEARFULL => OsdState::NEARFULL,
            Fullness::BACKFILLFULL => OsdState::BACKFILLFULL,
            Fullness::FULL => OsdState::FULL,
            _ => OsdState::empty(),
        };
        let have = OsdState(self.view.state.osd.map.state(osd).0 & all.0);
        if self.view.state.osd.map.exists(osd) && have != want {
            self.pending_osd()
                .new_state
                .insert(osd, OsdState(have.0 ^ want.0));
        }
    }

    /// Marks an OSD down at its own request.
    fn mark_ending(&mut self, osd: OsdId) {
        let map = &self.view.state.osd.map;
        if !map.is_up(osd) {
            return; // The map says so already.
        }
        let up_from = map.osd_info.get(osd.index()).map_or(Epoch::NONE, |i| i.up_from);
        self.mark_down(osd, Some(format!("osd.{osd} marked itself down")));
        let interval = CleanInterval {
            begin: up_from,
            end: map.epoch,
        };
        self.pending_osd().new_last_clean_interval.insert(osd, interval);
    }

    /// Updates the map for quotas, expired blocklist entries, trimmed snapshots and numbers of PGs.
    fn review_osdmap(&mut self) {
        let map = self.view.state.osd.map.clone();
        self.expire_blocklist(&map);
        self.check_quotas(&map);
        self.prune_removed_snaps(&map);
        self.adjust_pg_nums();
    }

    fn expire_blocklist(&mut self, map: &OsdMap) {
        let now = self.view.now;
        let expired = |list: &BTreeMap<EntityAddr, UTime>| -> Vec<EntityAddr> {
            let over = list.iter().filter(|(_, until)| **until < now);
            over.map(|(a, _)| *a).collect()
        };
        let (clients, ranges) = (expired(&map.blocklist), expired(&map.range_blocklist));
        if !clients.is_empty() || !ranges.is_empty() {
            let inc = self.pending_osd();
            inc.old_blocklist = clients;
            inc.old_range_blocklist = ranges;
        }
    }

    fn check_quotas(&mut self, map: &OsdMap) {
        for (id, pool) in &map.pools {
            let t = self.view.state.stats.pool(*id);
            let over = |max: u64, now: i64| max > 0 && u64::try_from(now).unwrap_or(0) >= max;
            let bytes = over(pool.quota_max_bytes, t.sum.num_bytes);
            let objects = over(pool.quota_max_objects, t.sum.num_objects);
            let reached = bytes || objects;
            if reached == pool.flags.contains(PoolFlags::FULL_QUOTA) {
                continue;
            }
            let mut next = pool.clone();
            let flags = PoolFlags::FULL_QUOTA.with(PoolFlags::FULL);
            if reached {
                next.flags.insert(flags)
            } else {
                next.flags.remove(flags)
            }
            self.pending_osd().new_pools.insert(*id, next);
            let name = map.pool_name(*id).unwrap_or_default().to_owned();
            if !reached {
                let text = format!("pool '{name}' no longer out of quota; removing NO_QUOTA flag");
                self.log_event(LogPriority::INFO, text);
            }
            if bytes {
                let most = spirula_text::size::bytes(pool.quota_max_bytes);
                let text = format!("pool '{name}' is full (reached quota's max_bytes: {most})");
                self.log_event(LogPriority::WARN, text);
            }
            if objects {
                let most = pool.quota_max_objects;
                let text = format!("pool '{name}' is full (reached quota's max_objects: {most})");
                self.log_event(LogPriority::WARN, text);
            }
        }
    }
}

impl Monitor {
    /// Handles a report on a session. Reads are served at once; reports that change the map wait
    /// for their turn.
    pub(super) fn osd_report(&mut self, id: SessionId, tid: u64, report: OsdReport) {
        let Some(osd) = self.view.sessions.get(&id).and_then(|s| s.osd()) else {
            tracing::warn!("a report from something that is no OSD");
            return dropped!(self.dropped, DropReason::ReportForeign; session = id);
        };
        self.view.state.osd.seen(osd, self.view.steady.now());
        match report {
            OsdReport::Beacon(b) => {
                let newest = self.view.state.osd.map.epoch;
                let life = self.view.state.osd.lives.entry(osd);
                life.min_last_epoch_clean = b.min_last_epoch_clean.min(newest);
                life.interval = Duration::from_millis(u64::from(b.interval_ms));
            }
            OsdReport::PgStats(r) => match self.view.pg_stats(osd, &r) {
                Some(ack) => {
                    let msg = self.view.to_osd(id, &ack);
                    self.send(id, msg.with_tid(tid));
                }
                None => dropped!(self.dropped, DropReason::ReportUnsound; osd = osd),
            },
            OsdReport::WantMaps(w) => {
                let last = if w.last == Epoch::NONE {
                    self.view.state.osd.map.epoch
                } else {
                    w.last
                };
                let (range, none) = (w.first.max(Epoch::FIRST)..=last, Epoch::NONE..=Epoch::NONE);
                let (full, inc) = if w.full { (range, none) } else { (none, range) };
                if let Some(m) = self.view.state.osd.ranges_message(full, inc) {
                    self.send(id, m);
                }
            }
            OsdReport::Config(c) => {
                if !self.view.config_report(id, osd, c) {
                    dropped!(self.dropped, DropReason::ReportUnsound; osd = osd);
                }
            }
            OsdReport::WantPurgedSnaps(w) => self.send_purged_snaps(id, w),
            OsdReport::Scrubs(report) => {
                let mut scrubs = std::mem::take(&mut self.view.state.osd.lives.entry(osd).scrubs);
                scrubs.take(report, &self.view);
                self.view.state.osd.lives.entry(osd).scrubs = scrubs;
            }
            OsdReport::StoreDamaged(d) => {
                let needed = store_damage::note(&mut self.view, osd, d);
                let msg = self.view.to_osd(id, &OsdReportReply::Needed(needed));
                self.send(id, msg.with_tid(tid));
            }
            _ => self.write(id, tid, Change::Report(report)),
        }
    }

    /// Handles a report that may change the map, in its turn.
    pub(super) fn osd_write(&mut self, id: SessionId, tid: u64, report: OsdReport) {
        let Some(osd) = self.view.sessions.get(&id).and_then(|s| s.osd()) else {
            impossible!("a report of an OSD"; session = id);
        };
        match report {
            OsdReport::Boot(boot) => match self.attempt(|turn| turn.boot(osd, &boot)) {
                Ok(Booted::Up) => {}
                Ok(Booted::DownFirst) => self.enqueue(id, tid, Change::Report(OsdReport::Boot(boot))),
                Err((errno, reason)) => {
                    tracing::warn!("osd.{osd} may not boot: {reason}");
                    let denied = OsdReportReply::BootDenied(BootDenied {
                        result: -errno,
                        reason,
                    });
                    let msg = self.view.to_osd(id, &denied);
                    self.send(id, msg.with_tid(tid));
                }
            },
            OsdReport::Alive(a) => {
                let up_thru = self
                    .view
                    .state
                    .osd
                    .map
                    .osd_info
                    .get(osd.index())
                    .map_or(Epoch::NONE, |i| i.up_thru);
                if a.want > up_thru && a.want <= self.view.state.osd.map.epoch {
                    self.turn(|turn| turn.note_up_thru(osd, a.want));
                }
            }
            OsdReport::Failure(f) => self.failure(osd, &f),
            OsdReport::Full(f) => self.turn(|turn| turn.fullness(osd, f.state)),
            OsdReport::GoingDown(g) => self.going_down(id, osd, tid, g),
            OsdReport::Dead(d) => self.turn(|turn| turn.confirmed_dead(osd, d.epoch)),
            OsdReport::PgTemp(t) => {
                for (pg, acting) in t.acting {
                    self.turn(|turn| turn.temporary_members(osd, pg, acting));
                }
            }
            OsdReport::Beacon(_)
            | OsdReport::PgStats(_)
            | OsdReport::WantMaps(_)
            | OsdReport::Config(_)
            | OsdReport::WantPurgedSnaps(_)
            | OsdReport::StoreDamaged(_)
            | OsdReport::Scrubs(_) => impossible!("a report that may change the map"; osd = osd),
        }
    }

    /// Handles an OSD's goodbye. It gets its answer when the map has it down.
    fn going_down(&mut self, id: SessionId, osd: OsdId, tid: u64, g: OsdGoingDown) {
        if g.osd == osd {
            self.turn(|turn| turn.mark_ending(osd));
        }
        let bye = OsdReportReply::GoDown(g);
        let make = Box::new(move |v: &View, _| v.to_osd(id, &bye).with_tid(tid));
        self.writes.waiters.push(Waiter { session: id, make });
    }

    /// Maintains down, out and full OSDs, quotas and expired blocklist entries. Only if nothing else
    /// changes.
    pub(super) fn osd_maintenance(&mut self) {
        self.mark_silent_down();
        self.mark_long_down_out();
        self.turn(|turn| turn.review_osdmap());
    }
}

/// Drops temporary mappings that have no effect any more, and any mapping of a pool that is gone.
fn drop_stale_mappings(inc: &mut Incremental, next: &OsdMap) {
    for (pg, acting) in &next.pg_temp {
        let useless = !next.has_pg(*pg) || acting.osds().all(|o| next.is_down(o)) || {
            let m = next.map_pg(*pg);
            m.up == *acting
        };
        if useless {
            inc.new_pg_temp.insert(*pg, Positions::EMPTY);
        }
    }
    for (pg, osd) in &next.primary_temp {
        if next.pool_of(*pg).is_none() || next.is_down(*osd) {
            inc.new_primary_temp.insert(*pg, OsdOrNone::NONE);
        }
    }
    for pg in next.pg_upmap.keys().filter(|pg| next.pool_of(**pg).is_none()) {
        inc.new_pg_upmap.remove(pg);
        inc.old_pg_upmap.insert(*pg);
    }
    for pg in next
        .pg_upmap_items
        .keys()
        .filter(|pg| next.pool_of(**pg).is_none())
    {
        inc.new_pg_upmap_items.remove(pg);
        inc.old_pg_upmap_items.insert(*pg);
    }
}

/// Adds the changes for an OSD that comes up.
fn come_up(inc: &mut Incremental, map: &OsdMap, osd: OsdId, b: &OsdBoot, now: UTime) {
    // The change of a state is told as the bits that change: to tell it twice would mark the OSD
    // down.
    invariant!(!map.is_up(osd), "an OSD that is down before it boots"; osd = osd, epoch = map.epoch);
    inc.new_up_client.insert(osd, b.public_addrs.clone());
    inc.new_up_cluster.insert(osd, b.cluster_addrs.clone());
    inc.new_hb_back_up.insert(osd, b.heartbeat_back.clone());
    inc.new_hb_front_up.insert(osd, b.heartbeat_front.clone());
    inc.new_last_up_change = now;
    let index = osd.index();
    if map.osd_uuid.get(index) != Some(&b.uuid) {
        inc.new_uuid.insert(osd, b.uuid);
    }
    if map.state(osd).contains(OsdState::DESTROYED) {
        inc.new_state.entry(osd).or_default().insert(OsdState::DESTROYED);
    }
}
