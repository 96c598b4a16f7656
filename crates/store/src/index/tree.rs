//! Finds the place of pages in the trees of the index library, by the parents that refer to them:
//! a damaged page does not tell what it was.
//!
//! The format is version 3 of redb's, as its `docs/design.md` describes it
//! (<https://github.com/cberner/redb/blob/v4.5.0/docs/design.md>); how a table's definition and a
//! page's number are encoded is in `src/tree_store/table_tree_base.rs` and
//! `src/tree_store/page_store/base.rs` there. FORMAT.md, "Index", says what of it this needs.
//!
//! Only branch pages are read, and one leaf of each tree, which tells how deep it is: about a
//! hundredth of the file.

use std::ops::Range;

use super::IndexFile;
use crate::codec::Dec;
use crate::config::BLOCK;
use crate::{Result, StoreError};

const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
const FORMAT_VERSION: u8 = 3;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// A table whose keys have one value each.
const NORMAL_TABLE: u8 = 3;
/// Bytes of a checksum.
const CHECKSUM: usize = 16;
/// Pages of the largest page, as a power of two.
const MAX_ORDER: u32 = 20;
/// The most levels of a tree.
const MAX_DEPTH: usize = 128;

/// A page as its parent names it: of one or more pages of the file.
type Extent = Range<u64>;

/// The tree that a page belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tree {
    /// The table of this name.
    Table(String),
    /// The list of tables, or what the library keeps for itself.
    Library,
}

/// The place of a damaged page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) extent: Extent,
    pub(super) tree: Tree,
    /// Whether it is known to have had entries, and no further pages below it.
    pub(super) is_leaf: bool,
    /// Its keys were greater than this one, and not greater than the other.
    pub(super) keys: (Option<Vec<u8>>, Option<Vec<u8>>),
}

/// Places of the pages that `is_damaged` says so of, and of others that the walk can't read.
///
/// # Errors
/// A header that is not of this format.
pub(super) fn find(file: &IndexFile, is_damaged: impl Fn(&Extent) -> bool) -> Result<Vec<Place>> {
    let mut walk = Walk {
        file,
        layout: Layout::default(),
        is_damaged: &is_damaged,
        found: Vec::new(),
        read: 0,
    };
    let header = file.header().map_err(redb::StorageError::from)?;
    let roots = walk.roots(&header).ok_or_else(|| unknown("header"))?;
    for root in roots.into_iter().flatten() {
        walk.tables(root)?;
    }
    Ok(walk.found)
}

fn unknown(what: &str) -> StoreError {
    StoreError::damaged("index", format!("a {what} is not of the library's format"))
}

/// The library's division of its file.
#[derive(Debug, Default)]
struct Layout {
    /// Pages of a region, and those at its start that hold no data.
    region: u64,
    region_header: u64,
}

struct Walk<'a> {
    file: &'a IndexFile,
    layout: Layout,
    is_damaged: &'a dyn Fn(&Extent) -> bool,
    found: Vec<Place>,
    /// Pages read so far: a damaged tree may go in circles.
    read: u64,
}

/// A page that is to be visited.
struct Visit {
    extent: Extent,
    depth: usize,
    keys: (Option<Vec<u8>>, Option<Vec<u8>>),
}

/// A page of a tree.
enum Node {
    /// Entries: keys and values.
    Leaf(Vec<u8>),
    /// Further pages with the greatest keys that they may have; the last one has no limit.
    Branch(Vec<(Extent, Option<Vec<u8>>)>),
}

