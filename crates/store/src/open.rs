//! Making and opening stores.

use std::path::Path;
use std::sync::Arc;

use spirula_buf::Pool;
use spirula_invariant::invariant;

use crate::alloc::Allocator;
use crate::config::{BLOCK64, Config, MkfsOptions};
use crate::device::{BlockIo, Device, FileIo, open_device};
use crate::exec::{Executor, Workplace};
use crate::ground::Ground;
use crate::index::{Applied, Index, IndexFile};
use crate::layout::{LOG_START, Superblock};
use crate::log::{self, Log, LogPosition, Scan};
use crate::lost::Losses;
use crate::notify::Notify;
use crate::recent::What;
use crate::replay::replay;
use crate::state::State;
use crate::store::{Parts, Store};
use crate::table::Counters;
use crate::unlock::encrypt;
use crate::{EncryptionKey, Result, StoreError};

/// The share of the device that is kept for the growth of the index, so that removals always
/// succeed: 1/32.
const SPARE_SHARE: u32 = 32;
/// The least number of groups for that.
pub(crate) const SPARE_MIN: u32 = 6;

/// Makes a store in a file (created, sparse, `size` bytes) or on a block device (`size` 0: all of
/// it). Earlier contents are lost. With `log`, the log goes to that file or device; a file is made
/// `opts.log_bytes` large.
///
/// # Errors
/// I/O errors, or a size that does not fit.
pub fn mkfs(path: &Path, size: u64, log: Option<&Path>, opts: &MkfsOptions) -> Result<Superblock> {
    let open = |path: &Path, size| {
        FileIo::create(path, size).map_err(|e| StoreError::io(format!("open {}", path.display()), e))
    };
    let dev: Arc<dyn BlockIo> = Arc::new(open(path, size)?);
    let log = match log {
        Some(path) => Some(Arc::new(open(path, opts.log_bytes)?) as Arc<dyn BlockIo>),
        None => None,
    };
    mkfs_on(&dev, log.as_ref(), opts)
}

/// As [`mkfs`], on open devices.
///
/// # Errors
/// I/O errors, or a size that does not fit.
pub fn mkfs_on(
    dev: &Arc<dyn BlockIo>,
    log: Option<&Arc<dyn BlockIo>>,
    opts: &MkfsOptions,
) -> Result<Superblock> {
    let mut sb = Superblock::plan(dev.size(), log.map(|l| l.size()), opts)?;
    let (dev, log) = match &opts.key {
        Some(key) => encrypt(&mut sb, dev, log, key)?,
        None => (Arc::clone(dev), log.cloned()),
    };
    let (dev, log) = (&dev, log.as_ref());
    // No half-made store can be taken for one: the superblock is written last.
    zero(dev, 0, LOG_START)?;
    // The log's header is written first: zeros are noise where the log is encrypted, and a
    // half-made log has to be known as this store's when it is made again.
    if let Some(log) = log {
        sb.write_log_header(log)?;
    }
    let log_io = log.unwrap_or(dev);
    // Zeros written now are blocks allocated now: later log writes change no file system metadata.
    zero(log_io, sb.log_start(), sb.log_blocks * BLOCK64)?;
    make_index(dev, &sb)?;
    sb.write(dev)?;
    Ok(sb)
}

/// Makes an empty index. Its maps have to be zeros.
pub(crate) fn make_index(dev: &Arc<dyn BlockIo>, sb: &Superblock) -> Result<()> {
    let file = IndexFile::create(Arc::clone(dev), sb);
    let mut alloc = Allocator::new(sb);
    for _ in 0..spare_target(sb) {
        match alloc.take_group() {
            Some(group) => file.add_spare(group),
            None => return Err(StoreError::Invalid("the device is too small for an index")),
        }
    }
    file.sync().map_err(|e| StoreError::io("write index map", e))?;
    Index::create(
        file,
        &Applied {
            log: LogPosition { block: 0, group: 1 },
            ..Applied::default()
        },
    )
}

pub(crate) fn zero(dev: &Arc<dyn BlockIo>, from: u64, len: u64) -> Result<()> {
    const CHUNK: u64 = 1 << 20;
    let mut buf = Pool::new(0).get(CHUNK as usize);
    buf.fill(0);
    let mut at = from;
    while at < from + len {
        let n = CHUNK.min(from + len - at);
        dev.write_at(at, &buf[..n as usize])
            .map_err(|e| StoreError::io("write zeros", e))?;
        at += n;
    }
    dev.sync().map_err(|e| StoreError::io("flush", e))
}

fn spare_target(sb: &Superblock) -> usize {
    (sb.groups() / SPARE_SHARE).max(SPARE_MIN) as usize
}

/// The devices of a store.
pub struct Devices {
    /// The device with the superblock.
    pub main: Box<dyn Device>,
    /// The device of the log, if it is separate.
    pub log: Option<Box<dyn Device>>,
}

/// A store after the log was replayed in memory, before anything is written to the device.
pub(crate) struct Mounted {
    pub(crate) sb: Superblock,
    pub(crate) state: State,
    pub(crate) scan: Scan,
    pub(crate) applied: Applied,
    /// What is lost, and what the log has of it.
    pub(crate) losses: Losses,
}

