//! Gives another OSD parts of this copy's fragments.

use spirula_invariant::dropped;
use spirula_maps::OsdId;

use super::want::{FragmentWant, fragment_want};
use crate::pg::bug::{Bug, effect};
use crate::pg::fetch::{Answer, Fetched, Pieces};
use crate::pg::led::Led;
use crate::pg::message::{PeerBody, PeeringId};
use crate::pg::output::Ctx;
use crate::pg::perf::DropReason;
use crate::pg::role::Role;
use crate::pg::store_queue::{FragmentAsked, Pending};

impl Led<'_> {
    /// Handles a question for parts of a fragment: of the primary, or of the holder that brings
    /// members up.
    pub(in crate::pg) fn fragment_wanted(
        &mut self,
        from: OsdId,
        id: PeeringId,
        want: FragmentWant,
        cx: &mut Ctx<'_>,
    ) {
        if self.store.fragments.is_none() || self.copy.info.incomplete {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        let overtakes = self.site.cfg.has_bug(Bug::MixedVersions);
        if want.at > self.copy.info.last_update && !overtakes {
            let Role::Replica(r) = &mut *self.role else {
                return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
            };
            // A write before it is on its way. Asked again, it takes the place of the first.
            r.early
                .retain(|(by, _, w)| *by != from || w.number.0 != want.number.0);
            return r.early.push((from, id, want));
        }
        let wants = want.extents.iter().map(|e| fragment_want(*e)).collect();
        let asked = Box::new(FragmentAsked {
            by: from,
            key: want.key.clone(),
            id,
            number: want.number,
        });
        let what = Pending::Fragment(asked);
        match overtakes {
            true => effect::read_early(self.store, want.key, wants, what, cx),
            false => self.store.read_with_room(want.key, wants, what, cx),
        }
    }

    /// Answers the questions that came before the write that they wait for.
    pub(in crate::pg) fn answer_early(&mut self, cx: &mut Ctx<'_>) {
        let at = self.copy.info.last_update;
        let Role::Replica(r) = &mut *self.role else {
            // Only members wait for writes.
            return;
        };
        let due: Vec<_> = r.early.extract_if(.., |(_, _, w)| w.at <= at).collect();
        for (from, id, want) in due {
            self.fragment_wanted(from, id, want, cx);
        }
    }

    /// Answers with parts of a fragment. Returns whether they could be read.
    pub(in crate::pg) fn fragment_read(
        &mut self,
        asked: FragmentAsked,
        read: Vec<Fetched>,
        cx: &mut Ctx<'_>,
    ) -> bool {
        let mut found = Some(Pieces::new());
        for f in read {
            found = match (found, f.answer) {
                (Some(mut all), Ok(Answer::Data(pieces))) => {
                    all.extend(pieces);
                    Some(all)
                }
                _ => None,
            };
        }
        let is_read = found.is_some();
        let body = PeerBody::Fragment {
            number: asked.number,
            found,
        };
        self.outbox.send(asked.by, asked.id, body, true, cx);
        is_read
    }
}
