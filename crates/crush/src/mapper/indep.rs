//! Choosing with holes: every position is decided on its own, breadth first.

use super::{Exhausted, ITEM_NONE, ITEM_UNDEF, Met, Run};
use crate::{Bucket, Weights};

/// The arguments of one `indep` choice.
#[derive(Clone, Copy)]
pub(super) struct Indep<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) numrep: i32,
    pub(super) type_id: i32,
    pub(super) tries: u32,
    pub(super) leaf_tries: u32,
    pub(super) parent_r: i32,
}

/// The result of one attempt at an `indep` position.
enum Attempt {
    Found(i32),
    Retry,
    Hopeless,
}

impl<'a> Run<'a> {
    /// Fills the `left` positions of `out` from `outpos` on, each on its own; a position without an
    /// item is a hole.
    pub(super) fn indep(
        &mut self,
        call: Indep<'a>,
        outpos: usize,
        mut left: usize,
        out: &mut [i32],
        mut leaves: Option<&mut [i32]>,
    ) -> Result<(), Exhausted> {
        let end = outpos + left;
        out[outpos..end].fill(ITEM_UNDEF);
        if let Some(leaves) = leaves.as_deref_mut() {
            leaves[outpos..end].fill(ITEM_UNDEF);
        }
        let mut round = 0;
        while left > 0 && round < call.tries {
            for rep in outpos..end {
                if out[rep] != ITEM_UNDEF {
                    continue;
                }
                out[rep] =
                    match self.indep_one(call, rep, round, outpos, &out[..end], leaves.as_deref_mut())? {
                        Attempt::Retry => continue,
                        Attempt::Found(item) => item,
                        Attempt::Hopeless => {
                            if let Some(leaves) = leaves.as_deref_mut() {
                                leaves[rep] = ITEM_NONE;
                            }
                            ITEM_NONE
                        }
                    };
                left -= 1;
            }
            round += 1;
        }
        let decided = |v: &mut i32| {
            if *v == ITEM_UNDEF {
                *v = ITEM_NONE;
            }
        };
        out[outpos..end].iter_mut().for_each(decided);
        leaves
            .into_iter()
            .flat_map(|l| &mut l[outpos..end])
            .for_each(decided);
        Ok(())
    }

    /// One attempt for position `rep`. The draw depends on the position even inside the item, so
    /// that two positions that meet in one bucket tend to different devices.
    fn indep_one(
        &mut self,
        call: Indep<'a>,
        rep: usize,
        round: u32,
        outpos: usize,
        out: &[i32],
        leaves: Option<&mut [i32]>,
    ) -> Result<Attempt, Exhausted> {
        let mut at = call.bucket;
        let base = (rep as i32).wrapping_add(call.parent_r);
        let (item, r) = loop {
            self.charge(at)?;
            // A uniform bucket's permutation would repeat itself where its size is a multiple of
            // the step.
            let uniform = matches!(at.weights, Weights::Uniform(_));
            let step = if uniform && (at.len() as u32).is_multiple_of(call.numrep as u32) {
                call.numrep.wrapping_add(1)
            } else {
                call.numrep
            };
            let r = base.wrapping_add(step.wrapping_mul(round as i32));
            let Some(item) = self.draw(at, r, outpos) else {
                return Ok(Attempt::Retry);
            };
            match self.meet(item, call.type_id) {
                Met::Bad => return Ok(Attempt::Hopeless),
                Met::Below(b) => at = b,
                Met::Wanted => break (item, r),
            }
        };
        if out[outpos..].contains(&item) {
            return Ok(Attempt::Retry);
        }
        if let Some(leaves) = leaves {
            if let Some(bucket) = self.map.bucket(item) {
                let nested = Indep {
                    bucket,
                    type_id: 0,
                    tries: call.leaf_tries,
                    leaf_tries: 1,
                    parent_r: r,
                    ..call
                };
                self.indep(nested, rep, 1, leaves, None)?;
                if leaves[rep] == ITEM_NONE {
                    return Ok(Attempt::Retry);
                }
            } else {
                leaves[rep] = item;
            }
        }
        if call.type_id == 0 && self.is_out(item) {
            return Ok(Attempt::Retry);
        }
        Ok(Attempt::Found(item))
    }
}
