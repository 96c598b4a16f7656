//! The administrator's connection that `up` itself needs: provisioning and health.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use spirula_cephx::AuthName;
use spirula_client::{CommandReply, Options, Rados};
use spirula_denc::EntityType;
use spirula_maps::OsdId;

use crate::ceph::asok;
use crate::daemon::DaemonName;
use crate::error::Error;
use crate::layout::Layout;
use crate::up::Map;

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

    /// The monitors' value of `key`; without one, `make`'s value is stored there first.
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

    /// Runs a monitor command that changes something.
    pub(crate) async fn tell(&self, command: Value) -> Result<(), Error> {
        let reply = self.run(&command, Bytes::new()).await?;
        match reply.result < 0 {
            true => Err(failed(&command, &reply)),
            false => Ok(()),
        }
    }

    /// The cluster's OSDs.
    pub(crate) async fn osd_map(&self) -> Result<Map, Error> {
        let dump = json!({"prefix": "osd dump", "format": "json"});
        let dump = self.command(dump, Bytes::new()).await?;
        Map::from_dump(&dump).ok_or_else(|| Error::Daemon("osd dump: unreadable answer".into()))
    }

    /// The cluster's status, as `ceph status` has it.
    pub(crate) async fn status(&self) -> Result<Value, Error> {
        self.command(json!({"prefix": "status", "format": "json"}), Bytes::new())
            .await
    }

    /// All PGs, as `ceph pg dump pgs` has them.
    pub(crate) async fn pgs(&self) -> Result<Vec<Value>, Error> {
        let dump = json!({"prefix": "pg dump", "dumpcontents": ["pgs"], "format": "json"});
        let mut dump = self.command(dump, Bytes::new()).await?;
        match dump["pg_stats"].take() {
            Value::Array(pgs) => Ok(pgs),
            _ => Err(Error::Daemon("pg dump: unreadable answer".into())),
        }
    }

    /// Whether the cluster has come up: the OSDs `wanted` are up and every PG is active and clean.
    /// Where other OSDs are missing (`is_whole` is false), PGs only have to stop changing. Health
    /// checks of other causes (a full OSD, a pool without application) do not count, and are shown.
    pub(crate) async fn progress(
        &self,
        layout: &Layout,
        wanted: &BTreeSet<OsdId>,
        is_whole: bool,
    ) -> Result<Progress, Error> {
        if let Some(why) = still_booting(layout, wanted).await {
            return Ok(Progress::Waiting(why));
        }
        let status = self.status().await?;
        let pgs = self.pgs().await?;
        let started = self.started().await?;
        let unsettled = pgs.iter().filter(|pg| is_changing(pg, &started)).count();
        if unsettled > 0 {
            return Ok(Progress::Waiting(format!("{unsettled} PGs are not active yet")));
        }
        let stale = pgs.iter().filter(|pg| is_old(pg, &started)).count();
        if stale > 0 {
            return Ok(Progress::Waiting(format!(
                "{stale} PGs have not been reported yet"
            )));
        }
        if let Some(why) = self.unknown(&pgs).await? {
            return Ok(Progress::Waiting(why));
        }
        let states = status["pgmap"]["pgs_by_state"].as_array().into_iter().flatten();
        let unclean = states.filter(|s| {
            s["state_name"]
                .as_str()
                .is_some_and(|n| !n.starts_with("active+clean"))
        });
        let unclean = unclean.into_iter().next();
        if let Some(s) = unclean.filter(|_| is_whole) {
            let what = format!("{} PGs are {}", s["count"], s["state_name"]);
            return Ok(Progress::Settled(what, Health::of_status(&status)));
        }
        let health = Health::of_status(&status);
        if let Some(check) = health.checks.iter().find(|c| is_whole && c.is_of_start()) {
            return Ok(Progress::Waiting(check.summary.clone()));
        }
        Ok(Progress::Up(health))
    }

    /// The PGs that have not been reported although they have members: so it is for a while after
    /// the monitors' start.
    async fn unknown(&self, pgs: &[Value]) -> Result<Option<String>, Error> {
        let unknown: Vec<&Value> = pgs.iter().filter(|pg| pg["state"] == "unknown").collect();
        for pg in &unknown {
            let map = json!({"prefix": "pg map", "pgid": pg["pgid"], "format": "json"});
            let map = self.command(map, Bytes::new()).await?;
            if acting(&map).any(|osd| osd < NO_OSD) {
                return Ok(Some(format!("{} PGs have not been reported yet", unknown.len())));
            }
        }
        Ok(None)
    }

    /// The OSDs that are up, with the epoch in which they came up.
    async fn started(&self) -> Result<BTreeMap<u64, u64>, Error> {
        let dump = json!({"prefix": "osd dump", "format": "json"});
        let dump = self.command(dump, Bytes::new()).await?;
        let osds = dump["osds"].as_array().into_iter().flatten();
        let up = osds.filter(|o| o["up"] == 1);
        Ok(up
            .filter_map(|o| Some((o["osd"].as_u64()?, o["up_from"].as_u64()?)))
            .collect())
    }
}

