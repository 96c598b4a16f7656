//! The file systems. There are none yet, so the map is empty and never changes. What commands show
//! of the map is made here too.

use std::ops::RangeInclusive;

use bytes::Bytes;
use serde_json::{Value, json};
use spirula_maps::Epoch;
use spirula_proto::Payload;
use spirula_proto::mon::{FsMapUser, MFsMap, MFsMapUser};

use super::state::{Published, Service, Source};
use crate::core::{LoadError, Topic};

/// Epoch of the empty map.
const EPOCH: Epoch = Epoch::new(1);

/// The empty map.
#[derive(Debug)]
pub struct FsMaps;

impl Service for FsMaps {
    const NAMES: &'static [&'static str] = &[];

    fn load(_: Source<'_>) -> Result<Self, LoadError> {
        Ok(Self)
    }

    fn apply(&mut self, _: &str, _: &str, _: Option<&Bytes>) -> Result<(), LoadError> {
        Ok(())
    }

    fn publish(&self, topic: &Topic, next: u64) -> Option<Published> {
        let message = match topic {
            Topic::FsMap => MFsMap::empty(self.epoch()).to_message(),
            Topic::FsMapUser => {
                let fsmap = FsMapUser {
                    epoch: self.epoch(),
                    legacy_client_fscid: -1,
                    ..FsMapUser::default()
                };
                MFsMapUser {
                    epoch: self.epoch(),
                    fsmap,
                }
                .to_message()
            }
            _ => return None,
        };
        Published::newest(next, self.epoch(), || message)
    }

    fn versions(&self, topic: &Topic) -> Option<RangeInclusive<Epoch>> {
        matches!(topic, Topic::FsMap | Topic::MdsMap(None)).then(|| self.epochs())
    }
}

impl FsMaps {
    /// The map's epoch.
    pub(crate) fn epoch(&self) -> Epoch {
        EPOCH
    }

    /// The epochs that are kept.
    pub(crate) fn epochs(&self) -> RangeInclusive<Epoch> {
        self.epoch()..=self.epoch()
    }

    /// The whole map, for `fs dump` and `report`.
    pub(crate) fn dump_json(&self) -> Value {
        json!({"epoch": self.epoch(), "default_fscid": -1, "standbys": [], "filesystems": []})
    }

    /// The whole map as lines, for `fs dump`.
    pub(crate) fn dump_text(&self) -> String {
        format!(
            "e{}\nenable_multiple, ever_enabled_multiple: 1,1\nlegacy client fscid: -1\n \nNo filesystems configured\n",
            self.epoch()
        )
    }

    /// The part of the map that `mds stat` shows.
    pub(crate) fn stat_json(&self) -> Value {
        json!({"epoch": self.epoch(), "filesystems": [], "standbys": []})
    }

    /// The part of the map that `status` shows.
    pub(crate) fn summary_json(&self) -> Value {
        json!({"epoch": self.epoch(), "by_rank": [], "up:standby": 0})
    }
}
