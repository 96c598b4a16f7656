//! The watchers of an object, as its info keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use spirula_denc::{EntityAddr, EntityName, EntityType, Reader, Result, Writer};

use crate::pg::number::{number, put_number, small};

/// The key of a watch of an object: the client's number for it, and the client's name. Ordered as
/// the official listing.
pub type WatchKey = (u64, EntityName);

/// The part of a watch that outlives its connection (`watch_info_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watcher {
    /// The client's address, which blocklists name.
    pub addr: EntityAddr,
    /// Seconds without a sign of the client after which the watch is dropped.
    pub timeout: u32,
}

/// All watchers of an object. Shared until changed, as the info is copied with every op and few
/// objects have any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Watchers(Option<Arc<BTreeMap<WatchKey, Watcher>>>);

impl Watchers {
    /// Whether there are no watchers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of watchers.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |m| m.len())
    }

    /// Whether there is this watch.
    pub fn contains(&self, key: &WatchKey) -> bool {
        self.0.as_ref().is_some_and(|m| m.contains_key(key))
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&WatchKey, &Watcher)> {
        self.0.iter().flat_map(|m| m.iter())
    }

    /// Adds a watch.
    pub fn insert(&mut self, key: WatchKey, w: Watcher) {
        Arc::make_mut(self.0.get_or_insert_default()).insert(key, w);
    }

    /// Removes a watch; returns whether it existed.
    pub fn remove(&mut self, key: &WatchKey) -> bool {
        if !self.contains(key) {
            return false;
        }
        let Some(all) = &mut self.0 else { return false };
        let all = Arc::make_mut(all);
        all.remove(key);
        if all.is_empty() {
            self.0 = None;
        }
        true
    }

    pub(in crate::pg) fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for ((cookie, name), watcher) in self.iter() {
            put_number(w, *cookie);
            w.u8(name.kind.0);
            put_number(w, name.num.cast_unsigned());
            put_number(w, u64::from(watcher.timeout));
            w.put(&watcher.addr);
        }
    }

    pub(in crate::pg) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.count(12)?;
        let mut all = Self::default();
        for _ in 0..n {
            let cookie = number(r)?;
            let kind = EntityType(r.u8()?);
            let name = EntityName::new(kind, number(r)?.cast_signed());
            let timeout = small(r)?;
            all.insert(
                (cookie, name),
                Watcher {
                    addr: r.get()?,
                    timeout,
                },
            );
        }
        Ok(all)
    }
}
