//! A cluster for one test, and the official tools against it.
#![allow(dead_code, reason = "each test file uses its part of the harness")]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test's helper fails the test"
)]

pub mod raw_client;
pub mod raw_ops;
pub mod raw_wire;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::time::{Duration, Instant};

/// A running cluster in a temporary directory; stopped and removed when dropped.
pub struct Cluster {
    dir: PathBuf,
}

/// The binary under test: what `SPIRULA_BINARY` names, or the one built with the tests.
pub fn binary() -> PathBuf {
    std::env::var_os("SPIRULA_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_spirula").into(), PathBuf::from)
}

/// A command of the binary under test.
pub fn spirula() -> Command {
    Command::new(binary())
}

/// Prints the reason of a failed test at once, past the harness, which keeps output until all tests
/// have ended: it would be lost if the run is stopped or its log is cut.
fn failures_speak() {
    /// Characters of a failure: its first lines, without the daemons' logs that follow them.
    const MOST: usize = 1200;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |failure| {
            let name = std::thread::current().name().unwrap_or("?").to_owned();
            let text: String = failure.to_string().chars().take(MOST).collect();
            let _ = writeln!(std::io::stderr(), "{name} fails: {text}");
            before(failure);
        }));
    });
}

/// Prints that the calling test is skipped on this machine, and why, past the harness: `./test`
/// gathers these lines.
pub fn skip(why: &str) {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}

