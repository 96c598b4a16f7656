//! The place of a new store: a file or a raw block device, and its present content.
//!
//! `mkfs` destroys the content, so a place that does not look blank is refused unless the caller
//! insists, as `ceph-volume` does for devices. The rule is strict: any byte other than zero in the
//! part where file systems, volume managers and partition tables keep their first structures
//! counts, known or not.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use spirula_denc::Fsid;
use spirula_maps::OsdId;

use crate::error::Error;

/// Bytes at the start that must be zero. A half-made store has zeros there: its superblocks come
/// last.
const PROBED: usize = 128 << 10;

/// The owner of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The OSD's number.
    pub(crate) whoami: OsdId,
    /// The cluster.
    pub(crate) fsid: Fsid,
    /// The store's own id.
    pub(crate) uuid: Fsid,
}

/// A store to be made.
pub(crate) struct Request<'a> {
    /// Its file or device, and the log's where that has one of its own.
    pub(crate) device: &'a Path,
    pub(crate) log: Option<&'a Path>,
    /// Its size on a file; `None`: the size of the existing file.
    pub(crate) file_size: Option<u64>,
    /// Its size on a block device; `None`: the whole device.
    pub(crate) device_size: Option<u64>,
    /// The new store's owner.
    pub(crate) identity: Identity,
    /// Whether to overwrite the present content.
    pub(crate) force: bool,
}

/// The steps for a [`Request`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Make the store, of this size (0: the whole device).
    Make { size: u64 },
    /// The very same store is there, whole.
    Exists,
}

impl Request<'_> {
    /// Examines the places without changing them.
    ///
    /// # Errors
    /// A place that can't hold a store, is in use, or holds something.
    pub(crate) fn plan(&self) -> Result<Plan, Error> {
        let place = Place::look(self.device)?;
        let log = self.log.map(Place::look).transpose()?;
        if let Some(log) = log.as_ref().filter(|l| l.id.is_some() && l.id == place.id) {
            return Err(Error::Usage(format!(
                "{} can't hold both the store and its log",
                log.path.display()
            )));
        }
        if !self.force && place.content == Content::Store(self.identity) {
            return Ok(Plan::Exists);
        }
        for place in [Some(&place), log.as_ref()].into_iter().flatten() {
            place.unused()?;
            if !self.force && place.content != Content::Store(self.identity) {
                place.blank()?;
            }
        }
        let size = match place.kind {
            Kind::Device => self.device_size.unwrap_or(0),
            Kind::File => match self.file_size.unwrap_or(place.len) {
                0 => {
                    return Err(Error::Usage(format!(
                        "--size is needed: {} is not a device with a size of its own",
                        self.device.display()
                    )));
                }
                size => size,
            },
        };
        Ok(Plan::Make { size })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Device,
}

/// The content of a place, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Blank,
    /// A store, or the log of one.
    Store(Identity),
    /// Something else, in words.
    Other(&'static str),
}

/// Identifies a place, whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceId {
    /// A block device, by its number.
    Device(u64),
    /// A file, by its file system and inode.
    File { dev: u64, ino: u64 },
}

struct Place {
    path: PathBuf,
    kind: Kind,
    /// Bytes of a file.
    len: u64,
    /// `None` where it does not exist yet.
    id: Option<PlaceId>,
    content: Content,
}

