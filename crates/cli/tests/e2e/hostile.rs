//! Connections that send nonsense: no daemon dies, grows or stops serving.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use spirula_random::Rng;

use crate::common::Cluster;

const BANNER: &[u8] = b"ceph v2\n\x10\x00\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// One attack: what to send after connecting.
fn attack(kind: u64, rng: &mut Rng, recorded: &[u8]) -> Vec<u8> {
    let banner = BANNER.to_vec();
    let cut = |b: &[u8], r: &mut Rng| b[..r.index(b.len())].to_vec();
    match kind {
        // Garbage, with and without a banner before it.
        0 => rng.bytes(4096),
        1 => [banner, rng.bytes(4096)].concat(),
        // A preamble that promises four segments of 4 GiB.
        2 => {
            let mut preamble = vec![17u8, 4];
            for _ in 0..4 {
                preamble.extend([0xff; 4]);
                preamble.extend([8, 0]);
            }
            preamble.extend([0, 0]);
            let crc = !crc32c::crc32c_append(!0, &preamble);
            preamble.extend(crc.to_le_bytes());
            [banner, preamble].concat()
        }
        // A banner of the largest length there is, and nothing more.
        3 => b"ceph v2\n\xff\xff".to_vec(),
        // An honest handshake cut short, damaged, or replayed whole.
        4 => cut(recorded, rng),
        5 => {
            let mut damaged = recorded.to_vec();
            let at = rng.index(damaged.len());
            damaged[at] ^= 1 << (rng.below(8));
            damaged
        }
        6 => recorded.to_vec(),
        // Silence.
        _ => Vec::new(),
    }
}

/// The bytes of an official client's login at the monitor, recorded through a relay.
fn record_handshake(c: &Cluster, mon: SocketAddr) -> Vec<u8> {
    let relay = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = relay.local_addr().unwrap().port();
    let client = std::thread::spawn({
        let script = format!("timeout 5 ceph -m v2:127.0.0.1:{port} -s || true");
        let mut command = c.shell(&script);
        move || command.output().unwrap()
    });
    let (mut near, _) = relay.accept().unwrap();
    let mut far = TcpStream::connect(mon).unwrap();
    let mut answers = far.try_clone().unwrap();
    let mut back = near.try_clone().unwrap();
    std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
    let mut recorded = Vec::new();
    let mut chunk = [0; 4096];
    near.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    while let Ok(n) = near.read(&mut chunk) {
        if n == 0 {
            break;
        }
        recorded.extend(&chunk[..n]);
        if far.write_all(&chunk[..n]).is_err() {
            break;
        }
    }
    drop((near, far));
    client.join().unwrap();
    recorded
}

fn addresses(c: &Cluster) -> Vec<SocketAddr> {
    let text = c.sh("ceph osd dump -f json; echo; ceph mon dump -f json 2>/dev/null");
    let mut out = Vec::new();
    for (at, _) in text.match_indices("127.0.0.1:") {
        let addr = text[at..]
            .split(|ch: char| !ch.is_ascii_digit() && ch != '.' && ch != ':')
            .next()
            .unwrap();
        if let Ok(addr) = addr.parse::<SocketAddr>()
            && addr.port() != 0
            && !out.contains(&addr)
        {
            out.push(addr);
        }
    }
    out
}

#[test]
fn a_thousand_hostile_connections_change_nothing() {
    let c = Cluster::up("hostile", 3, &["--no-respawn"]);
    c.sh("ceph osd pool create h 8 8 replicated; ceph osd pool application enable h test; head -c 1000000 /dev/urandom > in; rados -p h put o in");
    let targets = addresses(&c);
    assert!(targets.len() >= 4, "{targets:?}");
    let mon = targets[targets.len() - 1];
    let recorded = record_handshake(&c, mon);
    assert!(recorded.len() > 200, "{} bytes recorded", recorded.len());
    let daemons = ["mon.a", "osd.0", "osd.1", "osd.2"];
    let pids = daemons.map(|d| c.pid(d));
    let mut rng = Rng::new(0x5eed);
    let mut held = Vec::new();
    for n in 0..1000u64 {
        let target = targets[n as usize % targets.len()];
        let Ok(mut s) = TcpStream::connect(target) else {
            continue;
        };
        let _ = s.set_write_timeout(Some(Duration::from_secs(1)));
        let _ = s.write_all(&attack(n % 8, &mut rng, &recorded));
        if n % 3 == 0 {
            held.push(s);
        }
    }
    // Honest clients, old and new, while the hostile connections are still there.
    c.sh("timeout 60 rados -p h get o out; cmp in out; timeout 60 rados -p h put p in; timeout 60 ceph -s > /dev/null");
    drop(held);
    assert_eq!(daemons.map(|d| c.pid(d)), pids, "a daemon died: {}", c.logs());
    c.wait_healthy();
    for d in daemons {
        let rss = c.peak_rss(d);
        assert!(rss < 128 << 20, "{d} grew to {} MiB", rss >> 20);
    }
}
