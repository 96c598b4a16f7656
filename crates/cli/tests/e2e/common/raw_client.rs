//! A client with a key that ignores the rules of the protocol: it logs in as other clients do, and
//! then sends arbitrary messages.
//!
//! Sockets are on tokio's current-thread runtime, so a test calls [`run`] around everything.

use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use spirula_buf::Pool;
use spirula_cephx::{AuthName, ClientHandshake, CryptoKey};
use spirula_conf::parse_mon_host;
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType};
use spirula_maps::OsdId;
use spirula_monc::{Event, MonClient, MonLogin, Options};
use spirula_msgr::{Config, Connection};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Cluster;

/// Payload memory of this client, in bytes.
const MEMORY: usize = 256 << 20;

/// Runs a test's asynchronous part on this thread.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

/// A session with a monitor under an entity's key, and tickets for connections to the other
/// daemons.
pub struct RawClient {
    /// The session with the monitors.
    pub monitors: MonClient,
    /// The monitors' messages.
    pub events: UnboundedReceiver<Event>,
    /// The configuration of its connections.
    pub config: Rc<Config>,
    name: AuthName,
    key: CryptoKey,
    mon_host: Vec<EntityAddr>,
    osds: BTreeMap<OsdId, EntityAddr>,
}

impl RawClient {
    /// Logs in as `entity`, which must exist.
    pub async fn login(c: &Cluster, entity: &str) -> Self {
        let key = c.sh(&format!("ceph auth get-key {entity}"));
        let hosts = c.sh("ceph-conf --lookup mon_host || sed -n 's/^ *mon.host *= *//p' ceph.conf");
        let dump = c.sh("ceph osd dump -f json");
        let name: AuthName = entity.parse().unwrap();
        let key = CryptoKey::from_base64(key.trim()).unwrap();
        let mut config = Config::new(
            EntityName::new(name.kind, -1),
            EntityAddrVec::default(),
            Pool::new(MEMORY),
        );
        config.nonce = rand_nonce();
        let config = Rc::new(config);
        let mon_host: Vec<EntityAddr> = parse_mon_host(hosts.trim());
        let (monitors, events) = MonClient::start(Options {
            messenger: Rc::clone(&config),
            monitors: mon_host.clone(),
            name: name.clone(),
            key: key.clone(),
            services: vec![EntityType::MON, EntityType::OSD, EntityType::MGR],
            rotating: None,
        });
        monitors.connected(Duration::from_secs(10)).await.unwrap();
        Self {
            monitors,
            events,
            config,
            name,
            key,
            mon_host,
            osds: osd_addresses(&dump),
        }
    }

    /// A new connection to an OSD's public address, with this client's ticket.
    pub async fn osd(&self, osd: OsdId) -> Result<Connection, spirula_msgr::Error> {
        let mut login = self.monitors.login_at(EntityType::OSD);
        spirula_msgr::connect(self.osds[&osd], EntityType::OSD, &self.config, &mut login).await
    }

    /// A new connection to the first monitor with a login of its own: another session beside
    /// [`Self::monitors`].
    pub async fn monitor(&self) -> Result<Connection, spirula_msgr::Error> {
        let mut login = self.monitor_login();
        spirula_msgr::connect(self.mon_host[0], EntityType::MON, &self.config, &mut login).await
    }

    /// A login at a monitor.
    pub fn monitor_login(&self) -> MonLogin {
        let services = [EntityType::MON, EntityType::OSD, EntityType::MGR];
        MonLogin::new(ClientHandshake::new(
            self.name.clone(),
            self.key.clone(),
            &services,
        ))
    }

    /// The first monitor's address.
    pub fn monitor_address(&self) -> EntityAddr {
        self.mon_host[0]
    }

    /// The monitors' addresses.
    pub fn monitors_at(&self) -> &[EntityAddr] {
        &self.mon_host
    }

    /// An OSD's address for clients.
    pub fn osd_address(&self, osd: OsdId) -> EntityAddr {
        self.osds[&osd]
    }
}

/// Tells this process's clients apart.
fn rand_nonce() -> u32 {
    uuid::Uuid::new_v4().as_u128() as u32
}

fn osd_addresses(dump: &str) -> BTreeMap<OsdId, EntityAddr> {
    let dump: serde_json::Value = serde_json::from_str(dump).unwrap();
    let osds = dump["osds"].as_array().unwrap();
    osds.iter()
        .filter_map(|osd| {
            let id = OsdId::try_from(osd["osd"].as_u64()?).ok()?;
            let addrs = osd["public_addrs"]["addrvec"].as_array()?;
            let v2 = addrs.iter().find(|a| a["type"] == "v2")?;
            let text = format!("v2:{}/{}", v2["addr"].as_str()?, v2["nonce"]);
            Some((id, text.parse().ok()?))
        })
        .collect()
}

/// Another client during an attack: a small write and read of pool `pool` with the official client,
/// `times` times, each within `within`. Runs in a thread of its own.
pub fn bystander(c: &Cluster, pool: &str, times: u32, within: Duration) -> std::thread::JoinHandle<Duration> {
    let step = "io.write_full('bystander%d' % (n % 16), b'%d' % n)\n\
         assert io.read('bystander%d' % (n % 16)) == b'%d' % n\n";
    meanwhile(c, pool, ("", step), times, within)
}

/// As [`bystander`]; it reads all of `object`, up to 4 MiB, and a little of it.
pub fn reader(
    c: &Cluster,
    pool: &str,
    object: &str,
    times: u32,
    within: Duration,
) -> std::thread::JoinHandle<Duration> {
    let step = format!(
        "assert len(io.read('{object}', 4 << 20)) > 0\n\
         assert len(io.read('{object}', 4096, 4096)) > 0\n"
    );
    meanwhile(c, pool, ("", &step), times, within)
}

/// Runs lines of Python, the first ones once, the others `times` times, each time within `within`;
/// returns the longest time.
pub fn meanwhile(
    c: &Cluster,
    pool: &str,
    (setup, step): (&str, &str),
    times: u32,
    within: Duration,
) -> std::thread::JoinHandle<Duration> {
    let step: String = step.lines().map(|line| format!("    {line}\n")).collect();
    let program = format!(
        "io = cluster.open_ioctx('{pool}')\n\
         {setup}\
         slowest = 0\n\
         for n in range({times}):\n\
         \x20   began = time.time()\n\
         {step}\
         \x20   slowest = max(slowest, time.time() - began)\n\
         \x20   time.sleep(0.1)\n\
         print(int(slowest * 1000))\n"
    );
    let mut command = c.python_command(&program);
    let limit = within * times + Duration::from_secs(60);
    std::thread::spawn(move || {
        let began = Instant::now();
        let out = command.output().unwrap();
        assert!(
            out.status.success(),
            "the bystander failed: {}",
            super::output(&out)
        );
        assert!(
            began.elapsed() < limit,
            "the bystander took {:?}",
            began.elapsed()
        );
        let slowest = Duration::from_millis(super::text(&out.stdout).trim().parse().unwrap());
        assert!(
            slowest <= within,
            "the bystander's slowest request took {slowest:?}"
        );
        slowest
    })
}
