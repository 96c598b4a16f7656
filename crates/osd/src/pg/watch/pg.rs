//! The PG's part: carries out the effects of ops on watches, and drops watches that have timed out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::EntityName;
use spirula_invariant::impossible;
use spirula_maps::ReqId;
use spirula_proto::osd::{OpArgs, OpCode, OsdOpIn, WatchArgs, WatchOp};

use super::WatchEffects;
use crate::pg::exec::Asking;
use crate::pg::key;
use crate::pg::op::{Client, ClientOp, OsdOp};
use crate::pg::op_queue::OpQueue;
use crate::pg::output::Ctx;
use crate::pg::role::Role;
use crate::pg::serving::Serving;
use crate::pg::site::Site;

impl OpQueue {
    /// The sender of a request, and its object's watchers.
    pub(in crate::pg) fn asking<'a>(
        &'a self,
        site: &Site,
        client: &'a Client,
        name: EntityName,
        object: &'a Bytes,
    ) -> Asking<'a> {
        Asking {
            client,
            name,
            object,
            watches: &self.watches,
            epoch: site.map.epoch(),
        }
    }

    /// Carries out the effects of a request on the watches of its object.
    pub(in crate::pg) fn apply_watch_effects(
        &mut self,
        object: &Bytes,
        effects: Option<Box<WatchEffects>>,
        client: &Arc<Client>,
        cx: &mut Ctx<'_>,
    ) {
        let Some(effects) = effects else {
            // The request did nothing to watches.
            return;
        };
        let WatchEffects {
            disconnects,
            connects,
            pings,
            notifies,
            acks,
            reserved,
        } = *effects;
        for (k, tell) in disconnects {
            self.watches.remove(object, &k, tell, cx.out);
        }
        // From here on the watches themselves are counted.
        drop(reserved);
        for connect in connects {
            self.watches.connect(object, connect, client, cx.usec, cx.out);
        }
        for k in pings {
            self.watches.ping(object, &k, cx.usec);
        }
        let version = self.contexts.state(object).map_or(0, |s| s.info.user_version);
        for start in notifies {
            self.watches
                .start_notify(object, start, version, client, cx.usec, cx.out);
        }
        for ack in acks {
            self.watches.acknowledge(object, ack, client, cx.out);
        }
    }

    /// Begins to wait for the watchers of an object that was read, except those on the blocklist.
    pub(in crate::pg) fn note_watchers(&mut self, object: &Bytes, cx: &Ctx<'_>) {
        if let Some(state) = self.contexts.state(object) {
            self.watches.populate(object, &state.info.watchers, cx.usec);
        }
    }
}

impl Serving<'_> {
    /// Handles the end of a client's connection. Its requests that have not begun never will: on
    /// its next connection it sends again those that it still wants.
    pub(in crate::pg) fn handle_client_closed(&mut self, conn: u64, cx: &Ctx<'_>) {
        self.ops.held.retain(|op| op.client.conn != conn);
        self.ops.contexts.drop_queued(conn);
        if let Role::Active(a) = &mut self.role {
            a.lease.drop_ops(conn);
            a.in_flight
                .iter_mut()
                .for_each(|w| w.dups.retain(|(op, _)| op.client.conn != conn));
        }
        self.ops.watches.client_closed(conn, cx.usec);
    }

    /// Drops the watches that have timed out, or whose client is on the blocklist.
    pub(in crate::pg) fn check_watches(&mut self, cx: &mut Ctx<'_>) {
        if self.ops.watches.is_empty() || !self.role.is_active() {
            // A primary that serves next takes the watches from the objects.
            return;
        }
        let map = Arc::clone(&self.site.map);
        let mut due = self
            .ops
            .watches
            .shut_out(cx.usec, |w| map.is_blocklisted(&w.addr));
        due.extend(self.ops.watches.expire(cx.usec, cx.out));
        let mut by_client: BTreeMap<(Bytes, EntityName), Vec<u64>> = BTreeMap::new();
        for (object, (cookie, name)) in due {
            by_client.entry((object, name)).or_default().push(cookie);
        }
        for ((object, name), cookies) in by_client {
            self.drop_watches(object, name, cookies, cx);
        }
    }

    /// Removes a client's watches of an object, in the order of the object's ops.
    fn drop_watches(&mut self, object: Bytes, name: EntityName, cookies: Vec<u64>, cx: &mut Ctx<'_>) {
        let Some(of) = key::parse_object_key(&object) else {
            impossible!("what is watched to be an object"; pg = self.site.pgid, epoch = self.site.map.epoch());
        };
        let unwatch = |cookie| {
            let args = WatchArgs {
                cookie,
                op: WatchOp::UNWATCH,
                ..WatchArgs::default()
            };
            OsdOp::from(OsdOpIn::new(OpCode::WATCH, OpArgs::Watch(args), Bytes::new()))
        };
        let reqid = ReqId {
            name,
            ..ReqId::default()
        };
        let ops = cookies.into_iter().map(unwatch).collect();
        let op = ClientOp {
            reqid,
            ..self.site.internal_op(of, ops, cx.usec)
        };
        self.queue_op(object, op, cx);
    }
}
