//! The map's encoding, at Pacific's level (`CrushWrapper::encode`/`decode`).
//!
//! The format has no versions: each release appended fields, and a reader takes the fields that are
//! there. Decoding therefore stops quietly at the points where older writers ended, and skips
//! fields that newer writers append. Every count is checked against the remaining bytes before
//! memory is allocated for it.

use std::collections::BTreeMap;

use spirula_denc::{Decode, Encode, Error as DencError, Reader, Result as DencResult, Writer};

use crate::{Alg, Bucket, ChooseArg, ChooseArgs, CrushMap, Error, Op, Rule, Step, Tunables, Weights};

const MAGIC: u32 = 0x0001_0000;

impl Encode for CrushMap {
    fn encode(&self, w: &mut Writer) {
        w.u32(MAGIC);
        w.count(self.buckets.len());
        w.count(self.rules.len());
        w.i32(self.max_devices);
        for b in &self.buckets {
            w.u32(b.as_ref().map_or(0, |b| b.alg() as u32));
            b.iter().for_each(|b| w.put(b));
        }
        for r in &self.rules {
            w.u32(u32::from(r.is_some()));
            r.iter().for_each(|r| w.put(r));
        }
        w.put(&self.types);
        w.put(&self.names);
        w.put(&self.rule_names);
        encode_tunables(&self.tunables, w);
        w.put(&self.item_class);
        w.put(&self.class_names);
        w.put(&self.shadows);
        w.put(&self.choose_args);
    }
}

impl Decode for CrushMap {
    fn decode(r: &mut Reader<'_>) -> DencResult<Self> {
        if r.u32()? != MAGIC {
            return Err(DencError::Invalid("CRUSH magic"));
        }
        let (buckets, rules) = (r.i32()?, r.u32()?);
        let _ = r.i32()?; // max_devices: derived below
        let mut map = CrushMap {
            tunables: Tunables::legacy(),
            ..CrushMap::default()
        };
        for _ in 0..slots(
            r,
            u32::try_from(buckets).map_err(|_| DencError::Invalid("bucket count"))?,
        )? {
            map.buckets.push(decode_bucket(r)?);
        }
        for _ in 0..slots(r, rules)? {
            map.rules.push(if r.u32()? == 0 { None } else { Some(r.get()?) });
        }
        map.types = decode_names(r)?;
        map.names = decode_names(r)?;
        map.rule_names = decode_names(r)?;
        decode_tunables(&mut map.tunables, r)?;
        if !r.is_empty() {
            map.item_class = r.get()?;
            map.class_names = r.get()?;
            map.shadows = r.get()?;
        }
        if !r.is_empty() {
            map.choose_args = r.get()?;
        }
        // Releases from Squid on append two tunables of multi-step-retry rules, which Pacific's
        // mapper lacks.
        let _ = r.rest();
        map.validate().map_err(|e| match e {
            Error::Invalid(what) => DencError::Invalid(what),
            _ => DencError::Invalid("CRUSH map"),
        })?;
        map.conform_choose_args()?;
        map.recount_devices();
        Ok(map)
    }
}

impl CrushMap {
    fn conform_choose_args(&mut self) -> DencResult<()> {
        for args in self.choose_args.values_mut() {
            for (index, arg) in &args.by_index {
                let Some(slot) = self.buckets.get(*index as usize) else {
                    return Err(DencError::Invalid("choose_args bucket"));
                };
                let len = slot.as_ref().map_or(0, Bucket::len);
                if !arg.ids.is_empty() && arg.ids.len() != len {
                    return Err(DencError::Invalid("choose_args ids"));
                }
                // Old monitors lost a few entries, which are filled with zeros below; a few, lest a
                // small map that claims much of it becomes a large one.
                if arg.weight_sets.iter().any(|s| 2 * s.len() + 16 < len) {
                    return Err(DencError::Invalid("choose_args weights"));
                }
            }
            args.conform(&self.buckets);
        }
        Ok(())
    }
}

