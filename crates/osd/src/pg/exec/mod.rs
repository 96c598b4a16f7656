//! Executes the ops of a request on one object: all of them or, if one fails, none.
//!
//! Reads within a request see the object as it was before the request; sizes and existence are those that the ops
//! before left, as with the official OSD. Execution is synchronous and changes nothing but the [`Exec`]: an op that needs
//! what was not fetched yet ends the run, and the request is executed again from the start when it was (see
//! [`super::fetch`]).

mod answers;
mod call;
mod checksum;
mod copy;
mod error;
mod omap;
mod omap_range;
mod plan;
mod read;
mod tmap;
mod watch;
mod work;
mod write;
mod xattr;

use std::collections::BTreeMap;

use answers::Answers;
use bytes::Bytes;
pub(crate) use error::{OpResult, Stop, fail};
use plan::Round;
pub(crate) use plan::up_front;
use spirula_denc::UTime;
use spirula_maps::{IntervalSet, SnapContext};
use spirula_proto::osd::{OpCode, OpFlags};
pub(crate) use watch::Asking;
pub(crate) use work::Work;

use super::cluster::PoolSnaps;
use super::config::PgConfig;
use super::errno::*;
use super::fetch::{Answer, Fetched, Want};
use super::log::Usage;
use super::object::{Attrs, ObjectInfo};
use super::op::{OsdOp, Request};
use super::txn::ObjectOp;
use super::watch::WatchEffects;

/// An object as it is, or as an op before left it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectState {
    /// Whether it exists.
    pub exists: bool,
    /// Its info; the default where it does not exist.
    pub info: ObjectInfo,
    /// Its attributes.
    pub attrs: Attrs,
}

impl ObjectState {
    /// Bytes of memory beyond its own size, roughly.
    pub(crate) fn extras(&self) -> usize {
        const ENTRY: usize = 64;
        let attrs = self.attrs.iter().map(|(n, v)| ENTRY + n.len() + v.len());
        let clones = self.info.snap_set.clones.iter();
        let clones = clones.map(|c| ENTRY + 16 * (c.snaps.len() + c.overlap.ranges().count()));
        attrs.chain(clones).sum::<usize>() + 2 * ENTRY * self.info.watchers.len()
    }
}

/// How a run ended.
pub(crate) enum Run {
    /// With the result of the last op.
    Done(i32),
    /// Not yet: this must be fetched first.
    Fetch(Vec<Want>),
}

/// Reads and writes, counted as `ceph df` and `pg dump` show them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IoCount {
    pub rd: i64,
    pub rd_kb: i64,
    pub wr: i64,
    pub wr_kb: i64,
}

impl IoCount {
    pub(crate) fn add(&mut self, o: Self) {
        self.rd += o.rd;
        self.rd_kb += o.rd_kb;
        self.wr += o.wr;
        self.wr_kb += o.wr_kb;
    }
}

/// `bytes` in KiB, rounded up.
fn kib(bytes: u64) -> i64 {
    i64::try_from(bytes.div_ceil(1024)).unwrap_or(i64::MAX)
}

/// A request under execution.
pub(crate) struct Exec<'a> {
    pub(in crate::pg) cfg: &'a PgConfig,
    /// The key of the object's head.
    pub(super) key: &'a Bytes,
    /// The pool's snapshots.
    pub(super) pool: &'a PoolSnaps,
    /// The object as it was before.
    pub(super) old: &'a ObjectState,
    /// What was fetched.
    answers: Answers<'a>,
    /// Makes the clone that the request leaves behind, where it was prepared.
    pub(super) clone_by: Option<ObjectOp>,
    /// Who asks.
    asking: Asking<'a>,
    /// What the run ended for.
    missing: Option<Want>,
    /// What class methods are told of the request.
    pub request: Request,
    /// Ops executed so far, those of class methods included.
    steps: u32,
    /// What the request has cost.
    pub work: Work,
    /// How often class methods asked for random bytes.
    drawn: u64,
    /// Whether a class method runs.
    in_call: bool,
    /// Bytes that class methods read from the store, or make.
    call_bytes: u64,
    /// Whether the object exists now.
    pub exists: bool,
    /// Its info now.
    pub info: ObjectInfo,
    /// Attributes set (or removed, `None`) so far.
    pub(super) attr_changes: BTreeMap<Bytes, Option<Bytes>>,
    /// All old attributes are gone, as the object was removed in between.
    attrs_cleared: bool,
    /// The attributes that replace the old ones, after a rollback.
    pub(super) attrs_after: Option<Attrs>,
    /// What removals of ranges of omap keys know of the request.
    ranges: omap_range::Ranges<'a>,
    /// After a rollback, the ranges in which the head is what it was before.
    pub(super) rolled_back: IntervalSet,
    /// What changes in the store.
    pub changes: Vec<ObjectOp>,
    /// Whether the request changes anything, be it only the version.
    pub dirty: bool,
    /// The time of the change is the one that is set already.
    keeps_mtime: bool,
    /// Whether the version that clients see goes up.
    pub user_modify: bool,
    /// Change of the PG's usage.
    pub usage: Usage,
    /// Reads and writes.
    pub io: IoCount,
    /// Offset of the first read, for the reply's header.
    pub data_off: Option<u64>,
    /// What happens to watches and notifications once the request is done.
    pub watch_effects: Option<Box<WatchEffects>>,
}

