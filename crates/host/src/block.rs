//! The block devices below a path, as the kernel and udev describe them.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::text::{field, read, read_value};
use crate::{Metadata, numa};

/// Devices may lie on others (volumes, encryption, RAID); the search stops at this depth.
const MAX_DEPTH: usize = 8;

/// The most entries of a directory that are read.
const MAX_ENTRIES: usize = 4096;

/// The files in which kernel and udev describe devices.
struct System {
    /// The root of the file system; another one in tests.
    root: PathBuf,
}

/// A whole disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Its name in the kernel: `sda`.
    pub name: String,
    /// Vendor, model and serial number; `None` if it has no identifying ones.
    pub id: Option<String>,
    /// Its link in `/dev/disk/by-path`.
    pub path: Option<String>,
    /// The NUMA node of the disk.
    numa: Option<u32>,
}

/// The devices below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disks {
    /// The whole disks, by name. Empty if the file system is on none that the kernel names (a
    /// network, memory, an overlay).
    pub disks: Vec<Disk>,
    /// Whether the path is a device, and not a file on one.
    is_device: bool,
    /// The partition, if it is one, or the device itself.
    partition: Option<String>,
    /// The partition's device, or the device itself.
    whole: Option<String>,
    /// `major:minor` of the whole device.
    number: Option<String>,
    /// The whole device's model and serial number, from the kernel.
    model: Option<String>,
    serial: Option<String>,
    rotational: bool,
    discards: bool,
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    major: u64,
    minor: u64,
}

/// Unpacks a device number of Linux.
fn split(dev: u64) -> Number {
    let major = (dev >> 32) & 0xffff_f000 | (dev >> 8) & 0xfff;
    let minor = (dev >> 12) & 0xffff_ff00 | dev & 0xff;
    Number { major, minor }
}

/// The last part of a path in sysfs.
fn name_of(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let all = std::fs::read_dir(dir).into_iter().flatten().flatten();
    all.take(MAX_ENTRIES).map(|e| e.path())
}

impl System {
    fn number(&self, Number { major, minor }: Number) -> Option<PathBuf> {
        let link = self.root.join(format!("sys/dev/block/{major}:{minor}"));
        std::fs::canonicalize(link).ok()
    }

    /// The partition's disk, or the device itself, by its directory in sysfs.
    fn whole(device: &Path) -> PathBuf {
        match device.parent() {
            Some(disk) if device.join("partition").exists() => disk.to_owned(),
            _ => device.to_owned(),
        }
    }

    /// The whole disks below a device, each by its directory in sysfs.
    fn below(&self, device: &Path, depth: usize, found: &mut BTreeMap<String, PathBuf>) {
        let whole = Self::whole(device);
        let slaves: Vec<PathBuf> = entries(&whole.join("slaves"))
            .filter_map(|s| std::fs::canonicalize(s).ok())
            .collect();
        if slaves.is_empty() || depth == MAX_DEPTH {
            if let Some(name) = name_of(&whole) {
                found.insert(name, whole);
            }
            return;
        }
        slaves.iter().for_each(|s| self.below(s, depth + 1, found));
    }

    /// udev's properties of a device, by the names of its database.
    fn udev(&self, number: &str) -> impl Fn(&str) -> Option<String> {
        let text = read(&self.root.join("run/udev/data").join(format!("b{number}"))).unwrap_or_default();
        move |key| field(&text, &format!("E:{key}"), '=')
    }

