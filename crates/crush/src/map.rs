//! The CRUSH map: hierarchy, rules, names, device classes, tunables; and look-ups in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::choose_args::index_of;
use crate::{Bucket, ChooseArgs, DEFAULT_CHOOSE_ARGS, Error, Result, Rule, Tunables};

/// A CRUSH map.
///
/// The fields mirror the encoding of `CrushWrapper` (`src/crush/CrushWrapper.cc`). Everything that
/// changes a map through methods keeps it valid (see [`CrushMap::validate`]), and decoding refuses
/// invalid maps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CrushMap {
    /// One more than the highest device that a bucket holds. Derived on decoding.
    pub max_devices: i32,
    /// Buckets by index: bucket `-1 - i` at `i`. The length is encoded (it grows by doubling from
    /// 8).
    pub buckets: Vec<Option<Bucket>>,
    /// Rules by number.
    pub rules: Vec<Option<Rule>>,
    /// Type names by id; 0 is the type of devices.
    pub types: BTreeMap<i32, String>,
    /// Item names by id: devices `osd.N` and buckets, shadow buckets as `name~class`.
    pub names: BTreeMap<i32, String>,
    /// Rule names by number.
    pub rule_names: BTreeMap<i32, String>,
    /// The mapper's parameters.
    pub tunables: Tunables,
    /// Device class of each device, and of each shadow bucket.
    pub item_class: BTreeMap<i32, i32>,
    /// Class names by class id.
    pub class_names: BTreeMap<i32, String>,
    /// Shadow bucket of a bucket, by bucket id and class id.
    pub shadows: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// Alternative weights by pool id, or [`DEFAULT_CHOOSE_ARGS`].
    pub choose_args: BTreeMap<i64, ChooseArgs>,
}

/// The type names of a new map, from 0 upwards.
const TYPE_NAMES: [&str; 12] = [
    "osd",
    "host",
    "chassis",
    "rack",
    "row",
    "pdu",
    "pod",
    "room",
    "datacenter",
    "zone",
    "region",
    "root",
];

/// The deepest hierarchy that is accepted. Real ones have at most one level per type.
const MAX_DEPTH: u32 = 64;

/// The most nodes that a walk over all roots may meet. A bucket that is linked from several places
/// counts once for each, which is what keeps a small malicious map from standing for an
/// exponentially large tree.
const MAX_WALK: u64 = 1 << 22;

/// Whether a name may be given to an item, type, class or rule.
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn key_of(names: &BTreeMap<i32, String>, name: &str) -> Option<i32> {
    names.iter().find(|(_, n)| n.as_str() == name).map(|(id, _)| *id)
}

impl CrushMap {
    /// A map without buckets and rules, with the default types and tunables.
    pub fn new() -> Self {
        let types = (0..).zip(TYPE_NAMES.map(str::to_owned)).collect();
        Self {
            types,
            tunables: Tunables::default(),
            ..Self::default()
        }
    }

