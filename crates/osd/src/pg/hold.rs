//! Keeping all ops on an object waiting, while it is repaired or scrubbed.

use bytes::Bytes;
use spirula_invariant::impossible;

use super::key;
use super::output::Ctx;
use super::serving::Serving;
use super::store_queue::Pending;

/// Keeps all ops on objects waiting.
pub(super) struct Holding<'a> {
    serving: Serving<'a>,
}

impl<'a> Holding<'a> {
    /// The part that keeps a PG's ops waiting.
    pub(super) fn of(serving: Serving<'a>) -> Self {
        Self { serving }
    }
}

impl Holding<'_> {
    /// Keeps ops on an object waiting from now on, until [`Holding::let_go`]. Those that have begun
    /// go on.
    pub(super) fn hold(&mut self, head: &Bytes, cx: &mut Ctx<'_>) {
        let (c, new) = self.serving.ops.contexts.get(head);
        c.holds += 1;
        if new {
            self.serving.store.look_up_context(head.clone(), cx);
        }
    }

    /// Whether an object that is held is not in use: what was written before is durable everywhere,
    /// and nothing is read.
    pub(super) fn is_quiet(&mut self, head: &Bytes) -> bool {
        let looked_up = |p: &Pending| matches!(p, Pending::Context(k) if k == head);
        if self.serving.store.pending.values().any(looked_up) {
            return false;
        }
        let context = self.serving.ops.contexts.find(head);
        context.is_some_and(|c| c.uncommitted == 0 && c.reading == 0 && !c.exclusive)
    }

    /// Lets ops on an object go on. `renewed`: its record here may be another one now.
    pub(super) fn let_go(&mut self, head: &Bytes, renewed: bool, cx: &mut Ctx<'_>) {
        let Some(c) = self.serving.ops.contexts.find(head).filter(|c| c.holds > 0) else {
            impossible!("an object to be in use as long as it is held"; pg = self.serving.site.pgid, object = key::named(head));
        };
        c.holds -= 1;
        if renewed {
            c.state = None;
        }
        if c.state.is_none() && c.holds == 0 {
            self.serving.store.look_up_context(head.clone(), cx);
        } else {
            self.serving.pump(head, cx);
        }
    }
}
