//! Reads the whole content of a store, for comparing copies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_maps::PgId;
use spirula_osd::pg::info::PgInfo;
use spirula_osd::pg::key::{KeyRange, all_infos, parse_info_key, parse_object_key};
use spirula_osd::pg::layout::Part;
use spirula_osd::pg::object::ObjectInfo;
use spirula_store::device::{BlockIo, SimDisk};
use spirula_store::{Event, Listing, Lookup, ObjectKey, Onode, PageLimit, Read, Store, Token, Way};

/// An object as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// What the copy of its PG says that it holds.
    pub(crate) part: Part,
    pub(crate) info: Bytes,
    pub(crate) attrs: Vec<(Bytes, Bytes)>,
    pub(crate) header: Bytes,
    pub(crate) data: Bytes,
    pub(crate) pairs: Vec<(Bytes, Bytes)>,
}

impl Stored {
    /// Whether all but the data, and which part of them it is, is the same. One copy may have digests
    /// in its info that another lacks.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let info = |o: &Self| ObjectInfo::without_digests(&o.info);
        let rest = |o: &Self| (info(o), o.attrs.clone(), o.header.clone(), o.pairs.clone());
        rest(self) == rest(other)
    }

    /// The digest of the omap, as infos of objects have it.
    pub(crate) fn omap_digest(&self) -> u32 {
        let counted = |crc, b: &Bytes| {
            let len = u32::try_from(b.len()).unwrap_or(u32::MAX).to_le_bytes();
            crc32c::crc32c_append(crc32c::crc32c_append(crc, &len), b)
        };
        let pairs = self.pairs.iter().flat_map(|(key, value)| [key, value]);
        !pairs.fold(crc32c::crc32c(&self.header), counted)
    }
}

/// Offsets of the two copies of the index's map on a disk.
pub(crate) const INDEX_MAPS: [usize; 2] = [128 << 10, 192 << 10];
/// Bytes of a block, and blocks of a group of a small disk.
const BLOCK: usize = 4096;
const GROUP: usize = 64;

/// Offsets of the tables of the index of a small store, and of the pages that each says are written.
fn index_tables(disk: &SimDisk) -> impl Iterator<Item = (usize, Vec<usize>)> {
    let read = |at: usize| {
        let mut block = vec![0; BLOCK];
        let offset = u64::try_from(at).unwrap_or(u64::MAX);
        let is_read = disk.read_at(offset, &mut block).is_ok();
        (is_read && block.starts_with(b"SPIL")).then_some(block)
    };
    let size = usize::try_from(disk.size()).unwrap_or(0);
    let firsts = (0..size).step_by(GROUP * BLOCK);
    let tables = firsts.flat_map(|first| [(first, first), (first, first + BLOCK)]);
    tables.filter_map(move |(first, at)| {
        let table = read(at)?;
        let written = |i: &usize| table[32 + 4 * i..36 + 4 * i] != [0; 4];
        let pages = (0..GROUP - 2).filter(written).map(|i| first + (2 + i) * BLOCK);
        Some((at, pages.collect()))
    })
}

/// Offsets of the pages of the index that were written, of a small store.
pub(crate) fn index_pages(disk: &SimDisk) -> Vec<usize> {
    index_tables(disk).flat_map(|(_, pages)| pages).collect()
}

/// Offsets of all that the index of a small store has: its tables, and the pages that were written.
pub(crate) fn index_blocks(disk: &SimDisk) -> BTreeSet<usize> {
    let of_table = |(at, pages): (usize, Vec<usize>)| pages.into_iter().chain([at]);
    index_tables(disk).flat_map(of_table).collect()
}

/// Polls until an answer comes.
fn wait<T>(store: &mut Store, pick: impl Fn(Event) -> Option<T>) -> Result<T, String> {
    for _ in 0..1_000_000 {
        let mut events = Vec::new();
        store.poll(&mut events);
        if let Some(found) = events.into_iter().find_map(&pick) {
            return Ok(found);
        }
    }
    Err("the store does not answer".to_owned())
}

