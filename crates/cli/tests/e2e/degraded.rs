//! OSDs that go away and come back, or are replaced, while clients write: the official tools'
//! output, and that every object is there afterwards.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use crate::common::Cluster;

/// Writers that go on until told to end. A line on standard input is answered: with the number of
/// writes so far, or for `end` with the result of reading everything back.
const LOAD: &str = r#"
import random
io = cluster.open_ioctx('data')
OBJECTS, WRITERS = 1600, 8
acked = [0] * OBJECTS
stop = threading.Event()
writes = 0
def content(i, n):
    return (b'%d:%d:' % (i, n)) * (50 + i % 400 * 5)
def writer(w):
    global writes
    rng = random.Random(w)
    while not stop.is_set():
        i = rng.randrange(OBJECTS // WRITERS) * WRITERS + w
        io.write_full('o%d' % i, content(i, acked[i] + 1))
        acked[i] += 1
        writes += 1
threads = [threading.Thread(target=writer, args=(w,), daemon=True) for w in range(WRITERS)]
for t in threads: t.start()
for line in sys.stdin:
    if line.strip() != 'end':
        print(writes, flush=True)
        continue
    stop.set()
    for t in threads: t.join()
    for i in range(OBJECTS):
        if acked[i] and io.read('o%d' % i, 1 << 20) != content(i, acked[i]):
            print('object %d is not as it was written' % i, flush=True)
            os._exit(1)
    print('good', flush=True)
    os._exit(0)
"#;

struct Load {
    child: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Load {
    fn start(c: &Cluster) -> Self {
        let mut child = c
            .python_command(LOAD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            ask: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    fn say(&mut self, what: &str) -> String {
        writeln!(self.ask, "{what}").unwrap();
        self.answers
            .next()
            .map_or_else(|| "no answer".into(), |l| l.unwrap())
    }

    fn writes(&mut self) -> u64 {
        self.say("writes").parse().unwrap()
    }

    /// Waits until more writes are acknowledged.
    fn goes_on(&mut self) {
        let before = self.writes();
        wait_until("writes go on", 30, || self.writes() > before + 20);
    }

    fn end(mut self) {
        assert_eq!(self.say("end"), "good");
        self.child.wait().unwrap();
    }
}

fn wait_until(what: &str, seconds: u64, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// States of all PGs, each once.
fn states(c: &Cluster) -> String {
    c.sh("ceph pg dump pgs_brief 2>/dev/null | awk 'NR > 1 {print $2}' | sort -u | tr '\\n' ' '")
        .trim()
        .to_owned()
}

fn wait_clean(c: &Cluster, seconds: u64) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        let now = states(c);
        if now == "active+clean" {
            return;
        }
        assert!(Instant::now() < deadline, "not clean: {now}\n{}", c.logs());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_pool_serves_without_an_osd_and_recovers_under_load() {
    let c = Cluster::up("degraded", 3, &["--no-respawn", "--osd-size", "3G"]);
    c.sh("ceph osd pool create data 8 8 replicated; ceph osd pool application enable data test");
    assert_eq!(c.sh("ceph osd pool get data min_size"), "min_size: 2\n");
    let mut load = Load::start(&c);
    load.goes_on();
    c.kill("osd.2");
    wait_until("the PGs serve without it", 20, || {
        states(&c) == "active+undersized+degraded"
    });
    load.goes_on();
    let health = c.sh("ceph health detail");
    for part in [
        "1 osds down",
        "Degraded data redundancy: ",
        " objects degraded (33.333%), 8 pgs degraded",
        "pg 1.0 is active+undersized+degraded, acting [",
    ] {
        assert!(health.contains(part), "{part}: {health}");
    }
    let status = c.sh("ceph -s");
    assert!(status.contains(" objects degraded (33.333%)"), "{status}");
    assert!(status.contains("8 active+undersized+degraded"), "{status}");
    assert_eq!(c.sh("ceph pg ls undersized | grep -c '^1\\.'"), "8\n");
    assert_eq!(c.sh("ceph pg ls degraded | grep -c '^1\\.'"), "8\n");
    std::thread::sleep(Duration::from_secs(2));
    for kind in ["undersized", "degraded", "unclean"] {
        let stuck = c.sh(&format!(
            "ceph pg dump_stuck {kind} 1 2>/dev/null | grep -c '^1\\.'"
        ));
        assert_eq!(stuck, "8\n", "{kind}");
    }
    let before = load.writes();
    wait_until("much is written", 60, || load.writes() > before + 2500);
    // It lacks more than requests would wait for, and gets it while clients write.
    c.start(3, &["--no-respawn", "--osd-size", "3G"]);
    load.goes_on();
    wait_clean(&c, 60);
    c.wait_healthy();
    load.goes_on();
    load.end();
    a_stuck_pg_says_why(&c);
}

/// One command says what a PG waits for, and what it did before.
fn a_stuck_pg_says_why(c: &Cluster) {
    let query = |what: &str| c.sh(&format!("ceph pg 1.0 query | jq -r '{what}'"));
    let comment = query(".recovery_state[0].comment");
    assert!(comment.starts_with("Serves since 20"), "{comment}");
    c.kill("osd.1");
    c.kill("osd.2");
    c.sh("ceph osd down 1 2");
    wait_until("no PG serves", 30, || {
        query(".recovery_state[0].name") == "Primary/Waiting/MinSize\n"
    });
    let comment = query(".recovery_state[0].comment");
    assert!(
        comment.starts_with("Waits since 20")
            && comment.contains(" for more OSDs: 1 of the min_size of 2 are up."),
        "{comment}"
    );
    let enter = query(".recovery_state[0].enter_time");
    assert!(comment.contains(enter.trim()), "{comment} {enter}");
    let last_state = query(r#"[.transitions[].transition | select(startswith("state "))][-1]"#);
    assert_eq!(last_state, "state Primary/Waiting/MinSize\n");
    // The shape is Ceph's.
    let history = |what: &str| {
        c.sh(&format!(
            "ceph daemon ./run/osd.0.asok dump_pgstate_history | jq -c '{what}'"
        ))
    };
    assert_eq!(
        history(
            r#"[keys, (.pgs | map(keys) | unique), ([.pgs[].history[] | keys] | unique),
                ([.pgs[].history[].states[] | keys] | unique)]"#
        ),
        "[[\"pgs\"],[[\"currently\",\"history\",\"pg\"]],[[\"epoch\",\"states\"]],[[\"enter\",\"exit\",\"state\"]]]\n"
    );
    assert_eq!(
        history(r#"[.pgs[].history[] | .epoch, .states[].enter, .states[].exit] | all(type == "string")"#),
        "true\n"
    );
    assert_eq!(
        history(
            r#".pgs[] | select(.pg == "1.0")
                | [.currently, ([.history[].states[].state] | index("Primary/Peering/Infos") != null)]"#
        ),
        "[\"Primary/Waiting/MinSize\",true]\n"
    );
}

#[test]
fn an_osd_that_is_out_is_emptied_and_flags_hold_that_up() {
    let c = Cluster::up("moves", 4, &["--osd-size", "3G"]);
    c.sh("ceph osd pool create data 8 8 replicated; ceph osd pool application enable data test");
    let mut load = Load::start(&c);
    wait_until("there is something to move", 60, || load.writes() > 3000);
    let on_first = || c.sh("ceph pg ls-by-osd 0 -f json | jq '.pg_stats | length'");
    assert_ne!(on_first(), "0\n");
    for flag in ["nobackfill", "norebalance"] {
        c.sh(&format!("ceph osd set {flag}; ceph osd out 0"));
        wait_until("others are to take over", 20, || {
            states(&c).contains("active+remapped+backfill_wait")
        });
        std::thread::sleep(Duration::from_secs(3));
        assert!(states(&c).contains("active+remapped+backfill_wait"), "{flag}");
        assert!(c.sh("ceph health").contains(&format!("{flag} flag(s) set")));
        load.goes_on();
        c.sh(&format!("ceph osd in 0; ceph osd unset {flag}"));
        wait_clean(&c, 30);
    }
    c.sh("ceph osd out 0");
    wait_until("objects are misplaced", 20, || {
        c.sh("ceph -s").contains(" objects misplaced (")
    });
    wait_clean(&c, 60);
    assert_eq!(on_first(), "0\n");
    wait_until("the old copies are removed", 30, || {
        c.sh("ceph daemon ./run/osd.0.asok status | jq .num_pgs") == "0\n"
    });
    load.goes_on();
    c.sh("ceph osd pause");
    std::thread::sleep(Duration::from_secs(1));
    let paused = load.writes();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(load.writes(), paused, "clients wait");
    c.sh("ceph osd unpause");
    load.goes_on();
    c.sh("ceph osd in 0");
    wait_until("it is used again", 20, || on_first() != "0\n");
    wait_clean(&c, 60);
    load.end();
    c.wait_healthy();
}
