//! The space that the file system below can still give a store in a file.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The part (one in this many) of a file system that the stores leave to others, such as monitors
/// and logs.
const LEFT_SHARE: u64 = 20;
/// The least bytes left to others.
const LEAST_LEFT: u64 = 16 << 20;
/// The most bytes left to others.
const MOST_LEFT: u64 = 256 << 20;

/// Bytes that the file system can still give the store in `store`, of which `lacking` bytes occupy
/// no space yet. A file system that has not enough for all stores on it is shared in proportion to
/// what they lack.
///
/// # Errors
/// What the file system says.
pub(super) fn below(store: &Path, lacking: u64) -> io::Result<u64> {
    let meta = store.metadata()?;
    if meta.file_type().is_block_device() {
        return Ok(u64::MAX);
    }
    let fs = rustix::fs::statvfs(store)?;
    let left = (fs.f_blocks * fs.f_frsize / LEFT_SHARE).clamp(LEAST_LEFT, MOST_LEFT);
    let free = (fs.f_bavail * fs.f_frsize).saturating_sub(left);
    Ok(share(free, lacking, neighbours(store, &meta)))
}

fn share(free: u64, lacking: u64, others: u64) -> u64 {
    let all = u128::from(lacking) + u128::from(others);
    if all <= u128::from(free) {
        return free - others;
    }
    let part = u128::from(free) * u128::from(lacking) / all;
    u64::try_from(part).unwrap_or(free)
}

/// Bytes that the other stores on the same file system lack: those in directories beside the one
/// with this store.
fn neighbours(store: &Path, meta: &Metadata) -> u64 {
    let (Some(name), Some(all)) = (store.file_name(), store.parent().and_then(Path::parent)) else {
        return 0;
    };
    // A store that can't be looked at is not counted: the next look may show it.
    let Ok(dirs) = all.read_dir() else { return 0 };
    let stores = dirs.filter_map(|dir| dir.ok()?.path().join(OsStr::new(name)).metadata().ok());
    stores
        .filter(|m| m.is_file() && m.dev() == meta.dev() && m.ino() != meta.ino())
        .map(|m| m.len().saturating_sub(m.blocks() * 512))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_enough_for_all_is_shared() {
        assert_eq!(share(100, 30, 50), 50, "enough: what the others do not lack");
        assert_eq!(share(100, 100, 300), 25);
        assert_eq!(share(100, 0, 300), 0);
        assert_eq!(share(u64::MAX, u64::MAX, u64::MAX), u64::MAX / 2);
    }

    #[test]
    fn stores_beside_each_other_count_what_they_lack() {
        let dir = std::env::temp_dir().join(format!("spirula-below-{}", std::process::id()));
        let store = |name: &str| dir.join(name).join("block");
        for (name, len) in [("osd.0", 1 << 30), ("osd.1", 2 << 30), ("mon.a", 0)] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
            if len > 0 {
                let file = std::fs::File::create(store(name)).unwrap();
                file.set_len(len).unwrap();
            }
        }
        let of = |name: &str| neighbours(&store(name), &store(name).metadata().unwrap());
        assert_eq!((of("osd.0"), of("osd.1")), (2 << 30, 1 << 30));
        assert!(below(&store("osd.0"), 1 << 30).unwrap() > 0);
        assert!(below(Path::new("/no/such/file"), 0).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
