//! A connection to a cluster.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use spirula_buf::Pool;
use spirula_cephx::AuthName;
use spirula_denc::{EntityAddrVec, EntityName, EntityType, Fsid, decode_all};
use spirula_errno::Errno;
use spirula_maps::{Epoch, MonMap, OsdId, OsdMap, PoolId, PoolStat, SnapId};
use spirula_monc::{CommandReply, Event, MonClient};
use spirula_msgr::Config;
use spirula_proto::mgr::{MMgrMap, MgrMap};
use spirula_proto::mon::{
    MCommand, MConfig, MGetPoolStats, MGetPoolStatsReply, MLog, MMonMap, MPoolOp, MPoolOpReply, MStatfs,
    MStatfsReply, PoolOpCode, Statfs,
};
use spirula_proto::{MsgType, Payload, RawMessage};
use tokio::sync::{Notify, mpsc};

use crate::objecter::Objecter;
use crate::osd_session;
use crate::{Error, IoCtx, Options, Result, errno};

/// How often requests whose callers have gone are dropped.
const SWEEP: Duration = Duration::from_secs(5);

/// A connection to a cluster; clones share it.
#[derive(Clone)]
pub struct Rados {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) monc: MonClient,
    pub(crate) objecter: RefCell<Objecter>,
    pub(crate) options: Options,
    pub(crate) config: Rc<Config>,
    pub(crate) monmap: RefCell<Option<MonMap>>,
    pub(crate) mgrmap: RefCell<Option<MgrMap>>,
    /// A monitor map or manager map has arrived.
    map_came: Notify,
    log: RefCell<Option<mpsc::UnboundedSender<MLog>>>,
    task: RefCell<Option<tokio::task::JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Rados {
    /// Connects and logs in.
    ///
    /// # Errors
    /// [`Error::Mon`] where no monitor answers within `options.connect_timeout`, or the key is
    /// refused.
    pub async fn connect(options: &Options) -> Result<Self> {
        let mut config = Config::new(
            EntityName::new(EntityType::CLIENT, -1),
            options.address.map(EntityAddrVec::from).unwrap_or_default(),
            Pool::new(options.memory),
        );
        config.modes = options.modes.clone().into();
        config.nonce = match options.address {
            Some(address) => address.nonce,
            None => {
                let mut nonce = [0; 4];
                spirula_random::fill(&mut nonce).map_err(|e| Error::Config(format!("no randomness: {e}")))?;
                u32::from_le_bytes(nonce)
            }
        };
        let config = Rc::new(config);
        let (monc, mon_events) = MonClient::start(spirula_monc::Options {
            messenger: Rc::clone(&config),
            monitors: options.monitors.clone(),
            name: options.name.clone(),
            key: options.key.clone(),
            services: vec![EntityType::MON, EntityType::OSD, EntityType::MGR],
            rotating: None,
        });
        monc.subscribe("monmap", 0);
        monc.subscribe("config", 0);
        let (events, osd_events) = mpsc::unbounded_channel();
        let objecter = RefCell::new(Objecter::new(Rc::clone(&config), monc.clone(), events));
        let inner = Rc::new(Inner {
            monc: monc.clone(),
            objecter,
            options: options.clone(),
            config,
            monmap: RefCell::default(),
            mgrmap: RefCell::default(),
            map_came: Notify::new(),
            log: RefCell::default(),
            task: RefCell::default(),
        });
        let task = tokio::task::spawn_local(run(Rc::downgrade(&inner), mon_events, osd_events));
        *inner.task.borrow_mut() = Some(task);
        let deadline = tokio::time::Instant::now() + options.connect_timeout;
        monc.connected(options.connect_timeout).await?;
        // Requests carry the cluster's id, which the monitor map tells.
        let monmap = inner.arrived(|inner| inner.monmap.borrow().as_ref().map(|_| ()));
        tokio::time::timeout_at(deadline, monmap)
            .await
            .map_err(|_| spirula_monc::Error::Timeout)?;
        Ok(Self { inner })
    }

    /// The entity that is logged in.
    pub fn name(&self) -> &AuthName {
        &self.inner.options.name
    }

    /// The session with the monitors.
    pub fn monitors(&self) -> &MonClient {
        &self.inner.monc
    }

    /// The monitor map, once it has arrived.
    pub fn monmap(&self) -> Option<MonMap> {
        self.inner.monmap.borrow().clone()
    }

    /// Runs a monitor command given as JSON.
    ///
    /// # Errors
    /// Where there is no answer. A command that fails is a reply with a negative result.
    pub async fn mon_command(&self, json: &str, input: Bytes) -> Result<CommandReply> {
        Ok(self.inner.monc.command(vec![json.to_owned()], input).await?)
    }

    /// Runs a command on an OSD (`ceph tell osd.N`).
    ///
    /// # Errors
    /// `ENXIO` where it is down, `ENOENT` where there is none.
    pub async fn osd_command(&self, osd: OsdId, json: &str, input: Bytes) -> Result<CommandReply> {
        let map = self.latest_map().await?;
        let mut msg = MCommand {
            fsid: map.fsid,
            cmd: vec![json.to_owned()],
            ..MCommand::default()
        };
        if !input.is_empty() {
            msg.input.push(input);
        }
        let answer = self.inner.objecter.borrow_mut().command(osd, msg);
        let reply = answer
            .await
            .map_err(|_| spirula_monc::Error::ShutDown)?
            .map_err(|e| Error::os("command", e))?;
        Ok(CommandReply {
            result: reply.result,
            status: reply.status,
            output: reply.output.to_bytes(),
        })
    }

    /// The OSDMap, at least as new as the monitors' newest at the time of the call.
    ///
    /// # Errors
    /// Where no monitor answers.
    pub async fn latest_map(&self) -> Result<Rc<OsdMap>> {
        let newest = self.inner.monc.version("osdmap").await?;
        let newest = Epoch::try_from(newest).map_err(|_| Error::Malformed("OSDMap epoch".into()))?;
        self.wait_for_map(newest).await?;
        self.map().ok_or(Error::Mon(spirula_monc::Error::ShutDown))
    }

    /// Waits until the client has an OSDMap of this epoch or a later one.
    ///
    /// # Errors
    /// Where the client is shut down.
    pub async fn wait_for_map(&self, epoch: Epoch) -> Result<()> {
        let wait = self
            .inner
            .objecter
            .borrow_mut()
            .wait_for_map(epoch.max(Epoch::new(1)));
        Ok(wait.await.map_err(|_| spirula_monc::Error::ShutDown)?)
    }

    /// The client's present OSDMap.
    pub fn map(&self) -> Option<Rc<OsdMap>> {
        self.inner.objecter.borrow().map()
    }

    /// The cluster's id.
    ///
    /// # Errors
    /// Where no monitor answers.
    pub async fn fsid(&self) -> Result<Fsid> {
        Ok(self.latest_map().await?.fsid)
    }

    /// Opens a pool by name.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub async fn pool(&self, name: &str) -> Result<IoCtx> {
        let known = self.map().and_then(|m| m.pool_id(name));
        let id = match known {
            Some(id) => Some(id),
            None => self.latest_map().await?.pool_id(name),
        };
        let id = id.ok_or(Error::os("open pool", errno::ENOENT))?;
        Ok(IoCtx::new(self.clone(), id))
    }

    /// Opens a pool by its id.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub async fn pool_by_id(&self, id: PoolId) -> Result<IoCtx> {
        let known = |map: &OsdMap| map.pool(id).is_some();
        if !self.map().is_some_and(|m| known(&m)) && !known(&*self.latest_map().await?) {
            return Err(Error::os("open pool", errno::ENOENT));
        }
        Ok(IoCtx::new(self.clone(), id))
    }

    /// The pools' names.
    ///
    /// # Errors
    /// Where no monitor answers.
    pub async fn pools(&self) -> Result<Vec<(PoolId, String)>> {
        let map = self.latest_map().await?;
        Ok(map
            .pool_names
            .iter()
            .map(|(id, name)| (*id, name.clone()))
            .collect())
    }

    /// Creates a pool, with the default CRUSH rule where `crush_rule` is negative.
    ///
    /// # Errors
    /// `EEXIST`, and other errnos of the monitors.
    pub async fn create_pool(&self, name: &str, crush_rule: i16) -> Result<()> {
        // The monitors take it for an answered request that came again, and say that all is well.
        if self.latest_map().await?.pool_id(name).is_some() {
            return Err(Error::os("create pool", errno::EEXIST));
        }
        let msg = MPoolOp {
            op: PoolOpCode::CREATE,
            name: name.to_owned(),
            crush_rule,
            ..MPoolOp::default()
        };
        self.send_pool_op(msg).await.map(drop)
    }

    /// Deletes a pool and all its objects.
    ///
    /// # Errors
    /// `ENOENT`, and other errnos of the monitors: `EPERM` where deletion is not allowed.
    pub async fn delete_pool(&self, name: &str) -> Result<()> {
        let id = self.latest_map().await?.pool_id(name);
        let id = id.ok_or(Error::os("delete pool", errno::ENOENT))?;
        // librados sends this name. With the pool's own name the official monitors do nothing and
        // say that all is well.
        self.pool_op(PoolOpCode::DELETE, id, "delete", 0).await.map(drop)
    }

    /// Runs an operation on a pool or its snapshots, through the protocol that librados uses;
    /// returns its data once the map with the change has arrived.
    pub(crate) async fn pool_op(
        &self,
        op: PoolOpCode,
        pool: PoolId,
        name: &str,
        snapid: SnapId,
    ) -> Result<Bytes> {
        let msg = MPoolOp {
            pool,
            op,
            name: name.to_owned(),
            snapid,
            ..MPoolOp::default()
        };
        self.send_pool_op(msg).await
    }

    async fn send_pool_op(&self, msg: MPoolOp) -> Result<Bytes> {
        let fsid = self.latest_map().await?.fsid;
        let msg = MPoolOp { fsid, ..msg };
        let reply: MPoolOpReply = self.inner.monc.request(msg.to_message()).await?.decode()?;
        if let Some(errno) = Errno::of_result(reply.result) {
            return Err(Error::os("pool operation", errno));
        }
        self.wait_for_map(reply.epoch).await?;
        Ok(reply.data)
    }

    /// The cluster's space, or a data pool's.
    ///
    /// # Errors
    /// Where no monitor answers.
    pub async fn statfs(&self, data_pool: Option<PoolId>) -> Result<Statfs> {
        let fsid = self.latest_map().await?.fsid;
        let msg = MStatfs {
            fsid,
            data_pool,
            ..MStatfs::default()
        };
        Ok(self
            .inner
            .monc
            .request(msg.to_message())
            .await?
            .decode::<MStatfsReply>()?
            .st)
    }

    /// The statistics of these pools, by name, and whether the OSDs count stored bytes by pool.
    ///
    /// # Errors
    /// Where no monitor answers.
    pub async fn pool_stats(&self, pools: Vec<String>) -> Result<(BTreeMap<String, PoolStat>, bool)> {
        let fsid = self.latest_map().await?.fsid;
        let msg = MGetPoolStats {
            fsid,
            pools,
            ..MGetPoolStats::default()
        };
        let reply: MGetPoolStatsReply = self.inner.monc.request(msg.to_message()).await?.decode()?;
        let mut stats = BTreeMap::new();
        for (name, section) in reply.pools {
            stats.insert(name, decode_all(&spirula_denc::encode_to_vec(&section))?);
        }
        Ok((stats, reply.per_pool))
    }

    /// The entries of the cluster log from now on, of at least the level `what` (`log-info`).
    pub fn watch_log(&self, what: &str) -> mpsc::UnboundedReceiver<MLog> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.inner.log.borrow_mut() = Some(sender);
        self.inner.monc.subscribe(what, 0);
        receiver
    }
}

