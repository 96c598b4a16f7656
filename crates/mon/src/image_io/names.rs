//! Names of images, which their objects do not tell.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ImageKey;

/// Names are looked up again after so long, as images are renamed and removed.
const REFRESH: Duration = Duration::from_secs(300);
/// An answer that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Images of a pool and namespace whose names are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unnamed {
    /// The pool.
    pub pool: u64,
    /// The namespace.
    pub nspace: String,
    /// The images' ids.
    pub ids: Vec<String>,
}

impl Unnamed {
    fn keys(&self) -> impl Iterator<Item = ImageKey> {
        self.ids.iter().map(|id| ImageKey {
            pool: self.pool,
            nspace: self.nspace.clone(),
            id: id.clone(),
        })
    }
}

/// All names that are known.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<ImageKey, String>,
    /// Those that are being looked up, and since when.
    asked: BTreeMap<ImageKey, Duration>,
    /// When all were looked up again.
    refreshed: Option<Duration>,
}

impl Names {
    pub(super) fn has(&self, key: &ImageKey) -> bool {
        self.known.contains_key(key)
    }

    pub(super) fn get(&self, key: &ImageKey) -> Option<&str> {
        self.known.get(key).map(String::as_str)
    }

    /// Forgets the others.
    pub(super) fn keep(&mut self, is_used: impl Fn(&ImageKey) -> bool) {
        self.known.retain(|key, _| is_used(key));
    }

    /// Whether all are to be looked up again.
    pub(super) fn are_old(&mut self, now: Duration) -> bool {
        let since = *self.refreshed.get_or_insert(now);
        let old = now >= since + REFRESH;
        if old {
            self.refreshed = Some(now);
        }
        old
    }

    /// What is to be asked, by pool and namespace, to know the names of these.
    pub(super) fn want<'a>(
        &mut self,
        now: Duration,
        images: impl Iterator<Item = &'a ImageKey>,
    ) -> Vec<Unnamed> {
        self.asked.retain(|_, since| now < *since + PATIENCE);
        let mut wanted: BTreeMap<(u64, &str), Vec<String>> = BTreeMap::new();
        for key in images {
            if !self.asked.contains_key(key) {
                self.asked.insert(key.clone(), now);
                let ids = wanted.entry((key.pool, &key.nspace)).or_default();
                ids.push(key.id.clone());
            }
        }
        let unnamed = wanted.into_iter().map(|((pool, nspace), ids)| Unnamed {
            pool,
            nspace: nspace.to_owned(),
            ids,
        });
        unnamed.collect()
    }

    /// The answer: names by id. Returns the images that have none.
    pub(super) fn take(&mut self, images: &Unnamed, names: &BTreeMap<String, String>) -> Vec<ImageKey> {
        let mut gone = Vec::new();
        for key in images.keys() {
            self.asked.remove(&key);
            match names.get(&key.id) {
                Some(name) => drop(self.known.insert(key, name.clone())),
                None => {
                    self.known.remove(&key);
                    gone.push(key);
                }
            }
        }
        gone
    }
}
