//! `ms_*_mode`: the mode of each kind of connection, seen on the wire and in refusals.

use std::io::Read;
use std::process::{Child, Stdio};

use crate::common::{Cluster, binary, text};

/// Counts occurrences of texts in clear on the loopback interface until its input ends: of each
/// argument, and all packets.
const SNIFFER: &str = "
import ctypes, select, socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
s.bind(('lo', 0))
needles = [n.encode() for n in sys.argv[1:]]
found = [0] * len(needles)
print('listening', flush=True)
packets = 0
ended = False
while True:
    ready, _, _ = select.select([s] if ended else [s, sys.stdin], [], [], 0 if ended else None)
    if sys.stdin in ready:
        # A filter that lets nothing pass: only what has come by now is left, whatever others send.
        nothing = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))
        s.setsockopt(socket.SOL_SOCKET, 26, struct.pack('HP', 1, ctypes.addressof(nothing)))
        ended = True
    if s in ready:
        p = s.recv(1 << 17)
        packets += 1
        for i, n in enumerate(needles):
            found[i] += n in p
    elif ended and not ready:
        break
print(packets, *found)
";

/// Listens to the loopback interface.
struct Sniffer(Child);

impl Sniffer {
    fn start(needles: &[&str]) -> Self {
        let mut child = std::process::Command::new("/usr/bin/python3")
            .args(["-c", SNIFFER])
            .args(needles)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 10];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Self(child)
    }

    /// How often each text was seen; there are always some packets.
    fn found(mut self) -> Vec<u64> {
        drop(self.0.stdin.take());
        let out = self.0.wait_with_output().unwrap();
        let said = text(&out.stdout);
        let counts: Vec<u64> = said.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert!(counts[0] > 100, "only {} packets were seen", counts[0]);
        counts[1..].to_vec()
    }
}

const OPTIONS: [&str; 6] = [
    "ms_cluster_mode",
    "ms_service_mode",
    "ms_client_mode",
    "ms_mon_cluster_mode",
    "ms_mon_service_mode",
    "ms_mon_client_mode",
];

/// A write of a recognisable text by the official client.
fn write(c: &Cluster, object: &str, what: &str) {
    let data = format!("{what} ").repeat(4096);
    std::fs::write(c.dir().join("data"), data).unwrap();
    c.sh(&format!("rados -p p put {object} data"));
}

#[test]
fn what_is_to_be_secure_is_never_in_the_clear() {
    let c = Cluster::up("curtain", 3, &["--mons", "3"]);
    c.sh("ceph osd pool create p 8 8 replicated; ceph osd pool application enable p test");
    let key = c.sh("ceph auth get-key client.admin");
    let spirula = binary();
    let get_key = format!("{} ceph auth get client.admin >/dev/null", spirula.display());

    // By default data is not, keys are; a client that prefers crc, as kernels do, is served.
    let wire = Sniffer::start(&["in-the-clear", &key]);
    write(&c, "a", "in-the-clear");
    c.sh("rados --ms_client_mode 'crc secure' -p p stat a >/dev/null");
    c.sh(&get_key);
    let found = wire.found();
    assert!(found[0] > 0 && found[1] == 0, "{found:?}");

    // The options take effect while the daemons run, on connections that stand.
    for option in OPTIONS {
        c.sh(&format!("ceph config set global {option} secure"));
    }
    c.sh("sleep 2");
    let wire = Sniffer::start(&["behind-a-curtain", &key]);
    write(&c, "b", "behind-a-curtain");
    c.sh(&get_key);
    c.sh(&format!("{} rados -p p put c data", spirula.display()));
    c.sh("ceph auth get client.admin >/dev/null; ceph -s >/dev/null");
    assert_eq!(wire.found(), [0, 0]);

    // A client that only offers crc is refused, as by Ceph.
    let (_, why) = c.sh_fails("timeout 20 ceph --connect-timeout 2 --ms_mon_client_mode crc -s");
    assert!(
        why.contains("error connecting to the cluster") || why.contains("timed out"),
        "{why}"
    );
    let (_, why) = c.sh_fails("timeout 2 rados --ms_client_mode crc -p p stat b");
    assert!(!why.contains("panicked"), "{why}");
    let (_, why) = c.sh_fails(&format!(
        "timeout 2 {} rados --ms_mon_client_mode crc -p p stat b",
        spirula.display()
    ));
    assert!(!why.contains("panicked"), "{why}");

    // An unknown mode is refused when it is set, and when a daemon starts with it.
    let (_, why) = c.sh_fails("ceph config set global ms_client_mode secur");
    assert!(why.contains("secur is no connection mode"), "{why}");
    c.down();
    let conf = std::fs::read_to_string(c.conf()).unwrap();
    let line = conf.lines().count() + 3;
    for (wrong, said) in [
        ("ms cluster mode = secur", "secur is no connection mode"),
        (
            "cephx_require_signatures = true",
            "set the ms_*_mode options to secure instead",
        ),
        (
            "auth_cluster_required = none",
            "going without authentication (none) is not offered",
        ),
    ] {
        std::fs::write(c.conf(), format!("{conf}\n[osd.0]\n{wrong}\n")).unwrap();
        let run = format!("{} osd run --id 0 --conf ceph.conf", spirula.display());
        let (_, why) = c.sh_fails(&format!("timeout 10 {run}"));
        assert!(
            why.contains(&format!("ceph.conf:{line}: ")) && why.contains(said),
            "{why}"
        );
    }

    // Modes in the file hold from the start; and no daemon gives a client a mode reserved for
    // daemons.
    let secure: String = OPTIONS.map(|o| format!("{o} = secure\n")).concat();
    std::fs::write(c.conf(), format!("{conf}\n[global]\n{secure}")).unwrap();
    c.start(3, &["--mons", "3"]);
    let wire = Sniffer::start(&["behind-a-curtain", &key]);
    write(&c, "d", "behind-a-curtain");
    c.sh(&get_key);
    assert_eq!(wire.found(), [0, 0]);
}