impl Walk<'_> {
    /// The roots of the two lists of tables, as the newest commit left them.
    fn roots(&mut self, header: &[u8]) -> Option<[Option<Extent>; 2]> {
        let mut d = Dec::new(header);
        if d.take(MAGIC.len())? != MAGIC {
            return None;
        }
        let flags = d.u8()?;
        d.take(2)?;
        let page_size = d.u32()?;
        let (region_header, data) = (u64::from(d.u32()?), u64::from(d.u32()?));
        if page_size as usize != BLOCK || data == 0 {
            return None;
        }
        self.layout = Layout {
            region: region_header + data,
            region_header,
        };
        let primary = 64 + 128 * usize::from(flags & 1);
        let mut slot = Dec::new(header.get(primary..primary + 128)?);
        let [version, has_user, has_system] = [slot.u8()?, slot.u8()?, slot.u8()?];
        slot.take(5)?;
        if version != FORMAT_VERSION {
            return None;
        }
        let user = self.root(&mut slot)?;
        let system = self.root(&mut slot)?;
        Some([(has_user, user), (has_system, system)].map(|(has, root)| (has != 0).then_some(root)))
    }

    /// The root of a tree, with its checksum and number of entries.
    fn root(&self, d: &mut Dec<'_>) -> Option<Extent> {
        let number = d.u64()?;
        d.take(CHECKSUM + 8)?;
        self.extent(number)
    }

    /// The pages of the file that a page number stands for.
    fn extent(&self, number: u64) -> Option<Extent> {
        let order = (number >> 59) as u32;
        let index = number & (0xf_ffff >> order.min(MAX_ORDER));
        let region = number >> 20 & 0xf_ffff;
        let start = 1 + region * self.layout.region + self.layout.region_header;
        let first = start + (index << order.min(MAX_ORDER));
        let end = first + (1 << order.min(MAX_ORDER));
        (order <= MAX_ORDER && end <= self.file.pages()).then_some(first..end)
    }

    /// Visits a list of tables and the tables in it.
    fn tables(&mut self, root: Extent) -> Result<()> {
        let mut lists = Vec::new();
        self.tree(root, &Tree::Library, None, Some(&mut lists))?;
        for list in lists {
            for (name, definition) in entries(&list).ok_or_else(|| unknown("list of tables"))? {
                let (root, key_len) = self.definition(definition).ok_or_else(|| unknown("table"))?;
                let name = String::from_utf8_lossy(name).into_owned();
                if let Some(root) = root {
                    self.tree(root, &Tree::Table(name), key_len, None)?;
                }
            }
        }
        Ok(())
    }

    /// The root of a table, and the length of its keys if they have one.
    fn definition(&self, definition: &[u8]) -> Option<(Option<Extent>, Option<usize>)> {
        let mut d = Dec::new(definition);
        if d.u8()? != NORMAL_TABLE {
            return None;
        }
        d.u64()?;
        let has_root = d.u8()? != 0;
        let root = match has_root {
            true => Some(self.root(&mut d)?),
            false => {
                d.take(8 + CHECKSUM + 8)?;
                None
            }
        };
        let is_fixed = d.u8()? != 0;
        let len = d.u32()? as usize;
        Some((root, is_fixed.then_some(len)))
    }

    /// Visits the branches of a tree, and all leaves if they are wanted.
    fn tree(
        &mut self,
        root: Extent,
        tree: &Tree,
        key_len: Option<usize>,
        mut leaves: Option<&mut Vec<Vec<u8>>>,
    ) -> Result<()> {
        let mut todo = vec![Visit {
            extent: root,
            depth: 0,
            keys: (None, None),
        }];
        let mut leaf_depth = None;
        let mut damaged = Vec::new();
        while let Some(visit) = todo.pop() {
            if visit.depth > MAX_DEPTH {
                return Err(unknown("tree"));
            }
            if (self.is_damaged)(&visit.extent) {
                damaged.push(visit);
                continue;
            }
            if leaf_depth == Some(visit.depth) && leaves.is_none() {
                continue;
            }
            match self.node(&visit.extent, key_len)? {
                Some(Node::Leaf(page)) => {
                    leaf_depth = Some(visit.depth);
                    if let Some(leaves) = &mut leaves {
                        leaves.push(page);
                    }
                }
                Some(Node::Branch(children)) => {
                    let mut lower = visit.keys.0;
                    let mut below = Vec::with_capacity(children.len());
                    for (extent, upper) in children {
                        let upper = upper.or_else(|| visit.keys.1.clone());
                        below.push(Visit {
                            extent,
                            depth: visit.depth + 1,
                            keys: (lower, upper.clone()),
                        });
                        lower = upper;
                    }
                    todo.extend(below.into_iter().rev());
                }
                None => damaged.push(visit),
            }
        }
        self.found.extend(damaged.into_iter().map(|visit| Place {
            is_leaf: leaf_depth == Some(visit.depth),
            extent: visit.extent,
            tree: tree.clone(),
            keys: visit.keys,
        }));
        Ok(())
    }

    /// Reads a page of a tree; `None` if it can't be read.
    fn node(&mut self, extent: &Extent, key_len: Option<usize>) -> Result<Option<Node>> {
        let len = extent.end - extent.start;
        self.read += len;
        if self.read > self.file.pages() {
            return Err(unknown("tree"));
        }
        let mut page = vec![0; len as usize * BLOCK];
        if self.file.read_from(extent.start, &mut page).is_err() {
            return Ok(None);
        }
        match page.first() {
            Some(&LEAF) => Ok(Some(Node::Leaf(page))),
            Some(&BRANCH) => {
                let children = self.children(&page, key_len).ok_or_else(|| unknown("branch"))?;
                Ok(Some(Node::Branch(children)))
            }
            _ => Err(unknown("page")),
        }
    }

    fn children(&self, page: &[u8], key_len: Option<usize>) -> Option<Vec<(Extent, Option<Vec<u8>>)>> {
        let keys = usize::from(u16::from_le_bytes(page.get(2..4)?.try_into().ok()?));
        let mut d = Dec::new(page.get(8..)?);
        d.take(CHECKSUM * (keys + 1))?;
        let numbers: Vec<u64> = (0..=keys).map(|_| d.u64()).collect::<Option<_>>()?;
        let mut start = 8 + (CHECKSUM + 8) * (keys + 1);
        let ends: Vec<usize> = match key_len {
            Some(len) => (1..=keys).map(|n| start + len * n).collect(),
            None => {
                start += 4 * keys;
                (0..keys)
                    .map(|_| Some(d.u32()? as usize))
                    .collect::<Option<_>>()?
            }
        };
        let mut out = Vec::with_capacity(keys + 1);
        for (i, number) in numbers.into_iter().enumerate() {
            let key = match ends.get(i) {
                Some(end) => {
                    let key = page.get(start..*end)?.to_vec();
                    start = *end;
                    Some(key)
                }
                None => None,
            };
            out.push((self.extent(number)?, key));
        }
        Some(out)
    }
}

