//! Clients' operations on block images, as the official `rbd perf image iostat`, `iotop` and `ceph
//! rbd perf image` show them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};

use crate::common::Cluster;
use serde_json::Value;

/// Writes 4 KiB to images about twenty times a second, and reads half as often, until its standard
/// input ends; then prints the number of writes to each. Before, it prints that all images are in
/// use.
const LOAD: &str = r#"
import rbd
images = []
for pool, namespace, name in ('p', 'n', 'inner'), ('p', '', 'far'):
    io = cluster.open_ioctx(pool)
    io.set_namespace(namespace)
    images.append(rbd.Image(io, name))
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
n = 0
while not ended.wait(0.05):
    for image in images:
        image.write(b'x' * 4096, n % 1000 * 4096)
        if n % 2:
            image.read(n % 1000 * 4096, 2048)
    n += 1
    if n == 2:
        print('begun', flush=True)
for image in images:
    image.close()
print(n)
"#;

struct Load(Child, Child, BufReader<ChildStdout>);

impl Load {
    fn start(c: &Cluster) -> Self {
        let bench = "timeout -k 1 50 rbd bench --io-type write --io-size 8192 --io-threads 1 --io-total 100G p/plain &> /dev/null || true";
        let bench = c.shell(bench).spawn().unwrap();
        let python = c
            .python_command(LOAD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut python = python.unwrap();
        let mut said = BufReader::new(python.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "begun");
        Self(bench, python, said)
    }

    /// Ends the slow part, and returns the number of writes to each image.
    fn end(mut self) -> u64 {
        let _ = self.0.kill();
        let _ = self.0.wait();
        drop(self.1.stdin.take());
        let mut written = String::new();
        self.2.read_to_string(&mut written).unwrap();
        self.1.wait().unwrap();
        written.trim().parse().unwrap()
    }
}

fn cluster() -> Cluster {
    let c = Cluster::up("rbd-perf", 3, &[]);
    c.sh("
ceph osd pool create p 8 8 replicated; rbd pool init p; ceph osd pool create d 8 8 replicated; rbd pool init d
rbd namespace create p/n
rbd create --size 16M p/plain; rbd create --size 16M p/n/inner; rbd create --size 16M --data-pool d p/far
rbd create --size 16M p/idle
ceph auth get-or-create client.part mon 'profile rbd' mgr 'profile rbd pool=p' osd 'profile rbd' > ceph.client.part.keyring
ceph auth get-or-create client.none mon 'profile rbd' osd 'profile rbd' > ceph.client.none.keyring
");
    c
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The numbers of an image in an answer of the manager.
fn numbers<'a>(answer: &'a Value, list: &str, image: &str) -> Option<&'a Vec<Value>> {
    let images = answer[list].as_array().unwrap();
    images.iter().find_map(|i| i.get(image)).and_then(Value::as_array)
}

#[test]
fn rates_and_sums_of_images_are_told_while_they_are_used() {
    let c = cluster();
    let load = Load::start(&c);
    let asked = c.sh("
timeout 40 rbd perf image iostat p --iterations 2 > pool 2> pool.said &
timeout 40 rbd perf image iostat p/n --format json > inner 2> /dev/null &
(sleep 14; printf q) | TERM=xterm timeout 40 script -qec 'stty cols 140; rbd perf image iotop p' /dev/null > top &
ceph rbd perf image counters p/n > first
timeout 40 rbd perf image iostat --format json --sort-by write-bytes 2> /dev/null
wait
ceph rbd perf image counters p/n > second
");
    let written = load.end();
    let all = json(&asked);
    let all: Vec<_> = all.as_array().unwrap().iter().collect();
    let image = |name: &str| {
        let found: Vec<_> = all.iter().filter(|i| i["image"] == name).collect();
        assert_eq!(found.len(), 1, "{name} in {asked}");
        found[0]
    };
    for (name, namespace) in [("plain", ""), ("inner", "n"), ("far", "")] {
        let i = image(name);
        assert_eq!(
            (&i["pool"], &i["pool_namespace"]),
            (&"p".into(), &namespace.into()),
            "{asked}"
        );
        for number in ["write_ops", "write_bytes", "write_latency"] {
            assert!(i[number].as_f64().unwrap() > 0.0, "{name}: {number} in {asked}");
        }
    }
    assert_eq!(image("plain")["read_ops"], 0.0);
    let inner = image("inner");
    // Not how many there are in a second: a machine that is busy does fewer.
    for (bytes, ops, size) in [
        ("write_bytes", "write_ops", 4096.0),
        ("read_bytes", "read_ops", 2048.0),
    ] {
        let mean = inner[bytes].as_f64().unwrap() / inner[ops].as_f64().unwrap();
        assert!((mean - size).abs() < 0.001, "{bytes}: {asked}");
    }
    assert!(inner["write_ops"].as_f64().unwrap() <= 25.0, "{asked}");
    assert_eq!(all.len(), 3, "{asked}");
    assert_eq!(all[0]["image"], "plain", "{asked}");

    let file = |name: &str| std::fs::read_to_string(c.dir().join(name)).unwrap();
    assert!(file("pool.said").contains("rbd: waiting for initial image stats"));
    let table = file("pool");
    assert!(table.starts_with("NAME"), "{table}");
    assert!(
        table.contains("WR_BYTES") && table.contains("plain ") && table.contains("/s"),
        "{table}"
    );
    assert!(!table.contains("idle") && !table.contains("inner"), "{table}");
    let only = json(&file("inner"));
    assert_eq!(
        (only.as_array().unwrap().len(), &only[0]["image"]),
        (1, &"inner".into()),
        "{only}"
    );
    assert!(file("top").contains("plain"), "{}", file("top"));

    let (first, second) = (json(&file("first")), json(&file("second")));
    assert_eq!(first["counters"].as_array().unwrap().len(), 0, "{first}");
    assert_eq!(second["pool_descriptors"]["0"], "p/n");
    let sums = numbers(&second, "counters", "0/inner").unwrap_or_else(|| panic!("{second}"));
    let sums: Vec<u64> = sums.iter().map(|n| n.as_u64().unwrap()).collect();
    assert!(sums[0] > 20 && sums[0] <= written, "{second}: {written} writes");
    assert_eq!((sums[2], sums[3]), (4096 * sums[0], 2048 * sums[1]), "{second}");
    refusals(&c);
}

fn refusals(c: &Cluster) {
    let (code, said) = c.sh_fails("rbd perf image iostat nothing");
    assert_eq!(code, 2);
    let why = "(2) No such file or directory: [errno 2] RADOS object not found (Pool 'nothing' not found)";
    assert!(
        said.contains(&format!("rbd: mgr command failed: {why}")),
        "{said}"
    );
    let (_, said) = c.sh_fails("ceph rbd perf image stats p size");
    assert!(
        said.contains("size not in write_ops|write_bytes|write_latency"),
        "{said}"
    );
    let said = c.python(
        r#"
for args in {'sort_by': 'size'}, {'pool_spec': 'p/n/i'}:
    print(cluster.mgr_command(json.dumps({'prefix': 'rbd perf image stats', **args}), b'')[::2])
"#,
    );
    assert_eq!(
        said,
        "(-22, \"'size' is not in list\")\n(-22, 'Invalid pool spec: p/n/i')\n"
    );
    let help = "access denied: does your client key have mgr caps? See \
                http://docs.ceph.com/en/latest/mgr/administrator/#client-authentication";
    let denied = "rbd: mgr command failed: (13) Permission denied: ";
    for (who, what, why) in [
        ("none", "p", ""),
        ("part", "d", "not authorized on pool=d, namespace="),
        ("part", "", "not authorized on pool=None, namespace=None"),
    ] {
        let (code, said) = c.sh_fails(&format!(
            "rbd --id {who} --keyring ceph.client.{who}.keyring perf image iostat {what}"
        ));
        assert_eq!(code, 13, "{said}");
        assert!(said.contains(&format!("{denied}{why}{help}")), "{said}");
    }
    let part = "--id part --keyring ceph.client.part.keyring";
    let stats = json(&c.sh(&format!("ceph {part} rbd perf image stats p/n")));
    assert_eq!(stats["stat_descriptors"][5], "read_latency");
}
