//! Commands for one daemon: `ceph tell`, `ceph ping`, and the manager's commands. Each uses a
//! session of its own; those for OSDs go through the objecter.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use spirula_denc::EntityType;
use spirula_maps::PgId;
use spirula_monc::{CommandReply, Event, MonClient};
use spirula_msgr::SessionError;
use spirula_proto::mon::{MCommand, MCommandReply, MMgrCommand, MMgrCommandReply, MPing};
use spirula_proto::{MsgType, Payload, RawMessage};

use crate::{Error, Rados, Result, errno};

/// Pause before a lost session with a daemon is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// The transaction id of the only request of a session.
const TID: u64 = 1;

fn list(input: Bytes) -> spirula_proto::BytesList {
    let mut list = spirula_proto::BytesList::new();
    if !input.is_empty() {
        list.push(input);
    }
    list
}

impl Rados {
    /// Runs a command of the manager's modules (those flagged as the manager's in the
    /// descriptions).
    ///
    /// # Errors
    /// `ENXIO` where no manager is active.
    pub async fn mgr_command(&self, json: &str, input: Bytes) -> Result<CommandReply> {
        let msg = MMgrCommand {
            fsid: self.inner.fsid(),
            cmd: vec![json.to_owned()],
            input: list(input),
        };
        let reply: MMgrCommandReply = self.ask_mgr("", &msg.to_message()).await?.decode()?;
        Ok(CommandReply {
            result: reply.result,
            status: reply.status,
            output: reply.output.to_bytes(),
        })
    }

    /// Runs a command on the active manager itself (`ceph tell mgr`); `name` must be its name or
    /// empty.
    ///
    /// # Errors
    /// `ENXIO` where no manager or another one is active.
    pub async fn tell_mgr(&self, name: &str, json: &str, input: Bytes) -> Result<CommandReply> {
        let msg = self.tell(json, input);
        Ok(reply(self.ask_mgr(name, &msg).await?.decode()?))
    }

    /// Runs a command on the monitor called `name` or of this rank (`ceph tell mon.a`).
    ///
    /// # Errors
    /// `ENOENT` where there is no such monitor.
    pub async fn tell_mon(&self, name: &str, json: &str, input: Bytes) -> Result<CommandReply> {
        let msg = self.tell(json, input);
        Ok(reply(
            self.ask_mon(name, msg, MsgType::COMMAND_REPLY).await?.decode()?,
        ))
    }

    /// Pings the monitor called `name`: returns its health and status as JSON.
    ///
    /// # Errors
    /// `ENOENT` where there is no such monitor.
    pub async fn ping_mon(&self, name: &str) -> Result<String> {
        let answer = self.ask_mon(name, MPing {}.to_message(), MsgType::PING).await?;
        Ok(spirula_denc::Reader::new(&answer.front).string()?)
    }

    /// Runs a command on the primary OSD of a PG (`ceph pg 1.0 query`).
    ///
    /// # Errors
    /// `ENOENT` where there is no such pool or PG, `ENXIO` where it has no primary.
    pub async fn pg_command(&self, pg: PgId, json: &str, input: Bytes) -> Result<CommandReply> {
        let map = self.latest_map().await?;
        let pool = map.pool_of(pg).ok_or(Error::os("PG command", errno::ENOENT))?;
        let primary = map.map_pg(pool.raw_pg_to_pg(pg)).acting_primary;
        let primary = primary.ok_or(Error::os("PG command", errno::ENXIO))?;
        self.osd_command(primary, json, input).await
    }

    fn tell(&self, json: &str, input: Bytes) -> RawMessage {
        let msg = MCommand {
            fsid: self.inner.fsid(),
            cmd: vec![json.to_owned()],
            input: list(input),
        };
        msg.to_message()
    }

    async fn ask_mon(&self, name: &str, msg: RawMessage, answer: MsgType) -> Result<RawMessage> {
        let monmap = self.inner.arrived(|inner| inner.monmap.borrow().clone()).await;
        let by_rank = || monmap.by_rank(name.parse().ok()?);
        let info = monmap.mons.get(name).or_else(by_rank);
        let addr = info.and_then(|m| m.public_addrs.v2().copied());
        let (client, mut events) = MonClient::start(spirula_monc::Options {
            messenger: Rc::clone(&self.inner.config),
            monitors: vec![addr.ok_or(Error::os("monitor", errno::ENOENT))?],
            name: self.inner.options.name.clone(),
            key: self.inner.options.key.clone(),
            services: vec![EntityType::MON],
            rotating: None,
        });
        let msg = msg.with_tid(TID);
        let ask = async {
            loop {
                match events.recv().await {
                    Some(Event::Connected(_)) => {
                        client.send(msg.clone());
                    }
                    Some(Event::Message(msg)) if msg.kind() == answer => return Ok(msg),
                    Some(_) => {}
                    None => return Err(spirula_monc::Error::ShutDown),
                }
            }
        };
        let refused = async {
            match client.connected(self.inner.options.connect_timeout).await {
                // The answer ends the wait.
                Ok(_) => std::future::pending().await,
                Err(e) => e,
            }
        };
        tokio::select! {
            answer = ask => Ok(answer?),
            e = refused => Err(e.into()),
        }
    }

    async fn ask_mgr(&self, name: &str, msg: &RawMessage) -> Result<RawMessage> {
        self.inner.monc.subscribe("mgrmap", 0);
        loop {
            let map = self.inner.arrived(|inner| inner.mgrmap.borrow().clone()).await;
            let addr = map.active_addrs.v2().filter(|a| !a.is_blank()).copied();
            let addr = addr.ok_or(Error::os("manager", errno::ENXIO))?;
            if !name.is_empty() && name != map.active_name {
                return Err(Error::os("manager", errno::ENXIO));
            }
            let mut login = self.inner.monc.login_at(EntityType::MGR);
            match spirula_msgr::connect(addr, EntityType::MGR, &self.inner.config, &mut login).await {
                Ok(mut connection) => {
                    connection.sender().send(msg.clone().with_tid(TID));
                    while let Ok(incoming) = connection.recv().await {
                        let kind = incoming.kind();
                        if kind == MsgType::MGR_COMMAND_REPLY || kind == MsgType::COMMAND_REPLY {
                            return Ok(incoming);
                        }
                    }
                }
                Err(spirula_msgr::Error::Session(SessionError::Denied(e))) => {
                    return Err(Error::os("manager", e));
                }
                Err(e) => tracing::debug!("manager {addr}: {e}"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

fn reply(m: MCommandReply) -> CommandReply {
    CommandReply {
        result: m.result,
        status: m.status,
        output: m.output.to_bytes(),
    }
}
