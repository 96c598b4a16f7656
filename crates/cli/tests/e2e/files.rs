//! Other users of the machine: files of `up` and the daemons are closed to them, and files that
//! they have put in the way are refused.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Cluster, binary, output, skip, spirula, text};

/// A user without rights.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0"
}

/// `up` with this umask.
fn up_below(umask: &str, dir: &Path) -> Output {
    let up = format!(
        "umask {umask}; exec {} up --detach --osds 1 --dir {} < /dev/null > {dir}.out 2>&1",
        binary().display(),
        dir.display(),
        dir = dir.display()
    );
    let status = Command::new("sh").args(["-c", &up]).status().unwrap();
    let said = dir.with_extension("out");
    let stderr = std::fs::read(&said).unwrap();
    std::fs::remove_file(said).unwrap();
    Output {
        status,
        stdout: Vec::new(),
        stderr,
    }
}

fn down(dir: &Path) -> Output {
    spirula().args(["down", "--dir"]).arg(dir).output().unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("spirula-files-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode()
}

/// All paths below `dir` to which others have access, links aside.
fn open_to_others(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let meta = path.symlink_metadata().unwrap();
        if !meta.is_symlink() && mode(&path) & 0o077 != 0 {
            found.push(format!("{:o} {}", mode(&path), path.display()));
        }
        if meta.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
    }
    found
}

/// A command as a user without rights, in a directory in which everybody may write.
fn as_nobody(script: &str) -> Command {
    let mut c = Command::new("sh");
    c.args(["-c", script]).uid(NOBODY).gid(NOBODY).current_dir("/");
    c
}

#[test]
fn nobody_else_can_read_a_cluster_whatever_the_umask() {
    let dir = scratch("umask");
    for umask in ["000", "022"] {
        let up = up_below(umask, &dir);
        assert!(up.status.success(), "{}", output(&up));
        let open = open_to_others(&dir);
        assert!(open.is_empty(), "umask {umask}: {open:?}");
        if is_root() {
            for file in [
                "ceph.conf",
                "mon.a/store.db",
                "osd.0/block",
                "osd.0/log",
                "osd.0/keyring",
            ] {
                let got = as_nobody(&format!("cat {}/{file}", dir.display()))
                    .output()
                    .unwrap();
                assert!(output(&got).contains("Permission denied"), "{file}");
            }
            let socket = format!("ceph daemon {}/run/osd.0.asok version", dir.display());
            let got = as_nobody(&socket).output().unwrap();
            assert!(!got.status.success(), "the admin socket answers nobody");
        }
        assert!(down(&dir).status.success());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn a_keyring_that_the_tool_writes_is_its_users_alone() {
    let c = Cluster::up("keyring-file", 1, &[]);
    c.sh(&format!(
        "umask 000; {} ceph auth get client.admin -o keyring; [ $(stat -c %a keyring) = 600 ]; ceph -k keyring -s > /dev/null",
        binary().display()
    ));
}

#[test]
fn what_an_earlier_version_left_open_is_closed_at_the_next_start() {
    let dir = scratch("mended");
    let up = up_below("022", &dir);
    assert!(up.status.success(), "{}", output(&up));
    assert!(down(&dir).status.success());
    // As it was left by versions that made files as any program does.
    let script = format!(
        "find {} -type d -exec chmod 755 {{}} + -o -type f -exec chmod 644 {{}} +",
        dir.display()
    );
    assert!(
        Command::new("sh")
            .args(["-c", &script])
            .status()
            .unwrap()
            .success()
    );
    assert!(!open_to_others(&dir).is_empty());
    let up = up_below("022", &dir);
    assert!(up.status.success(), "{}", output(&up));
    let said = text(&up.stderr);
    for what in ["", "/log", "/mon.a", "/osd.0"] {
        let line = format!("{}{what} was open to others (mode 755)", dir.display());
        assert!(said.contains(&line), "{line}: {said}");
    }
    let open = open_to_others(&dir);
    assert!(open.is_empty(), "{open:?}");
    assert!(down(&dir).status.success());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// `up` in a directory that another user has prepared must fail, name what is wrong, and leave
/// `victim` as it was.
fn refused(dir: &Path, victim: &Path, named: &str) {
    let up = up_below("022", dir);
    let said = text(&up.stderr);
    assert!(!up.status.success(), "{named}: {said}");
    assert!(said.contains(named), "{named}: {said}");
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "mine");
}

#[test]
fn what_others_have_planted_is_refused_by_name() {
    if !is_root() {
        skip("only root can be another user");
        return;
    }
    let home = scratch("planted");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let victim = home.join("victim");
    std::fs::write(&victim, "mine").unwrap();
    let dir = home.join("c");
    let plant = |script: &str| {
        let _ = std::fs::remove_dir_all(&dir);
        let planted = as_nobody(&format!("cd {}; {script}", home.display()))
            .output()
            .unwrap();
        assert!(planted.status.success(), "{}", output(&planted));
    };
    // A directory, or a link to one of ours, that lies in wait.
    plant("mkdir c; chmod 777 c");
    refused(&dir, &victim, "/c belongs to uid 65534");
    std::fs::create_dir(home.join("ours")).unwrap();
    plant("ln -s ours c");
    refused(&dir, &victim, "/c belongs to uid 65534");
    std::fs::remove_file(&dir).unwrap();
    // Links in a directory of ours that was open to all.
    for (at, named) in [
        ("ceph.conf.new", "/c/ceph.conf.new belongs to uid 65534"),
        ("log/supervisor.log", "/c/log/supervisor.log belongs to uid 65534"),
        ("run/mon.a.pid", "/c/run/mon.a.pid belongs to uid 65534"),
        ("osd.0", "/c/osd.0 belongs to uid 65534"),
    ] {
        let _ = std::fs::remove_dir_all(&dir);
        for open in ["c", "c/log", "c/run"] {
            std::fs::create_dir(home.join(open)).unwrap();
            std::fs::set_permissions(home.join(open), std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let planted = as_nobody(&format!("ln -s {} {}/{at}", victim.display(), dir.display()));
        assert!({ planted }.status().unwrap().success());
        refused(&dir, &victim, named);
    }
    // A link of our own, where none is followed.
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("log")).unwrap();
    symlink(&victim, dir.join("log/supervisor.log")).unwrap();
    refused(&dir, &victim, "supervisor.log is a symbolic link");
    // A place that others could swap for another.
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o777)).unwrap();
    refused(&home.join("d"), &victim, "is no safe place: others may change");
    // A place where everybody has his files.
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o1777)).unwrap();
    refused(&home, &victim, "a cluster needs a directory of its own");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o1777)).unwrap();
    refused(&dir, &victim, "is a directory for everybody's files");
    assert_eq!(mode(&home) & 0o7777, 0o1777);
    std::fs::remove_dir_all(&home).unwrap();
}

