//! Clients with a key that send single bytes, read nothing, or connect without end: others are
//! served meanwhile.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use spirula_denc::{EntityAddr, EntityType, UTime, decode_all};
use spirula_maps::{ObjectLocator, ObjectName, OsdId, OsdMap, SpgId, snap};
use spirula_proto::mon::MMonCommand;
use spirula_proto::osd::{ExtentArgs, MOsdOp, OpArgs, OpCode, OsdFlags, OsdOpIn};
use spirula_proto::{BytesList, Payload, RawMessage};
use tokio::io::AsyncWriteExt;

use crate::common::raw_client::{RawClient, run};
use crate::common::raw_wire::RawWire;
use crate::common::{Cluster, text};

/// The memory limit of each daemon, in bytes.
const MEMORY: u64 = 128 << 20;
const SECOND: Duration = Duration::from_secs(1);

fn cluster(test: &str, mons: &str) -> Cluster {
    let c = Cluster::up(test, 3, &["--no-respawn", "--mons", mons]);
    c.sh(
        "ceph osd pool create r 8 8 replicated; ceph osd pool application enable r test
        ceph auth get-or-create client.raw mon 'allow r' osd 'allow rw pool=r' >/dev/null
        head -c 4194304 /dev/urandom >data; rados -p r put large data",
    );
    c
}

fn memory_is_kept(c: &Cluster) {
    for daemon in ["osd.0", "osd.1", "osd.2", "mon.a"] {
        let peak = c.peak_rss(daemon);
        assert!(peak < MEMORY, "{daemon}: {} MiB", peak >> 20);
    }
}

/// Another client during an attack, with larger messages: writes and reads of 64 KiB, and commands
/// with as much input, each within a second.
struct Bystander(std::process::Child);

impl Bystander {
    fn start(c: &Cluster, times: u32) -> Self {
        let program = format!(
            "io = cluster.open_ioctx('r')\n\
             data = os.urandom(65536)\n\
             slowest = 0\n\
             print('ready', flush=True)\n\
             sys.stdin.readline()\n\
             for n in range({times}):\n\
             \x20   for step in [lambda: io.write_full('other%d' % n, data), lambda: io.read('other%d' % n, 65536),\n\
             \x20                lambda: cluster.mon_command(json.dumps({{'prefix': 'config-key set', 'key': 'k'}}), data[:40000].hex().encode())]:\n\
             \x20       began = time.time()\n\
             \x20       step()\n\
             \x20       slowest = max(slowest, time.time() - began)\n\
             \x20   time.sleep(0.1)\n\
             print(slowest)\n"
        );
        let mut command: Command = c.python_command(&program);
        let mut child = command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        Self(child)
    }