impl<'a> Exec<'a> {
    /// Begins with the object as it is, and what was fetched of it so far.
    pub(crate) fn new(
        cfg: &'a PgConfig,
        pool: &'a PoolSnaps,
        key: &'a Bytes,
        old: &'a ObjectState,
        answers: &'a [Fetched],
        asking: Asking<'a>,
    ) -> Self {
        Self {
            cfg,
            pool,
            key,
            old,
            answers: Answers::new(answers),
            clone_by: None,
            asking,
            missing: None,
            request: Request::default(),
            steps: 0,
            work: Work::default(),
            drawn: 0,
            in_call: false,
            call_bytes: 0,
            exists: old.exists,
            info: old.info.clone(),
            attr_changes: BTreeMap::new(),
            attrs_cleared: false,
            attrs_after: None,
            ranges: omap_range::Ranges::default(),
            rolled_back: IntervalSet::new(),
            changes: Vec::new(),
            dirty: false,
            keeps_mtime: false,
            user_modify: false,
            usage: Usage::default(),
            io: IoCount::default(),
            data_off: None,
            watch_effects: None,
        }
    }

    /// Executes the ops in order until one fails, or needs what was not fetched.
    pub(crate) fn run(&mut self, ops: &mut [OsdOp]) -> Run {
        let mut result = 0;
        self.ranges.announce(ops);
        for i in 0..ops.len() {
            let op = &mut ops[i];
            // Who watches an object is not part of what clients see as its version.
            self.user_modify |=
                op.code.is_modify() && op.code != OpCode::WATCH && !copy::keeps_version(op.code);
            result = match self.one(op) {
                Ok(result) => result,
                Err(Stop::Failed(e)) => e,
                Err(Stop::Unfetched) => return Run::Fetch(self.more(&mut ops[i + 1..])),
            };
            op.rval = result;
            if result < 0 && op.flags.has(OpFlags::FAILOK) && result != -EAGAIN {
                result = 0;
            }
            if result < 0 {
                break;
            }
            self.steps += 1;
        }
        self.settle_ranges();
        Run::Done(result)
    }

    /// What is to be fetched now: what the run ended for, and what the ops after it will want. Calls of methods that only read
    /// are executed to learn it; what they return is dropped with all else of this run.
    fn more(&mut self, rest: &mut [OsdOp]) -> Vec<Want> {
        let mut round = Round::default();
        if let Some(first) = self.missing.take() {
            round.add(first);
        }
        if !self.old.exists {
            return round.into_wants();
        }
        for op in rest {
            let want = if op.call.as_ref().is_some_and(|c| c.is_reading()) {
                match self.one(op) {
                    Err(Stop::Unfetched) => self.missing.take(),
                    _ => None,
                }
            } else {
                let want = plan::wanted(self.cfg, self.old, op);
                want.filter(|want| self.answers.find(want).is_none())
            };
            if want.is_some_and(|want| !round.add(want)) {
                break;
            }
        }
        round.into_wants()
    }

    /// Executes the ops of a write, and prepares the clone that it leaves behind where it changes the object.
    pub(crate) fn run_change(&mut self, ops: &mut [OsdOp], context: &SnapContext) -> Run {
        let run = self.run(ops);
        if !matches!(run, Run::Done(result) if result >= 0 && self.dirty) {
            return run;
        }
        match self.prepare_clone(context) {
            Ok(()) => run,
            Err(Stop::Failed(e)) => Run::Done(e),
            Err(Stop::Unfetched) => Run::Fetch(self.missing.take().into_iter().collect()),
        }
    }