/// Reads all objects of a disk that no process uses.
pub(crate) fn read(disk: &SimDisk) -> Result<BTreeMap<Bytes, Stored>, String> {
    let store = &mut crate::osd::open(disk)?;
    let infos = infos(store)?;
    let mut all = BTreeMap::new();
    let mut from = Some(ObjectKey::new(&[]));
    while let Some(start) = from {
        let page = page(store, &start)?;
        for (key, _) in page.objects {
            let part = part(&key, &infos).unwrap_or_default();
            let object = object(store, &ObjectKey::new(&key), part)?;
            all.insert(key, object);
        }
        from = page.next;
    }
    Ok(all)
}

/// The blocks of a disk that hold data of objects.
pub(crate) fn places(disk: &SimDisk) -> Result<Vec<u64>, String> {
    let store = &mut crate::osd::open(disk)?;
    let mut all = Vec::new();
    let mut from = Some(ObjectKey::new(&[]));
    while let Some(start) = from {
        let page = page(store, &start)?;
        for (key, _) in page.objects {
            let extents = onode(store, &ObjectKey::new(&key))?.extents().to_vec();
            all.extend(extents.iter().flat_map(|e| e.pblk..e.pblk + u64::from(e.len())));
        }
        from = page.next;
    }
    Ok(all)
}

/// Some objects, from a key on.
fn page(store: &mut Store, from: &ObjectKey) -> Result<Listing<Bytes>, String> {
    let text = |e: spirula_store::StoreError| e.to_string();
    store.list(from, None, 1000, Token(1)).map_err(text)?;
    wait(store, |e| match e {
        Event::List(_, page) => Some(page),
        _ => None,
    })?
    .map_err(text)
}

fn onode(store: &mut Store, key: &ObjectKey) -> Result<Arc<Onode>, String> {
    let text = |e: spirula_store::StoreError| e.to_string();
    let onode: Option<Arc<Onode>> = match store.lookup(key, Token(2)).map_err(text)? {
        Lookup::Ready(found) => found,
        Lookup::Pending => wait(store, |e| match e {
            Event::Lookup(_, found) => Some(found),
            _ => None,
        })?
        .map_err(text)?,
    };
    onode.ok_or_else(|| "a listed object is missing".to_owned())
}

/// The infos of all PGs.
fn infos(store: &mut Store) -> Result<BTreeMap<PgId, PgInfo>, String> {
    let KeyRange { from, to } = all_infos();
    let text = |e: spirula_store::StoreError| e.to_string();
    store
        .meta_list(&from, Some(&to), usize::MAX, Token(5))
        .map_err(text)?;
    let pairs = wait(store, |e| match e {
        Event::Pairs(_, pairs) => Some(pairs),
        _ => None,
    })?
    .map_err(text)?;
    let info = |(key, value): (Bytes, Bytes)| {
        let pg = parse_info_key(&key).ok_or("the key of a PG info that is none")?;
        Ok((pg, decode_all(&value).map_err(|e| e.to_string())?))
    };
    pairs.pairs.into_iter().map(info).collect()
}

/// What the copy of an object's PG holds of it, if there is one.
fn part(key: &[u8], infos: &BTreeMap<PgId, PgInfo>) -> Option<Part> {
    let hash = parse_object_key(key)?.hash;
    let mut of_object = infos
        .iter()
        .filter(|(pg, info)| pg.contains_hash(info.pg_num, hash));
    of_object.next().map(|(_, info)| info.part)
}

fn object(store: &mut Store, key: &ObjectKey, part: Part) -> Result<Stored, String> {
    let text = |e: spirula_store::StoreError| e.to_string();
    let onode = onode(store, key)?;
    let read = store.read(key, 0, u64::MAX, Way::Direct, Token(3));
    let data = match read.map_err(text)? {
        Read::Ready(data) => data,
        Read::Pending => wait(store, |e| match e {
            Event::Read(_, data) => Some(data),
            _ => None,
        })?,
    }
    .map_err(text)?;
    let limit = PageLimit::new(1000, 1 << 20);
    store.omap_list(key, b"", None, limit, Token(4)).map_err(text)?;
    let pairs = wait(store, |e| match e {
        Event::Pairs(_, pairs) => Some(pairs),
        _ => None,
    })?
    .map_err(text)?;
    Ok(Stored {
        part,
        info: onode.info().clone(),
        attrs: onode.attrs().to_vec(),
        header: onode.omap_header().clone(),
        data,
        pairs: pairs.pairs,
    })
}
