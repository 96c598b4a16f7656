//! The list of what a PG's last scrub has found: records beside the PG's log on all members, from
//! which its primary answers `SCRUBLS`.

use bytes::Bytes;
use spirula_denc::{Encode, decode_all, encode_to_vec};
use spirula_errno::{EAGAIN, EINVAL, EIO, ENOENT, Errno};
use spirula_invariant::invariant;
use spirula_maps::{Epoch, PgId};
use spirula_proto::osd_op_data::{ObjectId, ScrubLsArg, ScrubLsResult};

use super::asked::FindingsAsked;
use super::message::FindingNote;
use crate::pg::fetch::{ReadError, key_after};
use crate::pg::key::{self, KeyRange};
use crate::pg::op::ClientOp;
use crate::pg::output::{Ctx, Output};
use crate::pg::role::Role;
use crate::pg::serving::Serving;
use crate::pg::store_queue::Pending;
use crate::pg::txn::{MetaOp, Txn};

/// Inconsistent objects ([`spirula_proto::osd_op_data::InconsistentObject`]).
pub(super) const OBJECTS: u8 = 0;
/// Heads that do not fit their clones ([`spirula_proto::osd_op_data::InconsistentSnapSet`]).
pub(super) const SNAP_SETS: u8 = 1;
/// The most findings of a scrub that are listed. All are counted.
pub(super) const MOST_LISTED: u32 = 4096;
/// The most bytes of one: a larger one is listed without the objects' attributes.
pub(super) const MOST_BYTES: usize = 32 << 10;
/// The most findings in an answer.
const MOST_RETURNED: u64 = 256;
/// The bytes of a name that a record's key has of it. Of a longer one it has a hash, too.
const PLACE: usize = 1024;

/// The place of an object in a list of findings.
fn place(id: &ObjectId) -> Bytes {
    let key = id.listing_key();
    if key.len() <= PLACE {
        return key.into();
    }
    let hash = xxhash_rust::xxh64::xxh64(&key, 0).to_be_bytes();
    [&key[..PLACE], &hash].concat().into()
}

/// The note that adds a finding about an object to the list of its kind.
pub(super) fn note<T: Encode>(kind: u8, id: &ObjectId, finding: &T) -> FindingNote {
    FindingNote {
        kind,
        place: place(id),
        finding: Some(encode_to_vec(finding).into()),
    }
}

/// The note that adds the finding with this record.
pub(super) fn parse(pgid: PgId, key: &[u8], finding: Bytes) -> Option<FindingNote> {
    let (kind, place) = key::parse_finding_key(pgid, key)?;
    Some(FindingNote {
        kind,
        place,
        finding: Some(finding),
    })
}

/// The transaction that changes the list.
pub(in crate::pg) fn txn(pgid: PgId, anew: bool, notes: Vec<FindingNote>) -> Txn {
    let KeyRange { from, to } = key::findings_range(pgid);
    let gone = anew.then_some(MetaOp::DeleteRange(from, to));
    let notes = notes.into_iter().map(|note| {
        let key = key::finding_key(pgid, note.kind, &note.place);
        match note.finding {
            Some(finding) => MetaOp::Put(key, finding),
            None => MetaOp::Delete(key),
        }
    });
    Txn {
        objects: Vec::new(),
        meta: gone.into_iter().chain(notes).collect(),
    }
}

/// Answers requests for what the last scrub has found.
pub(in crate::pg) struct Findings<'a> {
    serving: Serving<'a>,
}

impl<'a> Findings<'a> {
    /// The part that answers a PG's clients.
    pub(in crate::pg) fn of(serving: Serving<'a>) -> Self {
        Self { serving }
    }
}

impl Findings<'_> {
    /// Reads what the last scrub has found, for the op with this index of a request. Returns the
    /// request with the errno if there is nothing to read.
    pub(in crate::pg) fn read(
        &mut self,
        op: ClientOp,
        index: usize,
        cx: &mut Ctx<'_>,
    ) -> Option<(ClientOp, Errno)> {
        match self.range(&op, index) {
            Err(e) => Some((op, e)),
            Ok((left, most)) => {
                let asked = FindingsAsked {
                    op,
                    index,
                    interval: self.serving.site.interval.since,
                    left,
                    most,
                    found: Vec::new(),
                };
                self.read_more(asked, cx);
                None
            }
        }
    }

    /// The records that an op asks for, and the most of them.
    fn range(&self, op: &ClientOp, index: usize) -> Result<(KeyRange, usize), Errno> {
        let input = op.ops.get(index).ok_or(EINVAL)?;
        let arg: ScrubLsArg = decode_all(&input.indata).map_err(|_| EINVAL)?;
        if arg.interval != Epoch::NONE && arg.interval != self.serving.site.interval.since {
            return Err(EAGAIN);
        }
        let is_scrubbed = matches!(&*self.serving.role, Role::Active(a) if a.scrub.is_running());
        if !self.serving.copy.info.scrubs.listed && !is_scrubbed {
            return Err(ENOENT);
        }
        let kind = if arg.get_snapsets { SNAP_SETS } else { OBJECTS };
        let after = match arg.start_after.name.is_empty() {
            true => Bytes::new(),
            false => place(&arg.start_after),
        };
        let most = usize::try_from(arg.max_return.min(MOST_RETURNED)).unwrap_or(0);
        Ok((key::findings_after(self.serving.site.pgid, kind, &after), most))
    }

    fn read_more(&mut self, asked: FindingsAsked, cx: &mut Ctx<'_>) {
        let max = asked.most.saturating_sub(asked.found.len());
        if max == 0 {
            return self.done(asked, 0, cx);
        }
        let KeyRange { from, to } = asked.left.clone();
        let token = self.serving.store.token(Pending::Findings(Box::new(asked)));
        cx.out.push(Output::ListRecords { token, from, to, max });
    }

    /// Handles some of the records.
    pub(in crate::pg) fn answered(
        &mut self,
        mut asked: FindingsAsked,
        records: Result<Vec<(Bytes, Bytes)>, ReadError>,
        cx: &mut Ctx<'_>,
    ) {
        let Ok(records) = records else {
            return self.done(asked, -EIO, cx);
        };
        let Some((last, _)) = records.last() else {
            return self.done(asked, 0, cx);
        };
        asked.left.from = key_after(last);
        asked.found.extend(records.into_iter().map(|(_, value)| value));
        self.read_more(asked, cx);
    }

    fn done(&mut self, asked: FindingsAsked, result: i32, cx: &mut Ctx<'_>) {
        let FindingsAsked {
            mut op,
            index,
            interval,
            found,
            ..
        } = asked;
        invariant!(index < op.ops.len(), "a question about findings to be one of its request's ops"; pg = self.serving.site.pgid, index = index);
        if result >= 0 {
            let answer = ScrubLsResult {
                interval,
                vals: found,
            };
            op.ops[index].outdata.push(encode_to_vec(&answer).into());
        }
        self.serving.pg_op_done(op, index, result, cx);
    }
}
