//! A run from its beginning to the checks at its end.

use std::collections::BTreeMap;

use spirula_erasure::Layout as Code;
use spirula_maps::{Epoch, OsdId, SpgId};
use spirula_osd::daemon::Osd;
use spirula_osd::pg::layout::Layout;
use spirula_osd::pg::{Pg, PgReport};
use spirula_proto::osd::MOsdScrub2;

use crate::clock::SECOND;
use crate::contents;
use crate::copies::{self, Copies};
use crate::history::Op;
use crate::linear;
use crate::setup::{Failure, Outcome, Setup, UNIT};
use crate::world::World;

/// How long a cluster may take to come up.
const START_TIME: u64 = 120 * SECOND;
/// How long the cluster may take to recover after the last fault.
const HEAL_TIME: u64 = 600 * SECOND;
/// How long the cluster must stay healthy.
const REST_TIME: u64 = 15 * SECOND;
/// How long the check of all indexes takes at most.
const CHECK_TIME: u64 = 60 * SECOND;
/// How often the cluster's health is checked.
const STEP: u64 = SECOND;

/// Runs the cluster of a seed.
///
/// # Errors
/// A broken guarantee: a history that is not linearizable, a write that was acknowledged and is
/// gone, copies that differ, a request or PG that is stuck, a daemon that stops by itself.
pub fn run(seed: u64, setup: &Setup) -> Result<Outcome, Failure> {
    World::new(seed, setup)?.live()
}

impl World {
    fn live(&mut self) -> Result<Outcome, Failure> {
        self.come_up()?;
        self.weather.begun = true;
        self.weather.working = true;
        self.begin_work();
        self.begin_storm();
        self.run(self.setup.seconds * SECOND, |_| false)?;
        self.end_storm();
        self.run(5 * SECOND, |_| false)?;
        self.weather.working = false;
        let mut is_whole = self.heal()?;
        if is_whole && self.setup.faults.rot_index > 0 {
            is_whole = self.check_indexes(false)?;
        }
        if is_whole {
            if self.setup.faults.scrubs > 0 {
                self.last_scrubs()?;
            }
            self.last_reads()?;
        }
        self.check_histories()?;
        if is_whole && !self.weather.rotten {
            self.check_copies()?;
        }
        Ok(Outcome {
            digest: self.trace.digest(),
            events: self.trace.events,
            usec: self.clock.usec(),
            answered: self.history.answered(),
            epochs: self.mons.map().map_or(Epoch::NONE, |m| m.epoch),
            unreadable: self.history.unreadable,
            member_reads: self.history.member_reads,
            was_full: self.weather.was_full,
            overrun: self.weather.overrun,
            mended: self.weather.mended,
            refills: self.weather.refills,
        })
    }

