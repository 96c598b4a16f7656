//! Buckets: the inner nodes of the hierarchy, and how each algorithm stores its items' weights.
//!
//! Weights are 16.16 fixed point: 0x10000 is 1.0, by convention one TiB. Format: Ceph's
//! `src/crush/crush.h`.

use crate::straw::straw_lengths;
use crate::{Error, HASH_RJENKINS1, Result};

/// How a bucket chooses among its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Alg {
    /// Equal weights; a pseudo-random permutation.
    Uniform = 1,
    /// A chain of weighted choices from the newest item to the oldest.
    List = 2,
    /// A weighted binary tree.
    Tree = 3,
    /// Scaled straws; weights influence each other (kept for old maps).
    Straw = 4,
    /// Independent exponential draws; the default.
    Straw2 = 5,
}

impl Alg {
    /// All algorithms by number.
    pub const ALL: [Alg; 5] = [Alg::Uniform, Alg::List, Alg::Tree, Alg::Straw, Alg::Straw2];

    /// The algorithm's bit in `allowed_bucket_algs`.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The name in dumps and map texts.
    pub fn name(self) -> &'static str {
        match self {
            Alg::Uniform => "uniform",
            Alg::List => "list",
            Alg::Tree => "tree",
            Alg::Straw => "straw",
            Alg::Straw2 => "straw2",
        }
    }

    /// The algorithm with this number in encoded maps.
    pub fn from_number(n: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|a| *a as u32 == n)
    }
}

/// The weights of a bucket's items, in the form its algorithm needs. All vectors are as long as
/// [`Bucket::items`], except for tree nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weights {
    /// One weight for all items.
    Uniform(u32),
    /// Weights, and for each item the sum of all weights up to and including it.
    List {
        /// Weight of each item.
        items: Vec<u32>,
        /// Running sums.
        sums: Vec<u32>,
    },
    /// Weights of the nodes of a binary tree laid out in order: item `i` is node `2i + 1`, and a
    /// node whose number has `h` trailing zero bits is the root of a subtree of height `h`.
    Tree(Vec<u32>),
    /// Weights, and the straw lengths computed from them.
    Straw {
        /// Weight of each item.
        items: Vec<u32>,
        /// Straw length of each item, 16.16.
        straws: Vec<u32>,
    },
    /// The weight of each item.
    Straw2(Vec<u32>),
}

/// The tree algorithm stores its node count in one byte, so no more items than this fit.
pub const TREE_MAX_ITEMS: usize = 64;

/// An inner node of the hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Negative, unique.
    pub id: i32,
    /// The bucket's type (host, rack, …); never 0, which is the devices' type.
    pub type_id: u16,
    /// The hash type; [`HASH_RJENKINS1`] in all real maps.
    pub hash: u8,
    /// The sum of the items' weights.
    pub weight: u32,
    /// Children: devices (0 and above) and buckets (negative).
    pub items: Vec<i32>,
    /// The children's weights; decides the algorithm.
    pub weights: Weights,
}

impl Bucket {
    /// An empty bucket.
    pub fn new(id: i32, alg: Alg, type_id: u16) -> Self {
        let weights = match alg {
            Alg::Uniform => Weights::Uniform(0),
            Alg::List => Weights::List {
                items: Vec::new(),
                sums: Vec::new(),
            },
            Alg::Tree => Weights::Tree(Vec::new()),
            Alg::Straw => Weights::Straw {
                items: Vec::new(),
                straws: Vec::new(),
            },
            Alg::Straw2 => Weights::Straw2(Vec::new()),
        };
        Self {
            id,
            type_id,
            hash: HASH_RJENKINS1,
            weight: 0,
            items: Vec::new(),
            weights,
        }
    }

