//! The stored schedules, in the place of Ceph's manager: those of pools and below in an object of
//! the pool, the global one in the central configuration, as an option of the module.

use bytes::Bytes;
use serde_json::json;
use spirula_cephx::AuthName;
use spirula_client::errno::Errno;
use spirula_client::{IoCtx, Rados};

use crate::failure::Failure;
use crate::question::{MODULE, errno};

/// Schedules that are read at a time: one record may have several MiB.
const BATCH: u64 = 2;
/// The most bytes of schedules that are read from a pool, which tenants write.
const MAX_BYTES: usize = 1 << 20;

/// The place of the schedules of a kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The object in each pool.
    pub(crate) object: &'static str,
    /// The option of the global schedule.
    pub(crate) option: &'static str,
}

impl Place {
    fn option(self) -> String {
        format!("mgr/{MODULE}/{}", self.option)
    }

    /// The global schedule.
    pub(crate) async fn global(self, rados: &Rados) -> Result<Option<String>, Failure> {
        // The client's name is the manager's with a part of its own.
        let own = rados.name();
        let id = own.id.rsplit_once('.').map_or(own.id.as_str(), |(id, _)| id);
        let who = AuthName::new(own.kind, id).to_string();
        let command = json!({"prefix": "config get", "who": who, "key": self.option()});
        let reply = self.config(rados, &command).await?;
        match Errno::of_result(reply.result) {
            None => Ok(Some(String::from_utf8_lossy(&reply.output).trim_end().to_owned())),
            Some(errno::ENOENT) => Ok(None),
            Some(e) => Err(Failure::Rados(e, reply.status)),
        }
    }

    /// Sets or clears the global schedule.
    pub(crate) async fn set_global(self, rados: &Rados, schedule: Option<String>) -> Result<(), Failure> {
        let command = match schedule {
            Some(value) => {
                json!({"prefix": "config set", "who": "mgr", "name": self.option(), "value": value})
            }
            None => json!({"prefix": "config rm", "who": "mgr", "name": self.option()}),
        };
        let reply = self.config(rados, &command).await?;
        match Errno::of_result(reply.result) {
            None => Ok(()),
            Some(e) => Err(Failure::Rados(e, reply.status)),
        }
    }

    async fn config(
        self,
        rados: &Rados,
        command: &serde_json::Value,
    ) -> Result<spirula_client::CommandReply, Failure> {
        let reply = rados.mon_command(&command.to_string(), Bytes::new()).await;
        reply.map_err(|e| Failure::rados(&e, self.option()))
    }

    /// The schedules of a pool and below, by their keys.
    pub(crate) async fn of_pool(self, io: &IoCtx) -> Result<Vec<(String, String)>, Failure> {
        let (mut found, mut room) = (Vec::new(), MAX_BYTES);
        let mut after = Bytes::new();
        loop {
            let batch = io
                .omap_vals(self.object, after.clone(), Bytes::new(), BATCH)
                .await;
            let batch = match batch {
                Ok(batch) => batch,
                Err(e) if e.errno() == errno::ENOENT => return Ok(found),
                Err(e) => return Err(self.failure("read", &e)),
            };
            let bytes = batch.vals.iter().map(|(k, v)| k.len() + v.len()).sum();
            let Some(left) = room.checked_sub(bytes) else {
                let pool = io.pool_id();
                tracing::warn!(
                    "{} of pool {pool} has more than {MAX_BYTES} bytes: the rest is not followed",
                    self.object
                );
                return Ok(found);
            };
            room = left;
            let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
            found.extend(batch.vals.iter().map(|(k, v)| (text(k), text(v))));
            match batch.vals.keys().next_back() {
                Some(last) if batch.more => after = last.clone(),
                _ => return Ok(found),
            }
        }
    }

    /// Sets or clears the schedule of a pool, or of something in it.
    pub(crate) async fn set(self, io: &IoCtx, key: String, schedule: Option<String>) -> Result<(), Failure> {
        let key = Bytes::from(key);
        let done = match schedule {
            Some(value) => {
                let values = [(key, Bytes::from(value))].into();
                io.omap_set(self.object, &values).await
            }
            None => io.omap_rm_keys(self.object, &[key].into()).await,
        };
        done.map_err(|e| self.failure("write", &e))
    }

    fn failure(self, what: &str, e: &spirula_client::Error) -> Failure {
        Failure::rados(e, format!("Failed to operate {what} op for oid {}", self.object))
    }
}
