//! Reads the whole content of a store, for comparing copies.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_store::device::SimDisk;
use spirula_store::{Event, Lookup, ObjectKey, Onode, PageLimit, Read, Store, Token, Way};

/// An object as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    info: Bytes,
    attrs: Vec<(Bytes, Bytes)>,
    header: Bytes,
    data: Bytes,
    pairs: Vec<(Bytes, Bytes)>,
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
    let text = |e: spirula_store::StoreError| e.to_string();
    let mut all = BTreeMap::new();
    let mut from = Some(ObjectKey::new(&[]));
    while let Some(start) = from {
        store.list(&start, None, 1000, Token(1)).map_err(text)?;
        let page = wait(store, |e| match e {
            Event::List(_, page) => Some(page),
            _ => None,
        })?
        .map_err(text)?;
        for (key, _) in page.objects {
            let object = object(store, &ObjectKey::new(&key))?;
            all.insert(key, object);
        }
        from = page.next;
    }
    Ok(all)
}

fn object(store: &mut Store, key: &ObjectKey) -> Result<Stored, String> {
    let text = |e: spirula_store::StoreError| e.to_string();
    let onode: Option<std::sync::Arc<Onode>> = match store.lookup(key, Token(2)).map_err(text)? {
        Lookup::Ready(found) => found,
        Lookup::Pending => wait(store, |e| match e {
            Event::Lookup(_, found) => Some(found),
            _ => None,
        })?
        .map_err(text)?,
    };
    let onode = onode.ok_or("a listed object is missing")?;
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
        info: onode.info().clone(),
        attrs: onode.attrs().to_vec(),
        header: onode.omap_header().clone(),
        data,
        pairs: pairs.pairs,
    })
}
