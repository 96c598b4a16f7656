//! Counters and histograms: the clients' requests, and the time that their stages take.

use spirula_asok::op_history::OpHistory;
use spirula_asok::perf::{
    Axis, BUCKETS, Counter, Grid, Histogram, Logger, Times, Values, count, gauge, times,
};
use spirula_denc::Micros;
use spirula_invariant::Reason;
use spirula_proto::osd::MOsdOpReply;

use super::dropped::DropCounts;
use super::state::Osd;
use crate::pg::describe::OpRecord;
use crate::pg::image_io::ImageIo;
use crate::pg::op::Stamps;
use crate::pg::perf::CorePerf;

/// Times in microseconds by powers of two, and their sum.
#[derive(Clone)]
struct Spread {
    buckets: [u64; BUCKETS],
    all: Times,
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            all: Times::default(),
        }
    }
}

impl Spread {
    fn add(&mut self, usec: Micros) {
        self.buckets[Axis::bucket(usec.count())] += 1;
        self.all.add(usec);
    }
}

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident: $from:ident -> $to:ident, $help:literal;)*) => {
        /// Times between the stages of a request.
        #[derive(Default)]
        struct Stages { $($(#[$doc])* $name: Spread,)* }

        impl Stages {
            fn add(&mut self, s: &Stamps) {
                $(if !s.$from.is_zero() && !s.$to.is_zero() {
                    self.$name.add(s.$to.saturating_sub(s.$from));
                })*
            }

            fn all(&self) -> Vec<(&'static str, &Spread, &'static str)> {
                vec![$((stringify!($name), &self.$name, $help),)*]
            }
        }
    };
}

stages! {
    /// From the socket to the PG.
    received_to_queued: received -> queued, "From the socket to the placement group";
    /// Waiting for others on the object, and for what it reads.
    queued_to_started: queued -> started, "Waiting for other operations on the object, and for what is read first";
    /// Execution.
    started_to_sub_ops_sent: started -> sub_ops_sent, "Execution";
    /// The local log.
    sub_ops_sent_to_local_commit: sub_ops_sent -> local_commit, "Waiting for the local log";
    /// The slowest peer after that.
    local_commit_to_peer_commit: local_commit -> peer_commit, "Waiting for the slowest replica after that";
}

/// The counters of one kind of request: requests that read, that write, or both.
#[derive(Default, Clone, Copy)]
struct Kind {
    in_bytes: u64,
    out_bytes: u64,
    /// The time from arrival to reply.
    latency: Times,
    /// The latency without the time before the PG.
    process: Times,
    /// The part of `process` before the wait for the disks.
    prepare: Times,
}

impl Kind {
    fn sum(&self, other: &Self) -> Self {
        let add = |a: Times, b: Times| Times {
            count: a.count + b.count,
            usec: a.usec + b.usec,
        };
        Self {
            in_bytes: self.in_bytes + other.in_bytes,
            out_bytes: self.out_bytes + other.out_bytes,
            latency: add(self.latency, other.latency),
            process: add(self.process, other.process),
            prepare: add(self.prepare, other.prepare),
        }
    }
}

/// Latencies in units of 100 µs. Official histograms count nanoseconds on this axis, whatever its
/// name says.
const LATENCY: Axis = Axis {
    name: "Latency (usec)",
    quant: 100_000,
};
const LATENCY_QUANTUM_USEC: u64 = 100;
/// Sizes in units of a sector.
const SIZE: Axis = Axis {
    name: "Request size (bytes)",
    quant: 512,
};

/// All counters.
#[derive(Default)]
pub(super) struct Perf {
    reads: Kind,
    writes: Kind,
    both: Kind,
    before_pg: Times,
    stages: Stages,
    read_sizes: Grid,
    write_sizes: Grid,
    both_in: Grid,
    both_out: Grid,
    /// The core's counters.
    pub(super) core: CorePerf,
    /// Messages that the daemon dropped.
    pub(super) dropped: DropCounts,
    /// The counters of block images.
    pub(super) images: ImageIo,
    /// Commits at the last report.
    reported: Times,
    /// The store's counters at the last reset.
    store_base: spirula_store::Stats,
    /// The slowest requests.
    pub(super) history: OpHistory<OpRecord>,
}

impl Perf {
    /// Counts a request that is answered.
    pub(super) fn op_done(
        &mut self,
        r: &MOsdOpReply,
        s: &Stamps,
        now: Micros,
        record: Option<Box<OpRecord>>,
    ) {
        let took = now.saturating_sub(s.received);
        let (mut reads, mut writes, mut input, mut output) = (false, false, 0, 0);
        for o in &r.ops {
            reads |= o.op.code.is_read();
            if o.op.code.is_modify() {
                writes = true;
                // A client may claim any length, in a refused request too.
                let claimed = o.op.args().extent().map_or(0, |e| e.length);
                input = u64::saturating_add(input, if r.result < 0 { 0 } else { claimed });
            }
            output += o.data.len() as u64;
        }
        let x = took.count() / LATENCY_QUANTUM_USEC;
        let kind = match (reads, writes) {
            (true, true) => {
                self.both_in.add(x, input / SIZE.quant);
                self.both_out.add(x, output / SIZE.quant);
                &mut self.both
            }
            (_, true) => {
                self.write_sizes.add(x, input / SIZE.quant);
                &mut self.writes
            }
            _ => {
                self.read_sizes.add(x, output / SIZE.quant);
                &mut self.reads
            }
        };
        kind.in_bytes = kind.in_bytes.saturating_add(input);
        kind.out_bytes = kind.out_bytes.saturating_add(output);
        kind.latency.add(took);
        if !s.queued.is_zero() {
            self.before_pg.add(s.queued.saturating_sub(s.received));
            kind.process.add(now.saturating_sub(s.queued));
            let prepared = s.sub_ops_sent.max(s.started).max(s.queued);
            kind.prepare.add(prepared.saturating_sub(s.queued));
        }
        self.stages.add(s);
        if let Some(record) = record {
            self.history.add(*record, now);
        }
    }

    /// The average time in nanoseconds that the store took, since the last call, to make a
    /// transaction durable.
    pub(super) fn take_commit_latency_ns(&mut self) -> u64 {
        let ns = self.core.commits.average_ns_since(&self.reported);
        self.reported = self.core.commits;
        ns
    }

    /// Resets all loggers, or the one of this name. Returns whether there is one.
    pub(super) fn reset(&mut self, logger: &str, store: spirula_store::Stats) -> bool {
        let all = logger == "all";
        if all || logger == "osd" {
            let core = CorePerf {
                repaired: self.core.repaired,
                ..CorePerf::default()
            };
            *self = Self {
                core,
                reported: core.commits,
                stages: std::mem::take(&mut self.stages),
                history: std::mem::take(&mut self.history),
                store_base: self.store_base,
                ..Self::default()
            };
        }
        if all || logger == "osd_stages" {
            self.stages = Stages::default();
        }
        if all || logger == "store" {
            self.store_base = store;
        }
        all || ["osd", "osd_stages", "store"].contains(&logger)
    }

    fn op_counters(&self) -> Vec<Counter> {
        let all = self.reads.sum(&self.writes).sum(&self.both);
        let (r, w, rw) = (&self.reads, &self.writes, &self.both);
        vec![
            count("op", all.latency.count, "Client operations"),
            count("op_in_bytes", all.in_bytes, "Client operations total write size"),
            count("op_out_bytes", all.out_bytes, "Client operations total read size"),
            times(
                "op_latency",
                all.latency,
                "Latency of client operations (including queue time)",
            ),
            times(
                "op_process_latency",
                all.process,
                "Latency of client operations (excluding queue time)",
            ),
            times(
                "op_prepare_latency",
                all.prepare,
                "Latency of client operations (excluding queue time and wait for finished)",
            ),
            count("op_r", r.latency.count, "Client read operations"),
            count("op_r_out_bytes", r.out_bytes, "Client data read"),
            times(
                "op_r_latency",
                r.latency,
                "Latency of read operation (including queue time)",
            ),
            times(
                "op_r_process_latency",
                r.process,
                "Latency of read operation (excluding queue time)",
            ),
            times(
                "op_r_prepare_latency",
                r.prepare,
                "Latency of read operations (excluding queue time and wait for finished)",
            ),
            count("op_w", w.latency.count, "Client write operations"),
            count("op_w_in_bytes", w.in_bytes, "Client data written"),
            times(
                "op_w_latency",
                w.latency,
                "Latency of write operation (including queue time)",
            ),
            times(
                "op_w_process_latency",
                w.process,
                "Latency of write operation (excluding queue time)",
            ),
            times(
                "op_w_prepare_latency",
                w.prepare,
                "Latency of write operations (excluding queue time and wait for finished)",
            ),
            count("op_rw", rw.latency.count, "Client read-modify-write operations"),
            count(
                "op_rw_in_bytes",
                rw.in_bytes,
                "Client read-modify-write operations write in",
            ),
            count(
                "op_rw_out_bytes",
                rw.out_bytes,
                "Client read-modify-write operations read out ",
            ),
            times(
                "op_rw_latency",
                rw.latency,
                "Latency of read-modify-write operation (including queue time)",
            ),
            times(
                "op_rw_process_latency",
                rw.process,
                "Latency of read-modify-write operation (excluding queue time)",
            ),
            times(
                "op_rw_prepare_latency",
                rw.prepare,
                "Latency of read-modify-write operations (excluding queue time and wait for finished)",
            ),
            times(
                "op_before_dequeue_op_lat",
                self.before_pg,
                "Latency of IO before calling dequeue_op(already dequeued and get PG lock)",
            ),
            times(
                "op_turn_latency",
                self.core.turns,
                "Client operations that waited for their turn, until it came",
            ),
        ]
    }

    fn sub_op_counters(&self) -> Vec<Counter> {
        let c = &self.core;
        vec![
            count("subop", c.sub_ops.count, "Suboperations"),
            count("subop_in_bytes", c.sub_op_bytes, "Suboperations total size"),
            times("subop_latency", c.sub_ops, "Suboperations latency"),
            count("subop_w", c.sub_ops.count, "Replicated writes"),
            count("subop_w_in_bytes", c.sub_op_bytes, "Replicated written data size"),
            times("subop_w_latency", c.sub_ops, "Replicated writes latency"),
        ]
    }

    fn histograms(&self) -> Vec<Histogram<'_>> {
        let grid = |name, values, help| Histogram {
            name,
            help,
            axes: vec![LATENCY, SIZE],
            values: Values::Grid(values),
        };
        vec![
            grid(
                "op_r_latency_out_bytes_histogram",
                &self.read_sizes,
                "Histogram of operation latency (including queue time) + data read",
            ),
            grid(
                "op_w_latency_in_bytes_histogram",
                &self.write_sizes,
                "Histogram of operation latency (including queue time) + data written",
            ),
            grid(
                "op_rw_latency_in_bytes_histogram",
                &self.both_in,
                "Histogram of rw operation latency (including queue time) + data written",
            ),
            grid(
                "op_rw_latency_out_bytes_histogram",
                &self.both_out,
                "Histogram of rw operation latency (including queue time) + data read",
            ),
        ]
    }

    fn stages(&self) -> Logger<'static> {
        let all = self.stages.all().into_iter();
        Logger {
            name: "osd_stages",
            counters: all.map(|(name, s, help)| times(name, s.all, help)).collect(),
            histograms: Vec::new(),
        }
    }

    fn store(&self, s: spirula_store::Stats) -> Logger<'static> {
        let b = &self.store_base;
        let since = |name, now: u64, before: u64, help| count(name, now.saturating_sub(before), help);
        Logger {
            name: "store",
            counters: vec![
                since("transactions", s.transactions, b.transactions, "Transactions"),
                since("groups", s.groups, b.groups, "Group commits"),
                since("log_bytes", s.log_bytes, b.log_bytes, "Written to the log"),
                since(
                    "direct_bytes",
                    s.direct_bytes,
                    b.direct_bytes,
                    "Data written directly to its place",
                ),
                since(
                    "placed_bytes",
                    s.placed_bytes,
                    b.placed_bytes,
                    "Data placed ahead of its transaction",
                ),
                since(
                    "writeback_bytes",
                    s.writeback_bytes,
                    b.writeback_bytes,
                    "Data written from the log to its place",
                ),
                since(
                    "index_bytes",
                    s.index_bytes,
                    b.index_bytes,
                    "Written to the index",
                ),
                since("checkpoints", s.checkpoints, b.checkpoints, "Checkpoints"),
                since(
                    "cached_reads",
                    s.cached_reads,
                    b.cached_reads,
                    "Reads that the page cache answered",
                ),
                since(
                    "repeated_reads",
                    s.repeated_reads,
                    b.repeated_reads,
                    "Reads repeated past the page cache, as what came through it was wrong",
                ),
                since(
                    "device_reads",
                    s.device_reads,
                    b.device_reads,
                    "Reads that needed the device",
                ),
                since(
                    "ahead_reads",
                    s.ahead_reads,
                    b.ahead_reads,
                    "Reads of what no client has asked for yet",
                ),
                since(
                    "index_lookups",
                    s.index_lookups,
                    b.index_lookups,
                    "Objects looked up in the index",
                ),
                since("corruptions", s.corruptions, b.corruptions, "Checksum mismatches"),
                since(
                    "index_damaged",
                    s.index_damaged,
                    b.index_damaged,
                    "Damaged pages of the index that checks found",
                ),
                since(
                    "index_mended",
                    s.index_mended,
                    b.index_mended,
                    "Damaged parts of the index that were written anew",
                ),
                times("commit_lat", self.core.commits, "Until a transaction was durable"),
            ],
            histograms: Vec::new(),
        }
    }
}