impl Place {
    fn look(path: &Path) -> Result<Self, Error> {
        let failed = |e| Error::path("look at", path, e);
        let meta = match path.metadata() {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Self::missing(path),
            Err(e) => return Err(failed(e)),
        };
        // A message that names the device is of more use than one that names the link to it.
        let path = &path.canonicalize().map_err(failed)?;
        let kind = Self::kind(path, &meta)?;
        let mut file = File::open(path).map_err(failed)?;
        let len = file.seek(SeekFrom::End(0)).map_err(failed)?;
        file.rewind().map_err(failed)?;
        let mut start = Vec::new();
        file.take(PROBED as u64).read_to_end(&mut start).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            kind,
            len,
            id: Some(match kind {
                Kind::Device => PlaceId::Device(meta.rdev()),
                Kind::File => PlaceId::File {
                    dev: meta.dev(),
                    ino: meta.ino(),
                },
            }),
            content: identify(&start),
        })
    }

    fn kind(path: &Path, meta: &Metadata) -> Result<Kind, Error> {
        if meta.is_file() {
            Ok(Kind::File)
        } else if meta.file_type().is_block_device() {
            Ok(Kind::Device)
        } else {
            let what = format!("{} is neither a file nor a block device", path.display());
            Err(Error::Usage(what))
        }
    }

    /// A file that will be made. A missing device must not become a file that fills memory.
    fn missing(path: &Path) -> Result<Self, Error> {
        let mut target = path.to_owned();
        while let Ok(next) = target.read_link() {
            target = target.parent().unwrap_or(Path::new("/")).join(next);
        }
        if target.starts_with("/dev") {
            return Err(Error::Usage(format!("there is no device {}", target.display())));
        }
        Ok(Self {
            path: path.to_owned(),
            kind: Kind::File,
            len: 0,
            id: None,
            content: Content::Blank,
        })
    }

    /// Fails where a file system, a volume manager or another store uses the place.
    fn unused(&self) -> Result<(), Error> {
        let path = &self.path;
        let busy = || Error::Busy { path: path.clone() };
        let flags = match (self.id, self.kind) {
            (None, _) => return Ok(()),
            // For a block device the kernel grants this to one holder: mounts, swap, RAID and LVM
            // are others.
            (_, Kind::Device) => OFlags::EXCL,
            (_, Kind::File) => OFlags::empty(),
        };
        let flags = flags.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => return Err(busy()),
            other => other.map_err(|e| Error::path("open", path, e))?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(busy()),
            Err(TryLockError::Error(e)) => Err(Error::path("lock", path, e)),
        }
    }

    fn blank(&self) -> Result<(), Error> {
        let what = match self.content {
            Content::Blank => return Ok(()),
            Content::Other(what) => what.to_owned(),
            Content::Store(of) => format!(
                "the store of osd.{} of cluster {}, or its log",
                of.whoami, of.fsid
            ),
        };
        Err(Error::Occupied {
            path: self.path.clone(),
            what,
        })
    }
}