impl Mounted {
    /// Reads superblock, index (through `index`) and log.
    ///
    /// # Errors
    /// [`StoreError::Ruined`] if the superblock is sound and something else is damaged.
    pub(crate) fn read(
        dev: &Arc<dyn BlockIo>,
        log: Option<&Arc<dyn BlockIo>>,
        index: Arc<dyn BlockIo>,
        cfg: Config,
        read_only: bool,
    ) -> Result<Self> {
        let sb = Superblock::read(dev)?;
        let log_io = match (sb.separate_log, log) {
            (false, _) => dev,
            (true, Some(log)) => {
                sb.check_log(log)?;
                log
            }
            (true, None) => return Err(StoreError::NotAStore("its log device must be given".into())),
        };
        Self::of(sb, (dev, log_io), index, cfg, read_only).map_err(StoreError::into_ruin)
    }

    /// Reads index and log of the store with this superblock.
    fn of(
        sb: Superblock,
        (dev, log_io): (&Arc<dyn BlockIo>, &Arc<dyn BlockIo>),
        index: Arc<dyn BlockIo>,
        cfg: Config,
        read_only: bool,
    ) -> Result<Self> {
        let index = Index::open_at([index, Arc::clone(dev)], &sb, &cfg, read_only)?;
        let applied = index.applied()?;
        let mut alloc = Allocator::new(&sb);
        for group in index.file().groups() {
            if !alloc.give_to_index(group) {
                return Err(StoreError::damaged(
                    "index map",
                    format!("group {group} listed twice or out of range"),
                ));
            }
        }
        index.bitmaps(|group, bitmap| {
            let loaded = alloc.load(group, bitmap);
            loaded.ok_or_else(|| StoreError::damaged("free-space bitmap", format!("group {group}")))
        })?;
        let scan = log::scan(log_io, &sb, &applied)?;
        let counters = Counters {
            objects: applied.objects,
            stored: applied.stored,
        };
        let mut state = State::new(cfg, Arc::new(index), alloc, counters, applied.seq);
        if !read_only {
            // Records that were read from the log after a kill may not be durable yet; writing back
            // relies on it.
            let synced = dev.sync().and_then(|()| log_io.sync());
            synced.map_err(|e| StoreError::io("flush", e))?;
        }
        let mut losses = Losses::new(state.index.lost()?);
        for record in &scan.records {
            replay(&mut state, record, &mut losses)?;
        }
        // The next transaction continues both.
        invariant!(
            state.seq == scan.last_seq(),
            "all of the log in memory";
            replayed = state.seq,
            logged = scan.last_seq(),
        );
        Ok(Self {
            sb,
            state,
            scan,
            applied,
            losses,
        })
    }
}

impl Store {
    /// Opens a store by path, with its key if it is encrypted, with io_uring where possible and
    /// threads of its own. To be used by the calling thread.
    ///
    /// # Errors
    /// I/O errors, a device that is in use or holds no store, the wrong key, or
    /// [`StoreError::Ruined`].
    pub fn open(path: &Path, log: Option<&Path>, key: Option<&EncryptionKey>, cfg: Config) -> Result<Self> {
        let notify = Notify::new().map_err(|e| StoreError::io("eventfd", e))?;
        let open = |path: &Path| {
            let device = FileIo::open(path).and_then(|file| open_device(Arc::new(file), &notify));
            device.map_err(|e| StoreError::open(path, e))
        };
        let devices = Devices {
            main: open(path)?,
            log: log.map(open).transpose()?,
        };
        Self::open_on(devices.unlock(key)?, cfg, notify, true)
    }

    /// Opens a store on unlocked devices that signal `notify`. Without `threads`, the work of the
    /// background threads is done by [`Store::poll`], a step a call: deterministic.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(devices: Devices, cfg: Config, notify: Notify, threads: bool) -> Result<Self> {
        let dev = devices.main.blocking();
        let log_io = devices.log.as_ref().map(|l| l.blocking());
        let group_bytes = cfg.group_bytes;
        let Mounted {
            mut sb,
            mut state,
            scan,
            losses,
            ..
        } = Mounted::read(&dev, log_io.as_ref(), devices.main.cached(), cfg, false)?;
        sb.lost = !losses.is_empty();
        sb.count_mount()?;
        sb.write(&dev)?;
        let log = Log::new(&sb, group_bytes, &scan);
        for hole in dev.holes().map_err(|e| StoreError::io("look for holes", e))? {
            state
                .alloc
                .note_hole(hole.start.div_ceil(BLOCK64)..hole.end / BLOCK64);
        }
        if let Err(error) = state.index.file().take_space() {
            tracing::warn!(%error, "the file system lacks space for the index");
        }
        let place = Workplace {
            index: Arc::clone(&state.index),
            main: Arc::clone(&dev),
            log: log_io,
        };
        let exec = if threads {
            Executor::threads(&place, &notify).map_err(|e| StoreError::io("start threads", e))?
        } else {
            Executor::inline(place)
        };
        let ground = Ground::new(dev, &sb);
        let spare_target = spare_target(&sb);
        let (main, log_dev) = (devices.main, devices.log);
        let mut store = Self::from_parts(Parts {
            sb,
            state,
            dev: main,
            log_dev,
            exec,
            ground,
            log,
            notify,
            spare_target,
            losses,
        });
        store.note(What::Opened);
        store.start_background();
        store.start_base_reads();
        // The replayed changes go into the index before long.
        store.checkpoint();
        store.refill_spare();
        store.take_index_space();
        Ok(store)
    }
}
