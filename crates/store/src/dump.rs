//! Shows a store to humans, without changing it.

use std::fmt::{self, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::config::{BLOCK64, Config};
use crate::device::BlockIo;
use crate::fsck::open_read_only;
use crate::layout::Superblock;
use crate::onode::Onode;
use crate::open::Mounted;
use crate::step::{RangeOf, Step};
use crate::{EncryptionKey, ObjectKey, Result, StoreError};

/// Objects per page of a listing.
const PAGE: usize = 512;

/// A store opened for inspection. The log is replayed in memory.
pub struct Dump {
    mounted: Mounted,
}

impl Dump {
    /// Opens the store at `path` (and its log at `log`, if that is separate), with its key if it is
    /// encrypted.
    ///
    /// # Errors
    /// As [`Store::open`](crate::Store::open).
    pub fn open(path: &Path, log: Option<&Path>, key: Option<&EncryptionKey>) -> Result<Self> {
        let (dev, log) = open_read_only(path, log, key)?;
        Self::open_on(&dev, log.as_ref())
    }

    /// As [`Dump::open`], on open devices as [`unlock`](crate::unlock) gives them.
    ///
    /// # Errors
    /// As [`Store::open`](crate::Store::open).
    pub fn open_on(dev: &Arc<dyn BlockIo>, log: Option<&Arc<dyn BlockIo>>) -> Result<Self> {
        let mounted = Mounted::read(dev, log, Arc::clone(dev), Config::default(), true)?;
        Ok(Self { mounted })
    }

    /// The superblock, the state of index and log, and the space.
    ///
    /// # Errors
    /// An index that cannot be read.
    pub fn summary(&self) -> Result<String> {
        let Mounted {
            sb,
            state,
            scan,
            applied,
            losses: _,
        } = &self.mounted;
        let [objects, pairs, shared] = state.index.counts()?;
        let (groups, log_bytes) = scan.extent();
        let file = state.index.file();
        let group = u64::from(sb.group_blocks) * BLOCK64;
        let mut out = String::new();
        let mut line = |name: &str, value: &dyn fmt::Display| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:<24}{value}");
        };
        for (name, value) in superblock_fields(sb) {
            line(name, &value);
        }
        line("index: applied", &format_args!("transaction {}", applied.seq));
        line(
            "index: entries",
            &format_args!("{objects} objects, {pairs} pairs, {shared} shared blocks"),
        );
        line(
            "index: space",
            &format_args!("{} bytes", file.mapped_count() as u64 * group),
        );
        line(
            "index: reserve",
            &format_args!("{} bytes", file.spare_count() as u64 * group),
        );
        let (cuts, lost) = (state.index.cuts()?, state.index.lost()?.len());
        if cuts > 0 {
            line(
                "index: cut out",
                &format_args!("{cuts} damaged leaves, of which {lost} are not acted on"),
            );
        }
        line("log: in use", &format_args!("{groups} groups, {log_bytes} bytes"));
        line(
            "log: starts",
            &format_args!("block {} with group {}", applied.log.block, applied.log.group),
        );
        line(
            "log: transactions",
            &format_args!("{} up to {}", scan.records.len(), scan.last_seq()),
        );
        line("objects", &state.counters.objects);
        line("bytes stored", &state.counters.stored);
        line("bytes allocated", &(state.alloc.used() * BLOCK64));
        line("bytes free", &(state.alloc.free() * BLOCK64));
        Ok(out)
    }

    /// Calls `each` for the objects with keys from `from` on, in order, until it returns `false`.
    ///
    /// # Errors
    /// An index that cannot be read.
    pub fn objects(&self, from: &ObjectKey, mut each: impl FnMut(&ObjectKey, &Onode) -> bool) -> Result<()> {
        let mut next = Some(from.clone());
        while let Some(from) = next {
            let page = self
                .mounted
                .state
                .index
                .list_objects::<Arc<Onode>>(from.as_slice(), None, PAGE)?;
            let listing = self
                .mounted
                .state
                .merge_objects(from.as_slice(), None, page, usize::MAX);
            for (key, onode) in &listing.objects {
                if !each(&ObjectKey::new(key), onode) {
                    return Ok(());
                }
            }
            next = listing.next;
        }
        Ok(())
    }

    /// One object in detail.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an index that cannot be read.
    pub fn object(&self, key: &ObjectKey) -> Result<String> {
        let mut found = None;
        self.objects(key, |k, onode| {
            if k == key {
                found = Some(render_onode(onode));
            }
            false
        })?;
        found.ok_or_else(|| StoreError::NoObject(key.clone()))
    }

    /// The transactions in the log that the index does not have yet.
    ///
    /// # Errors
    /// A transaction that cannot be decoded.
    pub fn log(&self) -> Result<String> {
        let mut out = String::new();
        for record in &self.mounted.scan.records {
            let bad = || StoreError::damaged("log", format!("transaction {}", record.seq));
            let _ = writeln!(out, "transaction {} in group {}", record.seq, record.group);
            for step in Step::decode_all(&record.steps).ok_or_else(bad)? {
                let _ = writeln!(out, "    {}", Brief(&step));
            }
        }
        Ok(out)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn superblock_fields(sb: &Superblock) -> Vec<(&'static str, String)> {
    vec![
        ("format version", sb.version().to_string()),
        ("fsid", hex(&sb.fsid)),
        ("osd uuid", hex(&sb.osd_uuid)),
        ("osd", sb.whoami.to_string()),
        ("size", format!("{} blocks of {BLOCK64} bytes", sb.blocks)),
        ("group", format!("{} blocks", sb.group_blocks)),
        (
            "log",
            format!(
                "{} blocks{}",
                sb.log_blocks,
                if sb.separate_log { ", separate device" } else { "" }
            ),
        ),
        ("mounts", sb.mounts.to_string()),
        (
            "encryption",
            match &sb.slots {
                Some(slots) => format!("AES-256-XTS, {} keys", slots.len()),
                None => "none".to_owned(),
            },
        ),
    ]
}

fn render_onode(onode: &Onode) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "size      {}", onode.size());
    let _ = writeln!(out, "info      {} bytes", onode.info().len());
    for (name, value) in onode.attrs() {
        let _ = writeln!(out, "attr      {} ({} bytes)", name.escape_ascii(), value.len());
    }
    if onode.has_omap() {
        let _ = writeln!(
            out,
            "omap      number {}, header {} bytes",
            onode.omap,
            onode.omap_header().len()
        );
    }
    for e in onode.extents() {
        let shared = if e.shared { " shared" } else { "" };
        let crcs: Vec<String> = e.crcs.iter().take(4).map(|c| format!("{c:08x}")).collect();
        let more = if e.crcs.len() > 4 { " …" } else { "" };
        let crcs = crcs.join(" ");
        let _ = writeln!(
            out,
            "extent    {} +{} at {}{shared}  crc {crcs}{more}",
            e.lblk,
            e.len(),
            e.pblk
        );
    }
    for hole in onode.holes.iter() {
        let _ = writeln!(out, "hole      {} +{}", hole.start, hole.end - hole.start);
    }
    out
}