/// An empty place in a PG's acting set (`CRUSH_ITEM_NONE`).
const NO_OSD: u64 = 0x7fff_ffff;

fn acting(pg: &Value) -> impl Iterator<Item = u64> {
    let acting = pg["acting"].as_array().into_iter().flatten();
    acting.filter_map(Value::as_u64)
}

/// Whether a PG is still changing towards a state in which it may stay. A PG without members is
/// not.
fn is_changing(pg: &Value, started: &BTreeMap<u64, u64>) -> bool {
    const PASSING: [&str; 6] = ["peering", "activating", "creating", "unknown", "stale", "wait"];
    let mut states = pg["state"].as_str().unwrap_or_default().split('+');
    states.any(|s| PASSING.contains(&s)) && acting(pg).any(|osd| started.contains_key(&osd))
}

/// Whether a PG was last reported before one of its OSDs was started.
fn is_old(pg: &Value, started: &BTreeMap<u64, u64>) -> bool {
    let since = acting(pg).filter_map(|osd| started.get(&osd)).max();
    pg["reported_epoch"].as_u64().unwrap_or(0) < since.copied().unwrap_or(0)
}

fn failed(command: &Value, reply: &CommandReply) -> Error {
    Error::Daemon(format!("{}: {}", command["prefix"], reply.status))
}

/// How long an OSD on this machine may take to answer.
const OSD_PATIENCE: Duration = Duration::from_secs(1);

/// An OSD whose running process the cluster's map does not have yet: the map may still name an
/// earlier process that was killed.
async fn still_booting(layout: &Layout, wanted: &BTreeSet<OsdId>) -> Option<String> {
    for n in wanted {
        let path = layout.admin_socket(&DaemonName::osd(*n));
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

/// The health of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Health {
    /// `HEALTH_OK`, `HEALTH_WARN` or `HEALTH_ERR`.
    pub(crate) status: String,
    /// The raised checks.
    pub(crate) checks: Vec<Check>,
}

/// A health check that is raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) code: String,
    pub(crate) summary: String,
}

impl Check {
    /// Whether the check clears by itself while a cluster comes up.
    fn is_of_start(&self) -> bool {
        const COMING_UP: [&str; 5] = [
            "OSD_DOWN",
            "OSD_HOST",
            "PG_AVAILABILITY",
            "PG_DEGRADED",
            "MON_DOWN",
        ];
        COMING_UP.iter().any(|prefix| self.code.starts_with(prefix))
    }
}

impl Health {
    /// Takes the health from the output of `ceph status --format json`.
    pub(crate) fn of_status(status: &Value) -> Self {
        let health = &status["health"];
        let checks = health["checks"].as_object().into_iter().flatten();
        Self {
            status: health["status"].as_str().unwrap_or("HEALTH_UNKNOWN").to_owned(),
            checks: checks
                .map(|(code, check)| Check {
                    code: code.clone(),
                    summary: check["summary"]["message"].as_str().unwrap_or(code).to_owned(),
                })
                .collect(),
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.status)?;
        self.checks
            .iter()
            .try_for_each(|c| write!(f, "\n    {}: {}", c.code, c.summary))
    }
}

/// How far a starting cluster is.
pub(crate) enum Progress {
    /// The cluster does not serve yet, for this reason.
    Waiting(String),
    /// The cluster serves, and copies are still being made; the text says which.
    Settled(String, Health),
    /// The cluster serves and all copies exist.
    Up(Health),
}