/// A count of slots of at least four bytes each.
fn slots(r: &Reader<'_>, n: u32) -> DencResult<usize> {
    let n = usize::try_from(n).map_err(|_| DencError::Invalid("count"))?;
    let wanted = n.saturating_mul(4);
    if wanted > r.remaining() {
        return Err(DencError::Truncated {
            wanted,
            left: r.remaining(),
        });
    }
    Ok(n)
}

impl Encode for Bucket {
    fn encode(&self, w: &mut Writer) {
        w.i32(self.id);
        w.u16(self.type_id);
        w.u8(self.alg() as u8);
        w.u8(self.hash);
        w.u32(self.weight);
        w.put(&self.items);
        let pairs = |w: &mut Writer, a: &[u32], b: &[u32]| {
            a.iter().zip(b).for_each(|(a, b)| {
                w.u32(*a);
                w.u32(*b);
            });
        };
        match &self.weights {
            Weights::Uniform(weight) => w.u32(*weight),
            Weights::List { items, sums } => pairs(w, items, sums),
            Weights::Straw { items, straws } => pairs(w, items, straws),
            Weights::Straw2(items) => items.iter().for_each(|v| w.u32(*v)),
            Weights::Tree(nodes) => {
                // At most twice TREE_MAX_ITEMS.
                w.u8(u8::try_from(nodes.len()).unwrap_or(u8::MAX));
                nodes.iter().take(usize::from(u8::MAX)).for_each(|v| w.u32(*v));
            }
        }
    }
}

fn decode_bucket(r: &mut Reader<'_>) -> DencResult<Option<Bucket>> {
    let slot = r.u32()?;
    if slot == 0 {
        return Ok(None);
    }
    let (id, type_id, alg, hash, weight) = (r.i32()?, r.u16()?, r.u8()?, r.u8()?, r.u32()?);
    let alg = Alg::from_number(u32::from(alg))
        .filter(|a| *a as u32 == slot)
        .ok_or(DencError::Invalid("bucket algorithm"))?;
    let items: Vec<i32> = r.get()?;
    let n = items.len();
    let weights = match alg {
        Alg::Uniform => Weights::Uniform(r.u32()?),
        Alg::List => {
            let (items, sums) = decode_pairs(r, n)?;
            Weights::List { items, sums }
        }
        Alg::Straw => {
            let (items, straws) = decode_pairs(r, n)?;
            Weights::Straw { items, straws }
        }
        Alg::Straw2 => Weights::Straw2(decode_words(r, n)?),
        Alg::Tree => {
            let nodes = usize::from(r.u8()?);
            let wanted = if n == 0 { 0 } else { 2 * n.next_power_of_two() };
            if nodes != wanted && !(n == 0 && nodes <= 2) {
                return Err(DencError::Invalid("tree bucket nodes"));
            }
            Weights::Tree(decode_words(r, nodes)?)
        }
    };
    Ok(Some(Bucket {
        id,
        type_id,
        hash,
        weight,
        items,
        weights,
    }))
}

fn decode_words(r: &mut Reader<'_>, n: usize) -> DencResult<Vec<u32>> {
    (0..n).map(|_| r.u32()).collect()
}

fn decode_pairs(r: &mut Reader<'_>, n: usize) -> DencResult<(Vec<u32>, Vec<u32>)> {
    let pairs: DencResult<Vec<(u32, u32)>> = (0..n).map(|_| Ok((r.u32()?, r.u32()?))).collect();
    Ok(pairs?.into_iter().unzip())
}

impl Encode for Rule {
    fn encode(&self, w: &mut Writer) {
        w.count(self.steps.len());
        w.u8(self.ruleset);
        w.u8(self.rule_type);
        w.u8(self.min_size);
        w.u8(self.max_size);
        for s in &self.steps {
            w.u32(s.op.0);
            w.i32(s.arg1);
            w.i32(s.arg2);
        }
    }
}