#[test]
fn down_ends_no_process_that_another_users_file_names() {
    if !is_root() {
        skip("only root can be another user");
        return;
    }
    let c = Cluster::up("their-pid", 1, &[]);
    let home = scratch("their-pid");
    std::fs::create_dir(&home).unwrap();
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    // A directory that looks like a cluster, whose pid file is locked and names a process of
    // root's.
    std::fs::copy(c.dir().join("cluster.json"), home.join("cluster.json")).unwrap();
    std::fs::create_dir(home.join("run")).unwrap();
    let pid_file = home.join("run/osd.0.pid");
    std::fs::write(&pid_file, format!("{}\n", other.id())).unwrap();
    let locked = std::fs::File::open(&pid_file).unwrap();
    locked.lock().unwrap();
    let theirs = format!("chown -R {NOBODY} {}", home.display());
    assert!(
        Command::new("sh")
            .args(["-c", &theirs])
            .status()
            .unwrap()
            .success()
    );
    let out = down(&home);
    assert!(
        !out.status.success() && text(&out.stderr).contains("belongs to uid 65534"),
        "{}",
        output(&out)
    );
    // In a directory of ours that was open to all.
    for ours in [home.clone(), home.join("run"), home.join("cluster.json")] {
        std::os::unix::fs::chown(ours, Some(0), None).unwrap();
    }
    let out = down(&home);
    assert!(
        other.try_wait().unwrap().is_none(),
        "`down` ended it: {}",
        output(&out)
    );
    assert!(
        !out.status.success() && text(&out.stderr).contains("is not believed"),
        "{}",
        output(&out)
    );
    other.kill().unwrap();
    other.wait().unwrap();
    std::fs::remove_dir_all(&home).unwrap();
}
