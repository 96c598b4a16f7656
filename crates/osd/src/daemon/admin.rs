//! The commands of `ceph daemon osd.N …` and `ceph tell osd.N …`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Map, Value, json};
use spirula_asok::{Answer, Command, Failure, Handler, osd_network};
use spirula_denc::Micros;
use spirula_errno::Errno;
use spirula_errno::*;
use spirula_maps::{Epoch, OsdMap, PgId, PoolId};
use spirula_proto::mon::LogPriority;

use super::shell::Shared;
use super::state::Osd;
use super::table::{self, COMMANDS};
use super::{
    history, mempools, metadata, options, perf, pg_states, scheduler, scrubs, transitions, watchers,
};
use crate::core::NamedBid;
use crate::pg::repair::MarkLostError;
use crate::pg::{Pg, PgReport};

/// The version of the release whose interface this is.
pub(super) const CEPH_VERSION: &str = "16.2.15";
/// The name of that release.
pub(super) const CEPH_RELEASE: &str = "pacific";

pub(super) fn version_text() -> String {
    format!(
        "ceph version {CEPH_VERSION} (spirula {}) {CEPH_RELEASE} (stable)",
        env!("CARGO_PKG_VERSION")
    )
}

pub(super) fn failure(errno: Errno, message: impl Into<String>) -> Failure {
    Failure {
        errno,
        message: message.into(),
    }
}

pub(super) fn text<'a>(args: &'a Map<String, Value>, name: &str) -> Result<&'a str, Failure> {
    args.get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| failure(EINVAL, format!("{name}: not given")))
}

pub(super) fn version() -> Value {
    json!({"version": CEPH_VERSION, "release": CEPH_RELEASE, "release_type": "stable"})
}

/// Runs a command that answers at once.
///
/// # Errors
/// As the official daemon's.
pub(super) fn execute(o: &mut Osd, prefix: &str, args: &Map<String, Value>) -> Result<Answer, Failure> {
    let name = format!("osd.{}", o.setup.id());
    let daemon = spirula_asok::config::Daemon {
        name: &name,
        live: options::is_live,
    };
    if let Some(answer) = spirula_asok::config::run(daemon, &mut o.setup.values, prefix, args) {
        o.apply_options();
        return answer;
    }
    run(o, prefix, args).map(Answer::from)
}

/// Whether a command is answered only after a while.
pub(super) fn takes_long(prefix: &str) -> bool {
    matches!(prefix, "bench" | "compact")
}

/// Runs a command that [`takes_long`].
///
/// # Errors
/// As the official daemon's.
pub(super) async fn run_long(
    shell: &Shared,
    prefix: &str,
    args: &Map<String, Value>,
) -> Result<Answer, Failure> {
    let done = match prefix {
        "compact" => super::compact::run(shell).await,
        _ => super::bench::run(shell, args).await,
    };
    done.map(Answer::from)
}

