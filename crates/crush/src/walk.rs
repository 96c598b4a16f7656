//! Walking the hierarchy in the order in which `ceph osd tree` and `ceph osd df tree` show it.

use crate::CrushMap;

/// One line of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkItem {
    /// Device or bucket.
    pub id: i32,
    /// The bucket above; 0 for a root.
    pub parent: i32,
    /// Distance from the root.
    pub depth: usize,
    /// The weight in the parent, 16.16; a root's own.
    pub weight: u32,
    /// Children in descending order, as dumps list them; the walk meets them in ascending order.
    pub children: Vec<i32>,
}

/// A depth-first walk. Children come ordered by (class, id) for devices and by name for buckets.
pub struct Walk<'a> {
    map: &'a CrushMap,
    roots: std::vec::IntoIter<i32>,
    stack: Vec<WalkItem>,
    show_device: Box<dyn Fn(i32) -> bool + 'a>,
    show_empty: bool,
}

impl CrushMap {
    /// Walks everything, without shadow trees.
    pub fn walk(&self) -> Walk<'_> {
        self.walk_from(self.plain_roots())
    }

    /// Walks from the given roots; [`CrushMap::roots`] includes the shadow trees.
    pub fn walk_from(&self, roots: Vec<i32>) -> Walk<'_> {
        let roots = roots.into_iter();
        Walk {
            map: self,
            roots,
            stack: Vec::new(),
            show_device: Box::new(|_| true),
            show_empty: true,
        }
    }
}

impl<'a> Walk<'a> {
    /// Shows only the devices for which `show` holds, and the buckets above such devices.
    #[must_use]
    pub fn only_devices(mut self, show: impl Fn(i32) -> bool + 'a) -> Self {
        self.show_device = Box::new(show);
        self.show_empty = false;
        self
    }

    fn shows(&self, id: i32) -> bool {
        match id {
            0.. => (self.show_device)(id),
            _ if self.show_empty => true,
            _ => self
                .map
                .devices_below(id)
                .into_iter()
                .any(|d| (self.show_device)(d)),
        }
    }

    /// The sort key of children, compared as text: `class_osd.00000042`, `_name`.
    fn sort_key(&self, id: i32) -> String {
        if id >= 0 {
            format!("{}_osd.{id:08}", self.map.class_of(id).unwrap_or_default())
        } else {
            format!("_{}", self.map.name(id).unwrap_or_default())
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = WalkItem;

    fn next(&mut self) -> Option<WalkItem> {
        if self.stack.is_empty() {
            let id = loop {
                let id = self.roots.next()?;
                if self.shows(id) {
                    break id;
                }
            };
            let weight = self.map.bucket(id).map_or(0, |b| b.weight);
            self.stack.push(WalkItem {
                id,
                parent: 0,
                depth: 0,
                weight,
                children: Vec::new(),
            });
        }
        let mut item = self.stack.pop()?;
        if let Some(bucket) = self.map.bucket(item.id) {
            let mut below: Vec<(String, i32, u32)> = bucket
                .iter()
                .filter(|(id, _)| self.shows(*id))
                .map(|(id, weight)| (self.sort_key(id), id, weight))
                .collect();
            below.sort_unstable_by(|a, b| b.0.cmp(&a.0));
            for (_, id, weight) in below {
                item.children.push(id);
                let depth = item.depth + 1;
                self.stack.push(WalkItem {
                    id,
                    parent: item.id,
                    depth,
                    weight,
                    children: Vec::new(),
                });
            }
        }
        Some(item)
    }
}