    pub(crate) fn failure(&self, what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            at: self.clock.usec(),
        }
    }

    pub(crate) fn come_up(&mut self) -> Result<(), Failure> {
        let osds = usize::try_from(self.setup.osds).unwrap_or(0);
        let all_up = move |w: &Self| {
            w.mons
                .map()
                .is_some_and(|m| m.osds().filter(|o| m.is_up(*o)).count() == osds)
        };
        self.run(START_TIME, all_up)?;
        if !all_up(self) {
            return Err(self.failure(format!("the OSDs do not come up:\n{}", self.report())));
        }
        self.weather.pg_num = self.setup.pg_num;
        for command in self.setup.pool_commands() {
            self.must(&command)?;
        }
        if !self.know_the_pool() {
            self.run(START_TIME, Self::know_the_pool)?;
        }
        // In some runs the first PGs are made in unrest.
        if self.rng.one_in(2) {
            self.run(START_TIME, Self::is_well)?;
        }
        Ok(())
    }

    /// Runs a command of the operator that must succeed.
    fn must(&mut self, command: &str) -> Result<(), Failure> {
        self.take_acks();
        for _ in 0..100 {
            self.command(command);
            self.run(SECOND / 2, |_| false)?;
            match self.take_acks().last() {
                Some(ack) if ack.result == 0 => return Ok(()),
                Some(ack) => return Err(self.failure(format!("{command}: {} {}", ack.result, ack.status))),
                None => {}
            }
        }
        Err(self.failure(format!("{command}: no answer")))
    }

    /// Waits until the cluster is healthy and stays so. False if PGs wait for what was on a damaged
    /// disk alone.
    pub(crate) fn heal(&mut self) -> Result<bool, Failure> {
        // PGs that lack too many members wait until OSDs with ruined stores are marked out.
        let patience = if self.setup.faults.ruins > 0 { 2 } else { 1 };
        let end = self.clock.usec() + patience * HEAL_TIME;
        let mut well = 0;
        while well < REST_TIME {
            self.run(STEP, |_| false)?;
            self.tidy_up();
            well = if self.is_well() && self.is_quiet() {
                well + STEP
            } else {
                0
            };
            if self.clock.usec() > end {
                if self.weather.rotten && self.misses_something()
                    || self.setup.lonely && self.waits_for_ruin()
                {
                    return Ok(false);
                }
                return Err(self.failure(format!("does not heal:\n{}", self.report())));
            }
        }
        Ok(true)
    }

    /// Whether the newest copy of an object is damaged, and no other copy is as new; or the only
    /// complete copy of a PG is on a damaged disk whose OSD does not start: the others were being
    /// brought up to it.
    fn misses_something(&self) -> bool {
        let is_gone = self.osds.values().any(|n| n.rotten && n.osd.is_none());
        self.has_state("_unfound") || is_gone && self.has_state("incomplete")
    }

    /// Whether an OSD with a ruined store waits, as a PG can't do without it.
    fn waits_for_ruin(&self) -> bool {
        self.osds.values().any(|n| n.refill.is_some()) && !self.all_active()
    }

    fn all_active(&self) -> bool {
        let osds = self.osds.values().filter_map(|n| n.osd.as_ref());
        let mut reports = osds.flat_map(|o| o.core().reports()).peekable();
        // Without any OSD no PG is.
        reports.peek().is_some() && reports.all(|r| r.state.contains(&"active"))
    }

    /// Whether every monitor follows a leader, every OSD is up and every PG active and clean.
    pub(crate) fn is_well(&self) -> bool {
        let Some(map) = self.mons.map() else { return false };
        let osds_up = self
            .osds
            .iter()
            .all(|(id, n)| n.rotten && n.osd.is_none() || n.osd.is_some() && map.is_up(*id));
        let Some(pool) = map.pool(crate::client::POOL) else {
            return false;
        };
        let mut clean = BTreeMap::new();
        for osd in self.osds.values().filter_map(|n| n.osd.as_ref()) {
            if osd.map().epoch != map.epoch {
                return false;
            }
            for r in osd.core().reports() {
                clean.insert(r.pgid, r.state == ["active", "clean"]);
            }
        }
        let all_clean = clean.len() == pool.pg_num as usize && clean.values().all(|c| *c);
        // As in Ceph, members that were to stand in for others stay named while one of them is down:
        // for ten minutes, if its disk is lost.
        let mut temporary = map.pg_temp.values();
        let none_stands_in = temporary.all(|p| p.osds().any(|osd| !map.is_up(osd)));
        osds_up && (all_clean || self.weather.rotten) && self.mons.are_whole() && none_stands_in
    }

    /// Has all PGs scrubbed once more, and first repaired if a disk was damaged: no error is left.
    pub(crate) fn last_scrubs(&mut self) -> Result<(), Failure> {
        let is_gone = self.osds.values().any(|n| n.osd.is_none());
        if is_gone || self.has_state("_unfound") {
            // Copies of which there are too few are not compared.
            return Ok(());
        }
        if self.setup.faults.rot_data > 0 {
            // What clients have read since was repaired for them.
            (0..8).for_each(|_| self.rot_data());
        }
        if self.weather.rotten {
            self.scrub_all(true)?;
        }
        self.scrub_all(false)?;
        self.check_memories()?;
        let reports = self
            .osds
            .values()
            .filter_map(|n| n.osd.as_ref())
            .flat_map(|o| o.core().reports());
        let wrong = reports
            .filter(|r| r.scrubs.errors() > 0)
            .map(|r| r.pgid.to_string());
        let wrong: Vec<String> = wrong.collect();
        if wrong.is_empty() || self.weather.rotten && self.has_state("_unfound") {
            return Ok(());
        }
        Err(self.failure(format!(
            "scrubs of {} find errors:\n{}",
            wrong.join(", "),
            self.report()
        )))
    }

    /// Checks that all members of a PG remember the same of its scrubs.
    fn check_memories(&self) -> Result<(), Failure> {
        let osds = || self.osds.values().filter_map(|n| n.osd.as_ref());
        let led = osds()
            .flat_map(|o| o.core().pgs())
            .filter(|pg| pg.seen().scrubs().leads());
        for pg in led {
            let scrubs = |pg: &Pg| pg.seen().info().map(|info| info.scrubs.clone());
            let members = pg.seen().members();
            for osd in members {
                let copy = self.osds.get(&osd).and_then(|n| n.osd.as_ref());
                let copy = copy.and_then(|o| o.core().pg(pg.pgid()));
                if copy.and_then(scrubs) != scrubs(pg) {
                    let what = format!(
                        "osd.{osd} remembers other scrubs of {} than its primary",
                        pg.pgid()
                    );
                    return Err(self.failure(format!("{what}:\n{}", self.report())));
                }
            }
        }
        Ok(())
    }

    /// Has all PGs read and compared, and waits until they were. Connections break meanwhile, if they
    /// do at all.
    pub(crate) fn scrub_all(&mut self, repair: bool) -> Result<(), Failure> {
        let since = self.clock.now();
        let end = self.clock.usec() + HEAL_TIME;
        self.scrub(true, repair);
        loop {
            if self.setup.faults.breaks > 0 && self.clock.usec() < end - HEAL_TIME / 2 {
                self.break_some();
            }
            self.run(STEP, |_| false)?;
            let is_done = |r: PgReport| r.scrubs.deep_stamp >= since && !r.state.contains(&"scrubbing");
            let osds = self.osds.values().filter_map(|n| n.osd.as_ref());
            if osds.flat_map(|o| o.core().reports()).all(is_done) {
                // Repairs may go on.
                return self.run(REST_TIME, |_| false).map(|_| ());
            }
            if self.clock.usec() > end {
                return Err(self.failure(format!("a scrub does not end:\n{}", self.report())));
            }
        }
    }

    /// Orders a scrub of all PGs.
    pub(crate) fn scrub(&mut self, deep: bool, repair: bool) {
        let ids: Vec<OsdId> = self.osds.keys().copied().collect();
        for id in ids {
            let order = |osd: &mut Osd| {
                let led = osd.core().pgs().filter(|pg| pg.seen().scrubs().leads());
                let mut pgs: Vec<SpgId> = led.map(|pg| SpgId::whole(pg.pgid())).collect();
                // In the same order in every run: the first is scrubbed first.
                pgs.sort_unstable();
                osd.scrub_ordered(MOsdScrub2 {
                    pgs,
                    repair,
                    deep,
                    ..MOsdScrub2::default()
                });
            };
            self.with_osd(id, order);
        }
    }

    /// Has the indexes of all OSDs checked, with a deep scrub or repair, and waits until the cluster is
    /// healthy again.
    pub(crate) fn check_indexes(&mut self, repair: bool) -> Result<bool, Failure> {
        self.scrub(true, repair);
        self.run(CHECK_TIME, |_| false)?;
        self.heal()
    }

    /// Reads every object once more, through every client.
    pub(crate) fn last_reads(&mut self) -> Result<(), Failure> {
        for object in 0..self.setup.objects {
            for client in 0..self.clients.len() {
                self.ask(client, 0, object, Op::Read);
            }
            self.run(60 * SECOND, Self::is_quiet)?;
            if !self.is_quiet() {
                return Err(self.failure(format!("a last read is not answered:\n{}", self.report())));
            }
        }
        Ok(())
    }

    pub(crate) fn check_histories(&self) -> Result<(), Failure> {
        for (object, calls) in self.history.objects().iter().enumerate() {
            linear::check(calls).map_err(|e| self.failure(format!("o{object} is {e}{}", self.report())))?;
        }
        Ok(())
    }

    /// Checks, after every process has ended, that each object is on as many OSDs as it should,
    /// with copies that belong together.
    pub(crate) fn check_copies(&mut self) -> Result<(), Failure> {
        let mut copies = Copies::new();
        for id in OsdId::below(self.setup.osds) {
            self.kill_osd(id);
            let Some(n) = self.osds.get(&id) else { continue };
            let found = contents::read(&n.disk);
            for (key, object) in found.map_err(|e| self.failure(format!("osd.{id}: {e}")))? {
                copies.entry(key).or_default().push((id, object));
            }
        }
        let layout = match self.setup.code {
            None => Layout::Whole,
            Some((k, m)) => {
                let code = Code::new(k, m, UNIT).map_err(|e| self.failure(e.to_string()))?;
                Layout::Coded(code)
            }
        };
        let checked = copies::belong_together(&copies, usize::from(self.setup.size), layout);
        checked.map_err(|e| self.failure(e))
    }

    /// The state of the cluster, for people.
    fn report(&self) -> String {
        let mut out = String::new();
        let Some(map) = self.mons.map() else {
            return "no monitor runs\n".to_owned();
        };
        out += &format!("map {}\n{}", map.epoch, self.mons.traces());
        for (id, n) in &self.osds {
            let up = if map.is_up(*id) { "up" } else { "down" };
            let Some(osd) = &n.osd else {
                out += &format!("osd.{id} does not run, {up}\n");
                continue;
            };
            let room = osd.store().statfs();
            out += &format!(
                "osd.{id} {up} {:?}, weight {}, has map {}, {} of {} bytes are free, {} scrubs\n",
                map.state(*id),
                map.weight_f64(*id),
                osd.map().epoch,
                room.available,
                room.total,
                osd.core().seen_scrubs().under_way()
            );
            for r in osd.core().reports() {
                out += &format!("    {} {}\n", r.pgid, r.state.join("+"));
            }
            for pg in osd.core().pgs() {
                if pg.seen().ops_in_flight() > 0 || !pg.seen().is_active() {
                    out += &format!("    {}\n", pg.seen().trace());
                }
                out += &pg.seen().recollection();
            }
        }
        out + &self.waiting()
    }
}
