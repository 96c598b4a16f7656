//! A disk that is a hundred times slower than the others is named in health. Needs root and the
//! block I/O controller of cgroup v1, which counts direct I/O; skipped without.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Cluster, skip};

/// A cgroup whose writes to a disk are limited; removed when it is dropped and empty.
struct Throttle {
    dir: PathBuf,
    disk: String,
}

impl Throttle {
    /// `None` where this machine has no such controller.
    fn on_disk_of(path: &Path) -> Option<Self> {
        let dev = std::fs::metadata(path).ok()?.dev();
        let disk = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
        let dir = PathBuf::from(format!(
            "/sys/fs/cgroup/blkio/spirula-test-{}",
            std::process::id()
        ));
        std::fs::create_dir(&dir).ok()?;
        let throttle = Self { dir, disk };
        // Partitions and file systems without a disk are refused here.
        throttle.set(0).is_ok().then_some(throttle)
    }

    /// Allows this many writes a second; 0 for any number.
    fn set(&self, iops: u32) -> std::io::Result<()> {
        let line = format!("{} {iops}", self.disk);
        std::fs::write(self.dir.join("blkio.throttle.write_iops_device"), line)
    }

    fn take(&self, pid: u32) {
        std::fs::write(self.dir.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let root = self.dir.parent().unwrap().join("cgroup.procs");
        let procs = std::fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        for pid in procs.lines() {
            let _ = std::fs::write(&root, pid);
        }
        let _ = std::fs::remove_dir(&self.dir);
    }
}

fn wait_for(c: &Cluster, seconds: u64, wanted: &str) -> String {
    let begun = Instant::now();
    loop {
        let said = c.sh("timeout 20 ceph health detail");
        if said.contains(wanted) {
            println!("{wanted} after {:?}", begun.elapsed());
            return said;
        }
        let perf = || c.sh("timeout 20 ceph osd perf");
        assert!(
            begun.elapsed() < Duration::from_secs(seconds),
            "no {wanted}: {said}\n{}",
            perf()
        );
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn a_slow_disk_is_named() {
    let c = Cluster::up("slow-disk", 3, &["--osd-size", "2G"]);
    let Some(throttle) = Throttle::on_disk_of(c.dir()) else {
        skip(&format!(
            "no block I/O controller of cgroup v1 for {}",
            c.dir().display()
        ));
        return;
    };
    c.sh("ceph osd pool create p 8; ceph osd pool application enable p test");
    c.wait_healthy();
    let mut bench = c
        .shell("exec rados bench -p p 60 write -b 4096 -t 4 --no-cleanup")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    throttle.take(c.pid("osd.1"));
    throttle.set(3).unwrap();
    let detail = wait_for(&c, 50, "OSD_SLOW_DISK");
    assert!(
        detail.contains("1 osd with a disk much slower than others: osd.1\n"),
        "{detail}"
    );
    assert!(detail.contains("    osd.1 (root=default,host="), "{detail}");
    throttle.set(0).unwrap();
    bench.kill().unwrap();
    bench.wait().unwrap();
    c.sh("timeout 60 rados bench -p p 3 write -b 4096 -t 4 --no-cleanup > /dev/null");
    wait_for(&c, 30, "HEALTH_OK");
    c.down();
}