    /// What the store says about the object as it was before the request.
    ///
    /// # Errors
    /// It was not fetched yet; it can't be read; or the request reads more than may be held for it.
    pub(in crate::pg) fn fetch(&mut self, want: Want) -> Result<&'a Answer, Stop> {
        let found = self.answers.find(&want);
        if self.in_call {
            self.note_call_bytes(found.map_or_else(|| want.cost(), Fetched::len))?;
        }
        if let Some(f) = found {
            return f.answer.as_ref().map_err(|_| Stop::Failed(-EIO));
        }
        if self.answers.bytes.saturating_add(want.cost()) > self.cfg.max_fetch() {
            return Err(Stop::Failed(-ENOMEM));
        }
        if want.is_pairs() && self.answers.pairs > self.cfg.max_facts() / 2 {
            return Err(Stop::Failed(-ENOMEM));
        }
        // In this order only, so that no two requests wait for what the other has.
        if want.slot().is_some_and(|slot| self.answers.hold(slot)) {
            return Err(Stop::Failed(-ENOMEM));
        }
        self.missing = Some(want);
        Err(Stop::Unfetched)
    }

    /// A class method reads so much more from the store, or makes it.
    fn note_call_bytes(&mut self, bytes: u64) -> Result<(), Stop> {
        self.call_bytes = self.call_bytes.saturating_add(bytes);
        if self.call_bytes > self.cfg.max_class_bytes as u64 {
            return fail(ENOMEM);
        }
        Ok(())
    }

    /// Bytes of omap pairs that are read at once.
    fn omap_bytes(&self) -> usize {
        let all = self.cfg.max_omap_bytes;
        if self.in_call {
            all.min(self.cfg.max_class_page)
        } else {
            all
        }
    }

    fn one(&mut self, op: &mut OsdOp) -> OpResult {
        self.begin_op()?;
        let result = self.execute(op)?;
        if let Err(stop) = self.end_op(op) {
            op.outdata = Default::default();
            return Err(stop);
        }
        Ok(result)
    }

    fn execute(&mut self, op: &mut OsdOp) -> OpResult {
        normalise(op);
        if op.code == OpCode::ZERO && self.zero_is_truncate(op) {
            if op.extent().offset >= self.info.size {
                return Ok(0);
            }
            op.code = OpCode::TRUNCATE;
        }
        match op.code {
            OpCode::READ | OpCode::SYNC_READ => self.read(op),
            OpCode::SPARSE_READ => self.sparse_read(op),
            OpCode::MAPEXT => self.map_extents(op),
            OpCode::STAT => self.stat(op),
            OpCode::CMPEXT => self.cmpext(op),
            OpCode::CHECKSUM => self.checksum(op),
            OpCode::ASSERT_VER => self.assert_ver(op),
            OpCode::GETXATTR => self.getxattr(op),
            OpCode::GETXATTRS => self.getxattrs(op),
            OpCode::CMPXATTR => self.cmpxattr(op),
            OpCode::WRITE => self.write(op),
            OpCode::WRITEFULL => self.writefull(op),
            OpCode::TMAPUP => self.tmap_update(op),
            OpCode::WRITESAME => self.writesame(op),
            OpCode::APPEND => self.append(op),
            OpCode::ZERO => self.zero(op),
            OpCode::TRIMTRUNC => {
                let mut e = op.extent();
                e.offset = e.truncate_size;
                op.set_args(&e);
                self.truncate(op)
            }
            OpCode::TRUNCATE => self.truncate(op),
            OpCode::CREATE => self.create(op),
            OpCode::DELETE => self.delete(),
            OpCode::SETALLOCHINT => self.set_alloc_hint(op),
            OpCode::STARTSYNC => {
                self.dirty = true;
                Ok(0)
            }
            OpCode::WATCH => self.watch(op),
            OpCode::NOTIFY => self.notify(op),
            OpCode::NOTIFY_ACK => self.notify_ack(op),
            OpCode::LIST_WATCHERS => self.list_watchers(op),
            OpCode::SETXATTR => self.setxattr(op),
            OpCode::RMXATTR => self.rmxattr(op),
            OpCode::CALL => self.call(op),
            OpCode::COPY_GET => self.copy_get(op),
            OpCode::COPY_FROM | OpCode::COPY_FROM2 => self.copy_from(op),
            OpCode::OMAPGETKEYS | OpCode::OMAPGETVALS => self.omap_list(op),
            OpCode::OMAPGETHEADER => self.omap_get_header(op),
            OpCode::OMAPGETVALSBYKEYS => self.omap_get_by_keys(op),
            OpCode::OMAP_CMP => self.omap_cmp(op),
            OpCode::OMAPSETVALS => self.omap_set_vals(op),
            OpCode::OMAPSETHEADER => self.omap_set_header_op(op),
            OpCode::OMAPCLEAR => self.omap_clear(),
            OpCode::OMAPRMKEYS => self.omap_rm_keys(op),
            OpCode::OMAPRMKEYRANGE => self.omap_rm_range(op),
            OpCode::LIST_SNAPS => self.list_snaps(op),
            OpCode::ROLLBACK => self.rollback(op),
            _ => fail(EOPNOTSUPP),
        }
    }

    /// What the request made of the object, and its changes with the info as the last of them. `mtime` is the
    /// client's.
    pub(crate) fn finish(mut self, mtime: UTime, now: UTime) -> (ObjectState, Vec<ObjectOp>) {
        if !self.exists && !self.info.whiteout {
            return (ObjectState::default(), self.changes);
        }
        if !mtime.is_zero() && !self.keeps_mtime {
            self.info.mtime = mtime;
            self.info.local_mtime = now;
        }
        let mut attrs = if let Some(attrs) = self.attrs_after {
            attrs
        } else if self.attrs_cleared {
            Attrs::new()
        } else {
            self.old.attrs.clone()
        };
        for (name, value) in self.attr_changes {
            match value {
                Some(value) => {
                    attrs.insert(name.clone(), value.clone());
                    self.changes.push(ObjectOp::SetAttr { name, value });
                }
                None => {
                    if attrs.remove(&name).is_some() {
                        self.changes.push(ObjectOp::RmAttr(name));
                    }
                }
            }
        }
        self.changes.push(ObjectOp::SetInfo(self.info.to_bytes()));
        (
            ObjectState {
                exists: self.exists,
                info: self.info,
                attrs,
            },
            self.changes,
        )
    }

    /// A range that ends at or beyond the object's end is cut off rather than zeroed.
    fn zero_is_truncate(&self, op: &OsdOp) -> bool {
        let e = op.extent();
        let max = self.cfg.max_object_size;
        self.exists
            && e.offset < max
            && (1..=max).contains(&e.length)
            && e.offset.saturating_add(e.length) >= self.info.size
    }

    /// Whether the changes need room for data or attributes, be it in place of old ones.
    pub(super) fn stores_data(&self) -> bool {
        let stores = |c: &ObjectOp| {
            !matches!(
                c,
                ObjectOp::Remove
                    | ObjectOp::RmAttr(_)
                    | ObjectOp::Truncate { .. }
                    | ObjectOp::OmapRm(_)
                    | ObjectOp::OmapRmRange { .. }
                    | ObjectOp::OmapClear
            )
        };
        self.changes.iter().any(stores) || self.attr_changes.values().any(Option::is_some)
    }

    fn maybe_create(&mut self) {
        if !self.exists {
            self.exists = true;
            self.usage.objects += 1;
            self.changes.push(ObjectOp::Touch);
        }
        self.dirty = true;
    }

    pub(super) fn set_size(&mut self, size: u64) {
        self.usage.bytes += size.cast_signed() - self.info.size.cast_signed();
        self.info.size = size;
    }

    fn check_extent(&self, offset: u64, length: u64) -> Result<(), Stop> {
        let max = self.cfg.max_object_size;
        if offset >= max || length > max || offset + length > max {
            return fail(EFBIG);
        }
        Ok(())
    }
}

/// Clients of old wrote "no truncation" as sequence 1 and size -1.
fn normalise(op: &mut OsdOp) {
    if op.code.uses_extent() {
        let mut e = op.extent();
        if e.truncate_seq == 1 && e.truncate_size == u64::MAX {
            e.truncate_seq = 0;
            e.truncate_size = 0;
            op.set_args(&e);
        }
    }
}
