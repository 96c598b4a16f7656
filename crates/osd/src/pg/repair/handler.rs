//! Directs repairs, as the primary.

use crate::pg::serving::Serving;
use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::OsdId;
use spirula_proto::mon::LogPriority;

use super::mending::Mending;
use super::message::{Outcome, RepairBody};
use super::{Job, Step};
use crate::pg::account::Room;
use crate::pg::hold::Holding;
use crate::pg::key;
use crate::pg::op::ClientOp;
use crate::pg::output::{Ctx, Output};
use crate::pg::perf::DropReason;

/// The most objects that wait for their repair; further ones are noticed again when they are read
/// again.
const MOST: usize = 1024;

/// The number of interrupted attempts after which a repair is given up.
const TRIES: u32 = 5;

/// The time between these attempts.
const AGAIN: Micros = Micros::from_secs(1);

/// For this long after a repair, or a failed one, the object is not repaired again:
/// reads of it meanwhile fail.
const SETTLED: Micros = Micros::from_secs(10);

/// Why a copy is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// It could not be read.
    Read,
    /// A scrub has found it to be wrong.
    Scrub {
        /// Whether nothing of it counts.
        renews: bool,
    },
}

/// Directs repairs, as the primary.
pub(in crate::pg) struct Repairing<'a> {
    pub(in crate::pg) serving: Serving<'a>,
}

