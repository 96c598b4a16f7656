//! Executes the ops of a request on one object: all of them or, if one fails, none.
//!
//! Reads within a request see the object as it was before the request; sizes and existence are
//! those that the earlier ops left, as with the official OSD. Execution is synchronous and changes
//! nothing but the parts of an [`Exec`]: an op that needs an answer which was not fetched yet ends
//! the run, and the request is executed again from the start when it was (see [`super::fetch`]).
//!
//! An op is a method of the handler that may touch what the op needs, in the file of its family:
//! [`Looking`] changes nothing, [`Changing`] the draft of the object, [`Watching`] its watches.
//! Nothing here knows which members hold the object, or how: ops see offsets, names and answers.

mod answers;
mod before;
mod call;
mod calls;
mod changing;
mod checksum;
mod copy;
mod draft;
mod error;
mod given;
mod left;
mod looking;
mod omap;
mod omap_input;
mod omap_range;
mod plan;
mod ranges;
mod read;
mod rollback;
mod state;
mod tmap;
mod watch;
mod work;
mod write;
mod xattr;

use before::Before;
use calls::Calls;
use changing::Changing;
pub(crate) use draft::Draft;
pub(crate) use error::{OpResult, Stop, fail};
pub(crate) use given::{Asking, Given};
use left::kib;
pub(crate) use left::{IoCount, Left};
use looking::Looking;
pub(crate) use plan::up_front;
use plan::{Round, normalise};
use spirula_errno::*;
use spirula_maps::SnapContext;
use spirula_proto::osd::{OpCode, OpFlags};
pub(crate) use state::ObjectState;
use watch::Watching;
use work::Work;

use super::fetch::{Fetched, Want};
use super::op::{OsdOp, Request};

/// The answers that a run lacked, so that it was given up.
pub(crate) struct Unfetched {
    /// The wants to be fetched first.
    pub wants: Vec<Want>,
    /// The cost of the request so far ([`Exec::new`]).
    pub spent: u64,
    /// Whether a class method has noted what it has made of the answers: they are not needed any
    /// more.
    pub noted: bool,
}

/// The outcome of the ops of a request on an object, if they have not failed.
pub(crate) struct Outcome {
    /// The result of the last op.
    pub result: i32,
    /// The object with its changes.
    pub draft: Draft,
    /// The other results of the request.
    pub left: Left,
}

/// A request under execution. Each of its parts is changed by its own methods, or by a handler that
/// has borrowed it.
pub(crate) struct Exec<'a> {
    /// The inputs that the run only reads.
    given: Given<'a>,
    /// The object as it was before, and the answers fetched of it.
    before: Before<'a>,
    /// The object as the ops so far have changed it.
    draft: Draft,
    /// The keys of the request that removals of ranges of omap keys must know of.
    ranges: ranges::Ranges<'a>,
    /// The cost of the request.
    work: Work<'a>,
    /// The information on the request for class methods.
    calls: Calls,
    /// The results of the request besides a changed object.
    left: Left,
}

impl<'a> Exec<'a> {
    /// Begins a run with the object as it is, and the answers fetched of it so far; earlier runs
    /// have cost `spent`.
    pub(crate) fn new(
        given: Given<'a>,
        old: &'a ObjectState,
        answers: &'a [Fetched],
        request: Request,
        spent: u64,
    ) -> Self {
        Self {
            given,
            before: Before::new(given.cfg, old, answers),
            draft: Draft::new(old),
            ranges: ranges::Ranges::default(),
            work: Work::new(given.cfg, spent),
            calls: Calls::new(request),
            left: Left::default(),
        }
    }

    /// Executes the ops in order until one fails, or needs an answer that was not fetched. A write
    /// has a `context`: if it changes the object, it prepares the clone that it leaves behind.
    ///
    /// # Errors
    /// Something must be fetched first.
    pub(crate) fn run(
        mut self,
        ops: &mut [OsdOp],
        context: Option<&SnapContext>,
    ) -> Result<Outcome, Unfetched> {
        let result = match self.all(ops) {
            Ok(result) => result,
            Err(wants) => return Err(self.unfetched(wants)),
        };
        if context.is_some_and(|c| self.draft.leaves_nothing(self.before.state, c)) {
            self.draft.dirty = false;
        }
        let changes = result >= 0 && self.draft.dirty;
        let prepared = match context.filter(|_| changes) {
            Some(context) => self.changing().prepare_clone(context),
            None => Ok(()),
        };
        let result = match prepared {
            Ok(()) => result,
            Err(Stop::Failed(e)) => -e,
            Err(Stop::Unfetched) => {
                let wants = self.before.missing.take().into_iter().collect();
                return Err(self.unfetched(wants));
            }
        };
        Ok(Outcome {
            result,
            draft: self.draft,
            left: self.left,
        })
    }

    fn unfetched(self, wants: Vec<Want>) -> Unfetched {
        let noted = self.calls.noted;
        Unfetched {
            wants,
            // A request that notes how far it came is as costly as its steps.
            spent: if noted { 0 } else { self.work.spent },
            noted,
        }
    }

    /// Executes all ops; returns the result of the last one, or the wants to be fetched first.
    fn all(&mut self, ops: &mut [OsdOp]) -> Result<i32, Vec<Want>> {
        let mut result = 0;
        self.ranges.announce(ops);
        for i in 0..ops.len() {
            let op = &mut ops[i];
            // An object's watchers are not part of what clients see as its version.
            self.draft.user_modify |=
                op.code.is_modify() && op.code != OpCode::WATCH && !copy::keeps_version(op.code);
            result = match self.one(op) {
                Ok(result) => result,
                Err(Stop::Failed(e)) => -e,
                Err(Stop::Unfetched) => return Err(self.more(&mut ops[i + 1..])),
            };
            op.rval = result;
            if result < 0 && op.flags.intersects(OpFlags::FAILOK) && result != -EAGAIN {
                result = 0;
            }
            if result < 0 {
                break;
            }
            self.calls.steps += 1;
        }
        self.ranges.settle(&mut self.draft.changes);
        Ok(result)
    }

