//! The connected clients, what each of them takes, and what `ceph daemon osd.N dump_clients` shows
//! of that.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use serde_json::{Value, json};
use spirula_buf::Pool;
use spirula_denc::EntityName;
use spirula_invariant::dropped;
use spirula_maps::Epoch;
use spirula_msgr::{QueueAccount, Sender};
use spirula_proto::RawMessage;

use super::dropped::{DropCounts, Dropped};
use super::maps::Maps;
use super::unread::HungUp;
use crate::core::Core;
use crate::pg::account::{Party, Totals};
use crate::pg::op::Client;

/// A client's connection.
pub(super) struct Session {
    pub(super) sender: Sender,
    pub(super) client: Arc<Client>,
    /// The newest map that the client is known to have.
    pub(super) epoch: Cell<Epoch>,
}

/// All clients that are connected.
#[derive(Default)]
pub(super) struct Clients {
    pub(super) sessions: BTreeMap<u64, Session>,
    /// The number of the last connection.
    last: u64,
    /// The shares of the entities whose clients are connected.
    parties: BTreeMap<String, Weak<Party>>,
    pub(super) hung_up: HungUp,
}

impl Clients {
    /// Notes a client that has connected; returns the connection's number, from which `client`
    /// makes the client.
    pub(super) fn opened(&mut self, sender: Sender, client: impl FnOnce(u64) -> Arc<Client>) -> u64 {
        self.last += 1;
        let session = Session {
            sender,
            client: client(self.last),
            epoch: Cell::new(Epoch::NONE),
        };
        self.sessions.insert(self.last, session);
        self.last
    }

    /// The share that all connections under an entity's key have together.
    pub(super) fn party(
        &mut self,
        entity: &str,
        (unread, arrivals): (&QueueAccount, &Pool),
        totals: &Arc<Totals>,
    ) -> Arc<Party> {
        if let Some(party) = self.parties.get(entity).and_then(Weak::upgrade) {
            return party;
        }
        self.parties.retain(|_, p| p.strong_count() > 0);
        let party = Arc::new(Party::new(unread.clone(), arrivals.clone(), Arc::clone(totals)));
        self.parties.insert(entity.to_owned(), Arc::downgrade(&party));
        party
    }

    /// Sends a message to a client, as long as it is connected.
    pub(super) fn send(&self, client: &Client, msg: RawMessage, dropped: &mut DropCounts) {
        match self.sessions.get(&client.conn) {
            Some(s) => drop(s.sender.send(msg)),
            None => dropped!(dropped, Dropped::ToGoneClient; client = client.name),
        }
    }

    /// Ends a client's connection.
    pub(super) fn hang_up_on(&self, client: &Client) {
        if let Some(s) = self.sessions.get(&client.conn) {
            s.sender.close();
        }
    }

    /// Ends all connections.
    pub(super) fn hang_up(&self) {
        self.sessions.values().for_each(|s| s.sender.close());
    }

    /// Sends a client the maps after `epoch`, once.
    pub(super) fn share_map(&self, conn: u64, epoch: Epoch, maps: &Maps) {
        // A client that has gone asks for maps when it comes again.
        if let Some(s) = self.sessions.get(&conn)
            && let Some(msg) = maps.since(s.epoch.get().max(epoch))
        {
            s.epoch.set(maps.epoch());
            s.sender.send(msg);
        }
    }

    /// The number of the clients' requests that are here.
    pub(super) fn requests(&self) -> usize {
        self.sessions.values().map(|s| s.client.held.requests()).sum()
    }

    /// The output of `dump_clients`, one entry for each connection.
    pub(super) fn dump(&self, core: &Core) -> Value {
        let mut watches: BTreeMap<EntityName, usize> = BTreeMap::new();
        for (_, (_, name), _) in core.pgs().flat_map(|pg| pg.seen().watches()) {
            *watches.entry(*name).or_default() += 1;
        }
        let mut connected: BTreeMap<&str, usize> = BTreeMap::new();
        for s in self.sessions.values() {
            *connected.entry(s.client.entity.as_str()).or_default() += 1;
        }
        let sessions = self.sessions.values().map(|s| {
            let c = &s.client;
            json!({
                "entity": c.entity,
                "name": c.name.to_string(),
                "address": c.addr.to_string(),
                "connected_from": c.seen.to_string(),
                "osdmap_epoch": s.epoch.get(),
                "requests": c.held.requests(),
                "request_bytes": c.held.bytes(),
                "payload_bytes": c.held.payload(),
                "is_read": !c.held.is_too_much(),
                "watches": watches.get(&c.name).copied().unwrap_or(0),
                "entity_sessions": connected.get(c.entity.as_str()).copied().unwrap_or(0),
                "entity_bytes_arriving": c.party.arriving(),
                "entity_request_bytes": c.party.held(),
                "entity_bytes_reading": c.party.reading(),
                "entity_reply_bytes": c.party.unread(),
                "entity_watch_bytes": c.party.watch_bytes(),
                "reply_bytes": s.sender.queued_bytes(),
            })
        });
        json!({
            "clients": sessions.collect::<Vec<_>>(),
            "hung_up": self.hung_up.to_json(),
        })
    }
}