impl Repairing<'_> {
    /// The members' side of repairs.
    fn mending(&mut self) -> Mending<'_> {
        self.serving.mending()
    }

    /// Handles a message about a repair.
    pub(in crate::pg) fn repair_message(&mut self, from: OsdId, body: RepairBody, cx: &mut Ctx<'_>) {
        match body {
            RepairBody::Unreadable(key) => drop(self.repair(&key, from, Cause::Read, cx)),
            RepairBody::Wanted {
                number,
                key,
                source,
                parts,
                anew,
            } => self
                .mending()
                .repair_wanted(from, number, key, (source, parts, anew), cx),
            RepairBody::Told(number, outcome) => self.repair_told(from, number, outcome, cx),
            RepairBody::Read {
                number,
                key,
                from: at,
                parts,
                anew,
            } => self
                .mending()
                .repair_read((from, number), key, at, (&parts, anew), cx),
            RepairBody::Part { number, found } => self.mending().repair_part(from, number, found, cx),
        }
    }

    /// Notes that this OSD can't read an object. Returns whether it will be repaired, so that an op
    /// that needs it may wait; a member that is not primary has told its primary.
    pub(in crate::pg) fn note_unreadable(&mut self, key: &Bytes, cx: &mut Ctx<'_>) -> bool {
        if self.serving.role.is_active_replica() {
            self.serving.outbox.send_repair(
                self.serving.site.leader(),
                self.serving.lead.id,
                RepairBody::Unreadable(key.clone()),
                false,
                cx,
            );
            return false;
        }
        self.repair(key, self.serving.site.whoami, Cause::Read, cx)
    }

    /// Makes an op that needs an object which can't be read here wait for the repair, or returns it
    /// if there will be none.
    pub(in crate::pg) fn await_repair(
        &mut self,
        key: &Bytes,
        mut op: ClientOp,
        cx: &mut Ctx<'_>,
    ) -> Option<ClientOp> {
        let head = key::head_key(key);
        // A read for a copy does not wait where a write does that may wait for copies itself.
        let may_wait = |c: &mut crate::pg::context::Context| op.client.asker.is_none() || !c.exclusive;
        if !self.serving.ops.contexts.find(&head).is_some_and(may_wait) || !self.note_unreadable(key, cx) {
            return Some(op);
        }
        op.reset();
        op.taken.room = Room::default();
        if let Some(c) = self.serving.ops.contexts.find(&head) {
            // They belonged to the op that was the first.
            c.answers = Vec::new();
            c.queue.push_front(op);
        }
        None
    }

    /// Queues the repair of a member's copy that a scrub has found to be wrong. `renews`: it is made
    /// wholly anew; else only some of it can't be read, and the rest is as good as any. Returns whether
    /// it will be repaired.
    pub(in crate::pg) fn repair_copy(
        &mut self,
        key: &Bytes,
        osd: OsdId,
        renews: bool,
        cx: &mut Ctx<'_>,
    ) -> bool {
        self.repair(key, osd, Cause::Scrub { renews }, cx)
    }

    /// Queues the repair of an object that a member can't read. Returns whether it will be
    /// repaired.
    fn repair(&mut self, key: &Bytes, osd: OsdId, cause: Cause, cx: &mut Ctx<'_>) -> bool {
        let renews = matches!(cause, Cause::Scrub { renews: true });
        let members = self.serving.site.interval.place.acting.count();
        let Some(name) = key::parse_object_key(key).filter(|o| self.serving.site.contains(o)) else {
            return false;
        };
        let (me, usec) = (self.serving.site.whoami, cx.usec);
        let Some(r) = self.serving.role.repairs() else {
            return false;
        };
        r.ended.retain(|(at, ..)| *at + SETTLED > usec);
        if r.ended.iter().any(|(_, o, k)| *o == osd && k == key) {
            return false;
        }
        if let Some(job) = r.job(key) {
            job.bad.insert(osd);
            job.renews |= renews;
            return true;
        }
        if r.jobs.len() >= MOST {
            return false;
        }
        r.jobs.push_back(Job {
            key: key.clone(),
            bad: BTreeSet::from([osd]),
            unable: BTreeSet::new(),
            step: Step::Waiting(Micros::ZERO),
            tries: 0,
            renews,
        });
        if cause != Cause::Read {
            // The scrub has told what is wrong.
        } else if osd != me {
            let line = format!(
                "{} read error on the copy of {name} on osd.{osd}",
                self.serving.site.pgid
            );
            self.cluster_log(line, cx);
        } else if members > 1 {
            let others = self
                .serving
                .site
                .interval
                .place
                .acting
                .osds()
                .filter(|o| *o != me);
            let others: Vec<String> = others.map(|o| o.to_string()).collect();
            let line = format!(
                "{} missing primary copy of {name}, will try copies on {}",
                self.serving.site.pgid,
                others.join(",")
            );
            self.cluster_log(line, cx);
        }
        let head = key::head_key(key);
        Holding::of(self.serving.reborrow()).hold(&head, cx);
        true
    }

    fn cluster_log(&self, line: String, cx: &mut Ctx<'_>) {
        cx.out.push(Output::ClusterLog {
            priority: LogPriority::ERROR,
            line,
        });
    }

    /// Goes on with the first repair. Cheap if there is none: called after every event.
    pub(in crate::pg) fn repair_on(&mut self, cx: &mut Ctx<'_>) {
        if self.may_begin(cx.usec) {
            self.begin_repair(cx);
        }
    }

    /// Whether a repair is due, and its object is not in use.
    fn may_begin(&mut self, usec: Micros) -> bool {
        let Some(job) = self.serving.role.repairs().and_then(|r| r.jobs.front()) else {
            return false;
        };
        if !matches!(job.step, Step::Waiting(until) if usec >= until) {
            return false;
        }
        let head = key::head_key(&job.key);
        Holding::of(self.serving.reborrow()).is_quiet(&head)
    }

    /// The repair that is under way, or next.
    fn first(&mut self) -> &mut Job {
        let pgid = self.serving.site.pgid;
        match self.serving.role.repairs().and_then(|r| r.jobs.front_mut()) {
            Some(job) => job,
            None => impossible!("a repair that goes on to be there"; pg = pgid),
        }
    }

    /// Makes a member take the object from another one.
    fn begin_repair(&mut self, cx: &mut Ctx<'_>) {
        let me = self.serving.site.whoami;
        let job = self.first();
        let (key, bad, unable) = (job.key.clone(), job.bad.clone(), job.unable.clone());
        let anew = job.renews;
        // Itself first: clients wait.
        let target = bad.iter().copied().find(|o| *o == me);
        let target = target.or_else(|| bad.first().copied());
        let acting = &self.serving.site.interval.place.acting;
        let givers = self.serving.site.backend.givers(acting, &bad);
        let can_give = |o: &OsdId| Some(*o) != target && !unable.contains(o);
        let source = givers.into_iter().find(can_give);
        let (Some(target), Some(source)) = (target, source) else {
            return self.repair_lost(cx);
        };
        invariant!(
            target != source,
            "an object to be taken from another member than the one that lacks it";
            pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), target = target, object = key::named(&key)
        );
        self.first().step = Step::Asked {
            target,
            source,
            heard: cx.usec,
        };
        let Some(r) = self.serving.role.repairs() else {
            impossible!("a primary that serves to direct repairs"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch());
        };
        r.number += 1;
        let number = r.number;
        let mut parts = self.serving.store.parts(me);
        if anew {
            // Parts of others that are wrong must not become part of this one.
            parts.retain(|(osd, _)| *osd == target || !bad.contains(osd));
        }
        self.serving.outbox.send_repair(
            target,
            self.serving.lead.id,
            RepairBody::Wanted {
                number,
                key,
                source,
                parts,
                anew,
            },
            false,
            cx,
        );
    }

    /// Handles a member's report on its progress.
    fn repair_told(&mut self, from: OsdId, number: u32, outcome: Outcome, cx: &mut Ctx<'_>) {
        let pgid = self.serving.site.pgid;
        let current = self.serving.role.repairs().filter(|r| r.number == number);
        let Some((job, ended, lost)) = current.and_then(|r| {
            let job = r.jobs.front_mut()?;
            Some((job, &mut r.ended, &mut r.lost))
        }) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = pgid, from = from);
        };
        let source = match &mut job.step {
            Step::Asked {
                target,
                source,
                heard,
            } if *target == from => {
                *heard = cx.usec;
                *source
            }
            Step::Asked { .. } | Step::Waiting(_) => {
                return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = pgid, from = from);
            }
        };
        match outcome {
            Outcome::Working => {}
            Outcome::Done => {
                job.bad.remove(&from);
                job.unable.clear();
                job.step = Step::Waiting(Micros::ZERO);
                ended.push_back((cx.usec, from, job.key.clone()));
                lost.remove(&job.key);
                let all = job.bad.is_empty();
                self.serving.counters.repaired += 1;
                if all {
                    self.end_repair(cx);
                }
            }
            Outcome::SourceUnreadable => {
                job.bad.insert(source);
                job.unable.insert(source);
                job.step = Step::Waiting(Micros::ZERO);
            }
            Outcome::Failed => self.repair_failed(cx),
        }
    }

    /// Schedules another attempt of a repair that was interrupted.
    fn repair_failed(&mut self, cx: &mut Ctx<'_>) {
        let job = self.first();
        job.tries += 1;
        job.step = Step::Waiting(cx.usec + AGAIN);
        if job.tries >= TRIES {
            self.give_up_repair(cx);
        }
    }

    /// Handles that no member can read the object.
    fn repair_lost(&mut self, cx: &mut Ctx<'_>) {
        let (pgid, key) = (self.serving.site.pgid, self.first().key.clone());
        let line = format!("{pgid} missing primary copy of {}, unfound", key::named(&key));
        if self.serving.role.repairs().is_some_and(|r| r.lost.insert(key)) {
            self.cluster_log(line, cx);
        }
        self.give_up_repair(cx);
    }

    /// Ends a repair without success: reads of the object fail for a while.
    fn give_up_repair(&mut self, cx: &mut Ctx<'_>) {
        let usec = cx.usec;
        if let Some(r) = self.serving.role.repairs()
            && let Some(job) = r.jobs.front()
        {
            let bad = job.bad.iter().map(|o| (usec, *o, job.key.clone()));
            r.ended.extend(bad);
        }
        self.end_repair(cx);
    }

    /// Ends the first repair: the ops that waited go on.
    fn end_repair(&mut self, cx: &mut Ctx<'_>) {
        let pgid = self.serving.site.pgid;
        let Some(job) = self.serving.role.repairs().and_then(|r| r.jobs.pop_front()) else {
            impossible!("a repair that ends to have begun"; pg = pgid);
        };
        let head = key::head_key(&job.key);
        Holding::of(self.serving.reborrow()).let_go(&head, job.renews, cx);
    }

    /// Handles the loss of a connection to or from a member.
    pub(in crate::pg) fn repair_reset(&mut self, osd: OsdId, cx: &mut Ctx<'_>) {
        self.mending().patient_reset(osd, cx);
        let job = self.serving.role.repairs().and_then(|r| r.jobs.front());
        if job.is_some_and(|j| matches!(j.step, Step::Asked { target, .. } if target == osd)) {
            self.repair_failed(cx);
        }
    }

    /// Handles the passing of time: a silent member is asked again.
    pub(in crate::pg) fn repair_tick(&mut self, cx: &mut Ctx<'_>) {
        let patience = Micros::from_secs(self.serving.site.cfg.peering_retry.into());
        let usec = cx.usec;
        let job = self.serving.role.repairs().and_then(|r| r.jobs.front());
        let is_silent =
            |s: Step| matches!(s, Step::Asked { heard, .. } if usec.saturating_sub(heard) > patience);
        if job.is_some_and(|j| is_silent(j.step)) {
            self.repair_failed(cx);
        }
    }
}

impl Serving<'_> {
    /// The handler of repairs.
    pub(in crate::pg) fn repairing(&mut self) -> Repairing<'_> {
        Repairing {
            serving: self.reborrow(),
        }
    }
}
