//! Device classes, and the shadow trees that let rules take devices of one class only.
//!
//! For every root and class there is a copy of the hierarchy, named `bucket~class`, that holds the
//! devices of that class. Copies are remade after every change; each keeps its id, because ids take
//! part in placement.

use std::collections::{BTreeMap, BTreeSet};

use crate::choose_args::index_of;
use crate::map::is_valid_name;
use crate::{Bucket, ChooseArg, CrushMap, Error, Result, Weights};

type Shadows = BTreeMap<i32, BTreeMap<i32, i32>>;

/// A rebuild in progress: the ids to be given again, and where to look for unused ones.
struct Rebuild {
    old: Shadows,
    used: BTreeSet<i32>,
    next: i32,
}

impl CrushMap {
    /// Binds a device to a class, which is created if needed. A device that the map does not know
    /// yet gets its name `osd.N` (a new OSD has its class before it has a place). Returns whether
    /// the map has changed.
    ///
    /// # Errors
    /// [`Error::HasClass`] where it has another one; [`Error::WrongKind`] for a bucket;
    /// [`Error::InvalidName`].
    pub fn set_device_class(&mut self, device: i32, class: &str) -> Result<bool> {
        if !is_valid_name(class) {
            return Err(Error::InvalidName(class.to_owned()));
        }
        if device < 0 {
            return Err(Error::WrongKind(device));
        }
        match self.class_of(device) {
            Some(old) if old == class => return Ok(false),
            Some(old) => {
                return Err(Error::HasClass {
                    id: device,
                    class: old.to_owned(),
                });
            }
            None => {}
        }
        self.edit(|map| {
            let id = map.class_id(class).unwrap_or_else(|| map.free_class_id());
            map.class_names.insert(id, class.to_owned());
            map.item_class.insert(device, id);
            map.names.entry(device).or_insert_with(|| format!("osd.{device}"));
            map.rebuild_shadows()
        })?;
        Ok(true)
    }

    /// Unbinds a device from its class. Returns whether it had one.
    ///
    /// # Errors
    /// [`Error::NoSuchItem`].
    pub fn remove_device_class(&mut self, device: i32) -> Result<bool> {
        if device < 0 {
            return Err(Error::WrongKind(device));
        }
        if !self.names.contains_key(&device) {
            return Err(Error::NoSuchItem);
        }
        if self.class_of(device).is_none() {
            return Ok(false);
        }
        self.edit(|map| {
            map.item_class.remove(&device);
            map.rebuild_shadows()
        })?;
        Ok(true)
    }

    /// Creates a class without devices and returns its id. The next change of the hierarchy drops
    /// it if it is still unused.
    ///
    /// # Errors
    /// [`Error::ClassExists`], [`Error::InvalidName`].
    pub fn create_class(&mut self, name: &str) -> Result<i32> {
        if !is_valid_name(name) {
            return Err(Error::InvalidName(name.to_owned()));
        }
        if self.class_id(name).is_some() {
            return Err(Error::ClassExists(name.to_owned()));
        }
        let id = self.free_class_id();
        self.class_names.insert(id, name.to_owned());
        Ok(id)
    }

    /// Removes a class and unbinds its devices; returns its id.
    ///
    /// # Errors
    /// [`Error::NoSuchClass`]; [`Error::ClassInUse`] where a rule takes from it.
    pub fn remove_class(&mut self, name: &str) -> Result<i32> {
        let id = self
            .class_id(name)
            .ok_or_else(|| Error::NoSuchClass(name.to_owned()))?;
        let rules = self.rules_using_class(id);
        if !rules.is_empty() {
            let names: Vec<String> = rules
                .into_iter()
                .map(|r| format!("'{}'", self.rule_name(r).unwrap_or_default()))
                .collect();
            return Err(Error::ClassInUse {
                class: name.to_owned(),
                rules: names.join(","),
            });
        }
        self.edit(|map| {
            map.item_class.retain(|device, class| *device < 0 || *class != id);
            map.class_names.remove(&id);
            map.rebuild_shadows()
        })?;
        Ok(id)
    }

    /// Gives a class another name; shadow buckets follow and keep their ids.
    ///
    /// # Errors
    /// [`Error::NoSuchClass`], [`Error::NameTaken`], [`Error::InvalidName`].
    pub fn rename_class(&mut self, from: &str, to: &str) -> Result<()> {
        if !is_valid_name(to) {
            return Err(Error::InvalidName(to.to_owned()));
        }
        if let Some(id) = self.class_id(to) {
            return Err(Error::NameTaken {
                name: to.to_owned(),
                id,
            });
        }
        let id = self
            .class_id(from)
            .ok_or_else(|| Error::NoSuchClass(from.to_owned()))?;
        // A class that nothing refers to yet would be dropped.
        let used = self.devices_of_class(id).next().is_some() || !self.rules_using_class(id).is_empty();
        self.edit(|map| {
            map.class_names.insert(id, to.to_owned());
            if used { map.rebuild_shadows() } else { Ok(()) }
        })
    }

