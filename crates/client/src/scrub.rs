//! What the last scrub of a PG found: `SCRUBLS`, page by page.

use std::marker::PhantomData;

use spirula_denc::{Decode, Reader, encode_to_vec};
use spirula_errno::Errno;
use spirula_maps::{Epoch, ObjectName, PgId};
use spirula_proto::osd::{OpArgs, OpCode, OsdOpIn};
use spirula_proto::osd_op_data::{
    InconsistentObject, InconsistentSnapSet, ObjectId, ScrubLsArg, ScrubLsResult,
};

use crate::objecter::Aim;
use crate::{Connection, Error, IoCtx, Rados, Result};

/// Entries asked for at a time, as the official tool does.
const PAGE: u64 = 32;

/// A kind of entry that a scrub notes.
pub trait Inconsistency: Decode {
    /// Whether entries of this kind are about snap sets, as the request says.
    const OF_SNAP_SETS: bool;

    /// The object that the entry is about.
    fn object(&self) -> &ObjectId;
}

impl Inconsistency for InconsistentObject {
    const OF_SNAP_SETS: bool = false;

    fn object(&self) -> &ObjectId {
        &self.object
    }
}

impl Inconsistency for InconsistentSnapSet {
    const OF_SNAP_SETS: bool = true;

    fn object(&self) -> &ObjectId {
        &self.object
    }
}

/// A listing of one PG under way.
pub struct InconsistentList<T, C = Rados> {
    io: IoCtx<C>,
    pg: PgId,
    /// The next request; `None` at the end.
    next: Option<ScrubLsArg>,
    kind: PhantomData<fn() -> T>,
}

/// A page of a listing.
#[derive(Debug, PartialEq, Eq)]
pub struct InconsistentPage<T> {
    /// The interval of the PG, which all pages of a listing have: the epoch in which it began.
    pub interval: Epoch,
    /// The entries, in the order of their keys ([`ObjectId::listing_key`]).
    pub entries: Vec<T>,
}

impl<C: Connection> IoCtx<C> {
    /// Lists what the last scrub of the pool's PG `seed` found.
    pub fn list_inconsistent<T: Inconsistency>(&self, seed: u32) -> InconsistentList<T, C> {
        let pool = self.pool_id();
        let first = ScrubLsArg {
            get_snapsets: T::OF_SNAP_SETS,
            max_return: PAGE,
            ..ScrubLsArg::default()
        };
        InconsistentList {
            io: self.clone(),
            pg: PgId { pool, seed },
            next: Some(first),
            kind: PhantomData,
        }
    }
}

/// Reads a page, and makes the request for the one behind it if there may be one.
fn turn<T: Inconsistency>(
    asked: &ScrubLsArg,
    data: &[u8],
) -> Result<(InconsistentPage<T>, Option<ScrubLsArg>)> {
    let result: ScrubLsResult = Reader::new(data).get()?;
    let entries = result.entries::<T>()?;
    let is_last = (result.vals.len() as u64) < asked.max_return;
    let last = entries.last().filter(|_| !is_last).map(T::object);
    if last.is_some_and(|o| *o == asked.start_after) {
        return Err(Error::Malformed("a listing that does not go on".into()));
    }
    let next = last.map(|object| ScrubLsArg {
        interval: result.interval,
        start_after: object.clone(),
        ..asked.clone()
    });
    let page = InconsistentPage {
        interval: result.interval,
        entries,
    };
    Ok((page, next))
}

impl<T: Inconsistency, C: Connection> InconsistentList<T, C> {
    /// The next page, `None` behind the last. There is a first one, even if it is empty.
    ///
    /// # Errors
    /// `ENOENT` if the PG was not scrubbed since it was last peered, or there is no such pool;
    /// `EINVAL` if there is no such PG.
    pub async fn next_page(&mut self) -> Result<Option<InconsistentPage<T>>> {
        let Some(arg) = self.next.take() else {
            return Ok(None);
        };
        let op = OsdOpIn::new(OpCode::SCRUBLS, OpArgs::None, encode_to_vec(&arg));
        let sent = self.io.send(ObjectName::EMPTY, vec![op], Aim::Pg(self.pg));
        let reply = sent.await?;
        if let Some(errno) = Errno::of_result(reply.result) {
            return Err(Error::os("list inconsistencies", errno));
        }
        let data = reply.ops.first().map(|o| o.data.to_bytes()).unwrap_or_default();
        let (page, next) = turn(&arg, &data)?;
        self.next = next;
        Ok(Some(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spirula_maps::snap;

    fn clone(id: u64) -> InconsistentSnapSet {
        InconsistentSnapSet {
            object: ObjectId {
                name: "o".into(),
                snap: id,
                ..ObjectId::default()
            },
            ..InconsistentSnapSet::default()
        }
    }

    fn answer(entries: &[InconsistentSnapSet]) -> Vec<u8> {
        encode_to_vec(&ScrubLsResult::new(Epoch::new(7), entries))
    }

    fn of_two() -> ScrubLsArg {
        ScrubLsArg {
            get_snapsets: true,
            max_return: 2,
            ..ScrubLsArg::default()
        }
    }

    #[test]
    fn a_full_page_is_followed_by_another_in_the_same_interval() {
        let entries = vec![clone(1), clone(snap::NOSNAP)];
        let (page, next) = turn::<InconsistentSnapSet>(&of_two(), &answer(&entries)).unwrap();
        assert_eq!((page.interval, page.entries), (Epoch::new(7), entries));
        let next = next.unwrap();
        let wanted = ScrubLsArg {
            interval: Epoch::new(7),
            start_after: clone(snap::NOSNAP).object,
            ..of_two()
        };
        assert_eq!(next, wanted);
        let (page, next) = turn::<InconsistentSnapSet>(&next, &answer(&[])).unwrap();
        assert_eq!((page.entries.len(), next), (0, None));
    }

    #[test]
    fn a_page_that_comes_again_is_an_error() {
        let entries = [clone(1), clone(2)];
        let asked = ScrubLsArg {
            start_after: clone(2).object,
            ..of_two()
        };
        let again = turn::<InconsistentSnapSet>(&asked, &answer(&entries));
        assert!(matches!(again, Err(Error::Malformed(_))));
        assert!(turn::<InconsistentSnapSet>(&of_two(), &[]).is_err());
    }
}
