//! What kind of device a store lies on, as the kernel says it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Where the kernel lists block devices by their numbers.
const SYSFS: &str = "/sys/dev/block";

/// The number of the block device that `path` is or lies on.
fn number(path: &Path) -> std::io::Result<(u64, u64)> {
    let meta = std::fs::metadata(path)?;
    let dev = if meta.file_type().is_block_device() {
        meta.rdev()
    } else {
        meta.dev()
    };
    Ok(split(dev))
}

/// A device number as Linux packs it: its major and minor parts.
fn split(dev: u64) -> (u64, u64) {
    let major = (dev >> 32) & 0xffff_f000 | (dev >> 8) & 0xfff;
    let minor = (dev >> 12) & 0xffff_ff00 | dev & 0xff;
    (major, minor)
}

/// Whether the device turns; a partition asks the disk that it belongs to. What the kernel knows nothing of (a network
/// file system, an overlay) counts as not turning, as official OSDs have it.
fn is_rotational(sysfs: &Path, (major, minor): (u64, u64)) -> bool {
    let device = sysfs.join(format!("{major}:{minor}"));
    ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|file| std::fs::read_to_string(device.join(file)).ok())
        .is_some_and(|text| text.trim() != "0")
}

/// The device class of what `path` is or lies on: `hdd` or `ssd`; `None` where it can't be looked at.
pub(super) fn class(path: &Path) -> Option<&'static str> {
    let number = number(path).ok()?;
    Some(if is_rotational(Path::new(SYSFS), number) {
        "hdd"
    } else {
        "ssd"
    })
}

/// The block devices that `path` is or lies on, as `list_devices` shows them; none where the kernel names none.
pub(super) fn list(path: &Path) -> serde_json::Value {
    let name = number(path).ok().and_then(|(major, minor)| {
        let target = std::fs::read_link(Path::new(SYSFS).join(format!("{major}:{minor}"))).ok()?;
        Some(format!("/dev/{}", target.file_name()?.to_str()?))
    });
    let devices = name.into_iter();
    devices
        .map(|device| serde_json::json!({"device": device, "device_id": ""}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_apart_as_the_kernel_packs_them() {
        assert_eq!(split(65024), (254, 0));
        assert_eq!(split(0x0801), (8, 1));
        let (major, minor) = (0x1_2345, 0x6_789a);
        let packed =
            (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff;
        assert_eq!(split(packed), (major, minor));
    }

    #[test]
    fn a_partition_is_as_its_disk() {
        let dir = std::env::temp_dir().join(format!("spirula-sysfs-{}", std::process::id()));
        let disk = dir.join("devices/sda");
        let nums = dir.join("block");
        for d in [&disk.join("queue"), &disk.join("sda1"), &nums] {
            std::fs::create_dir_all(d).unwrap();
        }
        for (name, to) in [("8:0", disk.clone()), ("8:1", disk.join("sda1"))] {
            std::os::unix::fs::symlink(to, nums.join(name)).unwrap();
        }
        for (text, turns) in [("1\n", true), ("0\n", false)] {
            std::fs::write(disk.join("queue/rotational"), text).unwrap();
            assert_eq!(is_rotational(&nums, (8, 0)), turns);
            assert_eq!(is_rotational(&nums, (8, 1)), turns);
        }
        assert!(!is_rotational(&nums, (0, 42)), "unknown");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn every_path_has_a_class_and_none_has_none() {
        assert!(class(&std::env::temp_dir()).is_some());
        assert!(class(Path::new("/no/such/file")).is_none());
    }
}
