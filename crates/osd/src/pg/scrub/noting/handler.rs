//! Notes digests, as the primary. The change has its place among those of clients: it is made only
//! if the object is still as the members have read it.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Micros, UTime, decode_all};
use spirula_invariant::invariant;
use spirula_maps::{ReqId, SnapId, snap};

use super::super::handler::Scrubbing;
use super::super::results::Judged;
use super::{MOST_INFOS, Note, Noting};
use crate::pg::bug::Bug;
use crate::pg::dirty::Dirty;
use crate::pg::key;
use crate::pg::log::{LogEntry, LogOp};
use crate::pg::object::ObjectInfo;
use crate::pg::output::Ctx;
use crate::pg::pace::Class;
use crate::pg::role::Role;
use crate::pg::serving::Serving;
use crate::pg::txn::{ObjectOp, Txn};

/// Whether something has not changed for so long.
fn is_old(info: &ObjectInfo, now: UTime, least: Micros) -> bool {
    now.as_secs_f64() - info.local_mtime.as_secs_f64() >= least.as_secs_f64()
}

impl Scrubbing<'_> {
    /// Has the digests noted that the infos of an object and its clones lack, all copies of which were
    /// found to be alike; in a repair, also where the infos have others.
    pub(in crate::pg::scrub) fn note_lacking(&mut self, group: &[Judged], cx: &mut Ctx<'_>) {
        let least = self.serving.site.cfg.scrub.digest_min_age;
        let is_repair = self.run().is_some_and(|run| run.order.repair);
        let is_to_be_noted = |j: &Judged, info: &ObjectInfo| match j.judgement.is_misnoted() {
            true => is_repair,
            false => is_old(info, cx.now, least),
        };
        let lacking = group.iter().filter_map(|j| {
            let info = j.lacking.as_ref().filter(|info| is_to_be_noted(j, info));
            Some((j.key(), info?))
        });
        let infos: BTreeMap<Bytes, ObjectInfo> = lacking
            .take(MOST_INFOS)
            .map(|(key, info)| (key.clone(), info.clone()))
            .collect();
        let Some(head) = group.last().filter(|_| !infos.is_empty()) else {
            return; // Nothing is unknown, as of most objects.
        };
        let (head, Some(info)) = (head.key().clone(), head.auth_info()) else {
            return; // What the clones belong to is not known.
        };
        if key::snap_of(&head) != Some(snap::NOSNAP) {
            return; // The same.
        }
        let Ok(ObjectInfo { version, .. }) = decode_all(info) else {
            return; // The same.
        };
        let note = Note { version, infos };
        if let Some(run) = self.run() {
            run.noting.add(head.clone(), note, cx.usec);
        }
        let (c, new) = self.serving.ops.contexts.get(&head);
        let is_known = c.state.is_some();
        if new {
            self.serving.store.look_up_context(head, cx);
        } else if is_known {
            self.serving.note_digests(&head, cx);
        }
    }

    /// Whether digests are on their way to the members. The scrub goes on when they are there; while
    /// clients work it rests after that, too.
    pub(in crate::pg::scrub) fn is_noting(&mut self, cx: &mut Ctx<'_>) -> bool {
        let Role::Active(a) = &mut *self.serving.role else {
            return false;
        };
        let committed = a.committed;
        let took = a.scrub.run().and_then(|run| run.noting.took(committed, cx.usec));
        if let Some(Some(took)) = took {
            let rate = self.serving.site.cfg.best_effort;
            let pace = &self.serving.copying.pace;
            pace.worked(Class::BestEffort, cx.usec, took, rate, Micros::ZERO);
        }
        took == Some(None)
    }
}

/// What the scrub under way has noted.
fn noting(role: &mut Role) -> Option<&mut Noting> {
    let run = role.scrub().and_then(|scrub| scrub.run());
    run.map(|run| &mut run.noting)
}

impl Serving<'_> {
    /// Notes the digests of an object that is not in use, if a scrub has found any.
    pub(in crate::pg) fn note_digests(&mut self, head: &Bytes, cx: &mut Ctx<'_>) {
        if noting(self.role).is_none_or(|n| n.find(head).is_none()) {
            return; // As of most objects.
        }
        let context = self
            .ops
            .contexts
            .find(head)
            .filter(|c| !c.exclusive && c.holds == 0);
        let Some(mut state) = context.and_then(|c| c.state.clone()) else {
            return; // What uses it ends here again.
        };
        let Some(note) = noting(self.role).and_then(|n| n.take(head)) else {
            return; // It was just there.
        };
        let is_there = state.exists || state.info.whiteout;
        let is_same = state.info.version == note.version || self.site.cfg.has_bug(Bug::LateDigest);
        let Some(object) = key::parse_object_key(head).filter(|_| is_there && is_same) else {
            return; // It was written since: a later scrub notes it.
        };
        let version = self.next_version();
        invariant!(version > state.info.version, "what is noted of an object to come after its last change"; pg = self.site.pgid, version = version, last = state.info.version);
        let prior_version = state.info.version;
        let (mut objects, mut clones) = (Vec::new(), Vec::<SnapId>::new());
        for (key, mut info) in note.infos {
            match key::snap_of(&key) {
                _ if key == *head => state.info.digests = info.digests,
                Some(id) => {
                    clones.push(id);
                    info.prior_version = info.version;
                    info.version = version;
                    objects.push((key, vec![ObjectOp::SetInfo(info.to_bytes())]));
                }
                None => {}
            }
        }
        state.info.prior_version = prior_version;
        state.info.version = version;
        objects.push((head.clone(), vec![ObjectOp::SetInfo(state.info.to_bytes())]));
        let entry = LogEntry {
            version,
            prior_version,
            user_version: 0,
            reqid: ReqId::default(),
            object,
            op: LogOp::Modify,
            mtime: UTime::ZERO,
            return_code: 0,
            op_returns: Vec::new(),
            usage: self.copy.info.usage,
            clones,
            dirty: Dirty::default(),
        };
        if let Some(c) = self.ops.contexts.set_state(head, state) {
            c.uncommitted += 1;
        }
        if let Some(noting) = noting(self.role) {
            noting.note_sent(version);
        }
        let txn = Txn {
            objects,
            meta: Vec::with_capacity(1),
        };
        self.replicate(None, Some(head.clone()), entry, (txn, None), cx);
    }
}
