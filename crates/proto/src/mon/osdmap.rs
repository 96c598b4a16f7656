//! OSDMaps and the request for particular epochs.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use bytes::Bytes;
use spirula_denc::{Encode, Fsid, Reader, Result, Writer};
use spirula_maps::Epoch;

use crate::macros::message;
use crate::mon::PaxosVersion;
use crate::{Body, MsgType, Payload, RawMessage, priority};

/// Encoded OSDMaps, shared between all messages that carry them.
type Maps = BTreeMap<Epoch, Bytes>;

/// Full and incremental OSDMaps by epoch, from monitors and OSDs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MOsdMap {
    /// The cluster.
    pub fsid: Fsid,
    /// Encoded incrementals; each leads to its epoch from the one before.
    pub incrementals: Maps,
    /// Encoded full maps.
    pub maps: Maps,
    /// The oldest epoch the sender can provide.
    pub oldest: Epoch,
    /// The newest epoch the sender has.
    pub newest: Epoch,
}

impl MOsdMap {
    /// The first to the last epoch of the maps; `None` if there are none.
    pub fn range(&self) -> Option<RangeInclusive<Epoch>> {
        let epochs = || self.incrementals.keys().chain(self.maps.keys());
        Some(*epochs().min()?..=*epochs().max()?)
    }
}

fn decode_maps(r: &mut Reader<'_>, front: &Bytes) -> Result<Maps> {
    let n = r.count(8)?;
    let mut out = Maps::new();
    for _ in 0..n {
        let epoch = r.get()?;
        out.insert(epoch, front.slice_ref(r.blob()?));
    }
    Ok(out)
}

impl Payload for MOsdMap {
    const TYPE: MsgType = MsgType::OSD_MAP;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 3;
    const OLDEST: u16 = 2;
    const PRIORITY: u16 = priority::HIGH;

    fn encode(&self, out: &mut Body) {
        let size: usize = self
            .incrementals
            .values()
            .chain(self.maps.values())
            .map(|b| b.len() + 8)
            .sum();
        let mut w = Writer::with_capacity(size + 40);
        self.fsid.encode(&mut w);
        w.put(&self.incrementals);
        w.put(&self.maps);
        w.put(&self.oldest);
        w.put(&self.newest);
        // Version 4 listed removed snapshots; since Octopus the list is empty.
        w.u32(0);
        out.front = w;
    }

    fn decode(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        Ok(Self {
            fsid: r.get()?,
            incrementals: decode_maps(r, &msg.front)?,
            maps: decode_maps(r, &msg.front)?,
            oldest: r.get()?,
            newest: r.get()?,
        })
    }
}

message! {
    /// Asks a monitor for ranges of epochs; 0 for no range.
    pub struct MMonGetOsdMap: MON_GET_OSDMAP, version 1, compat 1 {
        /// Unused prefix.
        pub paxos: PaxosVersion,
        /// First full map.
        pub full_first: Epoch,
        /// Last full map.
        pub full_last: Epoch,
        /// First incremental.
        pub inc_first: Epoch,
        /// Last incremental.
        pub inc_last: Epoch,
    }
}
