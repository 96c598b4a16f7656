//! Names of images, which are not part of their objects' names.

use std::collections::BTreeMap;
use std::time::Duration;

use spirula_manager::ImagesToName;
use spirula_maps::PoolId;

use super::ImageKey;

/// Names are looked up again after this long, as images are renamed and removed.
const REFRESH: Duration = Duration::from_secs(300);
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The images that were asked for.
fn keys(images: &ImagesToName) -> impl Iterator<Item = ImageKey> {
    images.ids.iter().map(move |id| ImageKey {
        pool: images.pool,
        nspace: images.namespace.clone(),
        id: id.clone(),
    })
}

/// All names that are known.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<ImageKey, String>,
    /// The images whose names are being looked up, and since when.
    asked: BTreeMap<ImageKey, Duration>,
    /// When all names were last looked up again.
    refreshed: Option<Duration>,
}

impl Names {
    pub(super) fn has(&self, key: &ImageKey) -> bool {
        self.known.contains_key(key)
    }

    pub(super) fn get(&self, key: &ImageKey) -> Option<&str> {
        self.known.get(key).map(String::as_str)
    }

    /// Forgets the images that are not used.
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

    /// The questions, by pool and namespace, for the names of these images.
    pub(super) fn want<'a>(
        &mut self,
        now: Duration,
        images: impl Iterator<Item = &'a ImageKey>,
    ) -> Vec<ImagesToName> {
        self.asked.retain(|_, since| now < *since + PATIENCE);
        let mut wanted: BTreeMap<(PoolId, &str), Vec<String>> = BTreeMap::new();
        for key in images {
            if !self.asked.contains_key(key) {
                self.asked.insert(key.clone(), now);
                let ids = wanted.entry((key.pool, &key.nspace)).or_default();
                ids.push(key.id.clone());
            }
        }
        let unnamed = wanted.into_iter().map(|((pool, nspace), ids)| ImagesToName {
            pool,
            namespace: nspace.to_owned(),
            ids,
        });
        unnamed.collect()
    }

    /// Adopts the answer: names by id. Returns the images that have none.
    pub(super) fn take(&mut self, images: &ImagesToName, names: &BTreeMap<String, String>) -> Vec<ImageKey> {
        let mut gone = Vec::new();
        for key in keys(images) {
            // The answer names an image that was not asked for.
            if self.asked.remove(&key).is_none() {
                continue;
            }
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
