//! An OSD's durable record of a PG: enough to tell which OSD holds the newest copy.

use spirula_denc::{Decode, Encode, Reader, Result, Writer};
use spirula_maps::{EVersion, Epoch, IntervalSet, Positions};

use super::history::History;
use super::layout::Part;
use super::log::{Usage, decode_clone_usage, encode_clone_usage};
use super::scrub::history::ScrubHistory;

/// Version of the encoding of [`PgInfo`]. 1: the first. 2: clones in the usage, and purged
/// snapshots. 3: past intervals; before, a PG only served with all members, so a flag was enough:
/// whether it had belonged to others. A reader without them cannot tell which copy is the newest.
/// 4: objects that are ahead of the log. 5: which part of each object the copy holds; before, all. 6:
/// scrubs.
const VERSION: u8 = 6;
/// The oldest version whose readers understand it; such a reader takes any copy for a whole one.
const COMPAT: u8 = 3;

/// A copy's own account of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgInfo {
    /// The version of the newest change in the copy's log.
    pub last_update: EVersion,
    /// The version after which the copy's log has entries.
    pub log_tail: EVersion,
    /// The epoch of the interval in which the copy was last active, 0 for never.
    pub last_epoch_started: Epoch,
    /// The members that were active then, by position. Older releases wrote them in ascending order,
    /// but only of replicated pools.
    pub last_acting: Positions,
    /// Whether the copy is being made equal to another one, and is no true copy of any version
    /// until that is done.
    pub incomplete: bool,
    /// Whether objects that were written after `last_update` may be here in part, without their
    /// end, from a background copy by an older release: the changes since are not enough to mend
    /// them.
    pub ahead: bool,
    /// The PGs that the pool had when the copy was last split.
    pub pg_num: u32,
    /// The highest version reported to clients.
    pub last_user_version: u64,
    /// Objects and bytes as of `last_update`.
    pub usage: Usage,
    /// Whether the usage is wrong since a split, and must be counted again.
    pub usage_invalid: bool,
    /// The pool's removed snapshots that are trimmed here.
    pub purged_snaps: IntervalSet,
    /// Where the PG may have served since the copy was last active here.
    pub history: History,
    /// The part of each object that the copy holds, whatever the pool says.
    pub part: Part,
    /// The PG's scrubs.
    pub scrubs: ScrubHistory,
}

impl PgInfo {
    /// The age of the copy, by which copies compare.
    pub fn age(&self) -> (Epoch, EVersion) {
        (self.last_epoch_started, self.last_update)
    }
}

// By hand: what an old version lacks follows from what it has.
impl Encode for PgInfo {
    fn encode(&self, w: &mut Writer) {
        w.section(VERSION, COMPAT, |w| {
            w.put(&self.last_update);
            w.put(&self.log_tail);
            w.put(&self.last_epoch_started);
            w.put(&self.last_acting);
            // `moved`, of versions 1 and 2.
            w.bool(false);
            w.bool(self.incomplete);
            w.u32(self.pg_num);
            w.u64(self.last_user_version);
            w.i64(self.usage.objects);
            w.i64(self.usage.bytes);
            w.bool(self.usage_invalid);
            encode_clone_usage(w, self.usage);
            w.put(&self.purged_snaps);
            w.put(&self.history);
            w.bool(self.ahead);
            w.put(&self.part);
            w.put(&self.scrubs);
        });
    }
}

impl Decode for PgInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("PG info", VERSION, |v, r| {
            let (last_update, log_tail) = (r.get()?, r.get()?);
            let (last_epoch_started, last_acting) = (r.get()?, r.get()?);
            let moved = r.bool()?;
            let mut info = Self {
                last_update,
                log_tail,
                last_epoch_started,
                last_acting,
                incomplete: r.bool()?,
                // Copies made in the background by older releases may be ahead.
                ahead: true,
                pg_num: r.u32()?,
                last_user_version: r.u64()?,
                usage: Usage {
                    objects: r.i64()?,
                    bytes: r.i64()?,
                    ..Usage::default()
                },
                usage_invalid: r.bool()?,
                purged_snaps: IntervalSet::new(),
                history: if moved {
                    History::unknown()
                } else {
                    History::since(last_epoch_started)
                },
                part: Part::default(),
                scrubs: ScrubHistory::default(),
            };
            if v >= 2 {
                decode_clone_usage(r, &mut info.usage)?;
                info.purged_snaps = r.get()?;
            }
            if v >= 3 {
                info.history = r.get()?;
            }
            if v >= 4 {
                info.ahead = r.bool()?;
            }
            if v >= 5 {
                info.part = r.get()?;
            }
            if v >= 6 {
                info.scrubs = r.get()?;
            }
            Ok(info)
        })
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;

    #[test]
    fn what_does_not_say_which_part_it_holds_is_whole() {
        let info = PgInfo {
            last_epoch_started: Epoch::new(7),
            pg_num: 8,
            history: History::since(Epoch::new(7)),
            ..PgInfo::default()
        };
        let now = encode_to_vec(&info);
        assert_eq!(decode_all(&now).as_ref(), Ok(&info));
        // Version 5 has all but the scrubs, and version 4 all but two bytes more.
        let part = now.len() - encode_to_vec(&ScrubHistory::default()).len() - 2;
        let mut before = now.clone();
        before.truncate(part);
        before[0] = 4;
        let len = u32::try_from(before.len() - 6).unwrap();
        before[2..6].copy_from_slice(&len.to_le_bytes());
        assert_eq!(decode_all(&before), Ok(info));
        for (at, byte) in [(part, 9), (part + 1, 1)] {
            let mut bad = now.clone();
            bad[at] = byte;
            assert!(decode_all::<PgInfo>(&bad).is_err(), "a layout that is not known");
        }
    }
}
