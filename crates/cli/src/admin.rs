//! The administrator's connection that `up` itself needs: provisioning and health.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use spirula_cephx::AuthName;
use spirula_client::{Options, Rados};
use spirula_denc::EntityType;

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

    /// Runs a monitor command that answers in JSON, `Null` where it has no output.
    pub(crate) async fn command(&self, command: Value, input: Bytes) -> Result<Value, Error> {
        let reply = self.rados.mon_command(&command.to_string(), input).await?;
        if reply.result < 0 {
            return Err(Error::Daemon(format!("{}: {}", command["prefix"], reply.status)));
        }
        if reply.output.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&reply.output)
            .map_err(|e| Error::Daemon(format!("{}: unreadable answer: {e}", command["prefix"])))
    }

    /// `None` where the cluster is healthy with `osds` OSDs up, else what is missing.
    pub(crate) async fn health(&self, osds: u32) -> Result<Option<String>, Error> {
        let status = self
            .command(
                serde_json::json!({"prefix": "status", "format": "json"}),
                Bytes::new(),
            )
            .await?;
        let up = status["osdmap"]["num_up_osds"].as_u64().unwrap_or(0);
        if up < u64::from(osds) {
            return Ok(Some(format!("{up} of {osds} OSDs are up")));
        }
        match status["health"]["status"].as_str() {
            Some("HEALTH_OK") => Ok(None),
            Some(other) => {
                let checks = status["health"]["checks"].as_object().into_iter().flatten();
                let summaries = checks.filter_map(|(_, c)| c["summary"]["message"].as_str());
                Ok(Some(format!(
                    "{other}: {}",
                    summaries.collect::<Vec<_>>().join("; ")
                )))
            }
            None => Ok(Some("no health in the status".into())),
        }
    }
}