    /// The algorithm.
    pub fn alg(&self) -> Alg {
        match self.weights {
            Weights::Uniform(_) => Alg::Uniform,
            Weights::List { .. } => Alg::List,
            Weights::Tree(_) => Alg::Tree,
            Weights::Straw { .. } => Alg::Straw,
            Weights::Straw2(_) => Alg::Straw2,
        }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the bucket has no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The position of an item.
    pub fn position(&self, item: i32) -> Option<usize> {
        self.items.iter().position(|i| *i == item)
    }

    /// The weight of the item at `pos`; 0 beyond the end.
    pub fn item_weight(&self, pos: usize) -> u32 {
        if pos >= self.items.len() {
            return 0;
        }
        let found = match &self.weights {
            Weights::Uniform(w) => Some(w),
            Weights::List { items, .. } | Weights::Straw { items, .. } | Weights::Straw2(items) => {
                items.get(pos)
            }
            Weights::Tree(nodes) => nodes.get(leaf(pos)),
        };
        found.copied().unwrap_or(0)
    }

    /// The items with their weights, in the bucket's order.
    pub fn iter(&self) -> impl Iterator<Item = (i32, u32)> + '_ {
        self.items
            .iter()
            .enumerate()
            .map(|(pos, item)| (*item, self.item_weight(pos)))
    }

    /// Appends an item. `straw_calc_version` matters to straw buckets only.
    ///
    /// # Errors
    /// Where the weights overflow, a uniform bucket has another weight, or a tree bucket is full.
    pub fn add_item(&mut self, item: i32, weight: u32, straw_calc_version: u8) -> Result<()> {
        let total = self.weight.checked_add(weight).ok_or(Error::WeightOverflow)?;
        let n = self.items.len();
        match &mut self.weights {
            // An empty uniform bucket takes the weight of its first item.
            Weights::Uniform(w) if n == 0 => *w = weight,
            Weights::Uniform(w) if *w != weight => return Err(Error::UnequalWeight(self.id)),
            Weights::Tree(_) if n >= TREE_MAX_ITEMS => return Err(Error::TreeFull(self.id)),
            Weights::Uniform(_) | Weights::Tree(_) => {}
            Weights::List { items, .. } | Weights::Straw { items, .. } | Weights::Straw2(items) => {
                items.push(weight);
            }
        }
        self.items.push(item);
        self.weight = total;
        if let Weights::Tree(nodes) = &mut self.weights {
            let mut leaves = tree_leaves(nodes, n);
            leaves.push(weight);
            *nodes = tree_nodes(&leaves)?;
        }
        self.refresh(straw_calc_version)
    }

    /// Removes the item at `pos`. A tree bucket keeps an empty place where later items would have
    /// to move.
    ///
    /// # Errors
    /// Where there is no such position.
    pub fn remove_at(&mut self, pos: usize, straw_calc_version: u8) -> Result<()> {
        if pos >= self.items.len() {
            return Err(Error::NoSuchItem);
        }
        self.weight = self.weight.saturating_sub(self.item_weight(pos));
        if let Weights::Tree(nodes) = &mut self.weights {
            // Moving the other items would move their data: the place stays, with weight 0 (and
            // device 0 in it).
            let mut leaves = tree_leaves(nodes, self.items.len());
            leaves[pos] = 0;
            self.items[pos] = 0;
            let kept = leaves.iter().rposition(|w| *w != 0).map_or(0, |last| last + 1);
            leaves.truncate(kept);
            self.items.truncate(kept);
            *nodes = tree_nodes(&leaves)?;
            return Ok(());
        }
        self.items.remove(pos);
        match &mut self.weights {
            Weights::Uniform(_) | Weights::Tree(_) => {}
            Weights::List { items, .. } | Weights::Straw { items, .. } | Weights::Straw2(items) => {
                items.remove(pos);
            }
        }
        self.refresh(straw_calc_version)
    }

    /// Sets the weight of the item at `pos`; of all items where the bucket is uniform.
    ///
    /// # Errors
    /// Where the weights overflow or there is no such position.
    pub fn set_item_weight(&mut self, pos: usize, weight: u32, straw_calc_version: u8) -> Result<()> {
        if pos >= self.items.len() {
            return Err(Error::NoSuchItem);
        }
        let n = self.items.len();
        let old = self.item_weight(pos);
        match &mut self.weights {
            Weights::Uniform(w) => {
                let n = u32::try_from(n).map_err(|_| Error::WeightOverflow)?;
                self.weight = n.checked_mul(weight).ok_or(Error::WeightOverflow)?;
                *w = weight;
                return Ok(());
            }
            Weights::Tree(nodes) => {
                let mut leaves = tree_leaves(nodes, n);
                leaves[pos] = weight;
                *nodes = tree_nodes(&leaves)?;
            }
            Weights::List { items, .. } | Weights::Straw { items, .. } | Weights::Straw2(items) => {
                items[pos] = weight;
            }
        }
        self.weight = self
            .weight
            .saturating_sub(old)
            .checked_add(weight)
            .ok_or(Error::WeightOverflow)?;
        self.refresh(straw_calc_version)
    }

