//! Rights that daemons give up: their memory is out of others' reach, and root's rights go as
//! configured.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{binary, managers_of, output, process_status, skip, text};

/// A user without rights, and its group.
const NOBODY: u32 = 65_534;

/// A directory that all users reach, with the program; removed when dropped.
struct Home(PathBuf);

impl Home {
    /// `None` if the test can't act as another user.
    fn new(name: &str) -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("spirula-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        let home = Self(dir);
        let (own, program) = (home.at("theirs"), home.at("spirula"));
        std::fs::create_dir(&own).unwrap();
        if chown(&own, Some(NOBODY), Some(NOBODY)).is_err() {
            skip("only root can be another user");
            return None;
        }
        std::fs::copy(binary(), &program).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Some(home)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn spirula(&self) -> Command {
        let mut c = Command::new(self.at("spirula"));
        c.stdin(Stdio::null()).current_dir("/");
        c
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A field of a process's status.
fn status(pid: u32, field: &str) -> String {
    process_status(pid, field).unwrap()
}

fn pid_in(file: &Path) -> u32 {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

#[test]
fn processes_with_keys_leave_no_dumps_and_cannot_be_read() {
    let Some(home) = Home::new("undumpable") else {
        return;
    };
    let dir = home.at("theirs/cluster");
    let log = std::fs::File::create(home.at("log")).unwrap();
    let mut up = home.spirula();
    up.args(["up", "--detach", "--osds", "1", "--dir"]).arg(&dir);
    up.uid(NOBODY)
        .gid(NOBODY)
        .env("HOME", "/")
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    let up = up.status().unwrap();
    assert!(
        up.success(),
        "{}",
        std::fs::read_to_string(home.at("log")).unwrap()
    );
    let pid_of = |daemon: &str| pid_in(&dir.join(format!("run/{daemon}.pid")));
    let begun = Instant::now();
    // It gives up memory last, and has no keys before.
    let is_ready = |pid: u32| {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"));
        limits.is_ok_and(|l| l.contains(&(192 << 20).to_string()))
    };
    let manager = loop {
        match managers_of(pid_of("mon.a"))[..] {
            [one] if is_ready(one) => break one,
            _ => assert!(begun.elapsed() < Duration::from_secs(30), "no manager runs"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let daemons = ["supervisor", "mon.a", "osd.0"].map(|d| (d, pid_of(d)));
    for (daemon, pid) in daemons.into_iter().chain([("manager", manager)]) {
        assert_eq!(status(pid, "Uid:").split(' ').next(), Some("65534"));
        assert_eq!(status(pid, "NoNewPrivs:"), "1", "{daemon}");
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits
            .lines()
            .find(|l| l.starts_with("Max core file size"))
            .unwrap();
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{daemon}: {core}");
        // Another process of the same user.
        for file in ["environ", "maps", "mem"] {
            let mut read = Command::new("head");
            read.args(["-c1", &format!("/proc/{pid}/{file}")])
                .uid(NOBODY)
                .gid(NOBODY);
            let read = read.output().unwrap();
            assert!(
                output(&read).contains("Permission denied"),
                "{daemon}: {file}: {}",
                output(&read)
            );
        }
    }
    let mut down = home.spirula();
    let down = down
        .args(["down", "--dir"])
        .arg(&dir)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    assert!(down.status.success(), "{}", output(&down));
}

/// A monitor that runs; killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_daemon_that_root_starts_becomes_the_user_it_is_told() {
    let Some(home) = Home::new("setuser") else {
        return;
    };
    let root = home.0.display();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let conf = format!(
        "[global]\nfsid = 5f0e1d2c-0000-4000-8000-000000000001\nmon_host = 127.0.0.1:{port}\nmon_initial_members = a\n\
         [mon]\nmon_data = {root}/theirs/mon\nadmin_socket = {root}/run/mon.asok\npid_file = {root}/run/mon.pid\n"
    );
    std::fs::write(home.at("ceph.conf"), conf).unwrap();
    let keyring =
        format!("umask 022; ceph-authtool -C {root}/keyring -g -n mon. && chmod 644 {root}/keyring");
    assert!(
        Command::new("sh")
            .args(["-c", &keyring])
            .output()
            .unwrap()
            .status
            .success()
    );
    let mon = |args: &[&str]| {
        let mut c = home.spirula();
        c.arg("mon")
            .args(args)
            .args(["--id", "a", "--conf"])
            .arg(home.at("ceph.conf"));
        c
    };
    let user = ["--setuser", "nobody", "--setgroup", "65534"];
    let keyring = home.at("keyring").display().to_string();
    let mkfs = mon(&[&["mkfs", "--keyring", &keyring][..], &user].concat())
        .output()
        .unwrap();
    assert!(mkfs.status.success(), "{}", output(&mkfs));
    let store = home.at("theirs/mon/store.db").metadata().unwrap();
    assert_eq!(
        (store.uid(), store.gid(), store.mode() & 0o777),
        (NOBODY, NOBODY, 0o600)
    );
    // Root does not use another user's files, and names the remedy.
    let refused = mon(&["run"]).output().unwrap();
    assert!(
        text(&refused.stderr).contains("belongs to uid 65534"),
        "{}",
        output(&refused)
    );
    let other = mon(&[&["run", "--setuser-match-path", "/"][..], &user].concat())
        .output()
        .unwrap();
    assert!(
        text(&other.stderr).contains("stays root: / belongs to 0:0"),
        "{}",
        output(&other)
    );
    let missing = mon(&["run", "--setuser", "nosuchuser"]).output().unwrap();
    assert!(
        text(&missing.stderr).contains("no user \"nosuchuser\""),
        "{}",
        output(&missing)
    );

    let running = Running(mon(&[&["run"][..], &user].concat()).spawn().unwrap());
    let begun = Instant::now();
    while !home.at("run/mon.asok").exists() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the monitor does not start"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let nobody = format!("{NOBODY} {NOBODY} {NOBODY} {NOBODY}");
    assert_eq!(status(running.0.id(), "Uid:"), nobody);
    assert_eq!(status(running.0.id(), "Gid:"), nobody);
    assert!(!status(running.0.id(), "Groups:").split(' ').any(|g| g == "0"));
    assert_eq!(status(running.0.id(), "CapEff:").trim_start_matches('0'), "");
}
