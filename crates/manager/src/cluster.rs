//! The cluster as the manager's modules see it: at one moment, whatever changes meanwhile.

use std::rc::Rc;

use spirula_client::{IoCtx, Rados};
use spirula_maps::{OsdMap, PoolId};

use crate::failure::Failure;
use crate::question::errno;

/// The application that pools of images are for.
pub const IMAGES: &str = "rbd";

/// The cluster at one moment. Modules do not ask for maps themselves: a command, or one round of
/// work, sees one cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Snapshot {
    /// `None` before the first map.
    map: Option<Rc<OsdMap>>,
}

impl Snapshot {
    /// The pools for images, by id.
    pub(crate) fn image_pools(&self) -> impl Iterator<Item = (PoolId, &str)> {
        self.map.iter().flat_map(|map| map.pools_for(IMAGES))
    }

    /// The name of a pool, by its id.
    pub(crate) fn pool_name(&self, id: PoolId) -> &str {
        let found = self.map.as_ref().and_then(|map| map.pool_names.get(&id));
        found.map_or("<unknown>", String::as_str)
    }

    /// The id of the pool of this name.
    pub(crate) fn pool_id(&self, name: &str) -> Option<PoolId> {
        self.map.as_ref()?.pool_id(name)
    }

    /// The id of the pool that a user names.
    ///
    /// # Errors
    /// `ENOENT`, with the message of a pool that can't be opened.
    pub(crate) fn need_pool(&self, name: &str) -> Result<PoolId, Failure> {
        let missing = || Failure::Rados(errno::ENOENT, format!("error opening pool '{name}'"));
        self.pool_id(name).ok_or_else(missing)
    }
}

/// The manager's reader: it reads maps, lists and headers, and writes the records of tasks and
/// schedules. Clones share it.
#[derive(Clone)]
pub(crate) struct Cluster {
    rados: Rados,
}

impl Cluster {
    pub(crate) fn new(rados: Rados) -> Self {
        Self { rados }
    }

    /// The cluster now, after asking the monitors.
    pub(crate) async fn newest(&self) -> Result<Snapshot, Failure> {
        let map = self.rados.latest_map().await;
        let map = map.map_err(|e| Failure::rados(&e, "error waiting for the latest osdmap"))?;
        Ok(Snapshot { map: Some(map) })
    }

    /// The cluster as the reader last heard of it.
    pub(crate) fn known(&self) -> Snapshot {
        Snapshot {
            map: self.rados.map(),
        }
    }

    /// Opens a pool.
    pub(crate) async fn pool(&self, id: PoolId) -> Result<IoCtx, Failure> {
        let opened = self.rados.pool_by_id(id).await;
        opened.map_err(|e| Failure::rados(&e, format!("error opening pool id '{id}'")))
    }

    pub(crate) fn rados(&self) -> &Rados {
        &self.rados
    }
}

#[cfg(test)]
mod tests {
    use spirula_crush::CrushMap;
    use spirula_denc::Fsid;

    use super::*;

    #[test]
    fn a_snapshot_stays_what_it_is() {
        let map = |name: &str| {
            let mut map = OsdMap::new(Fsid::default(), CrushMap::default());
            map.pool_names.insert(PoolId::new(1), name.to_owned());
            Snapshot {
                map: Some(Rc::new(map)),
            }
        };
        let (before, none) = (map("p"), Snapshot { map: None });
        assert_eq!(
            (before.pool_name(PoolId::new(1)), before.pool_name(PoolId::new(2))),
            ("p", "<unknown>")
        );
        assert_eq!(
            (none.pool_name(PoolId::new(1)), none.image_pools().count()),
            ("<unknown>", 0)
        );
        assert_eq!(
            before.need_pool("q").unwrap_err().text(),
            "[errno 2] RADOS object not found (error opening pool 'q')"
        );
    }
}
