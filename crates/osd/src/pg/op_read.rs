//! The order of ops on an object, and those that read.

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_maps::EVersion;
use spirula_proto::osd::OsdFlags;

use super::context::Context;
use super::errno::*;
use super::exec::{Exec, Fetched, ObjectState, read};
use super::op::ClientOp;
use super::op_checks::data_off;
use super::{Ctx, Output, Pending, Pg, Pieces, ReadError, ReadRange, StoredObject};

/// An op that waits for the store to read.
#[derive(Debug)]
pub(super) struct Reading {
    pub op: ClientOp,
    key: Bytes,
    /// Which op of the request each range is for.
    wanted: Vec<usize>,
}

/// How an op can go on now.
enum Step {
    /// Not before others are done.
    Wait,
    /// At once.
    Run,
    /// After reading these.
    Fetch(Vec<usize>, Vec<ReadRange>),
}

fn next_step(c: &Context, state: &ObjectState, op: &mut ClientOp) -> Step {
    if c.exclusive {
        return Step::Wait;
    }
    let writes = op.may_write();
    let (mut wanted, mut ranges) = (Vec::new(), Vec::new());
    if op.may_read() {
        for (i, o) in op.ops.iter_mut().enumerate() {
            if let Some(range) = read::plan(state, o) {
                wanted.push(i);
                ranges.push(range);
            }
        }
    }
    let must_be_durable = !writes || !ranges.is_empty();
    if must_be_durable && c.uncommitted > 0 || writes && c.reading > 0 {
        Step::Wait
    } else if ranges.is_empty() {
        Step::Run
    } else {
        Step::Fetch(wanted, ranges)
    }
}

impl Pg {
    /// Puts an op into its object's order, and executes what can be.
    pub(super) fn queue_op(&mut self, key: Bytes, op: ClientOp, cx: &mut Ctx<'_>) {
        self.contexts.evict(self.shares.1);
        let (c, new) = self.contexts.get(&key);
        c.queue.push_back(op);
        if new {
            let token = self.token(Pending::Context(key.clone()));
            cx.out.push(Output::Lookup { token, key });
        } else {
            self.pump(&key, cx);
        }
    }

    /// The store's answer about an object.
    pub(super) fn context_loaded(
        &mut self,
        key: &Bytes,
        r: Result<Option<StoredObject>, ReadError>,
        cx: &mut Ctx<'_>,
    ) {
        let state = match r {
            Ok(None) => Some(ObjectState::default()),
            Ok(Some(o)) => decode_all(&o.info).ok().map(|info| ObjectState {
                exists: true,
                info,
                attrs: o.attrs,
            }),
            Err(_) => None,
        };
        match state {
            Some(state) => {
                if let Some(c) = self.contexts.find(key) {
                    c.state = Some(state);
                }
                self.pump(key, cx);
            }
            None => {
                for mut op in self.contexts.forget(key) {
                    self.fail(&mut op, -EIO, cx);
                }
            }
        }
    }

    /// Executes an object's ops in order as far as possible.
    pub(super) fn pump(&mut self, key: &Bytes, cx: &mut Ctx<'_>) {
        loop {
            let Some(c) = self.contexts.find(key) else { return };
            let Some(mut op) = c.queue.pop_front() else { return };
            let Some(state) = &c.state else {
                c.queue.push_front(op);
                return;
            };
            match next_step(c, state, &mut op) {
                Step::Wait => {
                    c.queue.push_front(op);
                    return;
                }
                Step::Run => self.execute(key, op, Vec::new(), cx),
                Step::Fetch(wanted, ranges) => {
                    if op.may_write() {
                        c.exclusive = true
                    } else {
                        c.reading += 1
                    }
                    let reading = Reading {
                        op,
                        key: key.clone(),
                        wanted,
                    };
                    let token = self.token(Pending::Op(Box::new(reading)));
                    cx.out.push(Output::Read {
                        token,
                        key: key.clone(),
                        ranges,
                    });
                }
            }
        }
    }

    /// What an op wanted to read.
    pub(super) fn op_data(&mut self, r: Reading, data: Result<Vec<Pieces>, ReadError>, cx: &mut Ctx<'_>) {
        let mut fetched: Vec<Fetched> = Vec::new();
        fetched.resize_with(r.op.ops.len(), || None);
        match data {
            Ok(all) => {
                for (i, pieces) in r.wanted.into_iter().zip(all) {
                    fetched[i] = Some(Ok(pieces));
                }
            }
            Err(_) => r.wanted.into_iter().for_each(|i| fetched[i] = Some(Err(-EIO))),
        }
        if let Some(c) = self.contexts.find(&r.key) {
            if r.op.may_write() {
                c.exclusive = false
            } else {
                c.reading = c.reading.saturating_sub(1)
            }
        }
        self.execute(&r.key, r.op, fetched, cx);
        self.pump(&r.key, cx);
    }

    fn execute(&mut self, key: &Bytes, mut op: ClientOp, fetched: Vec<Fetched>, cx: &mut Ctx<'_>) {
        op.stamps.started = cx.usec;
        if op.may_write() {
            self.execute_write(key, op, fetched, cx);
        } else {
            self.execute_read(key, op, fetched, cx);
        }
    }

    fn execute_read(&mut self, key: &Bytes, mut op: ClientOp, mut fetched: Vec<Fetched>, cx: &mut Ctx<'_>) {
        let epoch = self.map.epoch();
        let Some(state) = self.contexts.state(key) else {
            return;
        };
        if !state.exists {
            return self.fail(&mut op, -ENOENT, cx);
        }
        let mut exec = Exec::new(&self.cfg, state);
        let mut result = exec.run(&mut op.ops, &mut fetched);
        let (io, offset, user_version) = (exec.io, exec.data_off, state.info.user_version);
        if result >= 0 {
            let failed = op
                .ops
                .iter()
                .find(|o| o.rval < 0 && !o.flags.has(spirula_proto::osd::OpFlags::FAILOK));
            result = failed.map_or(result, |o| o.rval);
        }
        self.counters.add_io(io);
        let mut reply = op.reply(result, epoch, OsdFlags::ACK | OsdFlags::ONDISK);
        if result >= 0 {
            reply.set_versions(EVersion::ZERO, user_version);
        } else if result == -ENOENT {
            reply.set_enoent_versions(self.info.last_update, self.info.last_user_version);
        }
        self.reply(&op, reply, data_off(offset), cx);
    }
}