    /// Recomputes the bucket's weight from its items'.
    pub(crate) fn recount(&mut self) -> Result<()> {
        let sum = self.iter().try_fold(0u32, |sum, (_, w)| sum.checked_add(w));
        self.weight = sum.ok_or(Error::WeightOverflow)?;
        Ok(())
    }

    /// Makes a straw bucket a straw2 bucket of the same weights; others stay as they are.
    pub(crate) fn straw_to_straw2(&mut self) {
        if let Weights::Straw { items, .. } = &mut self.weights {
            self.weights = Weights::Straw2(std::mem::take(items));
        }
    }

    /// Recomputes what is derived from the weights: running sums, straw lengths.
    fn refresh(&mut self, straw_calc_version: u8) -> Result<()> {
        match &mut self.weights {
            Weights::List { items, sums } => *sums = running_sums(items)?,
            Weights::Straw { items, straws } => *straws = straw_lengths(items, straw_calc_version),
            Weights::Uniform(_) | Weights::Tree(_) | Weights::Straw2(_) => {}
        }
        Ok(())
    }
}

fn running_sums(items: &[u32]) -> Result<Vec<u32>> {
    let mut sum = 0u32;
    items
        .iter()
        .map(|w| {
            sum = sum.checked_add(*w).ok_or(Error::WeightOverflow)?;
            Ok(sum)
        })
        .collect()
}

/// The tree node of the item at `pos`.
pub(crate) fn leaf(pos: usize) -> usize {
    2 * pos + 1
}

fn tree_leaves(nodes: &[u32], n: usize) -> Vec<u32> {
    (0..n).map(|i| nodes.get(leaf(i)).copied().unwrap_or(0)).collect()
}

/// Node weights of the smallest tree that holds the leaves. There is one node more than the tree
/// needs: node 0 belongs to the format, but not to the tree.
fn tree_nodes(leaves: &[u32]) -> Result<Vec<u32>> {
    if leaves.is_empty() {
        return Ok(Vec::new());
    }
    let size = 2 * leaves.len().next_power_of_two();
    let mut nodes = vec![0u32; size];
    for (i, w) in leaves.iter().enumerate() {
        nodes[leaf(i)] = *w;
    }
    let mut half = 1;
    while 2 * half < size {
        for n in (2 * half..size).step_by(4 * half) {
            nodes[n] = nodes[n - half]
                .checked_add(nodes[n + half])
                .ok_or(Error::WeightOverflow)?;
        }
        half *= 2;
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_sums_its_leaves_upwards() {
        let mut b = Bucket::new(-1, Alg::Tree, 1);
        for (i, w) in [1, 2, 4].into_iter().enumerate() {
            b.add_item(i as i32, w, 1).unwrap();
        }
        assert_eq!(b.weights, Weights::Tree(vec![0, 1, 3, 2, 7, 4, 4, 0]));
        b.remove_at(1, 1).unwrap();
        assert_eq!((b.items.clone(), b.weight), (vec![0, 0, 2], 5));
        b.remove_at(2, 1).unwrap();
        assert_eq!((b.items.len(), &b.weights), (1, &Weights::Tree(vec![0, 1])));
    }

    #[test]
    fn a_list_keeps_running_sums() {
        let mut b = Bucket::new(-1, Alg::List, 1);
        for i in 0..3 {
            b.add_item(i, 10, 1).unwrap();
        }
        b.set_item_weight(1, 5, 1).unwrap();
        b.remove_at(0, 1).unwrap();
        assert_eq!(
            b.weights,
            Weights::List {
                items: vec![5, 10],
                sums: vec![5, 15]
            }
        );
        assert_eq!(b.add_item(7, u32::MAX, 1), Err(Error::WeightOverflow));
    }
}
