//! What the core wants to read about an object: data through the payload pool, omap pairs in pages.

use bytes::Bytes;
use spirula_store::{ObjectKey, PageLimit, Pairs, StoreError};

use super::store_io::{Call, StoreIo, stored_object};
use crate::pg::fetch::{Answer, Fetched, OmapPage, OmapRange, ReadError, Want};
use crate::pg::{StoreReply, Token};

/// A read of several wants.
pub(super) struct Read {
    token: Token,
    wants: Vec<Want>,
    answers: Vec<Result<Answer, ReadError>>,
    /// Calls to the store that were not answered.
    left: usize,
}

/// A read that waits for room in the pool, or for a transaction before it.
pub(super) struct Deferred {
    token: Token,
    key: Bytes,
    wants: Vec<Want>,
    bytes: usize,
}

/// A page of omap pairs that is being gathered: the store's pages may be shorter.
pub(super) struct OmapScan {
    read: u64,
    want: usize,
    key: ObjectKey,
    range: OmapRange,
    page: OmapPage,
    bytes: usize,
}

impl OmapScan {
    /// Takes a page of the store. Returns where to go on unless the page is complete, with the knowledge of whether the range
    /// has more.
    fn take(&mut self, pairs: Pairs) -> Option<Bytes> {
        for (key, value) in pairs.pairs {
            if self.page.pairs.len() >= self.range.max || self.bytes >= self.range.max_bytes {
                self.page.more = true;
                return None;
            }
            self.bytes += key.len() + value.len() + OmapRange::PAIR_OVERHEAD;
            self.page.pairs.push((key, value));
        }
        pairs.next
    }
}