/// Runs one of the `perf` commands that only show; `None` for another command.
pub(super) fn command(o: &Osd, prefix: &str, of: (&str, &str)) -> Option<serde_json::Value> {
    let stats = o.io.store.stats();
    let mut osd = Logger {
        name: "osd",
        counters: o.perf.op_counters(),
        histograms: o.perf.histograms(),
    };
    osd.counters.insert(
        0,
        gauge(
            "op_wip",
            o.core.writes_in_flight() as u64,
            "Replication operations currently being processed (primary)",
        ),
    );
    osd.counters.extend(o.perf.sub_op_counters());
    osd.counters.extend(gauges(o));
    let mut stages = o.perf.stages();
    stages.histograms = o.perf.stages.all().into_iter().map(line).collect();
    spirula_asok::perf::run(&[osd, stages, o.perf.store(stats)], prefix, of)
}

/// The gauges: counters of the present state.
fn gauges(o: &Osd) -> Vec<Counter> {
    let pgs = o.core.pg_counts();
    let (hits, total) = (o.perf.core.contexts_found, o.perf.core.contexts);
    let (dropped, ours) = (&o.perf.core.dropped, &o.perf.dropped);
    let s = o.io.store.statfs();
    vec![
        gauge("numpg", pgs.all as u64, "Placement groups"),
        gauge(
            "numpg_primary",
            pgs.primary as u64,
            "Placement groups for which this osd is primary",
        ),
        gauge(
            "numpg_replica",
            pgs.replica as u64,
            "Placement groups for which this osd is replica",
        ),
        gauge(
            "numpg_stray",
            pgs.stray as u64,
            "Placement groups ready to be deleted from this osd",
        ),
        gauge(
            "numpg_removing",
            pgs.removing as u64,
            "Placement groups queued for local deletion",
        ),
        gauge(
            "heartbeat_to_peers",
            o.beats.core.peers().count() as u64,
            "Heartbeat (ping) peers we send to",
        ),
        gauge(
            "messages_delayed_for_map",
            o.core.waiting_for_map() as u64,
            "Operations waiting for OSD map",
        ),
        count("index_checks", o.index.checks(), "Checks of the store's index"),
        gauge("stat_bytes", s.total, "OSD size"),
        gauge(
            "stat_bytes_used",
            s.total.saturating_sub(s.available),
            "Used space",
        ),
        gauge("stat_bytes_avail", s.available, "Available space"),
        count(
            "image_io_left_out",
            o.perf.images.left_out(),
            "Requests left out of the I/O by image, as too many images are counted",
        ),
        count("object_ctx_cache_hit", hits, "Object context cache hits"),
        count("object_ctx_cache_total", total, "Object context cache lookups"),
    ]
    .into_iter()
    .chain(dropped.iter().map(|(r, n)| count(r.name(), n, r.help())))
    .chain(ours.iter().map(|(r, n)| count(r.name(), n, r.help())))
    .collect()
}

fn line<'a>((name, spread, help): (&'static str, &'a Spread, &'static str)) -> Histogram<'a> {
    Histogram {
        name,
        help,
        axes: vec![Axis {
            name: "Time (usec)",
            quant: 1,
        }],
        values: Values::Line(&spread.buckets),
    }
}
