//! What `ceph daemon osd.N dump_clients` shows: who is connected, and what each takes.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use spirula_denc::EntityName;

use super::state::Osd;

impl Osd {
    /// The clients, one for each connection.
    pub(super) fn clients(&self) -> Value {
        let mut watches: BTreeMap<EntityName, usize> = BTreeMap::new();
        for (_, (_, name), _) in self.core.pgs().flat_map(|pg| pg.watches()) {
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
