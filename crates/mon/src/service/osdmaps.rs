//! The OSDMap: its history in the store, the newest one in memory.
//!
//! Keys: `inc_EPOCH` for every kept epoch but the first, `full_EPOCH` for the first and every
//! twentieth, `first` and `last` for the range. A full map between two stored ones is the one
//! before with incrementals applied.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use spirula_denc::{decode_all, encode_to_vec};
use spirula_maps::{Epoch, Incremental, OsdId, OsdMap};
use spirula_proto::mon::MOsdMap;
use spirula_proto::{Payload, RawMessage};

use super::osd_lives::Lives;
use super::state::{Published, Service, Source};
use super::stored;
use crate::core::{LoadError, Topic, View};
use crate::kv::{KvRead, Txn};

const SERVICE: &str = "osdmap";
/// A full map is stored at epochs that are multiples of this.
const FULL_EVERY: u32 = 20;
/// Epochs in one message.
const MAPS_PER_MESSAGE: u32 = 40;

/// The OSDMaps.
pub struct OsdMaps {
    kv: Rc<dyn KvRead>,
    /// The newest map.
    pub map: Rc<OsdMap>,
    /// The newest map, encoded.
    full: Bytes,
    /// The oldest epoch that is kept.
    pub first: Epoch,
    /// The state of the OSDs besides the map.
    pub(crate) lives: Lives,
}

fn full_key(epoch: Epoch) -> String {
    format!("full_{epoch:010}")
}

fn inc_key(epoch: Epoch) -> String {
    format!("inc_{epoch:010}")
}

fn broken(epoch: Epoch, why: impl std::fmt::Display) -> LoadError {
    LoadError::Map {
        epoch,
        why: why.to_string(),
    }
}

impl Service for OsdMaps {
    const NAMES: &'static [&'static str] = &[SERVICE];

    fn load(from: Source<'_>) -> Result<Self, LoadError> {
        let kv = Rc::clone(from.kv);
        let number = |key: &'static str| -> Result<Epoch, LoadError> {
            stored(
                "osdmap range",
                &kv.get(SERVICE, key)?.ok_or(LoadError::Missing("osdmap"))?,
            )
        };
        let (first, last) = (number("first")?, number("last")?);
        let map = Self::read_full(kv.as_ref(), first, last)?;
        let full = map.encode_with_crc().0;
        Ok(Self {
            kv,
            map: Rc::new(map),
            full,
            first,
            lives: Lives::default(),
        })
    }

    fn apply(&mut self, _: &str, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        let Some(value) = value else { return Ok(()) };
        if key == "first" {
            self.first = stored("osdmap range", value)?;
        } else if key.starts_with("inc_") {
            let inc: Incremental = stored("incremental", value)?;
            if inc.epoch != self.map.epoch.next() {
                // Everything up to the map was in the state that was loaded.
                return Ok(());
            }
            let mut next = (*self.map).clone();
            next.apply(&inc).map_err(|e| broken(inc.epoch, e))?;
            let (full, crc) = next.encode_with_crc();
            if crc != inc.full_crc {
                return Err(broken(inc.epoch, "checksum"));
            }
            self.full = full;
            self.map = Rc::new(next);
        }
        Ok(())
    }

    fn publish(&self, topic: &Topic, next: u64) -> Option<Published> {
        match topic {
            Topic::OsdMap => self.since(next),
            _ => None,
        }
    }

    fn trim(&self, view: &View, txn: &mut Txn) {
        self.forget_before(view.first_needed_osdmap(), txn);
    }

    fn versions(&self, topic: &Topic) -> Option<RangeInclusive<Epoch>> {
        (*topic == Topic::OsdMap).then(|| self.first..=self.map.epoch)
    }
}

