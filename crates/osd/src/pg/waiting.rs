//! The reason why a PG waits, in a sentence for people: for which OSDs, and since when.

use std::fmt;

use spirula_denc::Micros;
use spirula_maps::{OsdId, OsdOrNone};

use super::backfill::Backfill;
use super::key;
use super::peering::{Peering, Stage, Wait};
use super::role::{Active, Role};
use super::seen::Seen;
use super::store_queue::{Commit, Pending};

/// Names of OSDs, for a sentence.
struct Osds<'a, I>(&'a I);

impl<I> fmt::Display for Osds<'_, I>
where
    for<'b> &'b I: IntoIterator<Item = &'b OsdId>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, osd) in self.0.into_iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}osd.{osd}")?;
        }
        Ok(())
    }
}

impl Seen<'_> {
    /// What the PG waits for, at the time `usec` of the monotonic clock.
    pub fn sentence(self, usec: Micros) -> String {
        let since = self.recent.since();
        let leader = match self.site.interval.place.primary {
            None => "no OSD".to_owned(),
            Some(osd) => format!("osd.{osd}"),
        };
        let undurable = self.store.commits.len();
        match self.role {
            Role::Idle => format!(
                "Waits since {since} for an OSDMap that has osd.{} up.",
                self.site.whoami
            ),
            Role::Peering(p) => {
                let (clause, id) = (self.peering_waits_for(p), self.lead.id);
                let interval = self.site.interval.since;
                format!(
                    "Waits since {since} for {clause}. This is attempt {} to agree, in the interval of epoch {interval}.",
                    id.round
                )
            }
            Role::Active(a) => match self.active_waits_for(a, usec) {
                waits if waits.is_empty() => format!("Serves since {since}, and waits for nothing."),
                waits => {
                    let (name, waits) = (self.recent.state().name(), waits.join("; for "));
                    format!("Serves ({name} since {since}) and waits for {waits}.")
                }
            },
            Role::Replica(r) if r.active => {
                let waits: Vec<String> = [self.durability_waits_for(usec), self.store_waits_for(usec)]
                    .into_iter()
                    .flatten()
                    .collect();
                let and = if waits.is_empty() { "" } else { ", and waits for " };
                format!(
                    "Follows {leader}, which serves, since {since}{and}{}.",
                    waits.join("; for ")
                )
            }
            Role::Replica(_) | Role::Stray if self.lead.query_from.is_some() => format!(
                "Waits since {since} for {undurable} transactions to be durable, before it tells {leader} what it has."
            ),
            Role::Replica(_) => {
                format!("Waits since {since} for {leader}, which leads, to have it take part.")
            }
            Role::Stray if self.site.is_to_be_here() => {
                format!("Waits since {since} for {leader}, which leads, to copy to it.")
            }
            Role::Stray if !self.copy.exists => format!("Has no copy and no part in the PG since {since}."),
            Role::Stray => {
                format!("Keeps a copy that belongs elsewhere, since {since}, until {leader} has it deleted.")
            }
            Role::Deleting => format!("Deletes its copy since {since}."),
        }
    }

    fn peering_waits_for(self, p: &Peering) -> String {
        let (place, me) = (&self.site.interval.place, self.site.whoami);
        match &p.stage {
            Stage::Waiting(Wait::MinSize) => format!(
                "more OSDs: {} of the min_size of {} are up",
                place.acting.count(),
                self.site.pool.min_size
            ),
            Stage::Waiting(Wait::Down(osds)) => format!(
                "{} to come up, or to be declared lost: down now, and a newer copy may be there",
                Osds(osds)
            ),
            Stage::Waiting(Wait::Incomplete) => {
                "an OSD with a complete copy: none that is up has one".to_owned()
            }
            Stage::Waiting(Wait::Unsupported) => {
                "another version of this OSD: the pool is erasure-coded, which is not served yet".to_owned()
            }
            Stage::Flushing => format!(
                "{} transactions of its own to be durable",
                self.store.commits.len()
            ),
            Stage::Infos | Stage::Strays => format!("{} to tell what copies are there", Osds(&p.asked)),
            Stage::Logs => format!("the logs of {}", Osds(&p.asked)),
            Stage::Acting(osds) if osds.is_empty() => {
                "the monitors to end the temporary acting set".to_owned()
            }
            Stage::Acting(osds) => format!("the monitors to have {} serve for a while", Osds(osds)),
            Stage::Syncing(left) => {
                let (auth, left_osds) = (OsdOrNone(p.auth), Osds(left));
                let trouble = match &self.copying.unreadable {
                    Some(_) => ", where an object can't be read",
                    None if p.awaits_room(&self.lead.roomless) => ", where there is no room",
                    None => "",
                };
                format!("osd.{auth} to bring {left_osds} up to the newest copy{trouble}")
            }
            Stage::Counting => "the objects to be counted".to_owned(),
            Stage::UpThru => format!(
                "the OSDMap to say that osd.{me} is up in epoch {}",
                self.site.interval.seen
            ),
            Stage::Lease => {
                "the time to end for which members of earlier intervals may answer reads".to_owned()
            }
            Stage::Activating(left) => format!("{} to note durably that they take part", Osds(left)),
        }
    }

    fn active_waits_for(self, a: &Active, usec: Micros) -> Vec<String> {
        let mut waits = Vec::new();
        if let Some(w) = a.in_flight.front() {
            let mut late: Vec<OsdId> = a
                .peers
                .iter()
                .filter(|(_, v)| *v < w.version)
                .map(|(o, _)| *o)
                .collect();
            if a.local < w.version {
                late.insert(0, self.site.whoami);
            }
            let (n, sent) = (a.in_flight.len(), usec.saturating_sub(a.sent).as_secs());
            waits.push(format!(
                "{} to have write {} durable, of {n}, sent {sent} s ago",
                Osds(&late),
                w.version
            ));
        } else {
            waits.extend(self.durability_waits_for(usec));
        }
        waits.extend(self.store_waits_for(usec));
        waits.extend(self.ops.stages.waits_for(usec));
        waits.extend(a.aheads.waits_for());
        if a.lease.is_late() {
            waits.push(format!("{} to let reads be answered", Osds(a.lease.missing())));
        }
        waits.extend(a.repairs.waits_for());
        if !a.repairs.lost.is_empty() {
            let n = a.repairs.lost.len();
            waits.push(format!("{n} objects that no member can read"));
        }
        waits.extend(self.copying_waits_for(&a.backfill));
        waits.extend(a.trimmer.waits_for(self.site.map.no_snap_trim()));
        waits
    }

    /// The transactions here that are not durable.
    fn durability_waits_for(self, usec: Micros) -> Option<String> {
        let (_, submitted, what) = self.store.commits.front()?;
        let (n, ago) = (
            self.store.commits.len(),
            usec.saturating_sub(*submitted).as_secs(),
        );
        let first = match what {
            Commit::Write(v) => format!("write {v}"),
            _ => "a change of its own".to_owned(),
        };
        Some(format!(
            "its store to have {first} durable, of {n} transactions, submitted {ago} s ago"
        ))
    }

    /// Whether the op `seq` waits for its data to be on the members' disks.
    fn places_ahead(self, seq: u32) -> bool {
        matches!(self.role, Role::Active(a) if a.aheads.is_awaited_by(seq))
    }

    /// What the store is to read for clients' requests, apart from what is staged.
    fn store_waits_for(self, usec: Micros) -> Option<String> {
        let is_asked = |(seq, what): &(&u32, &Pending)| match what {
            Pending::Context(_) | Pending::List(_) => true,
            Pending::Op(_) => !self.ops.stages.is_awaited_by(**seq) && !self.places_ahead(**seq),
            _ => false,
        };
        let asked: Vec<_> = self.store.pending.iter().filter(is_asked).collect();
        let (n, (_, first)) = (asked.len(), asked.into_iter().min_by_key(|(seq, _)| **seq)?);
        let (object, op) = match first {
            Pending::Context(key) => (Some(key), self.ops.contexts.first_waiting(key)),
            Pending::Op(r) => (Some(&r.key), Some(&r.op)),
            other => (None, other.op()),
        };
        let object = object.map_or_else(|| "a list".to_owned(), |key| key::named(key).to_string());
        let ago = op.map(|op| usec.saturating_sub(op.stamps.received).as_secs());
        let since = ago.map_or_else(String::new, |s| format!(", for a request that came {s} s ago"));
        Some(format!("its store to read {object}, of {n}{since}"))
    }

    fn copying_waits_for(self, b: &Backfill) -> Option<String> {
        let what = b.waits_for()?;
        let why = match b.first() {
            _ if b.is_held(self.site) => ", which flags of the OSDMap forbid",
            Some(_) if b.is_target_full(&*self.site.map) || b.is_target_roomless() => {
                ", where there is no room"
            }
            _ if self.copying.unreadable.is_some() => ", for which an object can't be read",
            _ => "",
        };
        Some(format!("{what}{why}"))
    }
}