    /// Vendor, model and serial number of a disk, as `get_device_id` of Ceph joins them: from udev,
    /// else from the driver.
    fn id(&self, disk: &Path) -> Option<String> {
        let number = read_value(&disk.join("dev")).unwrap_or_default();
        let udev = self.udev(&number);
        let own = || {
            Some(format!(
                "{}_{}",
                Self::own(disk, "model")?,
                Self::own(disk, "serial")?
            ))
        };
        let scsi = || {
            Some(format!(
                "{}_{}_{}",
                udev("ID_VENDOR")?,
                udev("ID_MODEL")?,
                udev("ID_SCSI_SERIAL")?
            ))
        };
        let short = || Some(format!("{}_{}", udev("ID_MODEL")?, udev("ID_SERIAL_SHORT")?));
        let serial = || {
            let serial = udev("ID_SERIAL")?;
            // Micron's NVMe disks do not name their vendor.
            let vendor = if serial.starts_with("MTFD") { "Micron_" } else { "" };
            Some(format!("{vendor}{serial}"))
        };
        let id = scsi().or_else(short).or_else(serial).or_else(own)?;
        // Lists of ids are separated by commas, and an id from its device by an equals sign.
        Some(id.replace([' ', ',', '='], "_"))
    }

    /// A property that a disk's driver shows, in one of its two places.
    fn own(disk: &Path, what: &str) -> Option<String> {
        read_value(&disk.join("device").join(what)).or_else(|| read_value(&disk.join(what)))
    }

    /// The link that names a disk by its path.
    fn by_path(&self, name: &str) -> Option<String> {
        let mut links: Vec<PathBuf> = entries(&self.root.join("dev/disk/by-path"))
            .filter(|l| std::fs::read_link(l).ok().and_then(|to| name_of(&to)).as_deref() == Some(name))
            .collect();
        links.sort();
        Some(format!("/dev/disk/by-path/{}", name_of(links.first()?)?))
    }

    fn disk(&self, name: String, dir: &Path) -> Disk {
        Disk {
            id: self.id(dir),
            path: self.by_path(&name),
            numa: System::own(dir, "numa_node").and_then(|n| n.parse().ok()),
            name,
        }
    }

    fn disks(&self, number: Number, is_device: bool) -> Disks {
        let device = self.number(number);
        let whole = device.as_deref().map(Self::whole);
        let mut below = BTreeMap::new();
        if let Some(d) = &device {
            self.below(d, 0, &mut below);
        }
        let of_whole = |what| whole.as_deref().and_then(|w| Self::own(w, what));
        let queue = |what: &str| read_value(&whole.as_deref()?.join("queue").join(what));
        Disks {
            disks: below
                .into_iter()
                .map(|(name, dir)| self.disk(name, &dir))
                .collect(),
            is_device,
            partition: device.as_deref().and_then(name_of),
            whole: whole.as_deref().and_then(name_of),
            number: whole.as_deref().and_then(|w| read_value(&w.join("dev"))),
            model: of_whole("model"),
            serial: of_whole("serial"),
            rotational: queue("rotational").is_some_and(|r| r != "0"),
            discards: queue("discard_granularity").is_some_and(|g| g != "0"),
        }
    }
}