impl OsdMaps {
    fn read_full(kv: &dyn KvRead, first: Epoch, epoch: Epoch) -> Result<OsdMap, LoadError> {
        let mut base = epoch;
        let mut map: OsdMap = loop {
            match kv.get(SERVICE, &full_key(base))? {
                Some(b) => break decode_all(&b).map_err(|e| broken(base, e))?,
                None if base > first => base = base.before(1),
                None => return Err(broken(epoch, "no full map before it")),
            }
        };
        for e in Epoch::all(base.next()..=epoch) {
            let inc = kv
                .get(SERVICE, &inc_key(e))?
                .ok_or_else(|| broken(e, "no incremental"))?;
            let inc: Incremental = decode_all(&inc).map_err(|x| broken(e, x))?;
            map.apply_checked(&inc).map_err(|x| broken(e, x))?;
        }
        Ok(map)
    }

    /// The map of an epoch; `None` if it is not kept.
    ///
    /// # Errors
    /// Where the store is damaged.
    pub fn at(&self, epoch: Epoch) -> Result<Option<Rc<OsdMap>>, LoadError> {
        if epoch == self.map.epoch {
            return Ok(Some(self.map.clone()));
        }
        if epoch < self.first || epoch > self.map.epoch {
            return Ok(None);
        }
        Self::read_full(self.kv.as_ref(), self.first, epoch).map(|m| Some(Rc::new(m)))
    }

    /// The newest map, encoded.
    pub fn encoded(&self) -> &Bytes {
        &self.full
    }

    /// The transaction that commits `inc`.
    pub(crate) fn encode(&self, mut inc: Incremental) -> Result<Txn, spirula_maps::ApplyError> {
        let mut next = (*self.map).clone();
        inc.full_crc = 0;
        next.apply(&inc)?;
        let (full, crc) = next.encode_with_crc();
        inc.full_crc = crc;
        let mut txn = Txn::default();
        txn.put(SERVICE, inc_key(inc.epoch), encode_to_vec(&inc));
        if inc.epoch.number().is_multiple_of(FULL_EVERY) {
            txn.put(SERVICE, full_key(inc.epoch), full);
        }
        txn.put(SERVICE, "last", encode_to_vec(&inc.epoch));
        Ok(txn)
    }

    /// Stores the first map.
    pub(crate) fn create(map: &OsdMap, txn: &mut Txn) {
        txn.put(SERVICE, full_key(map.epoch), map.encode_with_crc().0);
        txn.put(SERVICE, "first", encode_to_vec(&map.epoch));
        txn.put(SERVICE, "last", encode_to_vec(&map.epoch));
    }

    /// Forgets epochs before `keep_from`, as far as a stored full map allows.
    fn forget_before(&self, keep_from: Epoch, txn: &mut Txn) {
        let new_first = Epoch::new(keep_from.number() / FULL_EVERY * FULL_EVERY);
        if new_first <= self.first || new_first > self.map.epoch {
            return;
        }
        for epoch in Epoch::all(self.first..=new_first.before(1)) {
            txn.remove(SERVICE, inc_key(epoch));
            if epoch == self.first || epoch.number().is_multiple_of(FULL_EVERY) {
                txn.remove(SERVICE, full_key(epoch));
            }
        }
        txn.put(SERVICE, "first", encode_to_vec(&new_first));
    }

    fn message(&self, incrementals: BTreeMap<Epoch, Bytes>, maps: BTreeMap<Epoch, Bytes>) -> RawMessage {
        MOsdMap {
            fsid: self.map.fsid,
            incrementals,
            maps,
            oldest: self.first,
            newest: self.map.epoch,
        }
        .to_message()
    }

    /// A message with one full map.
    pub(crate) fn full_message(&self, epoch: Epoch) -> Option<RawMessage> {
        let full = self.full_bytes(epoch)?;
        Some(self.message(BTreeMap::new(), BTreeMap::from([(epoch, full)])))
    }