/// Payload bytes of the wants.
fn data_bytes(wants: &[Want]) -> usize {
    let len = |w: &Want| if let Want::Data(r) = w { r.len } else { 0 };
    let bytes = wants.iter().map(len).fold(0, u64::saturating_add);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl StoreIo {
    /// Reads now, or once the pool has room and the PG's transactions show. The core lets no write of the object pass a
    /// read that is under way.
    pub(super) fn read(&mut self, token: Token, key: Bytes, wants: Vec<Want>) -> Result<(), StoreError> {
        let bytes = data_bytes(&wants);
        if self.deferred.is_empty() && !self.is_held(token) && self.has_room(bytes) {
            return self.read_now(token, key, wants);
        }
        self.deferred.push_back(Deferred {
            token,
            key,
            wants,
            bytes,
        });
        Ok(())
    }

    /// Whether a read of so many bytes may begin: it fits the pool, or hardly ever will, is alone, and clients have read most of what was
    /// read for them before.
    fn has_room(&self, bytes: usize) -> bool {
        let half = self.pool.limit() / 2;
        self.pool.has_room(bytes) || bytes > half && self.reads.is_empty() && self.unread.bytes() <= half
    }

    /// The first read that waits for room.
    fn first_deferred(&self) -> Option<usize> {
        self.deferred.iter().position(|d| !self.is_held(d.token))
    }

    /// How many bytes the first read that waits for room needs.
    pub(super) fn deferred_bytes(&self) -> Option<usize> {
        Some(self.deferred.get(self.first_deferred()?)?.bytes)
    }

    /// Begins the reads that have room now.
    pub(super) fn read_deferred(&mut self) -> Result<(), StoreError> {
        while self.deferred_bytes().is_some_and(|bytes| self.has_room(bytes)) {
            let first = self.first_deferred().and_then(|at| self.deferred.remove(at));
            let Some(d) = first else { break };
            self.read_now(d.token, d.key, d.wants)?;
        }
        Ok(())
    }

    fn read_now(&mut self, token: Token, key: Bytes, wants: Vec<Want>) -> Result<(), StoreError> {
        let key = ObjectKey::new(key);
        self.last += 1;
        let id = self.last;
        let mut answers = Vec::with_capacity(wants.len());
        let mut left = 0;
        for (want, w) in wants.iter().enumerate() {
            let mut answer = Answer::Data(Vec::new());
            match w {
                Want::Data(r) if r.sparse => {
                    // Just looked up, so it is in memory.
                    let onode = self.store.load(&key)?;
                    for (offset, len) in onode.map(|o| o.data_ranges(r.offset, r.len)).unwrap_or_default() {
                        self.read_part(id, &key, want, (offset, len), &mut left)?;
                    }
                }
                Want::Data(r) => self.read_part(id, &key, want, (r.offset, r.len), &mut left)?,
                Want::Extents { offset, len } => {
                    let onode = self.store.load(&key)?;
                    let extents = onode.map(|o| o.data_ranges(*offset, *len)).unwrap_or_default();
                    answer = Answer::Extents(extents);
                }
                Want::Omap(range) => {
                    let scan = OmapScan {
                        read: id,
                        want,
                        key: key.clone(),
                        range: range.clone(),
                        page: OmapPage::default(),
                        bytes: 0,
                    };
                    self.scan_from(range.from.clone(), scan)?;
                    left += 1;
                }
                Want::OmapKeys(k) => {
                    let t = self.token(Call::OmapKeys { read: id, want });
                    let limit = PageLimit::of_bytes(k.max_bytes);
                    let limit = if k.values { limit } else { limit.keys_only() };
                    self.store.omap_get(&key, &k.keys, limit, t)?;
                    left += 1;
                }
                Want::Object(other) => {
                    let onode = self.store.load(&ObjectKey::new(other.clone()))?;
                    answer = Answer::Object(onode.map(|o| stored_object(&o)));
                }
                // What the PG builds itself.
                Want::Copy(_) | Want::Staged { .. } => {
                    answers.push(Err(ReadError));
                    continue;
                }
                Want::OmapHeader => {
                    let onode = self.store.load(&key)?;
                    answer = Answer::OmapHeader(onode.map(|o| o.omap_header().clone()).unwrap_or_default());
                }
            }
            answers.push(Ok(answer));
        }
        let read = Read {
            token,
            wants,
            answers,
            left,
        };
        self.reads.insert(id, read);
        self.finish_if_done(id);
        Ok(())
    }

    fn read_part(
        &mut self,
        read: u64,
        key: &ObjectKey,
        want: usize,
        (offset, len): (u64, u64),
        left: &mut usize,
    ) -> Result<(), StoreError> {
        *left += 1;
        let t = self.token(Call::Part { read, want, offset });
        self.store.read(key, offset, len, t)
    }

    /// Lists on, one more than wanted: it tells whether there are more.
    fn scan_from(&mut self, from: Bytes, scan: OmapScan) -> Result<(), StoreError> {
        let count = scan.range.max.saturating_sub(scan.page.pairs.len());
        let bytes = scan.range.max_bytes.saturating_sub(scan.bytes);
        let mut limit = PageLimit::new(count.saturating_add(1), bytes);
        if !scan.range.values {
            limit = limit.keys_only();
        }
        let (key, to) = (scan.key.clone(), scan.range.to.clone());
        let t = self.token(Call::Omap(scan));
        self.store.omap_list(&key, &from, to.as_deref(), limit, t)
    }

    /// A page of omap pairs.
    pub(super) fn omap_page(&mut self, t: u64, r: Result<Pairs, StoreError>) -> Result<(), StoreError> {
        let call = self.calls.remove(&t);
        let r = r.map_err(|error| {
            tracing::error!(%error, "omap can't be read");
            ReadError
        });
        let (read, want, page) = match (call, r) {
            (Some(Call::Omap(mut scan)), Ok(pairs)) => match scan.take(pairs) {
                Some(next) => return self.scan_from(next, scan),
                None => (scan.read, scan.want, Ok(scan.page)),
            },
            (Some(Call::Omap(scan)), Err(e)) => (scan.read, scan.want, Err(e)),
            (Some(Call::OmapKeys { read, want }), r) => {
                let page = |found: Pairs| OmapPage {
                    more: found.next.is_some(),
                    pairs: found.pairs,
                };
                (read, want, r.map(page))
            }
            _ => return Ok(()),
        };
        self.answered(read, want, |a| *a = page.map(Answer::Omap));
        Ok(())
    }

    /// Part of the data of a read.
    pub(super) fn part(&mut self, t: u64, r: Result<Bytes, StoreError>) {
        let Some(Call::Part { read, want, offset }) = self.calls.remove(&t) else {
            return;
        };
        self.answered(read, want, |answer| match (r, answer) {
            (Ok(data), Ok(Answer::Data(pieces))) if !data.is_empty() => pieces.push((offset, data)),
            (Ok(_), _) => {}
            (Err(error), answer) => {
                tracing::error!(%error, "read failed");
                *answer = Err(ReadError);
            }
        });
    }

    fn answered(&mut self, read: u64, want: usize, note: impl FnOnce(&mut Result<Answer, ReadError>)) {
        let Some(job) = self.reads.get_mut(&read) else {
            return;
        };
        job.left -= 1;
        if let Some(answer) = job.answers.get_mut(want) {
            note(answer);
        }
        self.finish_if_done(read);
    }

    fn finish_if_done(&mut self, id: u64) {
        if self.reads.get(&id).is_none_or(|job| job.left > 0) {
            return;
        }
        let Some(job) = self.reads.remove(&id) else { return };
        let one = |(want, mut answer): (Want, Result<Answer, ReadError>)| {
            if let Ok(Answer::Data(pieces)) = &mut answer {
                pieces.sort_unstable_by_key(|(at, _)| *at);
            }
            Fetched { want, answer }
        };
        let fetched = job.wants.into_iter().zip(job.answers).map(one).collect();
        self.ready.push_back((job.token, StoreReply::Fetched(fetched)));
    }
}