/// A step without its payload.
struct Brief<'a>(&'a Step);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |b: &Bytes| b.escape_ascii().to_string();
        match self.0 {
            Step::Object(key) => write!(f, "object {key}"),
            Step::Inline { offset, data, new } => {
                write!(f, "write {offset}+{} in the log", data.len())?;
                new.iter()
                    .try_for_each(|n| write!(f, ", block {} at {}+{}", n.lblk, n.run.pblk, n.run.len))
            }
            Step::Direct { lblk, runs, crcs } => {
                write!(f, "write blocks {lblk}+{}", crcs.len())?;
                runs.iter()
                    .try_for_each(|r| write!(f, ", at {}+{}", r.pblk, r.len))
            }
            Step::SetAttr { name, value } => write!(f, "attr {} ({} bytes)", text(name), value.len()),
            Step::RmAttr(name) => write!(f, "remove attr {}", text(name)),
            Step::Info(info) => write!(f, "info ({} bytes)", info.len()),
            Step::OmapHeader(header) => write!(f, "omap header ({} bytes)", header.len()),
            Step::Put { key, value } => write!(f, "put {} ({} bytes)", text(key), value.len()),
            Step::Delete(key) => write!(f, "delete {}", text(key)),
            Step::DeleteRange { from, to } => write!(f, "delete {} to {}", text(from), text(to)),
            Step::Punch { lblk, len } => write!(f, "punch blocks {lblk}+{len}"),
            Step::Size(size) => write!(f, "size {size}"),
            Step::Hole { offset, len } => write!(f, "hole {offset}+{len}"),
            Step::CloneOf { source, .. } => write!(f, "copy of {source}"),
            Step::MoveOf(source) => write!(f, "move of {source}"),
            Step::RangeOf(RangeOf {
                source,
                from,
                to,
                len,
                kept,
            }) => {
                let way = if *kept { "shared with" } else { "taken from" };
                write!(f, "blocks {to}+{len} {way} {source}, there at {from}")
            }
            Step::Omap(number) => write!(f, "omap number {number}"),
            Step::Touch => write!(f, "touch"),
            Step::Remove => write!(f, "remove"),
            Step::RmAttrs => write!(f, "remove all attrs"),
        }
    }
}
