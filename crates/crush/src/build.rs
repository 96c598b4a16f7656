//! Changes to the hierarchy, for `ceph osd crush add|create-or-move|move|link|rm|reweight|…`.
//!
//! Every public change works on a copy and replaces the map at the end, so that a refused one
//! leaves no trace.

use std::collections::BTreeMap;

use crate::choose_args::index_of;
use crate::map::is_valid_name;
use crate::{Alg, Bucket, CrushMap, Error, Result, Weights};

/// The place of an item: bucket names by type name, as in `root=default host=a`. Levels may be left
/// out.
pub type Location = BTreeMap<String, String>;

fn check_name(name: &str) -> Result<()> {
    if is_valid_name(name) {
        Ok(())
    } else {
        Err(Error::InvalidName(name.to_owned()))
    }
}

impl CrushMap {
    /// Reads a location from words of the form `type=name`.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for a word of another form.
    pub fn parse_location<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Location> {
        let pair = |word: &'a str| {
            word.split_once('=')
                .filter(|(kind, name)| is_valid_name(kind) && is_valid_name(name))
                .map(|(kind, name)| (kind.to_owned(), name.to_owned()))
                .ok_or_else(|| Error::InvalidName(word.to_owned()))
        };
        words.into_iter().map(pair).collect()
    }

    /// Runs a change on a copy, and keeps the copy if the change succeeds and leaves a valid map.
    pub(crate) fn edit<T>(&mut self, change: impl FnOnce(&mut CrushMap) -> Result<T>) -> Result<T> {
        let mut next = self.clone();
        let value = change(&mut next)?;
        next.validate()?;
        *self = next;
        Ok(value)
    }

    /// Creates an empty bucket without a parent and returns its id. `alg: None` takes the best
    /// allowed algorithm.
    ///
    /// # Errors
    /// Where the name is invalid or taken, the type unknown or the devices', or no algorithm is
    /// allowed.
    pub fn add_bucket(&mut self, name: &str, type_name: &str, alg: Option<Alg>) -> Result<i32> {
        check_name(name)?;
        if let Some(id) = self.item_id(name) {
            return Err(Error::NameTaken {
                name: name.to_owned(),
                id,
            });
        }
        let type_id = self
            .type_id(type_name)
            .and_then(|t| u16::try_from(t).ok())
            .filter(|t| *t > 0);
        let type_id = type_id.ok_or_else(|| Error::UnknownType(type_name.to_owned()))?;
        self.edit(|map| {
            let id = map.new_bucket(alg, type_id)?;
            map.names.insert(id, name.to_owned());
            map.rebuild_shadows()?;
            Ok(id)
        })
    }

    fn new_bucket(&mut self, alg: Option<Alg>, type_id: u16) -> Result<i32> {
        let alg = alg.or(self.tunables.default_alg()).ok_or(Error::NoAlgAllowed)?;
        let free = self
            .buckets
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.buckets.len());
        let id = i32::try_from(free).map_err(|_| Error::Invalid("too many buckets"))?;
        self.place_bucket(Bucket::new(-1 - id, alg, type_id))?;
        Ok(-1 - id)
    }

    /// Puts a bucket at the index of its id. The vector grows by doubling from 8, as its length is
    /// encoded.
    pub(crate) fn place_bucket(&mut self, bucket: Bucket) -> Result<()> {
        let index = index_of(bucket.id).ok_or(Error::WrongKind(bucket.id))?;
        while index >= self.buckets.len() {
            let n = if self.buckets.is_empty() {
                8
            } else {
                2 * self.buckets.len()
            };
            self.buckets.resize(n, None);
        }
        let slot = &mut self.buckets[index];
        if slot.is_some() {
            return Err(Error::Invalid("bucket id taken"));
        }
        *slot = Some(bucket);
        Ok(())
    }

    /// Adds a device or a parentless bucket at a location, creating the buckets of the location
    /// that are missing, and adds the weight to all buckets above.
    ///
    /// # Errors
    /// Where a name is invalid or taken, a bucket of the location is of another type, the item is
    /// there already or contains the location, or the location names no known type.
    pub fn insert_item(&mut self, item: i32, weight: u32, name: &str, location: &Location) -> Result<()> {
        self.edit(|map| map.insert(item, weight, name, location))
    }

    fn insert(&mut self, item: i32, weight: u32, name: &str, location: &Location) -> Result<()> {
        check_name(name)?;
        location
            .iter()
            .flat_map(|(kind, name)| [kind, name])
            .try_for_each(|n| check_name(n))?;
        match self.item_id(name) {
            Some(id) if id != item => {
                return Err(Error::NameTaken {
                    name: name.to_owned(),
                    id,
                });
            }
            Some(_) => {}
            None => {
                self.names.insert(item, name.to_owned());
            }
        }
        self.link_upwards(item, weight, location)?;
        let mut found = false;
        for bucket in location
            .values()
            .filter_map(|n| self.item_id(n))
            .collect::<Vec<_>>()
        {
            found |= self.set_weight_in(bucket, item, weight, item >= 0)?;
        }
        if !found {
            return Err(Error::NoPlace);
        }
        self.max_devices = self.max_devices.max(item.saturating_add(1));
        self.reweighed()
    }

    /// Links the item, without weight, to the lowest bucket of the location; missing buckets are
    /// created, each linked to the next level, up to the first that exists.
    fn link_upwards(&mut self, item: i32, weight: u32, location: &Location) -> Result<()> {
        let mut below = item;
        let levels: Vec<(i32, String)> = self
            .types
            .iter()
            .filter(|(id, _)| **id != 0)
            .filter_map(|(id, kind)| Some((*id, location.get(kind)?.clone())))
            .collect();
        for (type_id, name) in levels {
            let type_id = u16::try_from(type_id).map_err(|_| Error::WrongType(name.clone()))?;
            let Some(id) = self.item_id(&name) else {
                let id = self.new_bucket(None, type_id)?;
                self.names.insert(id, name);
                self.add_child(id, below, 0)?;
                below = id;
                continue;
            };
            if self.subtree_contains(id, below) {
                return Err(Error::AlreadyThere(below));
            }
            let bucket = self.bucket(id).ok_or(Error::NoSuchItem)?;
            if bucket.type_id != type_id {
                return Err(Error::WrongType(name));
            }
            if self.subtree_contains(below, id) {
                return Err(Error::Loop(below));
            }
            let start = match bucket.weights {
                Weights::Uniform(w) if w != weight && !bucket.is_empty() => {
                    return Err(Error::UnequalWeight(id));
                }
                Weights::Uniform(_) if below == item => weight,
                _ => 0,
            };
            self.add_child(id, below, start)?;
            return if start > 0 { self.propagate(id) } else { Ok(()) };
        }
        Ok(())
    }

    pub(crate) fn add_child(&mut self, bucket: i32, item: i32, weight: u32) -> Result<()> {
        let version = self.tunables.straw_calc_version;
        self.bucket_mut(bucket)?.add_item(item, weight, version)?;
        for args in self.choose_args.values_mut() {
            args.item_added(bucket, item, weight);
        }
        Ok(())
    }

    /// The item's weight, if it is at the location: in the bucket of the lowest named type.
    pub fn weight_at(&self, item: i32, location: &Location) -> Option<u32> {
        let lowest = self
            .types
            .iter()
            .filter(|(id, _)| **id != 0)
            .find_map(|(_, kind)| location.get(kind))?;
        let bucket = self.bucket(self.item_id(lowest)?)?;
        Some(bucket.item_weight(bucket.position(item)?))
    }

    /// Makes sure that a device is at a location: adds it with the given weight, or moves it there
    /// with its present weight. Returns whether the map has changed.
    ///
    /// # Errors
    /// As [`CrushMap::insert_item`].
    pub fn create_or_move_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
    ) -> Result<bool> {
        check_name(name)?;
        if self.weight_at(item, location).is_some() {
            return Ok(false);
        }
        self.edit(|map| {
            let mut weight = weight;
            if map.is_held(item) {
                weight = map.item_weight(item).unwrap_or(weight);
                map.remove(item, true)?;
            }
            map.insert(item, weight, name, location)
        })?;
        Ok(true)
    }

    /// Makes sure that an item is at a location with this weight and name, moving it if needed.
    /// Returns whether the map has changed.
    ///
    /// # Errors
    /// As [`CrushMap::insert_item`].
    pub fn update_item(&mut self, item: i32, weight: u32, name: &str, location: &Location) -> Result<bool> {
        check_name(name)?;
        self.edit(|map| {
            let Some(old) = map.weight_at(item, location) else {
                if map.is_held(item) {
                    map.remove(item, true)?;
                }
                return map.insert(item, weight, name, location).map(|()| true);
            };
            let renamed = map.name(item) != Some(name);
            if old != weight {
                for bucket in location
                    .values()
                    .filter_map(|n| map.item_id(n))
                    .collect::<Vec<_>>()
                {
                    map.set_weight_in(bucket, item, weight, true)?;
                }
            }
            if renamed {
                map.names.insert(item, name.to_owned());
            }
            map.reweighed()?;
            Ok(renamed || old != weight)
        })
    }

    /// Moves a bucket, with its whole subtree, from its parent to a location.
    ///
    /// # Errors
    /// As [`CrushMap::insert_item`]; [`Error::WrongKind`] for a device.
    pub fn move_bucket(&mut self, id: i32, location: &Location) -> Result<()> {
        self.edit(|map| {
            if let Some(parent) = map.parent(id).map(|b| b.id) {
                map.remove_child(parent, id)?;
            }
            map.link(id, location)
        })
    }

    /// Links a bucket at a further location.
    ///
    /// # Errors
    /// As [`CrushMap::move_bucket`].
    pub fn link_bucket(&mut self, id: i32, location: &Location) -> Result<()> {
        self.edit(|map| map.link(id, location))
    }

    fn link(&mut self, id: i32, location: &Location) -> Result<()> {
        if id >= 0 {
            return Err(Error::WrongKind(id));
        }
        let weight = self.bucket(id).ok_or(Error::NoSuchItem)?.weight;
        let name = self.name(id).ok_or(Error::NoSuchItem)?.to_owned();
        self.insert(id, weight, &name, location)
    }

    /// Gives an item another name; shadow buckets follow.
    ///
    /// # Errors
    /// [`Error::NoSuchItem`], [`Error::NameTaken`], [`Error::InvalidName`].
    pub fn rename_item(&mut self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        if let Some(id) = self.item_id(to) {
            return Err(Error::NameTaken {
                name: to.to_owned(),
                id,
            });
        }
        let id = self.item_id(from).ok_or(Error::NoSuchItem)?;
        self.edit(|map| {
            map.names.insert(id, to.to_owned());
            map.rebuild_shadows()
        })
    }
}