impl Disks {
    /// The devices below a path.
    ///
    /// # Errors
    /// The file system's error for the path.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        let is_device = meta.file_type().is_block_device();
        let number = split(if is_device { meta.rdev() } else { meta.dev() });
        let system = System {
            root: PathBuf::from("/"),
        };
        Ok(system.disks(number, is_device))
    }

    /// Whether the disk rotates. An unknown one (a network file system, an overlay) counts as not
    /// rotating, as in Ceph.
    pub fn is_rotational(&self) -> bool {
        self.rotational
    }

    /// The device class: `hdd` or `ssd`.
    pub fn class(&self) -> &'static str {
        if self.rotational { "hdd" } else { "ssd" }
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.disks.iter().map(|d| d.name.as_str()).collect();
        names.join(",")
    }

    /// `devices`, `device_ids` and `device_paths`.
    pub fn devices(&self) -> Metadata {
        let list = |of: fn(&Disk) -> Option<&String>| {
            let all = self
                .disks
                .iter()
                .filter_map(|d| Some(format!("{}={}", d.name, of(d)?)));
            all.collect::<Vec<_>>().join(",")
        };
        Metadata::from([
            ("devices".to_owned(), self.names()),
            ("device_ids".to_owned(), list(|d| d.id.as_ref())),
            ("device_paths".to_owned(), list(|d| d.path.as_ref())),
        ])
    }

    /// The NUMA nodes of the disks.
    pub fn objectstore_numa(&self) -> Metadata {
        let nodes = self.disks.iter().map(|d| (d.name.as_str(), d.numa));
        numa("objectstore", "devices", nodes)
    }

    /// The properties of a store's device or file at `path`, with `size` bytes in blocks of
    /// `block`: each key begins with `prefix`.
    pub fn store(&self, prefix: &str, path: &Path, size: u64, block: u64) -> Metadata {
        let flag = |on: bool| u8::from(on).to_string();
        let dev = |name: &Option<String>| name.as_ref().map(|n| format!("/dev/{n}"));
        let mut found = vec![
            ("block_size", Some(block.to_string())),
            ("devices", Some(self.names())),
            ("rotational", Some(flag(self.rotational))),
            ("size", Some(size.to_string())),
            ("support_discard", Some(flag(self.discards))),
            ("type", Some(self.class().to_owned())),
        ];
        if self.is_device {
            found.extend([
                ("access_mode", Some("blk".to_owned())),
                ("dev", self.number.clone()),
                ("dev_node", dev(&self.whole)),
                ("model", self.model.clone()),
                ("partition_path", dev(&self.partition)),
                ("serial", self.serial.clone()),
            ]);
        } else {
            let path = path.display().to_string();
            found.extend([("access_mode", Some("file".to_owned())), ("path", Some(path))]);
        }
        let known = found
            .into_iter()
            .filter_map(|(k, v)| Some((format!("{prefix}{k}"), v?)));
        known.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const fn number(major: u64, minor: u64) -> Number {
        Number { major, minor }
    }

    #[test]
    fn numbers_are_taken_apart_as_the_kernel_packs_them() {
        assert_eq!(split(65024), number(254, 0));
        assert_eq!(split(0x0801), number(8, 1));
        let (major, minor) = (0x1_2345, 0x6_789a);
        let packed =
            (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff;
        assert_eq!(split(packed), Number { major, minor });
    }

    /// A machine with the disk `sda`, its partition `sda1`, and the volume `dm-0` on that partition
    /// and the disk `nvme0n1`.
    fn machine(name: &str) -> System {
        let root = std::env::temp_dir().join(format!("spirula-block-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let link = |to: &str, at: &str| {
            let at = root.join(at);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(
                if to.starts_with('.') {
                    PathBuf::from(to)
                } else {
                    root.join(to)
                },
                at,
            )
            .unwrap();
        };
        let (sda, nvme, dm) = (
            "sys/devices/pci/sda",
            "sys/devices/pci/nvme0n1",
            "sys/devices/virtual/dm-0",
        );
        for (dir, number, turns) in [(sda, "8:0", "1"), (nvme, "259:0", "0"), (dm, "253:0", "1")] {
            write(&format!("{dir}/dev"), &format!("{number}\n"));
            write(&format!("{dir}/queue/rotational"), &format!("{turns}\n"));
            write(
                &format!("{dir}/queue/discard_granularity"),
                if dir == sda { "0\n" } else { "512\n" },
            );
            link(dir, &format!("sys/dev/block/{number}"));
        }
        write(&format!("{sda}/sda1/partition"), "1\n");
        write(&format!("{sda}/sda1/dev"), "8:1\n");
        link(&format!("{sda}/sda1"), "sys/dev/block/8:1");
        link(&format!("{sda}/sda1"), &format!("{dm}/slaves/sda1"));
        link(nvme, &format!("{dm}/slaves/nvme0n1"));
        write(
            "run/udev/data/b8:0",
            "S:disk/by-id/x\nE:ID_MODEL=WDC WD40\nE:ID_SERIAL_SHORT=WD-1=2\nE:ID_SERIAL=z\n",
        );
        write(&format!("{nvme}/device/model"), "Some NVMe   \n");
        write(&format!("{nvme}/device/serial"), " S1,2 \n");
        write(&format!("{nvme}/device/numa_node"), "0\n");
        link("../../sda", "dev/disk/by-path/pci-0000:00:1f.2-ata-1");
        link("../../sda1", "dev/disk/by-path/pci-0000:00:1f.2-ata-1-part1");
        System { root }
    }

    fn text(all: Metadata) -> String {
        all.into_iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn a_partition_is_as_its_disk() {
        let m = machine("partition");
        for number in [number(8, 0), number(8, 1)] {
            let d = m.disks(number, false);
            assert!(d.is_rotational() && d.class() == "hdd");
            assert_eq!(
                text(d.devices()),
                "device_ids=sda=WDC_WD40_WD-1_2 device_paths=sda=/dev/disk/by-path/pci-0000:00:1f.2-ata-1 devices=sda"
            );
            assert_eq!(text(d.objectstore_numa()), "objectstore_numa_unknown_devices=sda");
        }
        std::fs::remove_dir_all(&m.root).unwrap();
    }

    #[test]
    fn a_volume_is_on_the_disks_below_it() {
        let m = machine("volume");
        let d = m.disks(number(253, 0), true);
        assert_eq!(
            text(d.devices()),
            "device_ids=nvme0n1=Some_NVMe_S1_2,sda=WDC_WD40_WD-1_2 \
             device_paths=sda=/dev/disk/by-path/pci-0000:00:1f.2-ata-1 devices=nvme0n1,sda"
        );
        assert_eq!(
            text(d.objectstore_numa()),
            "objectstore_numa_nodes=0 objectstore_numa_unknown_devices=sda"
        );
        let store = d.store("b_", Path::new("/block"), 77, 4096);
        assert_eq!(
            text(store),
            "b_access_mode=blk b_block_size=4096 b_dev=253:0 b_dev_node=/dev/dm-0 b_devices=nvme0n1,sda \
             b_partition_path=/dev/dm-0 b_rotational=1 b_size=77 b_support_discard=1 b_type=hdd"
        );
        std::fs::remove_dir_all(&m.root).unwrap();
    }

    #[test]
    fn devices_are_named_whole_and_in_part() {
        let m = machine("named");
        let of = |number, is_device| text(m.disks(number, is_device).store("", Path::new("/d/block"), 1, 2));
        let part = of(number(8, 1), true);
        assert!(
            part.contains(" dev=8:0 dev_node=/dev/sda devices=sda partition_path=/dev/sda1 "),
            "{part}"
        );
        let whole = of(number(259, 0), true);
        assert!(
            whole.contains(" model=Some NVMe ") && whole.contains(" serial=S1,2 "),
            "{whole}"
        );
        let file = of(number(8, 1), false);
        assert!(
            file.starts_with("access_mode=file ") && file.contains(" path=/d/block "),
            "{file}"
        );
        // A path on no device has no properties.
        let none = m.disks(number(0, 42), false);
        assert_eq!(text(none.devices()), "device_ids= device_paths= devices=");
        assert!(!none.is_rotational() && none.objectstore_numa().is_empty());
        std::fs::remove_dir_all(&m.root).unwrap();
    }

    #[test]
    fn a_circle_of_devices_ends() {
        let m = machine("circle");
        let dm = m.root.join("sys/devices/virtual/dm-0");
        std::fs::remove_dir_all(dm.join("slaves")).unwrap();
        std::fs::create_dir(dm.join("slaves")).unwrap();
        symlink(&dm, dm.join("slaves/dm-0")).unwrap();
        assert_eq!(
            text(m.disks(number(253, 0), false).devices()),
            "device_ids= device_paths= devices=dm-0"
        );
        std::fs::remove_dir_all(&m.root).unwrap();
    }

    #[test]
    fn every_path_has_a_class_and_none_has_none() {
        assert!(Disks::of(&std::env::temp_dir()).is_ok());
        assert!(Disks::of(Path::new("/no/such/file")).is_err());
    }
}
