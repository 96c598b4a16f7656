//! Takes a generation of changes into the index.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use redb::{ReadableTable, Table, WriteTransaction};

use super::{APPLIED, Applied, BITMAPS, GARBAGE, OBJECTS, Outcome, PAIRS, SHARED, STATE, pairs};
use crate::alloc::Run;
use crate::table::Frozen;
use crate::{Result, StoreError};

/// Makes the changes of a generation.
pub(super) fn apply(txn: &WriteTransaction, frozen: &Frozen, group_blocks: u32) -> Result<Outcome> {
    let mut buf = Vec::new();
    let mut objects = txn.open_table(OBJECTS)?;
    for (key, onode) in frozen.objects.iter() {
        match onode {
            Some(onode) => {
                buf.clear();
                onode.encode(&mut buf);
                objects.insert(key.as_slice(), buf.as_slice())?;
            }
            None => drop(objects.remove(key.as_slice())?),
        }
    }
    pairs::apply(
        &mut txn.open_table(PAIRS)?,
        &mut txn.open_table(GARBAGE)?,
        &frozen.pairs,
    )?;
    let freed = apply_shared(&mut txn.open_table(SHARED)?, frozen)?;
    apply_bitmaps(
        &mut txn.open_table(BITMAPS)?,
        &frozen.allocated,
        &freed,
        group_blocks,
    )?;
    let mut state = txn.open_table(STATE)?;
    let before = state.insert(APPLIED, frozen.applied.encode().as_slice())?;
    let before = before.and_then(|v| Applied::decode(v.value()));
    frozen.applied.check_after(before)?;
    Ok(Outcome {
        freed,
        garbage: false,
    })
}

/// Updates the counts of shared blocks; returns the runs without references, unshared ones
/// included.
fn apply_shared(table: &mut Table<'_, u64, u32>, frozen: &Frozen) -> Result<Vec<Run>> {
    fn blocks(runs: &[Run]) -> impl Iterator<Item = u64> + '_ {
        runs.iter().flat_map(|r| r.pblk..r.pblk + u64::from(r.len))
    }
    let count =
        |table: &Table<'_, u64, u32>, b: u64| -> Result<u32> { Ok(table.get(b)?.map_or(1, |c| c.value())) };
    // First up, then down: a block can be released within the generation that shared it, but not
    // before.
    for b in blocks(&frozen.shared) {
        let n = count(table, b)?;
        table.insert(b, n.saturating_add(1))?;
    }
    let mut freed = frozen.freed.clone();
    for b in blocks(&frozen.unshared) {
        match count(table, b)? {
            0 | 1 => {
                table.remove(b)?;
                match freed.last_mut() {
                    Some(last) if last.pblk + u64::from(last.len) == b => last.len += 1,
                    _ => freed.push(Run { pblk: b, len: 1 }),
                }
            }
            2 => drop(table.remove(b)?),
            n => drop(table.insert(b, n - 1)?),
        }
    }
    Ok(freed)
}

fn apply_bitmaps(
    table: &mut Table<'_, u32, &'static [u8]>,
    allocated: &[Run],
    freed: &[Run],
    group_blocks: u32,
) -> Result<()> {
    let mut loaded: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for (runs, used) in [(allocated, true), (freed, false)] {
        for pblk in runs.iter().flat_map(|r| r.pblk..r.pblk + u64::from(r.len)) {
            let group = (pblk / u64::from(group_blocks)) as u32;
            let bitmap = match loaded.entry(group) {
                Entry::Occupied(e) => e.into_mut(),
                Entry::Vacant(e) => e.insert(stored_bitmap(table, group, group_blocks)?),
            };
            let bit = (pblk % u64::from(group_blocks)) as usize;
            if (bitmap[bit / 8] >> (bit % 8) & 1 == 1) == used {
                let detail = format!("block {pblk} was {} already", if used { "used" } else { "free" });
                return Err(StoreError::damaged("free-space bitmap", detail));
            }
            bitmap[bit / 8] ^= 1 << (bit % 8);
        }
    }
    for (group, bitmap) in loaded {
        if bitmap.iter().all(|b| *b == 0) {
            table.remove(group)?;
        } else if bitmap.iter().all(|b| *b == 0xff) {
            table.insert(group, [].as_slice())?;
        } else {
            table.insert(group, bitmap.as_slice())?;
        }
    }
    Ok(())
}

fn stored_bitmap(table: &Table<'_, u32, &'static [u8]>, group: u32, group_blocks: u32) -> Result<Vec<u8>> {
    let len = group_blocks as usize / 8;
    let stored = table.get(group)?;
    let bitmap = match stored.as_ref().map(|v| v.value()) {
        None => vec![0; len],
        Some([]) => vec![0xff; len],
        Some(bits) => bits.to_vec(),
    };
    if bitmap.len() != len {
        return Err(StoreError::damaged(
            "free-space bitmap",
            format!("group {group} has {} bytes", bitmap.len()),
        ));
    }
    Ok(bitmap)
}