impl Inner {
    /// The cluster's id, zero before it is known.
    pub(crate) fn fsid(&self) -> Fsid {
        self.monmap
            .borrow()
            .as_ref()
            .map_or_else(Fsid::default, |m| m.fsid)
    }

    /// Waits until `map` returns a value; calls it again whenever a map arrives.
    pub(crate) async fn arrived<T>(&self, map: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            let came = self.map_came.notified();
            if let Some(map) = map(self) {
                return map;
            }
            came.await;
        }
    }

    fn handle_mon(&self, msg: &RawMessage) {
        let handled = match msg.kind() {
            MsgType::MON_MAP => msg
                .decode::<MMonMap>()
                .map(|m| match decode_all::<MonMap>(&m.monmap) {
                    Ok(map) => {
                        self.monc.received("monmap", u64::from(map.epoch));
                        self.monc.set_fsid(map.fsid);
                        *self.monmap.borrow_mut() = Some(map);
                        self.map_came.notify_waiters();
                    }
                    Err(e) => tracing::error!("MonMap: {e}"),
                }),
            MsgType::MGR_MAP => msg.decode::<MMgrMap>().map(|m| {
                self.monc.received("mgrmap", u64::from(m.map.epoch));
                *self.mgrmap.borrow_mut() = Some(m.map);
                self.map_came.notify_waiters();
            }),
            MsgType::LOG => msg.decode::<MLog>().map(|m| {
                if let Some(log) = &*self.log.borrow() {
                    // The reader of the log may have stopped.
                    let _ = log.send(m);
                }
            }),
            MsgType::OSD_MAP => {
                self.objecter.borrow_mut().handle_message(msg);
                Ok(())
            }
            // No option in it concerns this client; old librados waits for the subscription.
            MsgType::CONFIG => msg.decode::<MConfig>().map(drop),
            _ => Ok(()),
        };
        if let Err(e) = handled {
            tracing::error!("{e}");
        }
    }
}

async fn run(
    inner: std::rc::Weak<Inner>,
    mut mon_events: mpsc::UnboundedReceiver<Event>,
    mut osd_events: mpsc::UnboundedReceiver<osd_session::Event>,
) {
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            event = mon_events.recv() => match (event, inner.upgrade()) {
                (Some(Event::Message(msg)), Some(inner)) => inner.handle_mon(&msg),
                (Some(_), Some(_)) => {}
                _ => return,
            },
            event = osd_events.recv() => match (event, inner.upgrade()) {
                (Some(event), Some(inner)) => inner.objecter.borrow_mut().handle(event),
                _ => return,
            },
            _ = sweep.tick() => match inner.upgrade() {
                Some(inner) => inner.objecter.borrow_mut().sweep(),
                None => return,
            },
        }
    }
}
