//! Exchanges the contents of two buckets.

use crate::{CrushMap, Error, Result};

impl CrushMap {
    /// Exchanges two buckets' items and names, so that each takes the other's place with its own
    /// content.
    ///
    /// # Errors
    /// [`Error::NoSuchItem`]; [`Error::WrongKind`] for a device or twice the same; [`Error::Loop`]
    /// where one is below the other.
    pub fn swap_buckets(&mut self, a: i32, b: i32) -> Result<()> {
        if a >= 0 || b >= 0 || a == b {
            return Err(Error::WrongKind(a.max(b)));
        }
        self.edit(|map| {
            if map.subtree_contains(a, b) || map.subtree_contains(b, a) {
                return Err(Error::Loop(a));
            }
            // The official code keeps the second bucket's order and sorts the first one's items by
            // id.
            let mut of_a = map.take_items(a)?;
            of_a.sort_unstable();
            let of_b = map.take_items(b)?;
            map.put_items(a, &of_b)?;
            map.put_items(b, &of_a)?;
            let (name_a, name_b) = (map.names.remove(&a), map.names.remove(&b));
            map.names.extend(name_a.map(|n| (b, n)));
            map.names.extend(name_b.map(|n| (a, n)));
            map.reweighed()
        })
    }

    fn take_items(&mut self, bucket: i32) -> Result<Vec<(i32, u32)>> {
        let items: Vec<(i32, u32)> = self.bucket(bucket).ok_or(Error::NoSuchItem)?.iter().collect();
        for (item, _) in &items {
            self.remove_child(bucket, *item)?;
        }
        Ok(items)
    }

    fn put_items(&mut self, bucket: i32, items: &[(i32, u32)]) -> Result<()> {
        for (item, weight) in items {
            self.add_child(bucket, *item, *weight)?;
        }
        self.propagate(bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loc(text: &str) -> crate::Location {
        CrushMap::parse_location(text.split(' ')).unwrap()
    }

    #[test]
    fn an_orphan_takes_a_hosts_place() {
        let mut c = CrushMap::with_default_root("host").unwrap();
        for osd in 0..3 {
            let name = format!("osd.{osd}");
            c.insert_item(osd, 0x10000, &name, &loc("host=old root=default"))
                .unwrap();
        }
        let new = c.add_bucket("new", "host", None).unwrap();
        c.insert_item(3, 0x8000, "osd.3", &loc("host=new")).unwrap();
        let (old, root) = (c.item_id("old").unwrap(), c.item_id("default").unwrap());
        c.swap_buckets(new, old).unwrap();
        assert_eq!((c.item_id("new"), c.item_id("old")), (Some(old), Some(new)));
        assert_eq!(c.bucket(old).unwrap().items, [3]);
        assert_eq!(c.bucket(new).unwrap().items, [0, 1, 2]);
        assert_eq!(c.bucket(root).unwrap().weight, 0x8000);
        assert!(c.swap_buckets(old, root).is_err());
        assert!(c.swap_buckets(root, root).is_err());
        assert!(c.swap_buckets(0, root).is_err());
    }
}