/// Known content by signature: offset, bytes, name. Only the message depends on it.
const SIGNATURES: [(usize, &[u8], &str); 14] = [
    (0, b"bluestore block device\n", "a BlueStore OSD of Ceph"),
    (0, b"XFSB", "an XFS file system"),
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (65_600, b"_BHRfS_M", "a btrfs file system"),
    (512, b"LABELONE", "an LVM physical volume"),
    (0, b"LUKS\xba\xbe", "a LUKS encrypted volume"),
    (4096, b"\xfc\x4e\x2b\xa9", "a RAID member"),
    (0, b"\xfc\x4e\x2b\xa9", "a RAID member"),
    (4086, b"SWAPSPACE2", "swap space"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (32_769, b"CD001", "an ISO 9660 file system"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (510, b"\x55\xaa", "a partition table or FAT file system"),
];

fn identify(start: &[u8]) -> Content {
    if start.iter().all(|b| *b == 0) {
        return Content::Blank;
    }
    if let Some(identity) = store_identity(start) {
        return Content::Store(identity);
    }
    let known = SIGNATURES
        .iter()
        .find(|(at, magic, _)| start.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    Content::Other(known.map_or("data of an unknown kind", |(.., name)| name))
}

/// The identity in a store's superblock, or in the copy of it that starts a log device (`FORMAT.md`
/// of the store).
fn store_identity(start: &[u8]) -> Option<Identity> {
    let rest = start.get(..4096)?.strip_prefix(b"SPIRULA\0")?;
    let (_version, rest) = rest.split_first_chunk::<4>()?;
    let (whoami, rest) = rest.split_first_chunk()?;
    let (fsid, rest) = rest.split_first_chunk()?;
    let (uuid, _) = rest.split_first_chunk()?;
    Some(Identity {
        whoami: OsdId::of_item(i32::from_le_bytes(*whoami))?,
        fsid: Fsid(*fsid),
        uuid: Fsid(*uuid),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use super::*;

    const OURS: Identity = Identity {
        whoami: OsdId::new(3),
        fsid: Fsid([1; 16]),
        uuid: Fsid([2; 16]),
    };

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("spirula-device-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn request<'a>(device: &'a Path, log: Option<&'a Path>) -> Request<'a> {
        Request {
            device,
            log,
            file_size: Some(1 << 28),
            device_size: None,
            identity: OURS,
            force: false,
        }
    }

    fn refused(r: &Request<'_>) -> String {
        r.plan().unwrap_err().to_string()
    }

    const MAKE: Plan = Plan::Make { size: 1 << 28 };

    #[test]
    fn blank_places_are_taken_and_others_are_not() {
        let dir = dir("blank");
        let path = dir.join("block");
        assert_eq!(request(&path, None).plan().unwrap(), MAKE, "nothing there yet");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        assert_eq!(request(&path, None).plan().unwrap(), MAKE, "zeros");
        for (at, magic, name) in SIGNATURES {
            let mut bytes = vec![0; 1 << 20];
            bytes[at..at + magic.len()].copy_from_slice(magic);
            std::fs::write(&path, &bytes).unwrap();
            assert!(refused(&request(&path, None)).contains(name), "{name}");
        }
        std::fs::write(&path, "x").unwrap();
        let mut wanted = request(&path, None);
        assert!(refused(&wanted).contains("unknown kind"));
        wanted.force = true;
        assert_eq!(wanted.plan().unwrap(), MAKE);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_store_is_known_by_whose_it_is() {
        let dir = dir("store");
        let (path, log) = (dir.join("block"), dir.join("log"));
        let make = |whoami| {
            let options = spirula_store::MkfsOptions {
                fsid: OURS.fsid.0,
                osd_uuid: OURS.uuid.0,
                whoami,
                ..Default::default()
            };
            spirula_store::mkfs(&path, 1 << 28, Some(&log), &options).unwrap();
        };
        make(3);
        assert_eq!(request(&path, Some(&log)).plan().unwrap(), Plan::Exists);
        // A crash before the superblock was written: the log's header may be there.
        File::create(&path).unwrap().set_len(1 << 28).unwrap();
        assert_eq!(request(&path, Some(&log)).plan().unwrap(), MAKE);
        make(4);
        let said = refused(&request(&path, Some(&log)));
        assert!(said.contains("the store of osd.4 of cluster 01010101-"), "{said}");
        std::fs::remove_file(&path).unwrap();
        let said = refused(&request(&path, Some(&log)));
        assert!(said.contains("log holds the store of osd.4"), "{said}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// A device that refuses writes from an offset on.
    #[derive(Debug)]
    struct Dying {
        file: File,
        size: u64,
        ends: u64,
    }

    impl spirula_store::device::BlockIo for Dying {
        fn size(&self) -> u64 {
            self.size
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.file.read_exact_at(buf, offset)
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let taken = data.len().min(self.ends.saturating_sub(offset) as usize);
            self.file.write_all_at(&data[..taken], offset)?;
            match taken == data.len() {
                true => Ok(()),
                false => Err(io::Error::other("it died")),
            }
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_encrypted_log_that_was_left_half_made_is_known_by_whose_it_is() {
        let dir = dir("half");
        let (path, log) = (dir.join("block"), dir.join("log"));
        let device = |path: &Path, ends: u64| -> Arc<dyn spirula_store::device::BlockIo> {
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(path);
            let file = file.unwrap();
            let size = 1 << 28;
            file.set_len(size).unwrap();
            Arc::new(Dying { file, size, ends })
        };
        let options = spirula_store::MkfsOptions {
            fsid: OURS.fsid.0,
            osd_uuid: OURS.uuid.0,
            whoami: OURS.whoami.into(),
            key: Some(spirula_store::EncryptionKey::new(vec![7; 32]).unwrap()),
            ..Default::default()
        };
        let (main, half) = (device(&path, u64::MAX), device(&log, 64 << 10));
        spirula_store::mkfs_on(&main, Some(&half), &options).unwrap_err();
        assert_eq!(request(&path, Some(&log)).plan().unwrap(), MAKE);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn places_that_can_not_hold_a_store_are_refused() {
        let dir = dir("odd");
        assert!(refused(&request(&dir, None)).contains("neither a file nor a block device"));
        let link = dir.join("block");
        std::os::unix::fs::symlink("/dev/no-such-disk", &link).unwrap();
        assert!(refused(&request(&link, None)).contains("no device /dev/no-such-disk"));
        let file = dir.join("file");
        std::fs::write(&file, "").unwrap();
        assert!(refused(&request(&file, Some(&file))).contains("both"));
        let unsized_file = Request {
            file_size: None,
            ..request(&file, None)
        };
        assert!(refused(&unsized_file).contains("--size is needed"));
        let held = File::open(&file).unwrap();
        held.lock().unwrap();
        assert!(refused(&request(&file, None)).contains("in use"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
