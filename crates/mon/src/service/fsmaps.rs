//! The file systems. There are none yet, so the map is empty and never changes.

use std::ops::RangeInclusive;

use bytes::Bytes;
use spirula_maps::Epoch;
use spirula_proto::Payload;
use spirula_proto::mon::{FsMapUser, MFsMap, MFsMapUser};

use super::state::{Published, Service, Source};
use crate::core::{LoadError, Topic};

/// Epoch of the empty map.
pub const FSMAP_EPOCH: Epoch = Epoch::new(1);

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
            Topic::FsMap => MFsMap::empty(FSMAP_EPOCH).to_message(),
            Topic::FsMapUser => {
                let fsmap = FsMapUser {
                    epoch: FSMAP_EPOCH,
                    legacy_client_fscid: -1,
                    ..FsMapUser::default()
                };
                MFsMapUser {
                    epoch: FSMAP_EPOCH,
                    fsmap,
                }
                .to_message()
            }
            _ => return None,
        };
        Published::newest(next, FSMAP_EPOCH, || message)
    }

    fn versions(&self, topic: &Topic) -> Option<RangeInclusive<Epoch>> {
        matches!(topic, Topic::FsMap | Topic::MdsMap(None)).then_some(FSMAP_EPOCH..=FSMAP_EPOCH)
    }
}
