//! Listings of objects and of records, in pages.

use bytes::Bytes;
use spirula_store::{ObjectKey, Store, StoreError};

use super::store_calls::{Call, Calls};
use super::store_io::Answers;
use crate::pg::fetch::ReadError;
use crate::pg::{StoreReply, Token};

/// Lists objects and records.
pub(super) struct Listing<'a> {
    pub(super) store: &'a mut Store,
    pub(super) calls: &'a mut Calls,
    pub(super) answers: &'a mut Answers,
}

/// A listing of objects that goes on: its token, end, limit, and the objects found so far.
pub(super) struct Objects {
    pub(super) token: Token,
    pub(super) to: Bytes,
    pub(super) max: usize,
    pub(super) found: Vec<(Bytes, Bytes)>,
}

/// A page of records that is being looked for.
pub(super) struct Records {
    pub(super) token: Token,
    pub(super) to: Bytes,
    pub(super) max: usize,
}

impl Listing<'_> {
    pub(super) fn list(
        &mut self,
        token: Token,
        from: Bytes,
        to: Bytes,
        max: usize,
    ) -> Result<(), StoreError> {
        if from >= to {
            self.answers
                .push((token, StoreReply::Objects(Ok((Vec::new(), None)))));
            return Ok(());
        }
        let found = Vec::new();
        let listing = Objects {
            token,
            to,
            max,
            found,
        };
        self.list_on(&ObjectKey::new(&from), listing)
    }

    /// Lists one object more than wanted, so that the place to go on is an object's key.
    fn list_on(&mut self, from: &ObjectKey, listing: Objects) -> Result<(), StoreError> {
        let left = listing.max + 1 - listing.found.len();
        let to = listing.to.clone();
        let t = self.calls.open(Call::List(listing));
        self.store.list(from, Some(&ObjectKey::new(&to)), left, t)
    }

    /// Handles a page of objects.
    pub(super) fn page(
        &mut self,
        mut listing: Objects,
        r: Result<spirula_store::Listing<Bytes>, StoreError>,
    ) -> Result<(), StoreError> {
        let token = listing.token;
        let page = match r {
            Ok(page) => page,
            Err(error) => {
                tracing::error!(%error, "listing failed");
                self.answers.push((token, StoreReply::Objects(Err(ReadError))));
                return Ok(());
            }
        };
        if listing.found.is_empty() {
            listing.found = page.objects;
        } else {
            listing.found.extend(page.objects);
        }
        if listing.found.len() <= listing.max
            && let Some(next) = page.next
        {
            return self.list_on(&next, listing);
        }
        let Objects { max, mut found, .. } = listing;
        let next = if found.len() > max {
            found.pop().map(|(k, _)| k)
        } else {
            None
        };
        self.answers.push((token, StoreReply::Objects(Ok((found, next)))));
        Ok(())
    }

    pub(super) fn list_records(
        &mut self,
        token: Token,
        from: &[u8],
        to: Bytes,
        max: usize,
    ) -> Result<(), StoreError> {
        let records = Records {
            token,
            to: to.clone(),
            max,
        };
        let t = self.calls.open(Call::Records(records));
        self.store.meta_list(from, Some(&to), max, t)
    }

    /// Handles some of the records.
    pub(super) fn records(
        &mut self,
        Records { token, to, max }: Records,
        r: Result<spirula_store::Pairs, StoreError>,
    ) -> Result<(), StoreError> {
        let found = match r {
            // A page may be short, as long as there is more.
            Ok(page) if page.pairs.is_empty() && page.next.is_some() => {
                return self.list_records(token, &page.next.unwrap_or_default(), to, max);
            }
            Ok(page) => Ok(page.pairs),
            Err(error) => {
                tracing::error!(%error, "records can't be listed");
                Err(ReadError)
            }
        };
        self.answers.push((token, StoreReply::Records(found)));
        Ok(())
    }
}