    /// Lets it begin, and waits for its end.
    async fn served(mut self) {
        drop(self.0.stdin.take());
        let out = tokio::task::spawn_blocking(move || {
            let deadline = Instant::now() + Duration::from_secs(30);
            while self.0.try_wait().unwrap().is_none() {
                if Instant::now() > deadline {
                    self.0.kill().unwrap();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            self.0.wait_with_output().unwrap()
        });
        let out = out.await.unwrap();
        assert!(out.status.success(), "the bystander was not served");
        let slowest: f64 = text(&out.stdout).trim().parse().unwrap();
        assert!(
            slowest < SECOND.as_secs_f64(),
            "the bystander waited for {slowest} s"
        );
    }
}

/// The primary of an object, and a request for it.
fn request(map: &OsdMap, name: &str, code: OpCode, data: Bytes) -> (OsdId, RawMessage) {
    let pool = map
        .pool_names
        .iter()
        .find(|(_, n)| *n == "r")
        .map(|(id, _)| *id)
        .unwrap();
    let (oid, locator) = (ObjectName::from(name), ObjectLocator::pool(pool));
    let raw = map.object_to_raw_pg(&oid, &locator).unwrap();
    let pgid = map.raw_pg_to_pg(raw).unwrap();
    let extent = ExtentArgs {
        length: data.len() as u64,
        ..ExtentArgs::default()
    };
    let op = MOsdOp {
        tid: 1,
        spg: SpgId::whole(pgid),
        hash: raw.seed,
        epoch: map.epoch,
        flags: OsdFlags::ONDISK,
        explicit_reqid: Default::default(),
        trace: Default::default(),
        client_inc: 0,
        mtime: UTime::now(),
        locator,
        oid,
        ops: vec![OsdOpIn::new(code, OpArgs::Extent(extent), data)],
        snapid: snap::NOSNAP,
        snapc: Default::default(),
        retry_attempt: 0,
        features: u64::MAX,
    };
    (map.map_pg(pgid).acting_primary.unwrap(), op.to_message())
}

fn osdmap(c: &Cluster) -> OsdMap {
    c.sh("ceph osd getmap -o map >/dev/null 2>&1");
    decode_all(&std::fs::read(c.dir().join("map")).unwrap()).unwrap()
}

async fn wire_to_osd(raw: &RawClient, addr: EntityAddr) -> Option<RawWire> {
    let mut login = raw.monitors.login_at(EntityType::OSD);
    RawWire::connect(addr, EntityType::OSD, &raw.config, &mut login, Duration::ZERO).await
}

async fn wire_to_monitor(raw: &RawClient, round_trip: Duration) -> Option<RawWire> {
    wire_to(raw, raw.monitor_address(), round_trip).await
}

async fn wire_to(raw: &RawClient, monitor: EntityAddr, round_trip: Duration) -> Option<RawWire> {
    let mut login = raw.monitor_login();
    RawWire::connect(monitor, EntityType::MON, &raw.config, &mut login, round_trip).await
}

/// Connections to every port of every OSD and monitor over which only the beginning of a possible
/// handshake comes.
fn dripping_handshakes(c: &Cluster, monitors: &[EntityAddr]) -> Vec<TcpStream> {
    let dump: serde_json::Value = serde_json::from_str(&c.sh("ceph osd dump -f json")).unwrap();
    let mut ports: Vec<SocketAddr> = monitors.iter().filter_map(|m| m.socket).collect();
    for osd in dump["osds"].as_array().unwrap() {
        for kind in ["public", "cluster", "heartbeat_back", "heartbeat_front"] {
            let addrs = osd[format!("{kind}_addrs")]["addrvec"].as_array().unwrap();
            ports.extend(
                addrs
                    .iter()
                    .map(|a| a["addr"].as_str().unwrap().parse::<SocketAddr>().unwrap()),
            );
        }
    }
    assert!(ports.len() >= 15, "{ports:?}");
    let each = ports.iter().flat_map(|port| std::iter::repeat_n(port, 12));
    each.map(|port| TcpStream::connect(port).unwrap()).collect()
}

#[test]
fn what_comes_by_bytes_keeps_nobody_out() {
    let c = cluster("drips", "3");
    let map = osdmap(&c);
    run(async {
        let raw = RawClient::login(&c, "client.raw").await;
        let bystander = Bystander::start(&c, 20);
        let mut wires = Vec::new();
        for osd in 0..3 {
            let write = Bytes::from(vec![7; 4 << 20]);
            let names = (0..).map(|n| format!("slow{n}"));
            let of_osd = names
                .map(|n| request(&map, &n, OpCode::WRITEFULL, write.clone()))
                .filter(|r| r.0 == OsdId::new(osd));
            for (_, message) in of_osd.take(12) {
                let wire = wire_to_osd(&raw, raw.osd_address(OsdId::new(osd))).await.unwrap();
                wires.push((wire, message));
            }
        }
        let mut input = BytesList::default();
        input.push(Bytes::from(vec![b'x'; 2 << 20]));
        for monitor in raw.monitors_at() {
            for _ in 0..12 {
                let command = MMonCommand {
                    cmd: vec!["{\"prefix\":\"config-key set\",\"key\":\"x\"}".to_owned()],
                    input: input.clone(),
                    ..MMonCommand::default()
                };
                let wire = wire_to(&raw, *monitor, Duration::ZERO).await.unwrap();
                wires.push((wire, command.to_message()));
            }
        }
        let mut sent = Vec::new();
        for (mut wire, message) in wires {
            let bytes = wire.bytes(message);
            wire.stream.write_all(&bytes[..40_000]).await.unwrap();
            sent.push((wire, bytes));
        }
        let mut handshakes = dripping_handshakes(&c, raw.monitors_at());
        let drip = async {
            for n in 40_000.. {
                for (wire, bytes) in &mut sent {
                    // Some may have been hung up on.
                    let _ = wire.stream.write_all(&bytes[n..=n]).await;
                }
                for stream in &mut handshakes {
                    let _ = std::io::Write::write_all(stream, &b"ceph v2\n"[n % 8..=n % 8]);
                }
                tokio::time::sleep(4 * SECOND).await;
            }
        };
        tokio::select! {
            () = bystander.served() => {}
            () = drip => {}
        }
        // The OSDs kept replicating, as all three stored the bystander's data, and the monitors
        // agreed on its commands.
        let quorum: serde_json::Value = serde_json::from_str(&c.sh("ceph quorum_status")).unwrap();
        assert_eq!(quorum["quorum_names"].as_array().unwrap().len(), 3);
        assert_eq!(
            c.sh("ceph osd stat -f json | grep -o '\"num_up_osds\":[0-9]*'")
                .trim(),
            "\"num_up_osds\":3"
        );
        // The port of the OSDs is none for clients.
        let cluster_addr = *map.cluster_addrs(OsdId::new(0)).unwrap().v2().unwrap();
        if let Some(mut wire) = wire_to_osd(&raw, cluster_addr).await {
            assert!(wire.is_hung_up(SECOND).await);
        }
    });
    memory_is_kept(&c);
}

#[test]
fn sessions_and_handshakes_without_end_leave_room_for_others() {
    let c = cluster("sessions", "1");
    spirula_msgr::raise_open_files();
    run(async {
        let raw = RawClient::login(&c, "client.raw").await;
        let mut held = Vec::new();
        for _ in 0..1100 {
            held.push(wire_to_osd(&raw, raw.osd_address(OsdId::new(0))).await);
        }
        let mut with_monitor = Vec::new();
        for _ in 0..200 {
            with_monitor.push(wire_to_monitor(&raw, Duration::ZERO).await);
        }
        Bystander::start(&c, 5).served().await;
        drop((held, with_monitor));

        // A distant client gets in while another one connects without end, from another address or
        // the same.
        for from in ["127.0.0.2", "127.0.0.1"] {
            let flood = Flood::start(from, raw.monitor_address().socket.unwrap());
            tokio::time::sleep(SECOND / 2).await;
            // However slow the machine is: it is a flood when so many have come.
            let mut done = false;
            while !done {
                done = flood.made() > 1000;
                let mut tries = 0;
                while wire_to_monitor(&raw, Duration::from_millis(50)).await.is_none() {
                    tries += 1;
                    assert!(tries < 10, "shut out by a flood from {from}");
                }
            }
            flood.stop();
        }
    });
    memory_is_kept(&c);
}

/// Connects as fast as it can from some address, and says nothing.
struct Flood {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicU32>,
    thread: std::thread::JoinHandle<()>,
}

impl Flood {
    fn start(from: &'static str, to: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let made = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&made);
        let thread = std::thread::spawn(move || {
            let mut open = std::collections::VecDeque::new();
            while !stopped.load(Ordering::Relaxed) {
                if let Some(stream) = connect_from(from, to) {
                    open.push_back(stream);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                if open.len() > 600 {
                    open.pop_front();
                }
                // 3,000 a second.
                std::thread::sleep(Duration::from_micros(250));
            }
        });
        Self { stop, made, thread }
    }

    /// How many connections were made so far.
    fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn connect_from(from: &str, to: SocketAddr) -> Option<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().ok()?;
    socket.bind(SocketAddr::new(from.parse().ok()?, 0)).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .ok()?;
    runtime.block_on(socket.connect(to)).ok()?.into_std().ok()
}