    /// The devices of a class, ascending.
    pub fn devices_of_class(&self, class: i32) -> impl Iterator<Item = i32> + '_ {
        self.item_class
            .range(0..)
            .filter(move |(_, c)| **c == class)
            .map(|(d, _)| *d)
    }

    fn free_class_id(&self) -> i32 {
        let after_last = self
            .class_names
            .keys()
            .next_back()
            .map_or(Some(0), |last| last.checked_add(1));
        after_last
            .filter(|id| *id >= 0)
            .or_else(|| (0..i32::MAX).find(|id| !self.class_names.contains_key(id)))
            .unwrap_or(i32::MAX)
    }

    /// Rebuilds all shadow trees, after dropping unused classes.
    pub(crate) fn rebuild_shadows(&mut self) -> Result<()> {
        let old = std::mem::take(&mut self.shadows);
        self.drop_dead_classes(&old);
        self.drop_shadow_trees();
        let used = old.values().flat_map(BTreeMap::values).copied().collect();
        let mut rebuild = Rebuild { old, used, next: -1 };
        let classes: Vec<i32> = self.class_names.keys().copied().collect();
        for root in self.plain_roots() {
            for class in &classes {
                self.copy_for_class(root, *class, &mut rebuild)?;
            }
        }
        Ok(())
    }

    /// A class lives while a device has it or a rule takes from one of its shadow trees.
    fn drop_dead_classes(&mut self, shadows: &Shadows) {
        let mut live: BTreeSet<i32> = self.item_class.range(0..).map(|(_, class)| *class).collect();
        let taken: BTreeSet<i32> = self.iter_rules().flat_map(|(_, r)| r.takes()).collect();
        let by_class = shadows.values().flatten();
        live.extend(
            by_class
                .filter(|(_, shadow)| taken.contains(shadow))
                .map(|(class, _)| *class),
        );
        self.class_names.retain(|id, _| live.contains(id));
    }

    fn drop_shadow_trees(&mut self) {
        let mut todo: Vec<i32> = self
            .roots()
            .into_iter()
            .filter(|id| self.is_shadow(*id))
            .collect();
        while let Some(id) = todo.pop() {
            let Some(b) = self.bucket(id) else { continue };
            todo.extend(b.items.iter().copied().filter(|c| self.is_shadow(*c)));
            self.drop_bucket(id);
        }
    }

    /// Copies a bucket and its subtree, with the devices of the class only; returns the copy's id.
    /// Depth is bounded by [`CrushMap::validate`].
    fn copy_for_class(&mut self, original: i32, class: i32, rebuild: &mut Rebuild) -> Result<i32> {
        if let Some(done) = self.shadows.get(&original).and_then(|c| c.get(&class)) {
            // A bucket that is linked in several places has one shadow.
            return Ok(*done);
        }
        let (Some(name), Some(class_name)) = (self.name(original), self.class_names.get(&class)) else {
            return Err(Error::Invalid("bucket without a name"));
        };
        let name = format!("{name}~{class_name}");
        let of = self.bucket(original).ok_or(Error::NoSuchItem)?.clone();
        let mut copy = Bucket::new(0, of.alg(), of.type_id);
        copy.hash = of.hash;
        let mut origins = Vec::new();
        for (pos, (item, weight)) in of.iter().enumerate() {
            let (item, weight) = if item < 0 {
                let below = self.copy_for_class(item, class, rebuild)?;
                (below, self.bucket(below).map_or(0, |b| b.weight))
            } else if self.item_class.get(&item) == Some(&class) {
                (item, weight)
            } else {
                continue;
            };
            copy.add_item(item, weight, self.tunables.straw_calc_version)?;
            origins.push(pos);
        }
        copy.id = self.shadow_id(original, class, rebuild);
        let id = copy.id;
        self.copy_weight_sets(original, &copy, &origins);
        self.place_bucket(copy)?;
        self.item_class.insert(id, class);
        self.names.insert(id, name);
        self.shadows.entry(original).or_default().insert(class, id);
        Ok(id)
    }

    /// The shadow's former id, or the first one that neither a bucket nor any former shadow has.
    fn shadow_id(&self, original: i32, class: i32, rebuild: &mut Rebuild) -> i32 {
        let before = rebuild.old.get(&original).and_then(|c| c.get(&class)).copied();
        let in_range = |id: &i32| index_of(*id).is_some_and(|i| i < self.buckets.len());
        if let Some(id) = before.filter(in_range) {
            return id;
        }
        while self.bucket(rebuild.next).is_some() || rebuild.used.contains(&rebuild.next) {
            rebuild.next -= 1;
        }
        rebuild.next
    }

    fn copy_weight_sets(&mut self, original: i32, copy: &Bucket, origins: &[usize]) {
        if !matches!(copy.weights, Weights::Straw2(_)) {
            return;
        }
        for args in self.choose_args.values_mut() {
            let Some(of) = args.get(original).filter(|a| !a.weight_sets.is_empty()) else {
                continue;
            };
            let weight = |set: &[u32], position: usize, item: i32, origin: usize| {
                if item >= 0 {
                    set.get(origin).copied().unwrap_or(0)
                } else {
                    args.bucket_sums(item).get(position).copied().unwrap_or(0)
                }
            };
            let sets = of.weight_sets.iter().enumerate().map(|(position, set)| {
                copy.items
                    .iter()
                    .zip(origins)
                    .map(|(item, o)| weight(set, position, *item, *o))
                    .collect()
            });
            // Alternative ids are not carried over to shadow trees, as in Ceph.
            let arg = ChooseArg {
                weight_sets: sets.collect(),
                ids: Vec::new(),
            };
            args.by_index.insert(!copy.id as u32, arg);
        }
    }
}
