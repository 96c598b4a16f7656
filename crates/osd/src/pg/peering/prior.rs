//! The OSDs that a primary must ask before it can know that it has heard of the newest copy.
//!
//! Every interval that may have served since the newest known activation is looked at: enough of
//! its members must have answered with a copy, and the backend says how many are. With whole copies
//! one is. For if an interval was active, each of its members
//! remembers that; and a member that has answered takes part in no earlier interval any more. A
//! member without a copy may have had one on a disk that was replaced. Its answer counts if it has
//! had its store since before the interval: then it was given no copy, and the interval was never
//! active. Else it counts only if all other members answer that they have none. An interval of
//! which no answer counts blocks the PG until those of its members come up that are down, unless an
//! operator declared them lost.
//!
//! If no copy's past is known from that activation on, as maps were missed or there is no copy,
//! every OSD is asked, and an OSD that is down is waited for, unless it was already down then.

use spirula_denc::Micros;
use spirula_maps::{Epoch, OsdId, Positions};

use super::Prior;
use crate::pg::backend::newest_activation;
use crate::pg::bug::Bug;
use crate::pg::history::History;
use crate::pg::peering::Peering;
use crate::pg::peering::handler::Agreeing;

impl Agreeing<'_> {
    /// The OSDs that are still to be asked after the answers so far.
    pub(in crate::pg) fn prior(&self) -> Prior {
        let p = &*self.peering;
        if self.site.cfg.has_bug(Bug::NoPrior) {
            return Prior::Enough;
        }
        let since = newest_activation(&p.infos).max(self.site.pool.created);
        match self.known_history(p, since) {
            Some(h) => {
                let may_be_newer = h.intervals().iter().filter(|i| i.last >= since);
                self.prior_of(p, may_be_newer.map(|i| (i.first, &i.acting)))
            }
            None if !p.asked_all => Prior::AskAll,
            None => self.prior_unknown(p, since),
        }
    }

    /// Whether an OSD of an earlier interval may still answer reads, as it was promised that, and
    /// does not know yet that the interval has ended.
    pub(in crate::pg) fn is_read_elsewhere(&self, usec: Micros) -> bool {
        let p = &*self.peering;
        let by_members = usec < p.promised.members && !self.site.cfg.has_bug(Bug::NoSharedWait);
        if usec >= p.promised.primary && !by_members {
            return false;
        }
        let since = newest_activation(&p.infos).max(self.site.pool.created);
        let Some(h) = self.known_history(p, since) else {
            return true;
        };
        h.intervals().iter().filter(|i| i.last >= since).any(|i| {
            let may_read =
                |o: OsdId| !p.infos.contains_key(&o) && self.site.map.osd(o).is_some_and(|v| !v.dead);
            // The only member of an interval has answered.
            i.acting.count() > 1
                && match by_members {
                    true => i.acting.osds().any(may_read),
                    false => may_read(i.primary),
                }
        })
    }

    /// Whether a copy that is announced unasked may be the newest one: its OSD was a member of an
    /// interval that matters, or the members are not known.
    pub(in crate::pg) fn may_matter(&self, osd: OsdId) -> bool {
        let p = &*self.peering;
        let since = newest_activation(&p.infos).max(self.site.pool.created);
        let history = self.known_history(p, since);
        history.is_none_or(|h| h.intervals().iter().any(|i| i.acting.contains(osd)))
    }

    /// A history that reaches back to the epoch.
    fn known_history<'a>(&'a self, p: &'a Peering, since: Epoch) -> Option<&'a History> {
        let of_others = p.infos.values().flatten().map(|i| &i.history);
        // Its own counts without a copy too, where it was there when the pool was made.
        let mut histories = of_others.chain([&self.copy.info.history]);
        histories.find(|h| since > Epoch::NONE && h.covers(since))
    }

    /// What to ask for the sake of these intervals, each given by its first epoch and its members.
    fn prior_of<'a>(&self, p: &Peering, intervals: impl Iterator<Item = (Epoch, &'a Positions)>) -> Prior {
        let (mut ask, mut down) = (Vec::new(), Vec::new());
        for (first, members) in intervals {
            let counts = |o: OsdId| match p.infos.get(&o) {
                Some(Some(_)) => true,
                Some(None) => p.kept_since.get(&o).is_some_and(|since| *since <= first),
                None => false,
            };
            let is_proven = self.site.backend.is_proof(members, &counts);
            let new = members.osds().filter(|o| self.site.is_up(*o) && !p.knows_of(*o));
            let before = ask.len();
            ask.extend(new);
            if is_proven || ask.len() > before {
                continue;
            }
            let awaited = |o: &OsdId| {
                let is_lost = self.site.map.osd(*o).is_none_or(|v| v.lost_at > first);
                !is_lost && !p.infos.contains_key(o)
            };
            down.extend(members.osds().filter(awaited));
        }
        for list in [&mut ask, &mut down] {
            list.sort_unstable();
            list.dedup();
        }
        match () {
            () if !ask.is_empty() => Prior::Ask(ask),
            () if !down.is_empty() => Prior::Down(down),
            () => Prior::Enough,
        }
    }

    /// What to ask if the past is not known, and all OSDs that are up were asked.
    fn prior_unknown(&self, p: &Peering, since: Epoch) -> Prior {
        let may_be_newer = |o: &OsdId| {
            !p.infos.contains_key(o)
                && self
                    .site
                    .map
                    .osd(*o)
                    .is_some_and(|v| !v.up && v.down_at > since && v.lost_at < v.down_at)
        };
        let down: Vec<OsdId> = OsdId::below(self.site.map.max_osd())
            .filter(may_be_newer)
            .collect();
        if down.is_empty() {
            Prior::Enough
        } else {
            Prior::Down(down)
        }
    }
}
