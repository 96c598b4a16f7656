//! What `ceph daemon osd.N …` and `ceph tell osd.N …` offer.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use spirula_asok::{Command, Failure, Handler};
use spirula_maps::PgId;

use super::options;
use super::state::{Osd, Shared};
use crate::pg::errno::*;

/// The release whose interface this is.
pub(super) const CEPH_VERSION: &str = "16.2.15";
/// Its name.
pub(super) const CEPH_RELEASE: &str = "pacific";

/// The commands, besides those that every daemon has.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "bench",
        params: &[("count?", "CephInt"), ("size?", "CephInt")],
        help: "OSD benchmark: write <count> bytes (default 1G) in <size>-byte objects (default 4MB).",
    },
    Command {
        name: "dump_blocklist",
        params: &[],
        help: "dump blocklisted clients and times",
    },
    Command {
        name: "dump_historic_ops",
        params: &[],
        help: "show recent ops",
    },
    Command {
        name: "dump_ops_in_flight",
        params: &[],
        help: "show the ops currently in flight",
    },
    Command {
        name: "dump_watchers",
        params: &[],
        help: "show clients which have active watches, and on which objects",
    },
    Command {
        name: "heap",
        params: &[("heapcmd", "CephString")],
        help: "show heap usage info (available only if compiled with tcmalloc)",
    },
    Command {
        name: "ops",
        params: &[],
        help: "show the ops currently in flight",
    },
    Command {
        name: "perf dump",
        params: &[],
        help: "dump perfcounters value",
    },
    Command {
        name: "perf schema",
        params: &[],
        help: "dump perfcounters schema",
    },
    Command {
        name: "pg",
        params: &[("pgid", "CephPgid"), ("cmd", "CephString")],
        help: "show details of a specific pg",
    },
    Command {
        name: "query",
        params: &[("pgid?", "CephPgid")],
        help: "show details of a specific pg",
    },
    Command {
        name: "status",
        params: &[],
        help: "high-level status of OSD",
    },
];

pub(super) fn version_text() -> String {
    format!(
        "ceph version {CEPH_VERSION} (spirula {}) {CEPH_RELEASE} (stable)",
        env!("CARGO_PKG_VERSION")
    )
}

fn failure(errno: i32, message: impl Into<String>) -> Failure {
    Failure {
        code: -errno,
        message: message.into(),
    }
}

fn text<'a>(args: &'a Map<String, Value>, name: &str) -> Result<&'a str, Failure> {
    args.get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| failure(EINVAL, format!("{name}: not given")))
}

fn version() -> Value {
    json!({"version": CEPH_VERSION, "release": CEPH_RELEASE, "release_type": "stable"})
}

/// Runs a command that answers at once.
///
/// # Errors
/// As the official daemon's.
pub(super) fn execute(o: &mut Osd, prefix: &str, args: &Map<String, Value>) -> Result<Value, Failure> {
    let name = format!("osd.{}", o.cfg.id);
    let daemon = spirula_asok::config::Daemon {
        name: &name,
        live: options::is_live,
    };
    if let Some(answer) = spirula_asok::config::run(daemon, &mut o.values, prefix, args) {
        o.apply_options();
        return answer;
    }
    match prefix {
        "version" => Ok(version()),
        "get_command_descriptions" => Ok(spirula_asok::describe(COMMANDS)),
        "help" => Ok(spirula_asok::help(COMMANDS)),
        "perf dump" => Ok(o.perf.dump(o.io.store.stats())),
        "perf schema" => Ok(o.perf.schema(o.io.store.stats())),
        "dump_historic_ops" => Ok(o.perf.history()),
        "dump_watchers" => Ok(o.watchers()),
        "dump_blocklist" => Ok(o.blocklist()),
        "dump_ops_in_flight" | "ops" => Ok(o.ops_in_flight()),
        "status" => Ok(o.status()),
        "heap" => Err(failure(
            EOPNOTSUPP,
            "could not issue heap profiler command -- not using tcmalloc!",
        )),
        "pg" => match text(args, "cmd")? {
            "query" => o.query(text(args, "pgid")?),
            other => Err(failure(EINVAL, format!("pg {other}: not supported"))),
        },
        "query" => o.query(text(args, "pgid")?),
        other => Err(failure(EINVAL, format!("unrecognized command! [{other}]"))),
    }
}

impl Osd {
    fn ops_in_flight(&self) -> Value {
        let now = self.usec();
        let ops: Vec<Value> = self
            .core
            .pgs()
            .flat_map(|pg| pg.describe_ops())
            .map(|(description, received)| {
                let age = now.saturating_sub(received) as f64 / 1e6;
                json!({"description": description, "age": age, "duration": age})
            })
            .collect();
        json!({"num_ops": ops.len(), "ops": ops})
    }

    fn status(&self) -> Value {
        let state = if self.is_up() { "active" } else { "booting" };
        json!({
            "cluster_fsid": self.cfg.fsid.to_string(),
            "osd_fsid": spirula_denc::Fsid(self.io.store.superblock().osd_uuid).to_string(),
            "whoami": self.cfg.id,
            "state": state,
            "oldest_map": 1,
            "newest_map": self.maps.epoch(),
            "num_pgs": self.core.pgs().count(),
        })
    }

    fn query(&self, pgid: &str) -> Result<Value, Failure> {
        let pgid: PgId = pgid
            .parse()
            .map_err(|_| failure(EINVAL, format!("{pgid}: not a PG id")))?;
        let pg = self
            .core
            .pg(pgid)
            .ok_or_else(|| failure(ENOENT, format!("i don't have pgid {pgid}")))?;
        Ok(query(pg))
    }
}

fn query(pg: &crate::pg::Pg) -> Value {
    let info = pg.info().cloned().unwrap_or_default();
    let report = pg.report();
    let r = report.as_ref();
    let state = r.map_or_else(|| "unknown".to_owned(), |r| r.state.join("+"));
    json!({
        "snap_trimq": pg.trim_queue().to_string(),
        "snap_trimq_len": pg.trim_queue().count(),
        "state": state,
        "epoch": r.map_or(0, |r| r.reported_epoch),
        "up": r.map(|r| r.up.clone()).unwrap_or_default(),
        "acting": r.map(|r| r.acting.clone()).unwrap_or_default(),
        "info": {
            "pgid": pg.pgid().to_string(),
            "last_update": info.last_update.to_string(),
            "last_complete": info.last_update.to_string(),
            "log_tail": info.log_tail.to_string(),
            "last_user_version": info.last_user_version,
            "history": {"last_epoch_started": info.last_epoch_started, "last_acting": info.last_acting, "moved": info.moved},
            "stats": {
                "log_size": pg.log().len(),
                "stat_sum": {"num_objects": info.usage.objects, "num_bytes": info.usage.bytes},
                "blocked_by": r.map(|r| r.blocked_by.clone()).unwrap_or_default(),
            },
            "incomplete": info.incomplete,
        },
        "recovery_state": [{"name": state, "comment": r.and_then(|r| r.reason.clone()).unwrap_or_default()}],
    })
}

/// The admin socket's side.
pub(super) struct AdminHandler(pub(super) Shared);

impl Handler for AdminHandler {
    fn commands(&self) -> &'static [Command] {
        COMMANDS
    }

    fn version(&self) -> Value {
        version()
    }

    async fn run(&self, prefix: &str, args: &Map<String, Value>) -> Result<Value, Failure> {
        if prefix == "bench" {
            return super::commands::bench(&Rc::clone(&self.0), args).await;
        }
        self.0.with(|o| execute(o, prefix, args))
    }
}
