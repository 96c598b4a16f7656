//! The transitions that the daemon's parts, besides its PGs, remember.

use serde_json::{Value, json};
use spirula_invariant::AtWork;

use super::state::Osd;
use crate::pg::recent;

/// Endpoints of an OSD: for clients and for OSDs, each for data and for heartbeats.
const ENDPOINTS: usize = 4;

// All that an OSD remembers of its transitions may take this much memory.
const _: () = assert!(
    recent::RECENT_BYTES
        + spirula_store::recent::RECENT_BYTES
        + ENDPOINTS * spirula_msgr::recent::RECENT_BYTES
        <= 64 << 10
);

/// Marks this thread as working on the store and the sessions. PGs mark themselves.
pub(super) fn at_work(o: &Osd) -> Vec<AtWork> {
    let mut all = vec![o.io.store.recent().at_work()];
    all.extend(o.setup.endpoints.iter().map(|r| r.at_work()));
    all
}

/// The last transitions of the store and of sessions, the oldest first.
pub(super) fn dump(o: &Osd) -> Value {
    let store =
        o.io.store
            .recent()
            .entries()
            .into_iter()
            .map(|t| json!({"submitted": t.submitted, "durable": t.durable, "transition": t.what.name()}));
    let mut sessions: Vec<_> = o.setup.endpoints.iter().flat_map(|r| r.entries()).collect();
    sessions.sort_by_key(|t| t.at);
    let sessions = sessions.iter().map(|t| {
        json!({"time": t.at.to_string(), "connection": t.connection, "peer": t.peer.to_string(),
                "transition": t.what.to_string()})
    });
    json!({"store": store.collect::<Vec<_>>(), "sessions": sessions.collect::<Vec<_>>()})
}
