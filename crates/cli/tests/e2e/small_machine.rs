//! An OSD on a machine with little memory: a memory cgroup of 256 MiB that counts its page cache
//! too.
//!
//! Needs root and the memory controller of cgroup v1 or v2; runs only where `SPIRULA_CGROUP` is
//! set.

use std::path::{Path, PathBuf};
use std::process::Child;

use crate::common::{Cluster, binary, skip};

const LIMIT: u64 = 256 << 20;

/// A memory cgroup; gone when it is dropped and its processes have ended.
struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    fn new() -> Self {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (root, limit) = match v1.exists() {
            true => (v1, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let dir = root.join(format!("spirula-test-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join(limit), LIMIT.to_string()).unwrap();
        Self { dir }
    }

    /// How many of its processes the kernel killed for memory.
    fn killed(&self) -> u64 {
        let events = ["memory.oom_control", "memory.events"];
        let text = events
            .iter()
            .find_map(|f| std::fs::read_to_string(self.dir.join(f)).ok());
        let text = text.unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix("oom_kill ")).unwrap();
        line.trim().parse().unwrap()
    }

    /// The most that was charged to it, for the record.
    fn peak(&self) -> String {
        let files = ["memory.max_usage_in_bytes", "memory.peak"];
        let read = files
            .iter()
            .find_map(|f| std::fs::read_to_string(self.dir.join(f)).ok());
        read.unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// Starts osd.0 of the cluster, within the cgroup `inside` if it is given.
fn start_osd(c: &Cluster, inside: Option<&Cgroup>) -> Child {
    let enter = inside.map_or(String::new(), |g| {
        format!("echo $$ > {}/cgroup.procs;", g.dir.display())
    });
    let bin = binary().display().to_string();
    let run = format!("{enter} exec {bin} osd run --id 0 --conf ceph.conf");
    let child = c.shell(&run).spawn().unwrap();
    wait_serving(c);
    child
}

/// Waits until an object can be written.
fn wait_serving(c: &Cluster) {
    c.sh("timeout 60 rados -p p put probe ceph.conf");
}

/// Runs the load; returns a line per part of it.
fn load(c: &Cluster, run: &str) -> String {
    let part = |name: &str, args: &str| {
        let said = c.sh(&format!("rados bench -p p {args} --run-name {run}-{name}"));
        let rate = said.lines().find(|l| l.starts_with("Bandwidth")).unwrap_or("");
        let ops = said.lines().find(|l| l.starts_with("Average IOPS")).unwrap_or("");
        let number = |l: &str| l.split(':').nth(1).unwrap_or("").trim().to_owned();
        format!("{run} {args}: {} MiB/s, {} IOPS\n", number(rate), number(ops))
    };
    let mut out = String::new();
    out += &part("small", "6 write -b 4096 -t 16 --no-cleanup");
    out += &part("small", "4 rand -t 16");
    out += &part(
        "large",
        "60 write -b 4194304 -t 16 --max-objects 300 --no-cleanup",
    );
    out += &part("large", "10 seq -t 16");
    // All at once: writers of both sizes and a reader of more data than can be cached.
    c.sh(&format!(
        "rados bench -p p 8 write -b 4096 -t 16 --run-name {run}-a > /dev/null & jobs+=($!)
         rados bench -p p 8 write -b 4194304 -t 8 --max-objects 300 --run-name {run}-b > /dev/null & jobs+=($!)
         rados bench -p p 8 rand -t 8 --run-name {run}-large > /dev/null & jobs+=($!)
         for job in ${{jobs[@]}}; do wait $job; done"
    ));
    out
}

#[test]
fn an_osd_lives_in_256_mib() {
    if std::env::var_os("SPIRULA_CGROUP").is_none() {
        skip("set SPIRULA_CGROUP to run this test; it makes a memory cgroup");
        return;
    }
    let c = Cluster::up("small-machine", 1, &["--no-respawn"]);
    c.sh("ceph osd pool create p 8 8 replicated; ceph osd pool application enable p test");
    wait_serving(&c);
    c.kill("osd.0");
    let mut osd = start_osd(&c, None);
    let outside = load(&c, "outside");
    c.kill("osd.0");
    osd.wait().unwrap();

    let group = Cgroup::new();
    let mut osd = start_osd(&c, Some(&group));
    let before = c.pid("osd.0");
    let inside = load(&c, "inside");
    println!(
        "{outside}{inside}peak {} bytes charged, {} MiB resident",
        group.peak(),
        c.peak_rss("osd.0") >> 20
    );
    assert!(osd.try_wait().unwrap().is_none(), "{}", c.logs());
    assert_eq!((c.pid("osd.0"), group.killed()), (before, 0));
    // Data written outside the limit reads back inside, compared by the client.
    c.sh("rados bench -p p 20 seq -t 16 --run-name outside-small > /dev/null; rados bench -p p 30 seq -t 16 --run-name outside-large > /dev/null");
    assert!(c.sh("ceph osd stat").contains("1 up"));
    c.down();
    osd.wait().unwrap();
}
