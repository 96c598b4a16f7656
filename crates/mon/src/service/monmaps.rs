//! The monitor map. Keys: `current`, and `epoch_EPOCH` for every map that is kept.

use bytes::Bytes;
use spirula_denc::encode_to_vec;
use spirula_maps::MonMap;

use super::stored;
use crate::core::LoadError;
use crate::kv::{KvRead, Txn};

const SERVICE: &str = "monmap";
const KEY: &str = "current";
/// Maps that are kept.
const KEEP: u32 = 500;

fn epoch_key(epoch: u32) -> String {
    format!("epoch_{epoch:010}")
}

/// The newest monitor map.
#[derive(Debug, Clone)]
pub struct MonMaps {
    /// It.
    pub map: MonMap,
}

impl MonMaps {
    pub(crate) fn load(kv: &dyn KvRead) -> Result<Self, LoadError> {
        let value = kv.get(SERVICE, KEY)?.ok_or(LoadError::Missing("monmap"))?;
        Ok(Self {
            map: stored("monmap", &value)?,
        })
    }

    pub(crate) fn apply(&mut self, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        if let (KEY, Some(value)) = (key, value) {
            self.map = stored("monmap", value)?;
        }
        Ok(())
    }

    /// The map of an epoch; `None` where it is not kept.
    pub(crate) fn at(&self, kv: &dyn KvRead, epoch: u32) -> Result<Option<MonMap>, LoadError> {
        if epoch == self.map.epoch {
            return Ok(Some(self.map.clone()));
        }
        kv.get(SERVICE, &epoch_key(epoch))?
            .map(|v| stored("monmap", &v))
            .transpose()
    }

    /// Stores a map.
    pub(crate) fn put(map: &MonMap, txn: &mut Txn) {
        let encoded = Bytes::from(encode_to_vec(map));
        txn.put(SERVICE, KEY, encoded.clone());
        txn.put(SERVICE, epoch_key(map.epoch), encoded);
        if let Some(old) = map.epoch.checked_sub(KEEP) {
            txn.remove(SERVICE, epoch_key(old));
        }
    }
}
