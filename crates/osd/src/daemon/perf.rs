//! Counters and histograms: what clients ask for, and where the time of their requests goes.

use std::collections::VecDeque;

use serde_json::{Value, json};
use spirula_proto::osd::MOsdOpReply;

use crate::pg::op::Stamps;

/// Requests remembered for `dump_historic_ops`.
const HISTORY: usize = 20;
/// Only those that took longer, in microseconds, are worth remembering.
const SLOW: u64 = 10_000;

/// Times in microseconds, by powers of two.
#[derive(Debug, Default, Clone)]
struct Histogram {
    buckets: [u64; 32],
    count: u64,
    sum: u64,
}

impl Histogram {
    fn add(&mut self, usec: u64) {
        let at = (u64::BITS - usec.leading_zeros()).min(31) as usize;
        self.buckets[at] += 1;
        self.count += 1;
        self.sum += usec;
    }

    /// The form of the official latency counters, in seconds.
    fn latency(&self) -> Value {
        let sum = self.sum as f64 / 1e6;
        let average = if self.count == 0 {
            0.0
        } else {
            sum / self.count as f64
        };
        json!({"avgcount": self.count, "sum": sum, "avgtime": average})
    }

    fn dump(&self) -> Value {
        let used = self.buckets.iter().rposition(|n| *n > 0).map_or(0, |i| i + 1);
        json!({"count": self.count, "sum_us": self.sum, "log2_us": self.buckets[..used]})
    }
}

/// A request that is over.
struct Past {
    description: String,
    stamps: Stamps,
    done: u64,
}

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident: $from:ident -> $to:ident;)*) => {
        /// Times between the stages of a request.
        #[derive(Default)]
        struct Stages { $($(#[$doc])* $name: Histogram,)* }

        impl Stages {
            fn add(&mut self, s: &Stamps) {
                $(if s.$from != 0 && s.$to != 0 {
                    self.$name.add(s.$to.saturating_sub(s.$from));
                })*
            }

            fn dump(&self) -> Value {
                json!({$(stringify!($name): self.$name.dump(),)*})
            }
        }
    };
}

stages! {
    /// From the socket to the PG.
    received_to_queued: received -> queued;
    /// Waiting for others on the object, and for what it reads.
    queued_to_started: queued -> started;
    /// Execution.
    started_to_sub_ops_sent: started -> sub_ops_sent;
    /// The local log.
    sub_ops_sent_to_local_commit: sub_ops_sent -> local_commit;
    /// The slowest peer after that.
    local_commit_to_peer_commit: local_commit -> peer_commit;
}

/// All counters.
#[derive(Default)]
pub(super) struct Perf {
    reads: Histogram,
    writes: Histogram,
    in_bytes: u64,
    out_bytes: u64,
    stages: Stages,
    history: VecDeque<Past>,
}

impl Perf {
    /// A request is answered.
    pub(super) fn op_done(&mut self, r: &MOsdOpReply, stamps: &Stamps, now: u64) {
        let took = now.saturating_sub(stamps.received);
        let writes = r.ops.iter().any(|o| o.op.code.is_modify());
        let bytes = |o: &spirula_proto::osd::OsdOpOut| o.op.args().extent().map_or(0, |e| e.length);
        if writes {
            self.writes.add(took);
            // A client may claim any length, in a refused request too.
            let claimed = r.ops.iter().map(bytes).fold(0, u64::saturating_add);
            let written = if r.result < 0 { 0 } else { claimed };
            self.in_bytes = self.in_bytes.saturating_add(written);
        } else {
            self.reads.add(took);
            self.out_bytes += r.ops.iter().map(|o| o.data.len() as u64).sum::<u64>();
        }
        self.stages.add(stamps);
        if took > SLOW {
            let ops: Vec<String> = r.ops.iter().map(|o| o.op.code.to_string()).collect();
            let description = format!("osd_op({} {} [{}])", r.pgid, r.oid, ops.join(","));
            self.history.push_back(Past {
                description,
                stamps: *stamps,
                done: now,
            });
            if self.history.len() > HISTORY {
                self.history.pop_front();
            }
        }
    }

    pub(super) fn dump(&self, store: spirula_store::Stats) -> Value {
        let mut all = self.reads.clone();
        all.count += self.writes.count;
        all.sum += self.writes.sum;
        json!({
            "osd": {
                "op": all.count,
                "op_in_bytes": self.in_bytes,
                "op_out_bytes": self.out_bytes,
                "op_latency": all.latency(),
                "op_r": self.reads.count,
                "op_r_out_bytes": self.out_bytes,
                "op_r_latency": self.reads.latency(),
                "op_w": self.writes.count,
                "op_w_in_bytes": self.in_bytes,
                "op_w_latency": self.writes.latency(),
            },
            "osd_stages": self.stages.dump(),
            "store": {
                "transactions": store.transactions,
                "groups": store.groups,
                "log_bytes": store.log_bytes,
                "direct_bytes": store.direct_bytes,
                "writeback_bytes": store.writeback_bytes,
                "index_bytes": store.index_bytes,
                "checkpoints": store.checkpoints,
                "device_reads": store.device_reads,
                "index_lookups": store.index_lookups,
                "corruptions": store.corruptions,
            },
        })
    }

    /// The counters' meaning, in the official form.
    pub(super) fn schema(&self, store: spirula_store::Stats) -> Value {
        let counter = |name: &str, v: &Value| {
            let kind = if v.is_object() { 5 } else { 10 };
            let value_type = if v.is_object() {
                "real-integer-pair"
            } else {
                "integer"
            };
            json!({"type": kind, "metric_type": "counter", "value_type": value_type, "description": name.replace('_', " "),
                   "nick": "", "priority": 5, "units": if name.ends_with("bytes") { "bytes" } else { "none" }})
        };
        let mut dump = self.dump(store);
        if let Some(sections) = dump.as_object_mut() {
            for section in sections.values_mut().filter_map(Value::as_object_mut) {
                for (name, v) in section.iter_mut() {
                    *v = counter(name, v);
                }
            }
        }
        dump
    }

    pub(super) fn history(&self) -> Value {
        let seconds = |usec: u64| usec as f64 / 1e6;
        let ops: Vec<Value> = self
            .history
            .iter()
            .map(|p| {
                let s = &p.stamps;
                let steps = [
                    ("queued", s.queued),
                    ("started", s.started),
                    ("sub_ops_sent", s.sub_ops_sent),
                    ("local_commit", s.local_commit),
                    ("peer_commit", s.peer_commit),
                    ("done", p.done),
                ];
                let events: Vec<Value> = steps
                    .into_iter()
                    .filter(|(_, at)| *at != 0)
                    .map(|(event, at)| json!({"event": event, "at": seconds(at.saturating_sub(s.received))}))
                    .collect();
                json!({
                    "description": p.description,
                    "initiated_at": seconds(s.received),
                    "duration": seconds(p.done.saturating_sub(s.received)),
                    "type_data": {"events": events},
                })
            })
            .collect();
        json!({"size": HISTORY, "duration": 600, "ops": ops})
    }
}