/// Keys and values of a leaf, both of any length.
fn entries(page: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let count = usize::from(u16::from_le_bytes(page.get(2..4)?.try_into().ok()?));
    let mut d = Dec::new(page.get(4..)?);
    let mut ends = || {
        (0..count)
            .map(|_| Some(d.u32()? as usize))
            .collect::<Option<Vec<_>>>()
    };
    let (key_ends, value_ends) = (ends()?, ends()?);
    let mut key = 4 + 8 * count;
    let mut value = *key_ends.last()?;
    let mut out = Vec::with_capacity(count);
    for (key_end, value_end) in key_ends.into_iter().zip(value_ends) {
        out.push((page.get(key..key_end)?, page.get(value..value_end)?));
        (key, value) = (key_end, value_end);
    }
    Some(out)
}

/// A leaf of `len` bytes with one entry.
pub(super) fn leaf_of(key: &[u8], value: &[u8], len: usize) -> Option<Vec<u8>> {
    let key_end = 4 + 8 + key.len();
    let value_end = key_end + value.len();
    let mut page = Vec::with_capacity(len);
    page.extend_from_slice(&[LEAF, 0, 1, 0]);
    page.extend_from_slice(&u32::try_from(key_end).ok()?.to_le_bytes());
    page.extend_from_slice(&u32::try_from(value_end).ok()?.to_le_bytes());
    page.extend_from_slice(key);
    page.extend_from_slice(value);
    (page.len() <= len).then(|| {
        page.resize(len, 0);
        page
    })
}