impl Cluster {
    /// Starts a cluster of `osds` OSDs with `extra` arguments to `up`.
    pub fn up(test: &str, osds: u32, extra: &[&str]) -> Self {
        failures_speak();
        let dir = std::env::temp_dir().join(format!("spirula-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let cluster = Self { dir };
        cluster.start(osds, extra);
        cluster
    }

    /// An existing cluster in `dir`, made elsewhere.
    pub fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// `spirula up` on this directory, again.
    pub fn start(&self, osds: u32, extra: &[&str]) {
        let mut up = spirula();
        up.args(["up", "--detach", "--osds", &osds.to_string(), "--dir"])
            .arg(&self.dir)
            .args(extra);
        // The daemons inherit `up`'s output: a pipe would keep the test waiting for their end.
        let log = self.dir.with_extension("up.log");
        let file = std::fs::File::create(&log).unwrap();
        let status = up
            .stdin(std::process::Stdio::null())
            .stderr(file)
            .status()
            .unwrap();
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        assert!(status.success(), "spirula up failed: {said}\n{}", self.logs());
        let _ = std::fs::remove_file(log);
    }

    /// `spirula down`.
    pub fn down(&self) {
        let out = spirula().args(["down", "--dir"]).arg(&self.dir).output().unwrap();
        assert!(out.status.success(), "spirula down: {}", text(&out.stderr));
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// The last lines of every daemon's log, for a failed assertion.
    pub fn logs(&self) -> String {
        let mut out = String::new();
        let Ok(entries) = std::fs::read_dir(self.dir.join("log")) else {
            return out;
        };
        for entry in entries.flatten() {
            let log = std::fs::read(entry.path()).unwrap_or_default();
            out.push_str(&format!("--- {}\n{}\n", entry.file_name().display(), tail(&log)));
        }
        out
    }

    /// The process id in a daemon's pid file. A daemon that just starts has locked the file and not
    /// written it yet.
    pub fn pid(&self, daemon: &str) -> u32 {
        let path = self.dir.join("run").join(format!("{daemon}.pid"));
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let text = std::fs::read_to_string(&path).unwrap();
            match text.trim().parse() {
                Ok(pid) => return pid,
                Err(e) => assert!(Instant::now() < deadline, "{}: {e}: {text:?}", path.display()),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The peak resident memory of a daemon in bytes.
    pub fn peak_rss(&self, daemon: &str) -> u64 {
        self.memory(daemon, "VmHWM:")
    }

    /// The resident memory of a daemon in bytes.
    pub fn rss(&self, daemon: &str) -> u64 {
        self.memory(daemon, "VmRSS:")
    }

    fn memory(&self, daemon: &str, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid(daemon))).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix(field)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// kill -9 of a daemon.
    pub fn kill(&self, daemon: &str) {
        let status = Command::new("kill")
            .args(["-9", &self.pid(daemon).to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// A command line for `sh` with CEPH_CONF set, not yet run. Scripts say
    /// `| grep TEXT >/dev/null`, which reads to the end: `grep -q` may end before the command has
    /// written all, and `pipefail` takes that for a failure.
    pub fn shell(&self, script: &str) -> Command {
        let mut c = Command::new("bash");
        c.args(["-euo", "pipefail", "-c", script])
            .env("CEPH_CONF", self.conf())
            .current_dir(&self.dir);
        c.stdin(std::process::Stdio::null());
        c
    }

    /// Runs a script that must succeed; returns what it printed. A failure names the line and the
    /// command, not the whole script.
    pub fn sh(&self, script: &str) -> String {
        // Background processes of a failed script would keep the test waiting for their output.
        let named = format!(
            "set -E; trap 'echo \"line $LINENO failed: $BASH_COMMAND\" >&2' ERR TERM; \
             trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{script}"
        );
        let out = limited(&self.shell(&named)).output().unwrap();
        assert!(
            out.status.success(),
            "a script failed: {}\n{}\n{}\n{}",
            out.status,
            tail(&out.stderr),
            tail(&out.stdout),
            self.logs()
        );
        text(&out.stdout)
    }

    /// Runs a script that must fail; returns its exit code and what it wrote to standard error.
    pub fn sh_fails(&self, script: &str) -> (i32, String) {
        let out = limited(&self.shell(script)).output().unwrap();
        assert!(
            !out.status.success(),
            "`{script}` succeeded: {}",
            text(&out.stdout)
        );
        (out.status.code().unwrap_or(-1), text(&out.stderr))
    }

    /// Runs a Python program (Debian's interpreter, which has python3-rados) that must succeed.
    pub fn python(&self, program: &str) -> String {
        let out = limited(&self.python_command(program)).output().unwrap();
        assert!(
            out.status.success(),
            "python failed: {}\n{}\n{}",
            text(&out.stdout),
            text(&out.stderr),
            self.logs()
        );
        text(&out.stdout)
    }

    /// A Python program with `cluster` connected and `rados` imported, not yet run.
    pub fn python_command(&self, program: &str) -> Command {
        let prologue = "import os, sys, errno, hashlib, json, threading, time, rados\n\
                        cluster = rados.Rados(conffile=os.environ['CEPH_CONF'])\n\
                        cluster.connect()\n";
        let mut c = Command::new("/usr/bin/python3");
        c.arg("-c")
            .arg(format!("{prologue}{program}"))
            .env("CEPH_CONF", self.conf());
        c
    }

    /// Waits until the cluster says HEALTH_OK.
    pub fn wait_healthy(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let health = self
                .shell("timeout 20 ceph health detail")
                .output()
                .map(|o| output(&o))
                .unwrap();
            if health.starts_with("HEALTH_OK") {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not healthy: {health}\n{}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = spirula().args(["down", "--dir"]).arg(&self.dir).output();
        if std::env::var_os("SPIRULA_KEEP").is_none() && !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// Seconds that a script may take, several times what the slowest one needs.
const SCRIPT_SECONDS: &str = "900";

/// The command with a time limit that ends it and all its children: a client that waits for ever
/// fails one test only.
fn limited(command: &Command) -> Command {
    let mut c = Command::new("timeout");
    c.args(["--kill-after=10", SCRIPT_SECONDS])
        .arg(command.get_program())
        .args(command.get_args())
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(std::process::Stdio::null());
    if let Some(dir) = command.get_current_dir() {
        c.current_dir(dir);
    }
    c
}

/// The end of a command's or daemon's output.
fn tail(bytes: &[u8]) -> String {
    text(&bytes[bytes.len().saturating_sub(2000)..])
}

/// A field of a process's status; `None` where there is no such process.
pub fn process_status(pid: u32, field: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(field))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The manager processes among a monitor's children.
pub fn managers_of(monitor: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let parent = monitor.to_string();
    let is_one = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_manager = command.split(|b| *b == 0).nth(1) == Some(b"manager");
        is_manager && process_status(*pid, "PPid:").is_some_and(|p| p == parent)
    };
    pids.filter(is_one).collect()
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Everything a command printed.
pub fn output(o: &Output) -> String {
    text(&o.stdout) + &text(&o.stderr)
}
