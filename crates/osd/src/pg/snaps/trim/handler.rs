//! Trims removed snapshots, as the primary that serves.

use bytes::Bytes;
use spirula_denc::{Micros, UTime, decode_all};
use spirula_invariant::{impossible, invariant};
use spirula_maps::{EVersion, ReqId, SnapId, snap};

use super::{MOST_STRAYS, Trimmer};
use crate::pg::context::Context;
use crate::pg::dirty::Dirty;
use crate::pg::exec::ObjectState;
use crate::pg::fetch::ReadError;
use crate::pg::key::{self, KeyRange};
use crate::pg::log::{LogEntry, LogOp, Usage};
use crate::pg::object::ObjectInfo;
use crate::pg::object::StoredObject;
use crate::pg::output::{Ctx, Output};
use crate::pg::pace::Class;
use crate::pg::role::Role;
use crate::pg::serving::Serving;
use crate::pg::snaps::set::Trimmed;
use crate::pg::store_queue::{Commit, Pending};
use crate::pg::txn::{MetaOp, ObjectOp, Txn};

/// The number of snapshots without clones that are noted together.
const NOTE_TOGETHER: usize = 256;

/// The effect of a trim on an object and its clone.
struct Trim {
    state: ObjectState,
    usage: Usage,
    objects: Vec<(Bytes, Vec<ObjectOp>)>,
}

/// Trims a clone of the object with this head, the clone's info being `info`; `None` if it stands
/// for no removed snapshot.
fn trim(
    head: &Bytes,
    old: &ObjectState,
    (id, mut info): (SnapId, ObjectInfo),
    is_removed: impl Fn(SnapId) -> bool,
    version: EVersion,
) -> Option<Trim> {
    let snaps = &old.info.snap_set.clone_of(id)?.snaps;
    let gone: Vec<SnapId> = snaps.iter().copied().filter(|s| is_removed(*s)).collect();
    if gone.is_empty() {
        return None;
    }
    let (mut state, mut usage) = (old.clone(), Usage::default());
    let change = match state.info.snap_set.trim(id, |s| gone.contains(&s))? {
        Trimmed::Kept(snaps) => {
            info.snaps = snaps;
            info.prior_version = info.version;
            info.version = version;
            ObjectOp::SetInfo(info.to_bytes())
        }
        Trimmed::Removed(bytes) => {
            usage.objects = -1;
            usage.clones = -1;
            usage.bytes = bytes;
            ObjectOp::Remove
        }
    };
    let forget = ObjectOp::NoteSnaps {
        add: Vec::new(),
        remove: gone,
    };
    let of_head = if state.info.whiteout && state.info.snap_set.clones.is_empty() {
        // It was kept for its clones.
        usage.objects -= 1;
        usage.whiteouts -= 1;
        state = ObjectState::default();
        ObjectOp::Remove
    } else {
        state.info.prior_version = old.info.version;
        state.info.version = version;
        ObjectOp::SetInfo(state.info.to_bytes())
    };
    let clone = (key::clone_key(head, id), vec![change, forget]);
    Some(Trim {
        state,
        usage,
        objects: vec![clone, (head.clone(), vec![of_head])],
    })
}

/// Trims removed snapshots, as the primary.
pub(in crate::pg) struct Trimming<'a> {
    pub(in crate::pg) serving: Serving<'a>,
}