/// Runs a command that only OSDs have.
fn run(o: &mut Osd, prefix: &str, args: &Map<String, Value>) -> Result<Value, Failure> {
    if let Some(why) = table::unsupported(prefix) {
        return Err(failure(EOPNOTSUPP, why));
    }
    if let Some(v) = history::command(o, prefix, args) {
        return Ok(v);
    }
    let name = |key| args.get(key).and_then(Value::as_str).unwrap_or_default();
    if let Some(v) = perf::command(o, prefix, (name("logger"), name("counter"))) {
        return Ok(v);
    }
    match prefix {
        "cache drop" => {
            o.core.drop_contexts();
            Ok(json!(""))
        }
        "cache status" => Ok(json!({"object_ctx": o.core.cached_contexts()})),
        "check_index" => {
            o.index.order();
            Ok(o.index.to_json())
        }
        "cluster_log" => {
            o.mons
                .cluster_log(&o.setup, LogPriority::ERROR, words(args, "message"));
            Ok(json!(""))
        }
        "dump_blocklist" => Ok(watchers::blocklist(o.maps.map())),
        "dump_clients" => Ok(o.clients.dump(&o.core)),
        "dump_mempools" => Ok(mempools::dump(o)),
        "dump_pgstate_history" => Ok(pg_states::history(o.core.pgs())),
        "dump_transitions" => Ok(transitions::dump(o)),
        "dump_watchers" => Ok(watchers::dump(&o.core)),
        "dump_osd_network" => {
            let from = o.setup.id();
            let pings = o.beats.core.times();
            let pings = pings.map(|(to, times)| osd_network::Pings { from, to, times });
            let threshold = args.get("value").and_then(Value::as_i64);
            Ok(osd_network::dump(
                pings,
                threshold,
                &o.setup.values,
                o.setup.now(),
            ))
        }
        "flush_journal" => {
            o.io.store.checkpoint();
            Ok(json!(""))
        }
        "flush_pg_stats" => Ok(json!(o.report_now())),
        "get_latest_osdmap" => {
            o.mons.want_newer_map(o.maps.epoch());
            Ok(json!(""))
        }
        "get_mapped_pools" => {
            let pools: BTreeSet<PoolId> = o.core.pgs().map(|pg| pg.pgid().pool).collect();
            Ok(json!(pools))
        }
        "injectfull" => Ok(o.spacing().inject(args)),
        "list_devices" => Ok(metadata::list_devices(&o.setup.cfg.device)),
        // Log lines are written at once.
        "log flush" => Ok(json!({})),
        "perf reset" => {
            let (var, stats) = (text(args, "var")?, o.io.store.stats());
            Ok(match o.perf.reset(var, stats) {
                true => json!({"success": format!("perf reset {var}")}),
                false => json!({"error": format!("Not find: {var}")}),
            })
        }
        "send_beacon" => {
            o.send_beacon();
            Ok(json!(""))
        }
        "status" => Ok(status(o)),
        "pg" => match text(args, "cmd")? {
            "query" => query_of(o, text(args, "pgid")?),
            "scrub" => scrubs::age(o, args, false),
            "deep_scrub" => scrubs::age(o, args, true),
            "list_unfound" => list_unfound(o, text(args, "pgid")?),
            "mark_unfound_lost" => mark_lost(o, text(args, "pgid")?, text(args, "mulcmd")?),
            other => match table::unsupported(other) {
                Some(why) => Err(failure(EOPNOTSUPP, why)),
                None => Err(failure(EINVAL, format!("pg {other}: not supported"))),
            },
        },
        "list_unfound" if args.contains_key("pgid") => list_unfound(o, text(args, "pgid")?),
        "mark_unfound_lost" if args.contains_key("pgid") => {
            mark_lost(o, text(args, "pgid")?, text(args, "mulcmd")?)
        }
        "list_unfound" | "mark_unfound_lost" => Err(failure(EINVAL, "no pgid specified")),
        "dump_recovery_reservations" => Ok(reservations(o)),
        "dump_op_pq_state" => Ok(scheduler::dump(&o.core.scheduler())),
        "dump_scrubs" => Ok(scrubs::dump(o)),
        "dump_scrub_outlook" => Ok(scrubs::outlook(o)),
        "dump_scrub_reservations" => Ok(scrubs::reservations(o)),
        "scrub_purged_snaps" => Ok(scrubs::purged_snaps(o)),
        "scrub" => scrubs::age(o, args, false),
        "deep_scrub" => scrubs::age(o, args, true),
        "query" if !args.contains_key("pgid") => Err(failure(EINVAL, "no pgid specified")),
        "query" => query_of(o, text(args, "pgid")?),
        other => Err(failure(EINVAL, format!("unrecognized command! [{other}]"))),
    }
}

/// The words of a parameter that may be given more than once.
fn words(args: &Map<String, Value>, name: &str) -> String {
    match args.get(name) {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Some(Value::String(one)) => one.clone(),
        _ => String::new(),
    }
}

fn status(o: &Osd) -> Value {
    let state = if o.is_up() { "active" } else { "booting" };
    json!({
        "cluster_fsid": o.setup.cfg.fsid.to_string(),
        "osd_fsid": spirula_denc::Fsid(o.io.store.superblock().osd_uuid).to_string(),
        "whoami": o.setup.cfg.id,
        "state": state,
        "oldest_map": 1,
        "cluster_osdmap_trim_lower_bound": 1,
        "newest_map": o.maps.epoch(),
        "num_pgs": o.core.pgs().count(),
    })
}

fn pg<'o>(o: &'o Osd, pgid: &str) -> Result<&'o Pg, Failure> {
    let pgid: PgId = pgid
        .parse()
        .map_err(|_| failure(EINVAL, format!("{pgid}: not a PG id")))?;
    o.core
        .pg(pgid)
        .ok_or_else(|| failure(ENOENT, format!("i don't have pgid {pgid}")))
}

fn query_of(o: &Osd, pgid: &str) -> Result<Value, Failure> {
    pg(o, pgid).map(|pg| query(pg, o.usec(), o.maps.map()))
}

/// The report on a PG that this OSD leads.
pub(super) fn led(o: &Osd, pgid: &str) -> Result<PgReport, Failure> {
    let report = pg(o, pgid)?.seen().report();
    report.ok_or_else(|| failure(EAGAIN, format!("not primary for pgid {pgid}")))
}

