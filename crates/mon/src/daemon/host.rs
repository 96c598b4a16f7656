//! A monitor's metadata on its host, as `ceph mon metadata` shows it, and how full its disk is.

use std::collections::BTreeMap;
use std::path::Path;

use spirula_host::Disks;

use crate::health::DiskUse;
use crate::version;

/// Version, system, and the disks that the monitor's store at `store` is on.
pub(super) fn metadata(store: &Path) -> BTreeMap<String, String> {
    let mut all = spirula_host::system();
    all.extend(Disks::of(store).map(|d| d.devices()).unwrap_or_default());
    let own = [
        ("ceph_release", version::RELEASE),
        ("ceph_version", version::LONG),
        ("ceph_version_short", version::SHORT),
        // Pools are compressed with none.
        ("compression_algorithms", "none"),
    ];
    all.extend(own.map(|(k, v)| (k.to_owned(), v.to_owned())));
    all
}

/// How full the disk under the monitor's store is; `None` if the file system does not tell.
pub(super) fn disk_use(store: &Path) -> Option<DiskUse> {
    let fs = rustix::fs::statvfs(store).ok()?;
    Some(DiskUse {
        total: fs.f_blocks.saturating_mul(fs.f_frsize),
        available: fs.f_bavail.saturating_mul(fs.f_frsize),
        store: std::fs::metadata(store).ok()?.len(),
    })
}