impl Decode for Rule {
    fn decode(r: &mut Reader<'_>) -> DencResult<Self> {
        let n = r.count(12)?;
        let (ruleset, rule_type, min_size, max_size) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?);
        let step = |r: &mut Reader<'_>| {
            Ok(Step {
                op: Op(r.u32()?),
                arg1: r.i32()?,
                arg2: r.i32()?,
            })
        };
        let steps = (0..n).map(|_| step(r)).collect::<DencResult<_>>()?;
        Ok(Rule {
            ruleset,
            rule_type,
            min_size,
            max_size,
            steps,
        })
    }
}

/// Names by id. Old writers used 64-bit keys for small non-negative ids; then what seems to be an
/// empty string is the key's upper half.
fn decode_names(r: &mut Reader<'_>) -> DencResult<BTreeMap<i32, String>> {
    let n = r.count(8)?;
    let mut out = BTreeMap::new();
    for _ in 0..n {
        let id = r.i32()?;
        let mut name = r.string()?;
        if name.is_empty() {
            name = r.string()?;
        }
        if name.is_empty() {
            // Nobody, the official code included, could read it back.
            return Err(DencError::Invalid("empty name"));
        }
        out.insert(id, name);
    }
    Ok(out)
}

fn encode_tunables(t: &Tunables, w: &mut Writer) {
    w.u32(t.choose_local_tries);
    w.u32(t.choose_local_fallback_tries);
    w.u32(t.choose_total_tries);
    w.u32(t.chooseleaf_descend_once);
    w.u8(t.chooseleaf_vary_r);
    w.u8(t.straw_calc_version);
    w.u32(t.allowed_bucket_algs);
    w.u8(t.chooseleaf_stable);
}

fn decode_tunables(t: &mut Tunables, r: &mut Reader<'_>) -> DencResult<()> {
    if !r.is_empty() {
        t.choose_local_tries = r.u32()?;
        t.choose_local_fallback_tries = r.u32()?;
        t.choose_total_tries = r.u32()?;
    }
    if !r.is_empty() {
        t.chooseleaf_descend_once = r.u32()?;
    }
    if !r.is_empty() {
        t.chooseleaf_vary_r = r.u8()?;
    }
    if !r.is_empty() {
        t.straw_calc_version = r.u8()?;
    }
    if !r.is_empty() {
        t.allowed_bucket_algs = r.u32()?;
    }
    if !r.is_empty() {
        t.chooseleaf_stable = r.u8()?;
    }
    Ok(())
}

impl Encode for ChooseArgs {
    fn encode(&self, w: &mut Writer) {
        let entries = || self.by_index.iter().filter(|(_, a)| !a.is_empty());
        w.count(entries().count());
        for (index, arg) in entries() {
            w.u32(*index);
            w.put(&arg.weight_sets);
            w.put(&arg.ids);
        }
    }
}

impl Decode for ChooseArgs {
    fn decode(r: &mut Reader<'_>) -> DencResult<Self> {
        let n = r.count(12)?;
        let mut by_index = BTreeMap::new();
        for _ in 0..n {
            let index = r.u32()?;
            by_index.insert(
                index,
                ChooseArg {
                    weight_sets: r.get()?,
                    ids: r.get()?,
                },
            );
        }
        Ok(Self { by_index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_old_writers_are_read_and_empty_ones_refused() {
        // One name, "osd", of the type 1: with a key of 32 bits and with one of 64.
        let new = [1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, b'o', b's', b'd'];
        let old = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, b'o', b's', b'd'];
        for names in [&new[..], &old] {
            let read = decode_names(&mut Reader::new(names));
            assert_eq!(read, Ok(BTreeMap::from([(1, "osd".to_owned())])));
        }
        let empty = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let read = decode_names(&mut Reader::new(&empty));
        assert_eq!(read, Err(DencError::Invalid("empty name")));
    }
}