impl Trimming<'_> {
    /// Follows the map: snapshots that it no longer names are trimmed everywhere, those that it
    /// names anew are to be trimmed.
    pub(in crate::pg) fn update_trim_queue(&mut self) {
        if !self.serving.role.is_active() {
            // The next primary of the PG looks at all removed snapshots.
            return;
        }
        let removed = &self.serving.site.pool.snaps.removed;
        self.serving.copy.info.purged_snaps = self.serving.copy.info.purged_snaps.intersection(removed);
        let mut queue = removed.clone();
        queue.subtract(&self.serving.copy.info.purged_snaps);
        if let Some(t) = self.serving.role.trimmer() {
            t.queue = queue;
        }
    }

    /// Grants the PG's turn to trim.
    pub(in crate::pg) fn grant_trim(&mut self, cx: &mut Ctx<'_>) {
        if let Some(t) = self.serving.role.trimmer() {
            t.granted = true;
            self.trim_on(cx);
        }
    }

    /// Goes on trimming if nothing is under way.
    pub(in crate::pg) fn trim_on(&mut self, cx: &mut Ctx<'_>) {
        let (hold, max) = (
            self.serving.site.map.no_snap_trim(),
            self.serving.site.cfg.max_snap_trims,
        );
        let Role::Active(a) = &mut self.serving.role else {
            // Only a primary that serves trims.
            return;
        };
        let t = &mut *a.trimmer;
        let busy = t.listing || !t.waiting.is_empty() || t.last > a.committed;
        if busy || !t.granted || t.failed || hold || cx.usec < t.not_before {
            // The trims under way, the PG's turn, the map or a tick let it go on.
            return;
        }
        let (pace, usec) = (&self.serving.copying.pace, cx.usec);
        if let Some(begun) = t.begun.take() {
            let (took, rate) = (usec.saturating_sub(begun), self.serving.site.cfg.best_effort);
            pace.worked(Class::BestEffort, usec, took, rate, Micros::ZERO);
        }
        let Some(next) = t.queue.ranges().next() else {
            return self.trim_stray(cx);
        };
        if let Some(usec) = pace.rests_until(Class::BestEffort, usec) {
            return cx.out.push(Output::Alarm { usec });
        }
        t.begun = Some(usec);
        t.listing = true;
        t.current = next.start;
        let KeyRange { from, to } = key::snap_range(
            self.serving.site.pgid,
            self.serving.site.pool.pg_num.max(1),
            next.start,
        );
        let token = self.serving.store.token(Pending::Trim);
        cx.out.push(Output::ListRecords { token, from, to, max });
    }

    /// Has a clone trimmed that a scrub has found, and that stands for purged snapshots.
    pub(in crate::pg) fn found_stray(&mut self, clone: Bytes, purged: SnapId) {
        let t = self.serving.role.trimmer();
        if let Some(t) = t.filter(|t| t.strays.len() < MOST_STRAYS) {
            t.strays.insert(clone, purged);
        }
    }

    /// Trims the next stray, or ends the PG's turn.
    fn trim_stray(&mut self, cx: &mut Ctx<'_>) {
        let rests_until = self.serving.copying.pace.rests_until(Class::BestEffort, cx.usec);
        let t = self.trimmer();
        let Some((clone, &snap)) = t.strays.first_key_value() else {
            t.granted = false;
            return self.save_purged(cx);
        };
        if let Some(usec) = rests_until {
            return cx.out.push(Output::Alarm { usec });
        }
        let clone = clone.clone();
        t.begun = Some(cx.usec);
        t.current = snap;
        t.waiting.insert(clone.clone());
        self.serving
            .store
            .look_up(clone.clone(), Pending::TrimClone(clone), cx);
    }

    /// Notes the purged snapshots, and removes on all members any records of them that a recovery
    /// has left.
    fn save_purged(&mut self, cx: &mut Ctx<'_>) {
        let snaps = std::mem::take(&mut self.trimmer().unsaved);
        if snaps.is_empty() {
            // All are noted already.
            return;
        }
        self.serving
            .copy
            .save_info(self.serving.site.pgid, self.serving.store, cx);
        let KeyRange { from, to } = self.serving.site.range();
        let objects = vec![(from, vec![ObjectOp::ForgetSnaps { to, snaps }])];
        self.serving.replicate_own(None, objects, None, cx);
    }

    /// Handles the list of clones of the snapshot that is being trimmed.
    pub(in crate::pg) fn clones_listed(
        &mut self,
        r: Result<Vec<(Bytes, Bytes)>, ReadError>,
        cx: &mut Ctx<'_>,
    ) {
        let t = self.trimmer();
        t.listing = false;
        let Ok(records) = r else {
            return self.trim_failed();
        };
        let clones: Vec<Bytes> = records
            .iter()
            .filter_map(|(r, _)| key::parse_snap_key(r))
            .collect();
        if clones.is_empty() {
            return self.snap_purged(cx);
        }
        self.trimmer().waiting.extend(clones.iter().cloned());
        for clone in clones {
            self.serving
                .store
                .look_up(clone.clone(), Pending::TrimClone(clone), cx);
        }
    }

    /// Handles that the snapshot being trimmed has no clones left, on no member.
    fn snap_purged(&mut self, cx: &mut Ctx<'_>) {
        let t = self.trimmer();
        invariant!(
            t.waiting.is_empty() && !t.listing,
            "a snapshot that is purged to have no clone that waits to be trimmed";
            snap = t.current, waiting = t.waiting.len()
        );
        let (snap, mut save) = (t.current, false);
        if t.queue.contains(snap) {
            t.queue.remove_range(snap, 1);
            t.unsaved.push(snap);
            save = t.unsaved.len() >= NOTE_TOGETHER;
            self.serving.copy.info.purged_snaps.insert(snap);
        }
        if save {
            self.save_purged(cx);
        }
        self.trim_on(cx);
    }

    /// Handles the state of a clone that is to be trimmed.
    pub(in crate::pg) fn trim_found(
        &mut self,
        clone: Bytes,
        found: Result<Option<StoredObject>, ReadError>,
        cx: &mut Ctx<'_>,
    ) {
        let found = found.map(|o| o.map(|o| decode_all::<ObjectInfo>(&o.info)));
        let info = match found {
            Ok(Some(Ok(info))) => info,
            Ok(None) => return self.forget_record(&clone, cx),
            Ok(Some(Err(_))) | Err(ReadError) => return self.trim_failed(),
        };
        let Some(id) = key::snap_of(&clone) else {
            return self.trim_failed();
        };
        let head = key::clone_key(&clone, snap::NOSNAP);
        let (c, new) = self.serving.ops.contexts.get(&head);
        c.trims.push((id, info));
        if new {
            self.serving.store.look_up_context(head, cx);
        } else {
            self.serving.pump(&head, cx);
        }
    }

    fn trim_failed(&mut self) {
        if let Some(t) = self.serving.role.trimmer() {
            t.failed = true;
        }
    }

    /// The state of the trimming. Its calls to the store are forgotten when this OSD serves no
    /// longer.
    fn trimmer(&mut self) -> &mut Trimmer {
        let pgid = self.serving.site.pgid;
        match self.serving.role.trimmer() {
            Some(t) => t,
            None => impossible!("only a primary that serves to trim"; pg = pgid),
        }
    }

    /// Handles that an object can't be looked up, so that its clones can't be trimmed.
    pub(in crate::pg) fn trim_blocked(&mut self, head: &Bytes) {
        if self
            .serving
            .ops
            .contexts
            .find(head)
            .is_some_and(|c| !c.trims.is_empty())
        {
            self.trim_failed();
        }
    }

    /// Trims the waiting clones of an object, unless they are being read or repaired.
    pub(in crate::pg) fn trim_clones(&mut self, head: &Bytes, cx: &mut Ctx<'_>) {
        loop {
            let is_free =
                |c: &&mut Context| c.state.is_some() && !c.exclusive && c.reading == 0 && c.holds == 0;
            let context = self.serving.ops.contexts.find(head).filter(is_free);
            let Some(clone) = context.and_then(|c| c.trims.pop()) else {
                // No clone is left, or the op that holds the object goes on with them.
                return;
            };
            self.trim_clone(head, clone, cx);
        }
    }

    fn trim_clone(&mut self, head: &Bytes, clone: (SnapId, ObjectInfo), cx: &mut Ctx<'_>) {
        let id = clone.0;
        let clone_key = key::clone_key(head, id);
        let version = EVersion::new(
            self.serving.site.map.epoch(),
            self.serving.copy.info.last_update.version + 1,
        );
        let given_up = self
            .serving
            .role
            .lost()
            .and_then(|l| l.given_up(&clone_key, &clone.1.snaps));
        let snaps = &self.serving.site.pool.snaps;
        let is_removed = |s: SnapId| match &given_up {
            Some(given_up) => given_up.contains(s),
            None => snaps.removed.contains(s) || snaps.purged.contains(s),
        };
        let Some(state) = self.serving.ops.contexts.state(head) else {
            impossible!("an object whose clone is trimmed to be known"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), version = version);
        };
        let prior_version = state.info.version;
        let done = trim(head, state, clone, is_removed, version);
        let (Some(done), Some(object)) = (done, key::parse_object_key(head)) else {
            return self.forget_record(&clone_key, cx);
        };
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
            usage: self.serving.copy.info.usage.plus(done.usage),
            clones: vec![id],
            dirty: Dirty::of(done.objects.last().map_or(&[], |(_, ops)| ops)),
        };
        if let Some(c) = self.serving.ops.contexts.set_state(head, done.state) {
            c.uncommitted += 1;
        }
        if let Some(lost) = self.serving.role.lost() {
            let renewed = lost.renewed(&done.objects, u64::MAX);
            renewed.iter().for_each(|key| lost.remove(key));
        }
        let pause = self.serving.site.cfg.snap_trim_sleep;
        if let Some(t) = self.serving.role.trimmer() {
            t.waiting.remove(&clone_key);
            t.strays.remove(&clone_key);
            invariant!(version > t.last, "a trim to be newer than the one before"; version = version, before = t.last);
            t.last = version;
            t.not_before = cx.usec + pause;
        }
        let txn = Txn {
            objects: done.objects,
            meta: Vec::with_capacity(1),
        };
        self.serving
            .replicate(None, Some(head.clone()), entry, (txn, None), cx);
    }

    /// Removes a record, left by a recovery, of a clone that does not exist or does not stand for
    /// the snapshot.
    fn forget_record(&mut self, clone: &Bytes, cx: &mut Ctx<'_>) {
        let t = self.trimmer();
        t.waiting.remove(clone);
        t.strays.remove(clone);
        let record = key::snap_key(t.current, clone);
        let txn = Txn {
            objects: Vec::new(),
            meta: vec![MetaOp::Delete(record)],
        };
        self.serving.store.submit(txn, Commit::Record, cx);
        self.trim_on(cx);
    }
}

impl Serving<'_> {
    /// The handler of removed snapshots.
    pub(in crate::pg) fn trimming(&mut self) -> Trimming<'_> {
        Trimming {
            serving: self.reborrow(),
        }
    }
}
