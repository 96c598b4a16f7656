//! Keeping all ops on an object waiting, while it is repaired or scrubbed.

use bytes::Bytes;
use spirula_invariant::impossible;

use super::key;
use super::output::Ctx;
use super::serving::Serving;
use super::store_queue::Pending;

impl Serving<'_> {
    /// Keeps ops on an object waiting from now on, until [`Serving::let_go`]. Those that have begun
    /// go on.
    pub(super) fn hold(&mut self, head: &Bytes, cx: &mut Ctx<'_>) {
        let (c, new) = self.ops.contexts.get(head);
        c.holds += 1;
        if new {
            self.store.look_up_context(head.clone(), cx);
        }
    }

    /// Whether an object that is held is not in use: what was written before is durable everywhere,
    /// and nothing is read.
    pub(super) fn is_quiet(&mut self, head: &Bytes) -> bool {
        let looked_up = |p: &Pending| matches!(p, Pending::Context(k) if k == head);
        if self.store.pending.values().any(looked_up) {
            return false;
        }
        let context = self.ops.contexts.find(head);
        context.is_some_and(|c| c.uncommitted == 0 && c.reading == 0 && !c.exclusive)
    }

    /// Lets ops on an object go on. `renewed`: its record here may be another one now.
    pub(super) fn let_go(&mut self, head: &Bytes, renewed: bool, cx: &mut Ctx<'_>) {
        let Some(c) = self.ops.contexts.find(head).filter(|c| c.holds > 0) else {
            impossible!("an object to be in use as long as it is held"; pg = self.site.pgid, object = key::named(head));
        };
        c.holds -= 1;
        if renewed {
            c.state = None;
        }
        if c.state.is_none() && c.holds == 0 {
            self.store.look_up_context(head.clone(), cx);
        } else {
            self.pump(head, cx);
        }
    }
}
