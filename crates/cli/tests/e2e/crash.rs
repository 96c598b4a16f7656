//! kill -9 of everything under load, again and again: nothing acknowledged may be missing or old.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Cluster, spirula, text};

/// Writers that never stop, in a process that outlives the cluster's deaths as a real client does.
/// Every object's content tells its number in the sequence of writes, so a check knows whether it
/// is as new as the last acknowledged write and not newer than the last one sent. A line on
/// standard input starts a check.
const LOAD: &str = r#"
import random
io = cluster.open_ioctx('data')
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
OBJECTS, WRITERS = 400, 8
sent, acked = [0] * OBJECTS, [0] * OBJECTS
stop, pause = threading.Event(), threading.Event()
idle = [False] * WRITERS
writes = 0
def content(i, n):
    rng = random.Random(i * 1000003 + n)
    size = rng.choice([1, 100, 4096, 4096, 4096, 20000, 70000, 300000])
    head = b'%d:%d:%d:' % (i, n, size)
    return (head + rng.randbytes(64) * (size // 64 + 1))[:max(size, len(head))]
def writer(w):
    global writes
    rng = random.Random(seed * 100 + w)
    while not stop.is_set():
        if pause.is_set():
            idle[w] = True
            time.sleep(0.01)
            continue
        idle[w] = False
        i = rng.randrange(OBJECTS // WRITERS) * WRITERS + w
        n = sent[i] + 1
        sent[i] = n
        io.write_full('o%d' % i, content(i, n))
        acked[i] = n
        writes += 1
def check():
    for i in range(OBJECTS):
        low = acked[i]
        try:
            data = io.read('o%d' % i, 1 << 20)
        except rados.ObjectNotFound:
            assert low == 0, 'object %d is missing, write %d was acknowledged' % (i, low)
            continue
        n = int(data.split(b':')[1])
        assert low <= n <= sent[i], 'object %d holds write %d of %d acknowledged, %d sent' % (i, n, low, sent[i])
        assert data == content(i, n), 'object %d holds a damaged write %d' % (i, n)
threads = [threading.Thread(target=writer, args=(w,), daemon=True) for w in range(WRITERS)]
for t in threads: t.start()
print('started', flush=True)
for line in sys.stdin:
    if line.strip() == 'end':
        pause.set()
        while not all(idle): time.sleep(0.01)
    try:
        check()
        print('good', writes, flush=True)
    except AssertionError as e:
        print('BAD', e, flush=True)
        os._exit(1)
os._exit(0)
"#;

#[test]
fn nothing_acknowledged_is_lost_in_many_deaths() {
    let deaths: u32 = std::env::var("SPIRULA_DEATHS")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(20);
    let c = Cluster::up("deaths", 3, &["--no-respawn", "--osd-size", "2G"]);
    c.sh("ceph osd pool create data 16 16 replicated; ceph osd pool application enable data test");
    let mut client = c
        .python_command(LOAD)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ask = client.stdin.take().unwrap();
    let mut answers = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut answer = || {
        answers
            .next()
            .map(|l| l.unwrap())
            .unwrap_or_else(|| "no answer".into())
    };
    assert_eq!(answer(), "started");
    let mut last = 0;
    for death in 0..deaths {
        std::thread::sleep(Duration::from_millis(100 + u64::from(death * 37 % 400)));
        for daemon in ["supervisor", "osd.0", "osd.1", "osd.2", "mon.a"] {
            c.kill(daemon);
        }
        c.start(3, &["--no-respawn", "--osd-size", "2G"]);
        let question = if death + 1 == deaths { "end" } else { "check" };
        writeln!(ask, "{question}").unwrap();
        let said = answer();
        let writes = said
            .strip_prefix("good ")
            .unwrap_or_else(|| panic!("after death {death}: {said}\n{}", c.logs()));
        let writes: u64 = writes.parse().unwrap();
        assert!(
            writes > last,
            "no write was acknowledged between deaths {death} and the one before"
        );
        last = writes;
    }
    drop(ask);
    client.wait().unwrap();
    println!("{last} writes over {deaths} deaths");
    c.wait_healthy();
    c.down();
    for osd in 0..3 {
        let out = spirula()
            .args(["store", "fsck", "--deep"])
            .arg(c.dir().join(format!("osd.{osd}/block")))
            .arg("--log")
            .arg(c.dir().join(format!("osd.{osd}/log")))
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "fsck of osd.{osd}: {}{}",
            text(&out.stdout),
            text(&out.stderr)
        );
    }
}
