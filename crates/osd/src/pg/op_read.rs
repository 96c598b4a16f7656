//! The order of ops on an object, what they fetch, and those that read.

use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_maps::EVersion;
use spirula_proto::osd::OsdFlags;

use super::config::PgConfig;
use super::context::Context;
use super::errno::*;
use super::exec::{Exec, ObjectState, Run, up_front};
use super::fetch::{Fetched, ReadError, Want};
use super::op::ClientOp;
use super::op_checks::data_off;
use super::{Ctx, Output, Pending, Pg, StoredObject};

/// An op that waits for the store to read.
#[derive(Debug)]
pub(super) struct Reading {
    pub op: ClientOp,
    key: Bytes,
    /// What was fetched for it before.
    answers: Vec<Fetched>,
}

/// How an op can go on now.
enum Step {
    /// Not before others are done.
    Wait,
    /// At once.
    Run,
    /// After fetching this.
    Fetch(Vec<Want>),
}

/// A read waits until the writes before it are durable everywhere, as what it returns must not be lost. A write that
/// reads need not: the store shows it what was submitted, and it is answered only when it is durable itself, after all
/// before it.
fn next_step(cfg: &PgConfig, c: &Context, state: &ObjectState, op: &mut ClientOp) -> Step {
    let writes = op.may_write();
    if c.exclusive || !writes && c.uncommitted > 0 || writes && c.reading > 0 {
        return Step::Wait;
    }
    let wants = if op.may_read() {
        up_front(cfg, state, &mut op.ops)
    } else {
        Vec::new()
    };
    if wants.is_empty() {
        Step::Run
    } else {
        Step::Fetch(wants)
    }
}

impl Pg {
    /// Puts an op into its object's order, and executes what can be.
    pub(super) fn queue_op(&mut self, key: Bytes, op: ClientOp, cx: &mut Ctx<'_>) {
        self.contexts.evict(self.shares.1);
        let (c, new) = self.contexts.get(&key);
        cx.perf.contexts.0 += u64::from(!new);
        cx.perf.contexts.1 += 1;
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
                self.note_watchers(key, cx);
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
            match next_step(&self.cfg, c, state, &mut op) {
                Step::Wait => {
                    c.queue.push_front(op);
                    return;
                }
                Step::Run => self.execute(key, op, Vec::new(), cx),
                Step::Fetch(wants) => self.fetch(key, op, Vec::new(), wants, cx),
            }
        }
    }

    /// Fetches what an op wants; meanwhile a write has the object to itself, and a read shares it with reads.
    pub(super) fn fetch(
        &mut self,
        key: &Bytes,
        op: ClientOp,
        answers: Vec<Fetched>,
        wants: Vec<Want>,
        cx: &mut Ctx<'_>,
    ) {
        if let Some(c) = self.contexts.find(key) {
            if op.may_write() {
                c.exclusive = true
            } else {
                c.reading += 1
            }
        }
        let key = key.clone();
        let reading = Reading {
            op,
            key: key.clone(),
            answers,
        };
        let token = self.token(Pending::Op(Box::new(reading)));
        cx.out.push(Output::Read { token, key, wants });
    }

    /// What an op wanted.
    pub(super) fn op_fetched(&mut self, r: Reading, fetched: Vec<Fetched>, cx: &mut Ctx<'_>) {
        let Reading {
            mut op,
            key,
            mut answers,
        } = r;
        if let Some(c) = self.contexts.find(&key) {
            if op.may_write() {
                c.exclusive = false
            } else {
                c.reading = c.reading.saturating_sub(1)
            }
        }
        if answers.is_empty() {
            answers = fetched;
        } else {
            answers.extend(fetched);
        }
        op.reset();
        self.execute(&key, op, answers, cx);
        self.pump(&key, cx);
    }

    fn execute(&mut self, key: &Bytes, mut op: ClientOp, answers: Vec<Fetched>, cx: &mut Ctx<'_>) {
        op.stamps.started = cx.usec;
        if !op.client.is_internal() && self.map.is_blocklisted(&op.client.addr) {
            // It came before the map that shuts the client out, and waited.
            return self.fail(&mut op, -EBLOCKLISTED, cx);
        }
        if op.may_write() {
            self.execute_write(key, op, answers, cx);
        } else {
            self.execute_read(key, op, answers, cx);
        }
    }

    fn execute_read(&mut self, key: &Bytes, mut op: ClientOp, answers: Vec<Fetched>, cx: &mut Ctx<'_>) {
        let epoch = self.map.epoch();
        let Some(state) = self.contexts.state(key) else {
            return;
        };
        if !state.exists {
            return self.fail(&mut op, -ENOENT, cx);
        }
        let client = Arc::clone(&op.client);
        let asking = self.asking(&client, op.reqid.name, key);
        let mut exec = Exec::new(&self.cfg, state, &answers, asking);
        exec.request = op.request(cx.now, self.info.last_user_version);
        let mut result = match exec.run(&mut op.ops) {
            Run::Done(result) => result,
            Run::Fetch(wants) => return self.fetch(key, op, answers, wants, cx),
        };
        let (io, offset, user_version) = (exec.io, exec.data_off, state.info.user_version);
        let effects = exec.watch_effects.take();
        if result >= 0 {
            let failed = op
                .ops
                .iter()
                .find(|o| o.rval < 0 && !o.flags.has(spirula_proto::osd::OpFlags::FAILOK));
            result = failed.map_or(result, |o| o.rval);
        }
        self.counters.add_io(io);
        if result >= 0 {
            self.apply_watch_effects(key, effects, &client, cx);
        }
        cx.note_slow(&op);
        let mut reply = op.reply(result, epoch, OsdFlags::ACK | OsdFlags::ONDISK);
        if result >= 0 {
            reply.set_versions(EVersion::ZERO, user_version);
        } else if result == -ENOENT {
            reply.set_enoent_versions(self.info.last_update, self.info.last_user_version);
        }
        self.reply(&op, reply, data_off(offset), cx);
    }
}