    fn full_bytes(&self, epoch: Epoch) -> Option<Bytes> {
        if epoch == self.map.epoch {
            return Some(self.full.clone());
        }
        match self.kv.get(SERVICE, &full_key(epoch)) {
            Ok(Some(b)) => Some(b),
            _ => Some(self.at(epoch).ok()??.encode_with_crc().0),
        }
    }

    fn inc_bytes(&self, epoch: Epoch) -> Option<Bytes> {
        self.kv.get(SERVICE, &inc_key(epoch)).ok().flatten()
    }

    /// Incrementals from `first` to `last`, with a full map in place of those that are no longer
    /// kept. Also returns the last epoch in the message.
    pub(crate) fn range_message(&self, first: Epoch, last: Epoch) -> Option<(RawMessage, Epoch)> {
        let mut maps = BTreeMap::new();
        let mut from = first;
        if first <= self.first {
            maps.insert(self.first, self.full_bytes(self.first)?);
            from = self.first.next();
        }
        let last = last.max(from.before(1)).min(self.map.epoch);
        let mut incs = BTreeMap::new();
        for epoch in Epoch::all(from..=last) {
            incs.insert(epoch, self.inc_bytes(epoch)?);
        }
        Some((self.message(incs, maps), last))
    }

    /// The newest map in full for a subscriber that has none, else the maps from epoch `next` on.
    fn since(&self, next: u64) -> Option<Published> {
        let epoch = self.map.epoch;
        if next > u64::from(epoch) {
            return None;
        }
        let mut first = Epoch::try_from(next).unwrap_or_default();
        let mut messages = Vec::new();
        if first.is_none() {
            messages.push(self.full_message(epoch)?);
        } else {
            while first <= epoch {
                let last = epoch.min(first.after(MAPS_PER_MESSAGE - 1));
                let Some((message, sent)) = self.range_message(first, last) else {
                    tracing::error!("osdmaps {first} to {last} cannot be read");
                    return None;
                };
                messages.push(message);
                first = sent.next();
            }
        }
        let next = u64::from(epoch) + 1;
        Some(Published { messages, next })
    }

    /// The maps that an `MMonGetOSDMap` asks for, if they are kept; a range from 0 on
    /// asks for none.
    pub(crate) fn ranges_message(
        &self,
        full: RangeInclusive<Epoch>,
        inc: RangeInclusive<Epoch>,
    ) -> Option<RawMessage> {
        let clamp = |asked: RangeInclusive<Epoch>, low: Epoch| {
            let (newest, first) = (self.map.epoch, *asked.start().max(&low));
            first..=newest.min(*asked.end()).min(first.after(MAPS_PER_MESSAGE - 1))
        };
        let (mut maps, mut incs) = (BTreeMap::new(), BTreeMap::new());
        if *full.start() > Epoch::NONE {
            for e in Epoch::all(clamp(full, self.first)) {
                maps.insert(e, self.full_bytes(e)?);
            }
        }
        if *inc.start() > Epoch::NONE {
            for e in Epoch::all(clamp(inc, self.first.next())) {
                incs.insert(e, self.inc_bytes(e)?);
            }
        }
        Some(self.message(incs, maps))
    }

    /// Prepares for leading: silence is counted from now, on the monitor's steady clock.
    pub(crate) fn start(&mut self, now: Duration) {
        self.lives.start(now, &self.map);
    }

    /// Follows a possible change of the map.
    pub(crate) fn follow(&mut self, before: &Rc<OsdMap>, now: Duration) {
        if !Rc::ptr_eq(before, &self.map) {
            self.lives.follow(before, &self.map, now);
        }
    }

    /// Notes a sign of life of an OSD.
    pub(crate) fn seen(&mut self, osd: OsdId, now: Duration) {
        self.lives.seen(osd, now);
    }

    /// Notes that an OSD's last session broke.
    pub(crate) fn lost(&mut self, osd: OsdId, now: Duration) {
        self.lives.lost(osd, now);
    }
}