    /// The bucket with this id.
    #[inline]
    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        self.buckets.get(index_of(id)?)?.as_ref()
    }

    /// The bucket with this id, to be changed by code that keeps the map valid.
    pub(crate) fn bucket_mut(&mut self, id: i32) -> Result<&mut Bucket> {
        index_of(id)
            .and_then(|i| self.buckets.get_mut(i))
            .and_then(Option::as_mut)
            .ok_or(Error::NoSuchItem)
    }

    /// All buckets, by descending id (-1, -2, …).
    pub fn iter_buckets(&self) -> impl Iterator<Item = &Bucket> + '_ {
        self.buckets.iter().flatten()
    }

    /// The rule with this number.
    pub fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// All rules with their numbers, ascending.
    pub fn iter_rules(&self) -> impl Iterator<Item = (u32, &Rule)> + '_ {
        (0..).zip(&self.rules).filter_map(|(i, r)| Some((i, r.as_ref()?)))
    }

    /// An item's name.
    pub fn name(&self, id: i32) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// The item with this name.
    pub fn item_id(&self, name: &str) -> Option<i32> {
        key_of(&self.names, name)
    }

    /// The type with this name.
    pub fn type_id(&self, name: &str) -> Option<i32> {
        key_of(&self.types, name)
    }

    /// A type's name.
    pub fn type_name(&self, id: i32) -> Option<&str> {
        self.types.get(&id).map(String::as_str)
    }

    /// The type of an item: 0 for devices; `None` for a bucket that does not exist.
    pub fn item_type(&self, id: i32) -> Option<i32> {
        if id >= 0 {
            Some(0)
        } else {
            self.bucket(id).map(|b| i32::from(b.type_id))
        }
    }

    /// A rule's name.
    pub fn rule_name(&self, number: u32) -> Option<&str> {
        self.rule_names
            .get(&i32::try_from(number).ok()?)
            .map(String::as_str)
    }

    /// The rule with this name.
    pub fn rule_id(&self, name: &str) -> Option<u32> {
        let id = u32::try_from(key_of(&self.rule_names, name)?).ok()?;
        self.rule(id).map(|_| id)
    }

    /// The first rule for a pool type.
    pub fn first_rule_of_type(&self, rule_type: u8) -> Option<u32> {
        self.iter_rules()
            .find(|(_, r)| r.rule_type == rule_type)
            .map(|(i, _)| i)
    }

    /// The class with this name.
    pub fn class_id(&self, name: &str) -> Option<i32> {
        key_of(&self.class_names, name)
    }

    /// The name of an item's class.
    pub fn class_of(&self, item: i32) -> Option<&str> {
        self.class_names
            .get(self.item_class.get(&item)?)
            .map(String::as_str)
    }

    /// Whether a bucket is part of a class's shadow tree: its name could not be given by hand.
    pub fn is_shadow(&self, id: i32) -> bool {
        self.name(id).is_some_and(|n| !is_valid_name(n))
    }

    /// The bucket and class behind a shadow bucket; the item itself and no class for any other.
    pub fn unshadow(&self, id: i32) -> (i32, Option<i32>) {
        self.shadows
            .iter()
            .find_map(|(of, by_class)| {
                let class = by_class.iter().find(|(_, shadow)| **shadow == id)?.0;
                Some((*of, Some(*class)))
            })
            .unwrap_or((id, None))
    }

    /// Whether any bucket holds the item.
    pub fn is_held(&self, item: i32) -> bool {
        self.iter_buckets().any(|b| b.items.contains(&item))
    }

    /// All buckets that nothing holds, shadow trees included, by ascending id.
    pub fn roots(&self) -> Vec<i32> {
        let held: BTreeSet<i32> = self.iter_buckets().flat_map(|b| &b.items).copied().collect();
        let mut roots: Vec<i32> = self
            .iter_buckets()
            .map(|b| b.id)
            .filter(|id| !held.contains(id))
            .collect();
        roots.sort_unstable();
        roots
    }

    /// The roots of the hierarchy proper, without shadow trees, by ascending id.
    pub fn plain_roots(&self) -> Vec<i32> {
        self.roots()
            .into_iter()
            .filter(|id| !self.is_shadow(*id))
            .collect()
    }

    /// The bucket outside the shadow trees that holds an item.
    pub fn parent(&self, item: i32) -> Option<&Bucket> {
        self.iter_buckets()
            .find(|b| !self.is_shadow(b.id) && b.items.contains(&item))
    }

    /// The buckets above an item, nearest first, as (type name, bucket name).
    pub fn location(&self, item: i32) -> Vec<(String, String)> {
        let mut path = Vec::new();
        let mut at = item;
        while let Some(parent) = self.parent(at) {
            let kind = self.type_name(i32::from(parent.type_id)).unwrap_or_default();
            path.push((
                kind.to_owned(),
                self.name(parent.id).unwrap_or_default().to_owned(),
            ));
            at = parent.id;
            if path.len() > MAX_DEPTH as usize {
                break;
            }
        }
        path
    }

    /// Whether `item` is `root` or below it.
    pub fn subtree_contains(&self, root: i32, item: i32) -> bool {
        let mut seen = BTreeSet::from([root]);
        let mut todo = vec![root];
        while let Some(at) = todo.pop() {
            if at == item {
                return true;
            }
            let children = self.bucket(at).map(|b| b.items.as_slice()).unwrap_or_default();
            todo.extend(children.iter().copied().filter(|c| seen.insert(*c)));
        }
        false
    }

    /// The devices below an item (itself, where it is one), ascending.
    pub fn devices_below(&self, root: i32) -> BTreeSet<i32> {
        let mut seen = BTreeSet::from([root]);
        let mut todo = vec![root];
        while let Some(bucket) = todo.pop().and_then(|at| self.bucket(at)) {
            todo.extend(bucket.items.iter().copied().filter(|c| seen.insert(*c) && *c < 0));
        }
        seen.split_off(&0)
    }

    /// The weight of an item: a bucket's own, or a device's in the first bucket that holds it.
    /// `None` for an item that is not in the hierarchy.
    pub fn item_weight(&self, item: i32) -> Option<u32> {
        if item < 0 {
            return self.bucket(item).map(|b| b.weight);
        }
        self.iter_buckets()
            .find_map(|b| Some(b.item_weight(b.position(item)?)))
    }

    /// The rules that take from a shadow tree of the class.
    pub fn rules_using_class(&self, class: i32) -> Vec<u32> {
        let uses = |r: &Rule| r.takes().any(|root| self.unshadow(root).1 == Some(class));
        self.iter_rules()
            .filter(|(_, r)| uses(r))
            .map(|(i, _)| i)
            .collect()
    }

    /// The alternative weights for a pool: its own, else the default ones.
    pub fn choose_args_for(&self, pool: i64) -> Option<&ChooseArgs> {
        self.choose_args
            .get(&pool)
            .or_else(|| self.choose_args.get(&DEFAULT_CHOOSE_ARGS))
    }

    /// The oldest release whose clients support the map.
    pub fn minimum_required_version(&self) -> &'static str {
        let t = &self.tunables;
        if t.needs_tunables5() || self.iter_rules().any(|(_, r)| r.is_v5()) {
            "jewel"
        } else if self.iter_buckets().any(|b| b.alg() == crate::Alg::Straw2) {
            "hammer"
        } else if t.needs_tunables3() {
            "firefly"
        } else if t.needs_tunables2() || t.needs_tunables() {
            "bobtail"
        } else {
            "argonaut"
        }
    }

    /// Recomputes [`CrushMap::max_devices`].
    pub fn recount_devices(&mut self) {
        let highest = self
            .iter_buckets()
            .flat_map(|b| &b.items)
            .copied()
            .max()
            .unwrap_or(-1);
        self.max_devices = highest.max(-1).saturating_add(1);
    }

    /// Checks what the mapper and all walks rely on: every bucket stands at its index and has a
    /// type, every child exists, there is no cycle, and depth and total size stay within what real
    /// hierarchies have.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the violated rule.
    pub fn validate(&self) -> Result<()> {
        for (i, b) in self
            .buckets
            .iter()
            .enumerate()
            .filter_map(|(i, b)| Some((i, b.as_ref()?)))
        {
            if index_of(b.id) != Some(i) {
                return Err(Error::Invalid("bucket id"));
            }
            if b.type_id == 0 {
                return Err(Error::Invalid("bucket of the devices' type"));
            }
            if b.items.iter().any(|c| *c < 0 && self.bucket(*c).is_none()) {
                return Err(Error::Invalid("child bucket does not exist"));
            }
            if b.items.iter().any(|c| *c >= crate::ITEM_UNDEF) {
                return Err(Error::Invalid("device id"));
            }
        }
        self.check_shape()
    }

    /// Walks bottom-up: a bucket is done once all its children are; buckets on a cycle never are.
    fn check_shape(&self) -> Result<()> {
        let n = self.buckets.len();
        let (mut waiting, mut parents) = (vec![0usize; n], vec![Vec::new(); n]);
        for (i, b) in self.buckets.iter().enumerate() {
            for child in b.iter().flat_map(|b| &b.items).filter_map(|c| index_of(*c)) {
                waiting[i] += 1;
                parents[child].push(i);
            }
        }
        let (mut depth, mut nodes) = (vec![1u32; n], vec![1u64; n]);
        let mut ready: Vec<usize> = (0..n).filter(|i| waiting[*i] == 0).collect();
        let (mut done, mut walk) = (0, 0u64);
        while let Some(i) = ready.pop() {
            done += 1;
            let devices = self.buckets[i]
                .iter()
                .flat_map(|b| &b.items)
                .filter(|c| **c >= 0)
                .count();
            nodes[i] = nodes[i].saturating_add(devices as u64);
            if parents[i].is_empty() {
                walk = walk.saturating_add(nodes[i]);
            }
            for p in &parents[i] {
                depth[*p] = depth[*p].max(depth[i] + 1);
                nodes[*p] = nodes[*p].saturating_add(nodes[i]);
                waiting[*p] -= 1;
                if waiting[*p] == 0 {
                    ready.push(*p);
                }
            }
        }
        if done < n {
            return Err(Error::Invalid("cycle of buckets"));
        }
        if depth.iter().any(|d| *d > MAX_DEPTH) || walk > MAX_WALK {
            return Err(Error::Invalid("hierarchy too deep or too large"));
        }
        Ok(())
    }
}
