//! Alternative weights for a pool or for all pools (`ceph osd crush weight-set`).

use crate::{ChooseArg, ChooseArgs, CrushMap, Error, Result, Weights};

impl CrushMap {
    /// Gives a pool (or [`crate::DEFAULT_CHOOSE_ARGS`]) its own weights for a number of positions,
    /// initially the buckets' own; `false` if it has some.
    pub fn create_weight_set(&mut self, pool: i64, positions: usize) -> bool {
        if self.choose_args.contains_key(&pool) {
            return false;
        }
        let mut args = ChooseArgs::default();
        for b in self.iter_buckets() {
            if let (Weights::Straw2(own), Some(arg)) = (&b.weights, args.entry(b.id)) {
                arg.weight_sets = vec![own.clone(); positions];
            }
        }
        self.choose_args.insert(pool, args);
        true
    }

    /// Whether weight sets are possible: only straw2 buckets have them.
    pub fn takes_weight_sets(&self) -> bool {
        self.iter_buckets()
            .all(|b| matches!(b.weights, Weights::Straw2(_)))
    }

    /// Removes a pool's own weights.
    pub fn remove_weight_set(&mut self, pool: i64) {
        self.choose_args.remove(&pool);
    }

    /// Sets an item's weights, one for each position, wherever it is, and those of all buckets
    /// above.
    ///
    /// # Errors
    /// [`Error::NoSuchItem`] where nothing holds the item, or there are no such weights to set.
    pub fn adjust_weight_set(&mut self, pool: i64, item: i32, weights: &[u32]) -> Result<()> {
        self.edit(|map| {
            let CrushMap {
                buckets, choose_args, ..
            } = map;
            let args = choose_args.get_mut(&pool).ok_or(Error::NoSuchItem)?;
            let positions = args.positions();
            let mut changed = false;
            for b in buckets.iter().flatten() {
                let Some(pos) = b.position(item) else { continue };
                let (Weights::Straw2(own), Some(arg)) = (&b.weights, args.entry(b.id)) else {
                    continue;
                };
                changed |= set(arg, own, positions, pos, weights);
            }
            if !changed {
                return Err(Error::NoSuchItem);
            }
            args.resum(buckets);
            Ok(())
        })
    }
}

fn set(arg: &mut ChooseArg, own: &[u32], positions: usize, pos: usize, weights: &[u32]) -> bool {
    if arg.weight_sets.is_empty() {
        arg.weight_sets = vec![own.to_vec(); positions];
    }
    if arg.weight_sets.len() != weights.len() {
        return false;
    }
    for (set, weight) in arg.weight_sets.iter_mut().zip(weights) {
        if let Some(slot) = set.get_mut(pos) {
            *slot = *weight;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DEFAULT_CHOOSE_ARGS;

    #[test]
    fn weights_of_a_pool_are_set_and_summed_upwards() {
        let mut c = CrushMap::with_default_root("host").unwrap();
        let loc = CrushMap::parse_location(["host=h", "root=default"]).unwrap();
        for osd in 0..2 {
            c.insert_item(osd, 0x10000, &format!("osd.{osd}"), &loc).unwrap();
        }
        assert!(c.takes_weight_sets());
        assert!(c.create_weight_set(DEFAULT_CHOOSE_ARGS, 1) && c.create_weight_set(4, 2));
        assert!(!c.create_weight_set(4, 2));
        c.adjust_weight_set(4, 1, &[0x8000, 0x4000]).unwrap();
        let sets = |c: &CrushMap, pool: i64, name: &str| {
            let id = c.item_id(name).unwrap();
            c.choose_args[&pool].get(id).unwrap().weight_sets.clone()
        };
        assert_eq!(sets(&c, 4, "h"), [[0x10000, 0x8000], [0x10000, 0x4000]]);
        assert_eq!(sets(&c, 4, "default"), [[0x18000], [0x14000]]);
        assert_eq!(sets(&c, DEFAULT_CHOOSE_ARGS, "default"), [[0x20000]]);
        assert!(c.adjust_weight_set(4, 7, &[1, 1]).is_err());
        assert!(c.adjust_weight_set(4, 1, &[1]).is_err());
        assert!(c.adjust_weight_set(5, 1, &[1]).is_err());
        c.remove_weight_set(4);
        assert!(!c.choose_args.contains_key(&4));
    }
}