/// Gives up the unfound objects of a PG. `how` says whether to go back to older versions; there are
/// none here, so that both ways delete.
fn mark_lost(o: &mut Osd, pgid: &str, how: &str) -> Result<Value, Failure> {
    let pgid = led(o, pgid)?.pgid;
    if !matches!(how, "revert" | "delete") {
        let text = "mode must be 'revert' or 'delete'; mark not yet implemented";
        return Err(failure(EINVAL, text));
    }
    let mut result = Err(MarkLostError::NoneUnfound);
    o.drive(|core, cx| result = core.mark_lost(pgid, cx));
    match result {
        Ok(n) => Ok(json!(format!(
            "pg has {n} objects unfound and apparently lost marking"
        ))),
        // Said without an error, so that it can be said again.
        Err(MarkLostError::NoneUnfound) => Ok(json!("pg has no unfound objects")),
        Err(MarkLostError::NotProbed(n)) => Err(failure(
            EINVAL,
            format!("pg has {n} unfound objects but we haven't probed all sources, not marking lost"),
        )),
    }
}

/// Lists the unfound objects of a PG.
fn list_unfound(o: &Osd, pgid: &str) -> Result<Value, Failure> {
    let report = led(o, pgid)?;
    let objects: Vec<Value> = report
        .copies
        .unfound
        .iter()
        .map(|o| {
            json!({"oid": {"oid": o.oid.to_string(), "key": o.key.to_string(), "hash": o.hash, "pool": o.pool,
                "namespace": o.nspace.to_string()}, "locations": []})
        })
        .collect();
    Ok(json!({
        "num_missing": report.copies.degraded + report.copies.misplaced,
        "num_unfound": objects.len(),
        "objects": objects,
        "state": if report.state.contains(&"active") { "Active" } else { "NotActive" },
        "available_might_have_unfound": true,
        "might_have_unfound": [],
        "more": false,
    }))
}

/// The turns for copying, and for being copied to.
fn reservations(o: &Osd) -> Value {
    let most = o.core.max_backfills();
    let side = |bids: Vec<NamedBid>| {
        let (running, waiting): (Vec<_>, Vec<_>) = bids.into_iter().partition(|b| b.has_turn);
        let item =
            |b: &NamedBid| json!({"item": b.pgid.to_string(), "prio": b.priority, "can_preempt": true});
        let mut queues: BTreeMap<u8, Vec<Value>> = BTreeMap::new();
        for bid in &waiting {
            queues.entry(bid.priority).or_default().push(item(bid));
        }
        let queues: Vec<Value> = queues
            .into_iter()
            .map(|(priority, items)| json!({"priority": priority, "items": items}))
            .collect();
        json!({
            "max_allowed": most, "min_priority": 0, "queues": queues,
            "in_progress": running.iter().map(item).collect::<Vec<_>>(),
        })
    };
    let bids = o.core.copy_bids(o.usec());
    json!({"local_reservations": side(bids.local), "remote_reservations": side(bids.remote)})
}

fn query(pg: &Pg, usec: Micros, map: &OsdMap) -> Value {
    let info = pg.seen().info().cloned().unwrap_or_default();
    let report = pg.seen().report();
    let r = report.as_ref();
    let past: Vec<Value> = info
        .history
        .intervals()
        .iter()
        .map(|i| json!({"first": i.first, "last": i.last, "acting": i.acting, "primary": i.primary}))
        .collect();
    let state = r.map_or_else(|| "unknown".to_owned(), |r| r.state.join("+"));
    json!({
        "snap_trimq": pg.seen().trim_queue().to_string(),
        "snap_trimq_len": pg.seen().trim_queue().count(),
        "state": state,
        "epoch": r.map_or(Epoch::NONE, |r| r.reported_epoch),
        "up": r.map(|r| r.place.up.clone()).unwrap_or_default(),
        "acting": r.map(|r| r.place.acting.clone()).unwrap_or_default(),
        "info": {
            "pgid": pg.pgid().to_string(),
            "last_update": info.last_update.to_string(),
            "last_complete": info.last_update.to_string(),
            "log_tail": info.log_tail.to_string(),
            "last_user_version": info.last_user_version,
            "history": {"last_epoch_started": info.last_epoch_started, "last_acting": info.last_acting, "past_intervals": past},
            "stats": {
                "log_size": pg.seen().log().len(),
                "stat_sum": {"num_objects": info.usage.objects, "num_bytes": info.usage.bytes},
                "blocked_by": r.map(|r| r.blocked_by.clone()).unwrap_or_default(),
            },
            "incomplete": info.incomplete,
        },
        "recovery_state": [pg_states::now(pg, usec, map)],
        "transitions": pg_states::transitions(&pg.seen().transitions()),
    })
}

/// Answers commands on the admin socket.
pub(super) struct AdminHandler(pub(super) Shared);

impl Handler for AdminHandler {
    fn commands(&self) -> &'static [Command] {
        COMMANDS
    }

    fn version(&self) -> Value {
        version()
    }

    async fn run(&self, prefix: &str, args: &Map<String, Value>) -> Result<Answer, Failure> {
        if takes_long(prefix) {
            return run_long(&Rc::clone(&self.0), prefix, args).await;
        }
        self.0.with(|o| execute(o, prefix, args))
    }
}
