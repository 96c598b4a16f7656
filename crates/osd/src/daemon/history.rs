//! Client requests as `dump_historic_ops`, `ops` and their relatives show them.

use serde_json::{Map, Value, json};
use spirula_asok::op_history::{OpClock, TrackedOp, filters};
use spirula_denc::Micros;
use spirula_maps::OsdId;

use super::state::Osd;
use crate::pg::describe::{OpRecord, Progress};

impl TrackedOp for OpRecord {
    const DAEMON: &str = "osd";

    fn received(&self) -> Micros {
        self.stamps.received
    }

    fn description(&self) -> &str {
        &self.description
    }

    /// Whether a filter matches: it is part of an event's or client's name.
    fn matches(&self, filters: &[&str]) -> bool {
        let (client, addr) = (self.client.to_string(), self.addr.to_string());
        let point = self.progress.flag_point();
        let hit =
            |f: &&str| client == **f || addr == **f || point.contains(*f) || self.description.contains(*f);
        filters.is_empty() || filters.iter().any(hit)
    }

    fn events(&self, done: Option<Micros>) -> Vec<(String, Micros)> {
        let s = &self.stamps;
        let mut events = vec![("initiated".to_owned(), s.received)];
        let mut add = |name: &str, at: Micros| {
            if !at.is_zero() {
                events.push((name.to_owned(), at));
            }
        };
        add("queued_for_pg", s.scheduled);
        add("reached_pg", s.queued);
        if let Progress::Delayed(what) = self.progress {
            add(what, s.queued.max(s.received));
        }
        add("started", s.started);
        if !self.peers.is_empty() {
            let peers: Vec<String> = self.peers.iter().map(OsdId::to_string).collect();
            add(
                &format!("waiting for subops from {}", peers.join(",")),
                s.sub_ops_sent,
            );
        }
        add("op_commit", s.local_commit);
        // The others' times are not kept: this is the last one, where it was not before the own
        // commit.
        if s.peer_commit > s.local_commit && !self.peers.is_empty() {
            add("sub_op_commit_rec", s.peer_commit);
        }
        if let Some(done) = done {
            add("commit_sent", done);
            add("done", done);
        }
        events
    }

    fn type_data(&self, events: Vec<Value>) -> Value {
        json!({
            "flag_point": self.progress.flag_point(),
            "client_info": {
                "client": self.client.to_string(),
                "client_addr": self.addr.to_string(),
                "tid": self.tid,
            },
            "events": events,
        })
    }
}

/// Runs a command that shows requests; `None` for another command.
pub(super) fn command(o: &mut Osd, prefix: &str, args: &Map<String, Value>) -> Option<Value> {
    let clock = OpClock {
        now: o.usec(),
        wall: o.setup.now(),
    };
    let filters = filters(args);
    Some(match prefix {
        "dump_historic_ops" | "dump_historic_ops_by_duration" | "dump_historic_slow_ops" => {
            o.perf.history.expire(clock.now);
            o.perf.history.dump(&clock, prefix, &filters)
        }
        "dump_ops_in_flight" | "ops" | "dump_blocked_ops" => {
            let complaint = o.setup.values.float("osd_op_complaint_time");
            let blocked = (prefix == "dump_blocked_ops").then_some(complaint);
            clock.dump_in_flight(o.core.op_records().collect(), blocked, &filters)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use spirula_denc::{EntityAddr, EntityName};
    use spirula_maps::PgId;

    use spirula_maps::PoolId;

    use super::*;
    use crate::pg::op::Stamps;

    #[test]
    fn events_have_official_names() {
        let op = OpRecord {
            description: "op".into(),
            client: EntityName::default(),
            addr: EntityAddr::default(),
            tid: 1,
            pgid: PgId::new(PoolId::new(1), 0),
            stamps: Stamps {
                received: Micros::new(10),
                scheduled: Micros::ZERO,
                queued: Micros::new(11),
                started: Micros::new(12),
                sub_ops_sent: Micros::new(13),
                local_commit: Micros::new(14),
                peer_commit: Micros::new(15),
            },
            peers: vec![OsdId::new(1), OsdId::new(2)],
            progress: Progress::Done,
        };
        let events = op.events(Some(Micros::new(20)));
        let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
        let want = [
            "initiated",
            "reached_pg",
            "started",
            "waiting for subops from 1,2",
            "op_commit",
            "sub_op_commit_rec",
            "commit_sent",
            "done",
        ];
        assert_eq!(names, want);
    }
}
