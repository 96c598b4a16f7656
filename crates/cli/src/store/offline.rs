//! The store of an OSD that is not running, with calls that wait for their answers.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustix::event::{PollFd, PollFlags, poll};
use spirula_denc::decode_all;
use spirula_maps::PgId;
use spirula_osd::pg::info::PgInfo;
use spirula_osd::pg::key::{KeyRange, all_infos, parse_info_key};
use spirula_store::{
    Config, EncryptionKey, Event, ObjectKey, Onode, PageLimit, Pairs, Read, Store, StoreError, Token,
    Transaction, Way,
};

use crate::error::Error;

/// The bytes of an object that are read at a time.
const PART: u64 = 4 << 20;
/// The objects or pairs that are listed at a time.
const PAGE: usize = 1024;
/// One call is under way at a time.
const TOKEN: Token = Token(0);

/// A store that only this process has open.
pub(super) struct Offline {
    store: Store,
    events: Vec<Event>,
}

impl Offline {
    /// Opens a store, with its key if it is encrypted. One that is in use is refused.
    pub(super) fn open(path: &Path, log: Option<&Path>, key: Option<&EncryptionKey>) -> Result<Self, Error> {
        Ok(Self {
            store: Store::open(path, log, key, Config::default())?,
            events: Vec::new(),
        })
    }

    /// Waits for an event that answers.
    fn wait<T>(&mut self, answer: impl Fn(Event) -> Option<Result<T, StoreError>>) -> Result<T, Error> {
        loop {
            self.store.clear_event_fd();
            self.store.poll(&mut self.events);
            for event in self.events.drain(..) {
                match event {
                    Event::Fatal(e) => return Err(e.into()),
                    event => match answer(event) {
                        Some(answer) => return Ok(answer?),
                        None => continue,
                    },
                }
            }
            let mut fds = [PollFd::from_borrowed_fd(self.store.event_fd(), PollFlags::IN)];
            poll(&mut fds, None).map_err(|e| StoreError::Io {
                what: "wait for the store".to_owned(),
                source: Arc::new(e.into()),
            })?;
        }
    }

    /// Makes changes that are durable when the call returns.
    pub(super) fn commit(&mut self, txn: Transaction) -> Result<(), Error> {
        self.store.submit(txn, TOKEN)?;
        self.wait(|event| matches!(event, Event::Committed(_)).then_some(Ok(())))
    }

    /// The object with a key.
    pub(super) fn object(&mut self, key: &ObjectKey) -> Result<Arc<Onode>, Error> {
        let object = self.store.load(key)?;
        Ok(object.ok_or_else(|| StoreError::NoObject(key.clone()))?)
    }

    /// An object's data.
    pub(super) fn data(&mut self, key: &ObjectKey) -> Result<Bytes, Error> {
        let size = self.object(key)?.size();
        let mut data = BytesMut::new();
        while (data.len() as u64) < size {
            let at = data.len() as u64;
            let part = match self.store.read(key, at, PART, Way::Direct, TOKEN)? {
                Read::Ready(part) => part?,
                Read::Pending => self.wait(|event| match event {
                    Event::Read(_, part) => Some(part),
                    _ => None,
                })?,
            };
            if part.is_empty() {
                break;
            }
            data.extend_from_slice(&part);
        }
        Ok(data.freeze())
    }

    fn pairs(&mut self) -> Result<Pairs, Error> {
        self.wait(|event| match event {
            Event::Pairs(_, pairs) => Some(pairs),
            _ => None,
        })
    }

    /// An object's omap.
    pub(super) fn omap(&mut self, key: &ObjectKey) -> Result<Vec<(Bytes, Bytes)>, Error> {
        let (mut all, mut next) = (Vec::new(), Some(Bytes::new()));
        while let Some(from) = next {
            let limit = PageLimit::of_bytes(PART as usize);
            self.store.omap_list(key, &from, None, limit, TOKEN)?;
            let page = self.pairs()?;
            all.extend(page.pairs);
            next = page.next;
        }
        Ok(all)
    }

    /// The PGs that the store has copies of, with their infos.
    pub(super) fn pgs(&mut self) -> Result<Vec<(PgId, PgInfo)>, Error> {
        let KeyRange { from, to } = all_infos();
        let (mut all, mut next) = (Vec::new(), Some(from));
        while let Some(from) = next {
            self.store.meta_list(&from, Some(&to), PAGE, TOKEN)?;
            let page = self.pairs()?;
            for (key, value) in page.pairs {
                let Some(pg) = parse_info_key(&key) else { continue };
                let damaged = |e: spirula_denc::Error| StoreError::Damaged {
                    what: "PG info",
                    detail: format!("{pg}: {e}"),
                };
                all.push((pg, decode_all(&value).map_err(damaged)?));
            }
            next = page.next;
        }
        Ok(all)
    }

    /// The keys of the objects in a range, page by page, until `each` fails.
    pub(super) fn keys(
        &mut self,
        range: &KeyRange,
        mut each: impl FnMut(&Bytes) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let to = ObjectKey::new(&range.to);
        let mut next = Some(ObjectKey::new(&range.from));
        while let Some(from) = next {
            self.store.list(&from, Some(&to), PAGE, TOKEN)?;
            let page = self.wait(|event| match event {
                Event::List(_, page) => Some(page),
                _ => None,
            })?;
            page.objects.iter().try_for_each(|(key, _)| each(key))?;
            next = page.next;
        }
        Ok(())
    }
}