    /// The wants to fetch now: the one for which the run ended, and those of the ops after it.
    /// Calls of methods that only read are executed to learn theirs; their results are dropped with
    /// everything else of this run.
    fn more(&mut self, rest: &mut [OsdOp]) -> Vec<Want> {
        let mut round = Round::default();
        if let Some(first) = self.before.missing.take() {
            round.add(first);
        }
        if !self.before.state.exists {
            return round.into_wants();
        }
        for op in rest {
            let want = if op.call.as_ref().is_some_and(|c| c.is_reading()) {
                match self.one(op) {
                    Err(Stop::Unfetched) => self.before.missing.take(),
                    _ => None,
                }
            } else {
                let want = plan::wanted(self.given.cfg, self.before.state, op);
                want.filter(|want| !self.before.has(want))
            };
            if want.is_some_and(|want| !round.add(want)) {
                break;
            }
        }
        round.into_wants()
    }

    /// The handler of ops that change nothing.
    fn looking(&mut self) -> Looking<'_, 'a> {
        Looking {
            given: &self.given,
            before: &mut self.before,
            draft: &self.draft,
            work: &mut self.work,
            left: &mut self.left,
        }
    }

    /// The handler of ops that change the object.
    fn changing(&mut self) -> Changing<'_, 'a> {
        Changing {
            given: &self.given,
            before: &mut self.before,
            draft: &mut self.draft,
            ranges: &mut self.ranges,
            work: &mut self.work,
            left: &mut self.left,
        }
    }

    /// The handler of ops on watches and notifications.
    fn watching(&mut self) -> Watching<'_> {
        Watching {
            given: &self.given,
            draft: &mut self.draft,
            left: &mut self.left,
        }
    }

    fn one(&mut self, op: &mut OsdOp) -> OpResult {
        self.work.begin_op()?;
        let result = self.execute(op)?;
        if let Err(stop) = self.work.end_op(op) {
            op.outdata = Default::default();
            return Err(stop);
        }
        Ok(result)
    }

    fn execute(&mut self, op: &mut OsdOp) -> OpResult {
        normalise(op);
        match op.code {
            OpCode::READ | OpCode::SYNC_READ => self.looking().read(op),
            OpCode::SPARSE_READ => self.looking().sparse_read(op),
            OpCode::MAPEXT => self.looking().map_extents(op),
            OpCode::STAT => self.looking().stat(op),
            OpCode::CMPEXT => self.looking().cmpext(op),
            OpCode::CHECKSUM => self.looking().checksum(op),
            OpCode::ASSERT_VER => self.looking().assert_ver(op),
            OpCode::GETXATTR => self.looking().getxattr(op),
            OpCode::GETXATTRS => self.looking().getxattrs(op),
            OpCode::CMPXATTR => self.looking().cmpxattr(op),
            OpCode::OMAPGETKEYS | OpCode::OMAPGETVALS => self.looking().omap_list(op),
            OpCode::OMAPGETHEADER => self.looking().omap_get_header(op),
            OpCode::OMAPGETVALSBYKEYS => self.looking().omap_get_by_keys(op),
            OpCode::OMAP_CMP => self.looking().omap_cmp(op),
            OpCode::COPY_GET => self.looking().copy_get(op),
            OpCode::LIST_SNAPS => self.looking().list_snaps(op),
            OpCode::LIST_WATCHERS => self.looking().list_watchers(op),
            OpCode::WRITE => self.changing().write(op),
            OpCode::WRITEFULL => self.changing().writefull(op),
            OpCode::TMAPUP => self.changing().tmap_update(op),
            OpCode::WRITESAME => self.changing().writesame(op),
            OpCode::APPEND => self.changing().append(op),
            OpCode::ZERO => self.changing().zero(op),
            OpCode::TRIMTRUNC => {
                let mut e = op.extent();
                e.offset = e.truncate_size;
                op.set_args(&e);
                self.changing().truncate(op)
            }
            OpCode::TRUNCATE => self.changing().truncate(op),
            OpCode::CREATE => self.changing().create(op),
            OpCode::DELETE => self.changing().delete(),
            OpCode::SETALLOCHINT => self.changing().set_alloc_hint(op),
            OpCode::STARTSYNC => {
                self.draft.dirty = true;
                Ok(0)
            }
            OpCode::SETXATTR => self.changing().setxattr(op),
            OpCode::RMXATTR => self.changing().rmxattr(op),
            OpCode::COPY_FROM | OpCode::COPY_FROM2 => self.changing().copy_from(op),
            OpCode::OMAPSETVALS => self.changing().omap_set_vals(op),
            OpCode::OMAPSETHEADER => self.changing().omap_set_header(op),
            OpCode::OMAPCLEAR => self.changing().omap_clear(),
            OpCode::OMAPRMKEYS => self.changing().omap_rm_keys(op),
            OpCode::OMAPRMKEYRANGE => self.changing().omap_rm_range(op),
            OpCode::ROLLBACK => self.changing().rollback(op),
            OpCode::WATCH => self.watching().watch(op),
            OpCode::NOTIFY => self.watching().notify(op),
            OpCode::NOTIFY_ACK => self.watching().notify_ack(op),
            OpCode::CALL => self.call(op),
            _ => fail(EOPNOTSUPP),
        }
    }
}
