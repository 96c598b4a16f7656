//! Requests as `ops` and `dump_historic_ops` show them, on the monitor that the client has its
//! session with.

use serde_json::{Map, Value, json};
use spirula_asok::op_history::{OpClock, OpHistory, TrackedOp, filters};
use spirula_denc::Micros;
use spirula_proto::MsgType;
use spirula_proto::mon::MMonCommand;

use super::message::{Message, Received};
use super::route::Request;
use super::session::Session;
use super::{Daemon, View};
use crate::command::{Parsed, shown};

/// A request, as it is shown.
#[derive(Debug, Clone)]
pub(crate) struct MonOp {
    description: String,
    seq: u64,
    source: String,
    is_from_monitor: bool,
    forwarded: bool,
    events: Vec<(&'static str, Micros)>,
}

impl MonOp {
    fn new(request: &Request, session: Option<&Session>) -> Self {
        let source = session.map(|s| format!("{} {}", s.entity(), s.addr));
        Self {
            description: request.description.clone(),
            seq: request.msg.header.seq,
            source: source.unwrap_or_default(),
            is_from_monitor: session.is_some_and(|s| s.name.kind == spirula_denc::EntityType::MON),
            forwarded: request.events.iter().any(|(name, _)| *name == FORWARDED),
            events: request.events.clone(),
        }
    }
}

/// The official name of the step that sends a request to the leader.
pub(super) const FORWARDED: &str = "forward_request_leader";
/// The official name of the step in which a monitor deals with a request itself.
pub(super) const DISPATCHED: &str = "psvc:dispatch";
/// The official name of the step in which the answer waits for a commit.
pub(super) const PROPOSED: &str = "wait_for_finished_proposal";

impl TrackedOp for MonOp {
    const DAEMON: &str = "mon";

    fn received(&self) -> Micros {
        self.events.first().map_or(Micros::ZERO, |(_, at)| *at)
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn events(&self, done: Option<Micros>) -> Vec<(String, Micros)> {
        let done = done.map(|at| ("done", at));
        let all = self.events.iter().copied().chain(done);
        all.map(|(name, at)| (name.to_owned(), at)).collect()
    }

    fn type_data(&self, events: Vec<Value>) -> Value {
        json!({
            "events": events,
            "info": {
                "seq": self.seq,
                "src_is_mon": self.is_from_monitor,
                "source": self.source,
                "forwarded_to_leader": self.forwarded,
            },
        })
    }

    fn matches(&self, filters: &[&str]) -> bool {
        filters.is_empty() || filters.iter().any(|f| self.description.contains(*f))
    }
}

/// A request of this kind as official logs print it.
pub(super) fn describe(kind: MsgType, request: &Received) -> String {
    let tid = request.tid;
    match &request.message {
        Message::Command(m, parsed) => describe_command(m, parsed),
        Message::PoolOp(m) => {
            let op = m.op.name().unwrap_or("unknown");
            let (pool, name, version) = (m.pool, &m.name, m.paxos.0);
            format!("pool_op({op}, pool {pool}, tid {tid}, name {name} v{version})")
        }
        Message::Statfs(m) => {
            let (pool, version) = (spirula_maps::types::or_none::number(m.data_pool), m.paxos.0);
            format!("statfs({tid} pool {pool} v{version})")
        }
        Message::GetPoolStats(m) => format!("getpoolstats({tid} {} v{})", m.pools.join(","), m.paxos.0),
        Message::GetVersion(m) => format!("mon_get_version(what={} handle={})", m.what, m.handle),
        _ => kind.to_string(),
    }
}

/// A command without its values, which may be secret.
fn describe_command(m: &MMonCommand, parsed: &Parsed) -> String {
    let shown = parsed
        .as_ref()
        .map_or_else(|_| "not understood".to_owned(), shown);
    format!("mon_command({shown} v {})", m.paxos.0)
}

impl View {
    fn op_clock(&self) -> OpClock {
        OpClock {
            now: self.steady_time(),
            wall: self.now,
        }
    }

    /// The time since the monitor's start.
    pub(super) fn steady_time(&self) -> Micros {
        self.steady.now().into()
    }

    /// Notes that a client's request was answered.
    pub(super) fn op_done(&mut self, session: super::SessionId, request: &Request) {
        let op = MonOp::new(request, self.sessions.get(&session));
        let now = self.steady_time();
        self.op_history.expire(now);
        self.op_history.add(op, now);
    }
}

impl Daemon<'_> {
    /// Runs a command that shows requests; `None` for another command.
    pub(crate) fn op_command(&mut self, prefix: &str, args: &Map<String, Value>) -> Option<Value> {
        let (clock, filters) = (self.view.op_clock(), filters(args));
        Some(match prefix {
            "dump_historic_ops" | "dump_historic_slow_ops" => {
                self.view.op_history.expire(clock.now);
                self.view.op_history.dump(&clock, prefix, &filters)
            }
            "ops" | "dump_ops_in_flight" => {
                let under_way = self.pending.requests();
                let ops = under_way.map(|(id, r)| MonOp::new(r, self.view.sessions.get(&id)));
                clock.dump_in_flight(ops.collect(), None, &filters)
            }
            _ => return None,
        })
    }
}

/// The remembered requests.
pub(crate) type MonOps = OpHistory<MonOp>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    fn command(json: &str) -> String {
        describe_command(&MMonCommand::default(), &parse(&[json.to_owned()]))
    }

    #[test]
    fn what_a_command_sets_is_not_shown() {
        assert_eq!(
            command(r#"{"prefix": "status"}"#),
            r#"mon_command({"prefix":"status"} v 0)"#
        );
        let set = command(r#"{"prefix": "config-key set", "key": "k", "val": "secret"}"#);
        assert_eq!(
            set,
            r#"mon_command({"prefix":"config-key set","key":"k","val":"…"} v 0)"#
        );
    }
}
