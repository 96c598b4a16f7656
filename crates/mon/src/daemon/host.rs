//! What a daemon tells of its host, as `ceph mon|osd metadata` shows it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::health::DiskUse;
use crate::version;

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The host's name, up to the first dot.
pub fn hostname() -> String {
    let full = read("/proc/sys/kernel/hostname").unwrap_or_default();
    let short = full.trim().split('.').next().unwrap_or_default();
    if short.is_empty() {
        "localhost".to_owned()
    } else {
        short.to_owned()
    }
}

/// `KEY=VALUE` of `/etc/os-release`, without quotes.
fn os_release() -> BTreeMap<String, String> {
    let text = read("/etc/os-release").unwrap_or_default();
    let pairs = text.lines().filter_map(|l| l.split_once('='));
    pairs
        .map(|(k, v)| (k.to_owned(), v.trim_matches('"').to_owned()))
        .collect()
}

/// `Key: value` lines, such as those of `/proc/meminfo`: the first of this key.
fn field(path: &str, key: &str) -> Option<String> {
    let text = read(path)?;
    let line = text
        .lines()
        .find(|l| l.split(':').next().is_some_and(|k| k.trim() == key))?;
    line.split_once(':').map(|(_, v)| v.trim().to_owned())
}

/// Version, kernel, distribution, processor and memory.
pub fn host_metadata() -> BTreeMap<String, String> {
    let os = os_release();
    let os_field = |k: &str| os.get(k).cloned().unwrap_or_default();
    let kb = |key: &str| {
        field("/proc/meminfo", key)
            .unwrap_or_default()
            .trim_end_matches(" kB")
            .to_owned()
    };
    let pairs = [
        ("arch", std::env::consts::ARCH.to_owned()),
        ("ceph_release", version::RELEASE.to_owned()),
        ("ceph_version", version::LONG.to_owned()),
        ("ceph_version_short", version::SHORT.to_owned()),
        ("cpu", field("/proc/cpuinfo", "model name").unwrap_or_default()),
        ("distro", os_field("ID")),
        ("distro_description", os_field("PRETTY_NAME")),
        ("distro_version", os_field("VERSION_ID")),
        ("hostname", hostname()),
        (
            "kernel_description",
            read("/proc/sys/kernel/version")
                .unwrap_or_default()
                .trim()
                .to_owned(),
        ),
        (
            "kernel_version",
            read("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
        ),
        ("mem_swap_kb", kb("SwapTotal")),
        ("mem_total_kb", kb("MemTotal")),
        ("os", "Linux".to_owned()),
    ];
    pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

/// How full the disk under the monitor's store is; `None` where the file system does not tell.
pub(super) fn disk_use(store: &Path) -> Option<DiskUse> {
    let fs = rustix::fs::statvfs(store).ok()?;
    Some(DiskUse {
        total: fs.f_blocks.saturating_mul(fs.f_frsize),
        available: fs.f_bavail.saturating_mul(fs.f_frsize),
        store: std::fs::metadata(store).ok()?.len(),
    })
}
