//! Compares the free space of the file systems below the stores with the stores' possible growth.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use spirula_maps::OsdId;
use spirula_text::size::bytes;

use crate::daemon::DaemonName;
use crate::layout::{Layout, Spec};

/// A file system with stores on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Room {
    /// The directory of the first store on it.
    pub(crate) path: PathBuf,
    /// The OSDs whose stores are on it.
    pub(crate) osds: Vec<OsdId>,
    /// Its free bytes.
    pub(crate) available: u64,
    /// Bytes by which the stores may still grow.
    pub(crate) growth: u64,
}

impl Room {
    /// The warning if the file system has less space than the stores may need.
    pub(crate) fn warning(&self) -> Option<String> {
        let names: Vec<String> = self
            .osds
            .iter()
            .map(|n| DaemonName::osd(*n).to_string())
            .collect();
        let (stores, osds) = match names.len() {
            1 => ("store of", names.concat()),
            n if n > 4 => ("stores of", format!("{n} OSDs")),
            _ => ("stores of", names.join(", ")),
        };
        (self.growth > self.available).then(|| {
            format!(
                "the {stores} {osds} may grow by {}, and the file system of {} has only {} left to give: with that the cluster is full",
                bytes(self.growth),
                self.path.display(),
                bytes(self.available)
            )
        })
    }
}

/// The file systems below stores in files. Stores on devices have their space already.
pub(crate) fn rooms(layout: &Layout, spec: &Spec) -> Vec<Room> {
    let mut rooms: BTreeMap<u64, Room> = BTreeMap::new();
    for osd in &spec.osds {
        let dir = layout.data(&DaemonName::osd(*osd));
        for name in ["block", "log"] {
            let Some(Growing { device, growth }) = growing(&dir.join(name)) else {
                continue;
            };
            let Some(available) = available(&dir.join(name)) else {
                continue;
            };
            let room = rooms.entry(device).or_insert_with(|| Room {
                path: dir.clone(),
                osds: Vec::new(),
                available,
                growth: 0,
            });
            room.growth += growth;
            if room.osds.last() != Some(osd) {
                room.osds.push(*osd);
            }
        }
    }
    rooms.into_values().collect()
}

/// A file that may still grow.
struct Growing {
    /// The device of its file system.
    device: u64,
    /// The bytes by which it may grow.
    growth: u64,
}

fn growing(path: &Path) -> Option<Growing> {
    let file = path.metadata().ok().filter(|m| m.is_file())?;
    Some(Growing {
        device: file.dev(),
        growth: file.len().saturating_sub(file.blocks() * 512),
    })
}

fn available(path: &Path) -> Option<u64> {
    let fs = rustix::fs::statvfs(path).ok()?;
    Some(fs.f_bavail * fs.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_on_one_file_system_ask_for_the_sum() {
        let dir = std::env::temp_dir().join(format!("spirula-room-{}", std::process::id()));
        let layout = Layout::new(&dir).unwrap();
        let mut spec = Spec::new([127, 0, 0, 1].into(), 1, 2, 1 << 30).unwrap();
        for osd in &spec.osds {
            let data = layout.data(&DaemonName::osd(*osd));
            std::fs::create_dir_all(&data).unwrap();
            let file = std::fs::File::create(data.join("block")).unwrap();
            file.set_len(1 << 30).unwrap();
        }
        // One that is not made yet, and one on a device.
        spec.osds.extend([2, 3].map(OsdId::new));
        std::fs::create_dir_all(layout.data(&DaemonName::osd(OsdId::new(3)))).unwrap();
        std::os::unix::fs::symlink(
            "/dev/null",
            layout.data(&DaemonName::osd(OsdId::new(3))).join("block"),
        )
        .unwrap();
        let rooms = rooms(&layout, &spec);
        std::fs::remove_dir_all(&dir).unwrap();
        let [room] = rooms.as_slice() else {
            panic!("{rooms:?}");
        };
        assert_eq!(
            (room.osds.as_slice(), room.growth),
            (&[0, 1].map(OsdId::new)[..], 2 << 30)
        );
        let with = |available| Room {
            available,
            ..room.clone()
        };
        assert_eq!(with(2 << 30).warning(), None);
        let said = with((2 << 30) - 1).warning().unwrap();
        assert!(said.contains("osd.0, osd.1 may grow by 2 GiB"), "{said}");
    }
}
