//! Choosing without holes: a replica that can't be placed is skipped.

use super::{Exhausted, Met, Run, Settings};
use crate::Bucket;

/// The arguments of one `firstn` choice that stay the same for all its replicas.
#[derive(Clone, Copy)]
pub(super) struct Firstn<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) settings: Settings,
    pub(super) type_id: i32,
    pub(super) tries: u32,
    pub(super) leaf_tries: u32,
    pub(super) parent_r: i32,
}

impl<'a> Run<'a> {
    /// Fills `out[outpos..]` with up to `room` distinct items; returns the new end of the filled
    /// part.
    pub(super) fn firstn(
        &mut self,
        call: Firstn<'a>,
        numrep: i32,
        outpos: usize,
        mut room: usize,
        out: &mut [i32],
        mut leaves: Option<&mut [i32]>,
    ) -> Result<usize, Exhausted> {
        let mut end = outpos;
        let mut rep = if call.settings.stable {
            0
        } else {
            i32::try_from(outpos).unwrap_or(i32::MAX)
        };
        while rep < numrep && room > 0 {
            if let Some(item) = self.firstn_one(call, rep, end, room, out, leaves.as_deref_mut())? {
                out[end] = item;
                end += 1;
                room -= 1;
            }
            rep += 1;
        }
        Ok(end)
    }

    /// Places one replica: descends until an item is neither taken nor out, or the tries are used
    /// up.
    fn firstn_one(
        &mut self,
        call: Firstn<'a>,
        rep: i32,
        outpos: usize,
        room: usize,
        out: &[i32],
        mut leaves: Option<&mut [i32]>,
    ) -> Result<Option<i32>, Exhausted> {
        let set = call.settings;
        let (mut failed, mut failed_here) = (0u32, 0u32);
        let mut at = call.bucket;
        loop {
            self.charge(at)?;
            let r = rep.wrapping_add(call.parent_r).wrapping_add(failed as i32);
            let size = u32::try_from(at.len()).unwrap_or(u32::MAX);
            let fallback =
                set.fallback_retries > 0 && failed_here >= size >> 1 && failed_here > set.fallback_retries;
            let drawn = if fallback {
                self.perms.choose(at, self.x, r)
            } else {
                self.draw(at, r, outpos)
            };
            let mut collided = false;
            if let Some(item) = drawn {
                match self.meet(item, call.type_id) {
                    Met::Bad => return Ok(None),
                    Met::Below(b) => {
                        at = b;
                        continue;
                    }
                    Met::Wanted => {}
                }
                collided = out[..outpos].contains(&item);
                if !collided
                    && self.firstn_leaf(call, item, r, outpos, room, leaves.as_deref_mut())?
                    && !(call.type_id == 0 && self.is_out(item))
                {
                    return Ok(Some(item));
                }
            }
            failed = failed.wrapping_add(1);
            failed_here = failed_here.wrapping_add(1);
            let stay = (collided && failed_here <= set.local_retries)
                || (set.fallback_retries > 0 && failed_here <= size.saturating_add(set.fallback_retries));
            if !stay {
                if failed >= call.tries {
                    return Ok(None);
                }
                at = call.bucket;
                failed_here = 0;
            }
        }
    }

    /// For a chooseleaf step: finds the device under `item`. True if there is one, or none is
    /// wanted.
    fn firstn_leaf(
        &mut self,
        call: Firstn<'a>,
        item: i32,
        r: i32,
        outpos: usize,
        room: usize,
        leaves: Option<&mut [i32]>,
    ) -> Result<bool, Exhausted> {
        let Some(leaves) = leaves else { return Ok(true) };
        let Some(bucket) = self.map.bucket(item) else {
            leaves[outpos] = item;
            return Ok(true);
        };
        let set = call.settings;
        let parent_r = if set.vary_r > 0 {
            r.wrapping_shr(set.vary_r - 1)
        } else {
            0
        };
        let nested = Firstn {
            bucket,
            type_id: 0,
            tries: call.leaf_tries,
            leaf_tries: 0,
            parent_r,
            ..call
        };
        let numrep = if set.stable {
            1
        } else {
            i32::try_from(outpos).unwrap_or(i32::MAX).saturating_add(1)
        };
        Ok(self.firstn(nested, numrep, outpos, room, leaves, None)? > outpos)
    }
}
