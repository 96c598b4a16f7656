//! The monitor map. Keys: `current`, and `epoch_EPOCH` for every map that is kept.

use std::ops::RangeInclusive;

use bytes::Bytes;
use spirula_denc::encode_to_vec;
use spirula_maps::{Epoch, MonMap};
use spirula_proto::mon::MMonMap;
use spirula_proto::{Blob, Payload};

use super::state::{Published, Service, Source};
use super::stored;
use crate::core::{LoadError, Topic};
use crate::kv::{KvRead, Txn};

const SERVICE: &str = "monmap";
const KEY: &str = "current";
/// The number of maps that are kept.
const KEEP: u32 = 500;

fn epoch_key(epoch: Epoch) -> String {
    format!("epoch_{epoch:010}")
}

/// The newest monitor map.
#[derive(Debug, Clone)]
pub struct MonMaps {
    /// It.
    pub map: MonMap,
}

impl Service for MonMaps {
    const NAMES: &'static [&'static str] = &[SERVICE];

    fn load(from: Source<'_>) -> Result<Self, LoadError> {
        Self::read(from.kv.as_ref())
    }

    fn apply(&mut self, _: &str, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        if let (KEY, Some(value)) = (key, value) {
            self.map = stored("monmap", value)?;
        }
        Ok(())
    }

    fn publish(&self, topic: &Topic, next: u64) -> Option<Published> {
        let message = || {
            let monmap = Blob::of(&self.map);
            MMonMap { monmap }.to_message()
        };
        match topic {
            Topic::MonMap => Published::newest(next, self.map.epoch, message),
            _ => None,
        }
    }

    fn versions(&self, topic: &Topic) -> Option<RangeInclusive<Epoch>> {
        (*topic == Topic::MonMap).then_some(Epoch::FIRST..=self.map.epoch)
    }
}

impl MonMaps {
    /// The newest map in a store.
    pub(crate) fn read(kv: &dyn KvRead) -> Result<Self, LoadError> {
        let value = kv.get(SERVICE, KEY)?.ok_or(LoadError::Missing("monmap"))?;
        Ok(Self {
            map: stored("monmap", &value)?,
        })
    }

    /// The map of an epoch; `None` if it is not kept.
    pub(crate) fn at(&self, kv: &dyn KvRead, epoch: Epoch) -> Result<Option<MonMap>, LoadError> {
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
        if map.epoch.number() >= KEEP {
            txn.remove(SERVICE, epoch_key(map.epoch.before(KEEP)));
        }
    }
}
