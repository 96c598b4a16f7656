//! Several hosts, as network namespaces: a cluster that is made by hand with the official tools, on
//! two networks; a host is cut off and comes back. Needs root and network namespaces, and is
//! skipped without.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{binary, output, skip, text};

/// The hosts and their files; gone when dropped.
struct Lab {
    name: String,
    dir: PathBuf,
}

impl Lab {
    /// `None` where this machine can't have namespaces. `kind` is a letter that tells labs apart,
    /// `possible` the check.
    fn new(kind: char, possible: &str) -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("spirula-hosts-{kind}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let lab = Self {
            // Names of interfaces and namespaces are short.
            name: format!("sp{kind}{}", std::process::id() % 1_000_000),
            dir,
        };
        let possible = lab.bash(possible).output().unwrap();
        if possible.status.success() {
            return Some(lab);
        }
        skip(output(&possible).trim());
        None
    }

    fn bash(&self, script: &str) -> Command {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.join("../..");
        let (lib, book) = (
            root.join("bench/hosts/lib.sh"),
            here.join("tests/data/by_the_book.sh"),
        );
        let mut c = Command::new("bash");
        c.args(["-euo", "pipefail", "-c"])
            .arg(format!(
                "source {}\nsource {}\n{script}",
                lib.display(),
                book.display()
            ))
            .env("BOOK", root.join("docs/several-hosts.md"))
            .env("UNITS", root.join("systemd"))
            .env("LAB", &self.name)
            .env("ROOT", &self.dir)
            .env("SPIRULA", binary())
            .env_remove("CEPH_CONF")
            .stdin(Stdio::null());
        c
    }

    /// Runs a script that must succeed; returns its output. Daemons that it starts do not hold that
    /// output open.
    fn sh(&self, script: &str) -> String {
        let out = self.bash(script).output().unwrap();
        assert!(
            out.status.success(),
            "`{script}`: {}\n{}",
            output(&out),
            self.logs()
        );
        text(&out.stdout)
    }

    /// Runs a script that must fail; returns its message.
    fn sh_fails(&self, script: &str) -> String {
        let out = self.bash(script).output().unwrap();
        assert!(!out.status.success(), "`{script}` succeeded: {}", output(&out));
        output(&out)
    }

    /// Waits until a command prints `wanted`; returns how long it took.
    fn wait(&self, seconds: u64, script: &str, wanted: &str) -> Duration {
        let begun = Instant::now();
        let call = format!("wait_for {seconds} '{wanted}' {script}");
        self.sh(&call);
        begun.elapsed()
    }

    fn logs(&self) -> String {
        let tail = "for f in $ROOT/node*/log/*.log; do echo \"--- $f\"; tail -n 15 $f; done";
        self.bash(tail).output().map(|o| output(&o)).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self
            .bash("for n in 1 2 3; do stop $n -9; done; book_down; lab_down")
            .status();
        if std::env::var_os("SPIRULA_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// The client's host, on which no daemon runs.
const CLIENT: u32 = 4;

/// Three monitors and three OSDs, and a fourth host for clients.
fn deploy(lab: &Lab) {
    lab.sh("lab_up 4
        write_conf 3 'osd_heartbeat_grace = 4
osd_heartbeat_interval = 1
mon_osd_min_down_reporters = 2'
        make_keys 3
        cat $ROOT/node1/etc/ceph.conf
        for n in 2 3; do
            share 1 $n etc/ceph.conf etc/mon.keyring etc/monmap etc/ceph.client.admin.keyring
        done
        share 1 2 lib/bootstrap-osd/ceph.keyring
        share 1 4 etc/ceph.conf etc/ceph.client.admin.keyring
        # The map of monmaptool and the configuration file say the same.
        for n in 1 2; do add_mon $n --monmap /etc/ceph/monmap; done
        add_mon 3");
    lab.wait(
        20,
        "at 4 timeout 5 ceph mon stat",
        "quorum 0,1,2 node1,node2,node3",
    );
    lab.sh(
        "at 3 ceph auth get client.bootstrap-osd -o /var/lib/ceph/bootstrap-osd/ceph.keyring 2> /dev/null
        for n in 1 2 3; do add_osd $n 2G; done",
    );
}

/// Runs a command on the client's host.
fn client(lab: &Lab, command: &str) -> String {
    lab.sh(&format!("at {CLIENT} bash -euo pipefail -c '{command}'"))
}

fn wait_healthy(lab: &Lab) -> Duration {
    lab.wait(40, "at 4 timeout 5 ceph health detail", "HEALTH_OK")
}

#[test]
fn a_cluster_made_by_hand_lives_through_the_loss_of_a_host() {
    let Some(lab) = Lab::new('h', "lab_possible") else {
        return;
    };
    let begun = Instant::now();
    deploy(&lab);
    let deployed = begun.elapsed();
    wait_healthy(&lab);
    println!("made in {deployed:?}, healthy after {:?}", begun.elapsed());
    everything_is_where_it_belongs(&lab);
    addresses_that_are_not_there_are_refused(&lab);
    client(
        &lab,
        "ceph osd pool create p 8; ceph osd pool application enable p test; head -c 300000 /dev/urandom > /etc/ceph/in
         for i in $(seq 20); do timeout 20 rados -p p put o$i /etc/ceph/in; done",
    );
    wait_healthy(&lab);
    a_host_is_cut_off_and_returns(&lab);
    a_host_loses_what_it_sends(&lab);
}

fn everything_is_where_it_belongs(lab: &Lab) {
    let tree = client(lab, "ceph osd tree");
    for n in 1..=3 {
        let rack = format!("rack rack-node{n}");
        assert!(
            tree.contains(&rack) && tree.contains(&format!("host node{n}")),
            "{tree}"
        );
    }
    let dump = client(lab, "ceph osd dump");
    for (osd, n) in (0..3).map(|o| (o, o + 1)) {
        let line = dump
            .lines()
            .find(|l| l.starts_with(&format!("osd.{osd} ")))
            .unwrap();
        // The ports are the first of the range: they belong to this host alone.
        let addrs = format!("v2:10.77.0.{n}:680");
        assert!(
            line.contains(&addrs) && line.contains(&format!("v2:10.88.0.{n}:680")),
            "{line}"
        );
        let meta = client(lab, &format!("ceph osd metadata {osd}"));
        for part in [
            format!("\"hostname\": \"node{n}\""),
            format!("\"back_addr\": \"v2:10.88.0.{n}:"),
            format!("\"front_addr\": \"v2:10.77.0.{n}:"),
            format!("\"hb_back_addr\": \"v2:10.88.0.{n}:"),
            format!("\"hb_front_addr\": \"v2:10.77.0.{n}:"),
            "\"front_iface\": \"eth0\"".to_owned(),
            "\"back_iface\": \"eth1\"".to_owned(),
        ] {
            assert!(meta.contains(&part), "{part}: {meta}");
        }
        // The admin socket is where the official tool looks for it.
        let version = lab.sh(&format!("at {n} ceph daemon osd.{osd} version"));
        assert!(version.contains("16.2.15"), "{version}");
    }
    let rule = client(lab, "ceph osd crush rule dump");
    assert!(rule.contains("\"type\": \"host\""), "{rule}");
}

fn addresses_that_are_not_there_are_refused(lab: &Lab) {
    let said = lab.sh_fails(
        "sed 's/^cluster_network.*/cluster_network = 192.168.55.0\\/24/' $ROOT/node1/etc/ceph.conf > $ROOT/node1/etc/wrong.conf
         at 1 $SPIRULA osd run --id 0 --conf /etc/ceph/wrong.conf",
    );
    assert!(
        said.contains("unable to find any IP address in networks '192.168.55.0/24' interfaces ''")
            && said.contains("Failed to pick cluster address."),
        "{said}"
    );
}

/// The state of osd.2 in the map, such as `osd.2 down in`.
const STATE: &str = "at 4 bash -c \"timeout 5 ceph osd dump | grep ^osd.2\"";

fn a_host_is_cut_off_and_returns(lab: &Lab) {
    lab.sh("cut_off 3");
    let down = lab.wait(30, STATE, "osd.2 down in");
    let out = lab.wait(30, "at 4 timeout 5 ceph mon stat", "quorum 0,1 node1,node2");
    println!("cut off: osd.2 down after {down:?}, its monitor out of quorum {out:?} later");
    let health = client(lab, "timeout 10 ceph health detail");
    for part in [
        "OSD_DOWN",
        "host node3 (root=default,rack=rack-node3)",
        "MON_DOWN",
        "mon.node3 (rank 2)",
    ] {
        assert!(health.contains(part), "{part}: {health}");
    }
    // The others go on being the cluster.
    client(lab, "timeout 10 ceph config-key set cut off");
    // Cut off, its monitor refuses to answer.
    lab.sh_fails("at 3 timeout 20 ceph --connect-timeout 4 -s");
    let pids = "cat $ROOT/node3/*.pid; kill -0 $(cat $ROOT/node3/*.pid)";
    lab.sh(pids);
    lab.sh("mend 3");
    println!("mended: healthy after {:?}", wait_healthy(lab));
    lab.sh(pids);
    all_reads_back(lab);
}

fn a_host_loses_what_it_sends(lab: &Lab) {
    lab.sh("lose_sent 3 eth0; lose_sent 3 eth1");
    lab.wait(30, STATE, "osd.2 down in");
    lab.wait(30, "at 4 timeout 5 ceph mon stat", "quorum 0,1 node1,node2");
    lab.sh("mend_sent 3 eth0; mend_sent 3 eth1");
    println!("one-way loss mended: healthy after {:?}", wait_healthy(lab));
    all_reads_back(lab);
}

fn all_reads_back(lab: &Lab) {
    client(
        lab,
        "for i in $(seq 20); do timeout 20 rados -p p get o$i /etc/ceph/out; cmp /etc/ceph/in /etc/ceph/out; done",
    );
}

#[test]
fn the_document_works_when_it_is_pasted_by_an_ordinary_user() {
    let Some(lab) = Lab::new('b', "book_possible") else {
        return;
    };
    lab.sh("book_run");
    let said = lab.sh("as_reader 2 bash -euo pipefail -c '
            sudo ceph osd pool create p 8 8; sudo ceph osd pool application enable p test
            head -c 3000000 /dev/urandom > sent; sudo rados -p p put o sent' 2>&1
        as_reader 3 sudo rados -p p get o - > $ROOT/got
        cmp $ROOT/got $ROOT/node2/home/sent
        as_reader 1 sudo ceph osd tree
        # The administrator's key is root's, the daemons' files are ceph's, nobody else reads either.
        ! as_reader 1 cat /etc/ceph/ceph.client.admin.keyring 2> /dev/null
        ! as_reader 1 ls /var/lib/ceph/mon 2> /dev/null
        [ -z \"$(find $ROOT/node*/lib -not -user ceph -not -type l)\" ]");
    for host in ["node1", "node2", "node3"] {
        assert!(said.contains(&format!("host {host}")), "{said}");
    }
}
