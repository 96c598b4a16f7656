//! The monitor map.

use bytes::Bytes;
use spirula_denc::encode_to_vec;
use spirula_maps::MonMap;

use super::stored;
use crate::core::LoadError;
use crate::kv::{KvRead, Txn};

const SERVICE: &str = "monmap";
const KEY: &str = "current";

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

    /// Stores a map.
    pub(crate) fn put(map: &MonMap, txn: &mut Txn) {
        txn.put(SERVICE, KEY, encode_to_vec(map));
    }
}
