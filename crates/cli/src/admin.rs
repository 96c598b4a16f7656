//! The administrator's connection that `up` itself needs: provisioning and health.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use spirula_cephx::AuthName;
use spirula_client::{CommandReply, Options, Rados};
use spirula_denc::EntityType;

use crate::ceph::asok;
use crate::error::Error;
use crate::layout::Layout;

/// How long one attempt to connect may take; `up` tries again.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection as `client.admin`.
pub(crate) struct Admin {
    rados: Rados,
}

impl Admin {
    pub(crate) async fn connect(layout: &Layout) -> Result<Self, Error> {
        let name = AuthName::new(EntityType::CLIENT, "admin");
        let options = Options::load(
            Some(&layout.conf()),
            &name,
            Some(&layout.admin_keyring()),
            None,
            Some(CONNECT),
        )?;
        Ok(Self {
            rados: Rados::connect(&options).await?,
        })
    }

    /// Runs a monitor command.
    async fn run(&self, command: &Value, input: Bytes) -> Result<CommandReply, Error> {
        Ok(self.rados.mon_command(&command.to_string(), input).await?)
    }

    /// What the monitors keep under `key`; what `make` makes is put there first where there is nothing.
    pub(crate) async fn kept_or_new(
        &self,
        key: &str,
        make: impl FnOnce() -> Result<Bytes, Error>,
    ) -> Result<Bytes, Error> {
        const MISSING: i32 = -2;
        let get = json!({"prefix": "config-key get", "key": key});
        let reply = self.run(&get, Bytes::new()).await?;
        match reply.result {
            MISSING => {
                let new = make()?;
                // As the input, which no log shows.
                let set = json!({"prefix": "config-key set", "key": key, "format": "json"});
                self.command(set, new.clone()).await?;
                Ok(new)
            }
            0.. => Ok(reply.output),
            _ => Err(failed(&get, &reply)),
        }
    }

    /// Runs a monitor command that answers in JSON, `Null` where it has no output.
    pub(crate) async fn command(&self, command: Value, input: Bytes) -> Result<Value, Error> {
        let reply = self.run(&command, input).await?;
        if reply.result < 0 {
            return Err(failed(&command, &reply));
        }
        if reply.output.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&reply.output)
            .map_err(|e| Error::Daemon(format!("{}: unreadable answer: {e}", command["prefix"])))
    }

    /// Whether the cluster has come up: every OSD is up and every PG is active and clean. What else its health
    /// names (a full OSD, a pool without application) was there before, and is shown.
    pub(crate) async fn progress(&self, layout: &Layout, osds: u32) -> Result<Progress, Error> {
        if let Some(why) = still_booting(layout, osds).await {
            return Ok(Progress::Waiting(why));
        }
        let status = self
            .command(json!({"prefix": "status", "format": "json"}), Bytes::new())
            .await?;
        let up = status["osdmap"]["num_up_osds"].as_u64().unwrap_or(0);
        if up < u64::from(osds) {
            return Ok(Progress::Waiting(format!("{up} of {osds} OSDs are up")));
        }
        let states = status["pgmap"]["pgs_by_state"].as_array().into_iter().flatten();
        let unclean = states.filter(|s| {
            s["state_name"]
                .as_str()
                .is_some_and(|n| !n.starts_with("active+clean"))
        });
        if let Some(s) = unclean.into_iter().next() {
            return Ok(Progress::Waiting(format!(
                "{} PGs are {}",
                s["count"], s["state_name"]
            )));
        }
        if let Some(why) = self.stale().await? {
            return Ok(Progress::Waiting(why));
        }
        let health = status["health"]["status"]
            .as_str()
            .unwrap_or("HEALTH_UNKNOWN")
            .to_owned();
        let checks = status["health"]["checks"].as_object();
        let mut summaries = Vec::new();
        for (name, check) in checks.into_iter().flatten() {
            let summary = check["summary"]["message"].as_str().unwrap_or(name);
            if COMING_UP.iter().any(|prefix| name.starts_with(prefix)) {
                return Ok(Progress::Waiting(summary.to_owned()));
            }
            summaries.push(format!("    {name}: {summary}"));
        }
        Ok(Progress::Up { health, summaries })
    }

    /// Which PGs were last reported before one of their OSDs was started.
    async fn stale(&self) -> Result<Option<String>, Error> {
        let dump = json!({"prefix": "osd dump", "format": "json"});
        let dump = self.command(dump, Bytes::new()).await?;
        let osds = dump["osds"].as_array().into_iter().flatten();
        let started: BTreeMap<i64, u64> = osds
            .filter_map(|o| Some((o["osd"].as_i64()?, o["up_from"].as_u64()?)))
            .collect();
        let pgs = json!({"prefix": "pg dump", "dumpcontents": ["pgs"], "format": "json"});
        let pgs = self.command(pgs, Bytes::new()).await?;
        let stale = pgs["pg_stats"].as_array().into_iter().flatten().filter(|pg| {
            let acting = pg["acting"].as_array().into_iter().flatten();
            let since = acting
                .filter_map(|o| started.get(&o.as_i64()?))
                .max()
                .copied()
                .unwrap_or(0);
            pg["reported_epoch"].as_u64().unwrap_or(0) < since
        });
        let count = stale.count();
        Ok((count > 0).then(|| format!("{count} PGs have not been reported yet")))
    }
}

fn failed(command: &Value, reply: &CommandReply) -> Error {
    Error::Daemon(format!("{}: {}", command["prefix"], reply.status))
}

/// How long an OSD on this machine may take to answer.
const OSD_PATIENCE: Duration = Duration::from_secs(1);

/// Which OSD's present process is not in the cluster's map: the map may still name an earlier one that was killed.
async fn still_booting(layout: &Layout, osds: u32) -> Option<String> {
    for n in 0..osds {
        let path = layout.admin_socket(&format!("osd.{n}"));
        let ask = move || asok::exchange(&path, br#"{"prefix": "status"}"#, Some(OSD_PATIENCE));
        let answer = tokio::task::spawn_blocking(ask)
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default();
        let state: Value = serde_json::from_slice(&answer).unwrap_or_default();
        if state["state"] != "active" {
            return Some(format!("osd.{n} is starting"));
        }
    }
    None
}

/// The health checks that end by themselves while a cluster comes up.
const COMING_UP: [&str; 4] = ["OSD_DOWN", "OSD_HOST", "PG_", "MON_DOWN"];

/// How far a starting cluster is.
pub(crate) enum Progress {
    /// Not there yet, for this reason.
    Waiting(String),
    /// It serves.
    Up {
        /// `HEALTH_OK`, or what it is otherwise.
        health: String,
        /// The checks behind it, a line each.
        summaries: Vec<String>,
    },
}
