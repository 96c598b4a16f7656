//! The OSDMaps that the daemon has: the newest, and the last incrementals for clients and peers
//! that are behind.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, decode_all, encode_to_vec};
use spirula_invariant::invariant;
use spirula_maps::{Epoch, Incremental, OsdMap, PoolId};
use spirula_proto::mon::MOsdMap;
use spirula_proto::{Payload, RawMessage};
use spirula_store::{Store, Usage};
use tokio::sync::Notify;

use super::OsdError;
use super::map_view::MapView;
use super::purged_snaps::PurgedSnaps;
use super::setup::Setup;
use super::state::Osd;
use crate::core::DAEMON_SLOT;
use crate::pg::Token;
use crate::pg::txn::{MetaOp, Txn};

/// The record of the newest full map.
const FULL: &[u8] = b"Mf";
/// The record of the epoch since which the OSD has its store.
const KEPT_SINCE: &[u8] = b"Ms";
/// The record of the epochs in which pools were made.
const CREATED: &[u8] = b"Mc";
/// The number of incrementals kept in memory.
const KEEP: usize = 200;

/// The daemon's maps.
pub(super) struct Maps {
    view: Arc<MapView>,
    /// The epoch in which the OSD was first up with its store; `None` before that. A store that is
    /// older than this record counts from its first start with it.
    kept_since: Option<Epoch>,
    /// The purged snapshots for the next view.
    pub(super) purged: PurgedSnaps,
    /// Encoded incrementals by epoch.
    recent: BTreeMap<Epoch, Bytes>,
    /// Notified when a new map has come.
    pub(super) news: Rc<Notify>,
}

impl Maps {
    /// The number of encoded maps in memory, and their bytes.
    pub(super) fn encoded(&self) -> Usage {
        Usage {
            items: self.recent.len(),
            bytes: self.recent.values().map(Bytes::len).sum(),
        }
    }

    /// The maps that the store remembers; an empty one of epoch 0 for a new OSD.
    pub(super) fn load(store: &mut Store, fsid: spirula_denc::Fsid) -> Result<Self, OsdError> {
        let damaged = |what: &str| {
            let what = what.to_owned();
            move |source| OsdError::Damaged { what, source }
        };
        let map = match store.meta_get(FULL)? {
            Some(b) => decode_all::<OsdMap>(&b).map_err(damaged("the OSDMap"))?,
            None => {
                let mut map = OsdMap::new(fsid, spirula_crush::CrushMap::default());
                map.epoch = Epoch::NONE;
                map
            }
        };
        let kept_since = match store.meta_get(KEPT_SINCE)? {
            Some(b) => Some(decode_all(&b).map_err(damaged("the age of the store"))?),
            None => None,
        };
        let created = match store.meta_get(CREATED)? {
            Some(b) => decode_all(&b).map_err(damaged("the list of pools"))?,
            None => BTreeMap::new(),
        };
        let mut purged = PurgedSnaps::default();
        purged.missed_some();
        Ok(Self {
            view: Arc::new(MapView {
                map,
                created,
                purged: purged.clone(),
            }),
            kept_since,
            purged,
            recent: BTreeMap::new(),
            news: Rc::new(Notify::new()),
        })
    }

    pub(super) fn view(&self) -> &Arc<MapView> {
        &self.view
    }

    pub(super) fn map(&self) -> &OsdMap {
        &self.view.map
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.view.map.epoch
    }

    /// Since when the OSD has its store: [`Ctx::kept_since`].
    ///
    /// [`Ctx::kept_since`]: crate::pg::Ctx::kept_since
    pub(super) fn kept_since(&self) -> Option<Epoch> {
        self.kept_since
    }

    /// Whether the newest map says that this process is up.
    pub(super) fn have_up(&self, setup: &Setup) -> bool {
        let map = self.map();
        let addr = map.client_addrs(setup.id()).and_then(|a| a.v2());
        map.is_up(setup.id()) && addr == Some(&setup.addrs.public)
    }

    /// Keeps an incremental for clients and peers that are behind.
    fn keep(&mut self, epoch: Epoch, inc: Bytes) {
        self.recent.insert(epoch, inc);
        while self.recent.len() > KEEP {
            self.recent.pop_first();
        }
    }

    /// Adopts the next map.
    fn take_over(&mut self, view: MapView) {
        invariant!(
            view.map.epoch > self.epoch(),
            "maps whose epochs ascend";
            newest = self.epoch(), epoch = view.map.epoch
        );
        self.view = Arc::new(view);
    }

    /// A message with the maps that a peer at `epoch` lacks; `None` if there are none.
    pub(super) fn since(&self, epoch: Epoch) -> Option<RawMessage> {
        let newest = self.epoch();
        if epoch >= newest {
            return None;
        }
        let mut m = MOsdMap {
            fsid: self.map().fsid,
            oldest: newest,
            newest,
            ..MOsdMap::default()
        };
        if epoch > Epoch::NONE && self.recent.contains_key(&epoch.next()) {
            m.incrementals = self
                .recent
                .range(epoch.next()..)
                .map(|(e, b)| (*e, b.clone()))
                .collect();
            m.oldest = epoch.next();
        } else {
            m.maps.insert(newest, self.view.map.encode_with_crc().0);
        }
        Some(m.to_message())
    }

    /// Whether the maps of a message do not help, so that only a full map from a monitor does: the
    /// next incremental does not apply, or none is the next.
    fn needs_full(&self, m: &MOsdMap, changed: bool) -> bool {
        m.incrementals.contains_key(&self.epoch().next()) || !changed && m.newest > self.epoch()
    }

    fn created_after(&self, inc: &Incremental) -> BTreeMap<PoolId, Epoch> {
        let mut created = self.view.created.clone();
        for id in inc.new_pools.keys() {
            created.entry(*id).or_insert(inc.epoch);
        }
        for id in &inc.old_pools {
            created.remove(id);
        }
        created
    }

    /// The next map that `m` makes possible, and whether maps before it were missed.
    fn next(&mut self, m: &MOsdMap) -> Result<Option<(MapView, bool)>, spirula_denc::Error> {
        let epoch = self.epoch();
        if let Some(b) = m.incrementals.get(&epoch.next()).filter(|_| epoch > Epoch::NONE) {
            let inc = Incremental::decode(&mut Reader::new(b))?;
            let mut map = self.map().clone();
            match map.apply_checked(&inc) {
                Ok(()) => {
                    self.purged.follow(&inc);
                    let view = MapView {
                        map,
                        created: self.created_after(&inc),
                        purged: self.purged.clone(),
                    };
                    return Ok(Some((view, false)));
                }
                // A full map helps.
                Err(e) => tracing::warn!(epoch = %epoch.next(), "an incremental OSDMap does not apply: {e}"),
            }
        }
        let Some((&e, b)) = m.maps.iter().find(|(e, _)| **e > epoch) else {
            return Ok(None);
        };
        let map: OsdMap = decode_all(b)?;
        if map.epoch != e {
            return Err(spirula_denc::Error::Invalid("the epoch of an OSDMap"));
        }
        let mut created = self.view.created.clone();
        created.retain(|id, _| map.pool(*id).is_some());
        self.purged.missed_some();
        let purged = self.purged.clone();
        Ok(Some((MapView { map, created, purged }, e > epoch.next())))
    }
}

impl Osd {
    /// Adopts the maps of a message, one epoch after the other.
    pub(super) fn handle_maps(&mut self, msg: &RawMessage) -> spirula_proto::Result<()> {
        let m: MOsdMap = msg.decode()?;
        let mut changed = false;
        loop {
            let next = match self.maps.next(&m) {
                Ok(next) => next,
                Err(source) => {
                    let kind = msg.header.kind;
                    return Err(spirula_proto::Error::Field { kind, source });
                }
            };
            let Some((view, gap)) = next else { break };
            let (epoch, was_up) = (view.map.epoch, self.is_up());
            let inc = m.incrementals.get(&epoch);
            if gap {
                self.maps.recent.clear();
            } else if let Some(b) = inc {
                // Copied, so that the message goes.
                self.maps.keep(epoch, Bytes::copy_from_slice(b));
            }
            self.maps.take_over(view);
            changed = true;
            let (map, up) = (Arc::clone(&self.maps.view), self.is_up());
            if up && self.maps.kept_since.is_none() {
                self.maps.kept_since = Some(self.setup.info(self.maps.map()).up_from);
            }
            self.drive(|core, cx| core.handle_map(map, gap, up, cx));
            self.standing().look_at_own_state(was_up);
        }
        if changed {
            self.save_map();
            self.mons.ask_for_purged_snaps(&self.maps);
            self.maps_changed();
        }
        if self.maps.needs_full(&m, changed) {
            self.mons.client.subscribe("osdmap", 0);
        }
        Ok(())
    }

    /// Stores the map, after the PGs' own records, which the same map changed.
    fn save_map(&mut self) {
        let view = &self.maps.view;
        let full = view.map.encode_with_crc().0;
        let mut created = spirula_denc::Writer::new();
        view.created.encode(&mut created);
        let mut meta = vec![
            MetaOp::Put(Bytes::from_static(FULL), full),
            MetaOp::Put(Bytes::from_static(CREATED), created.into_vec().into()),
        ];
        if let Some(since) = self.maps.kept_since {
            let since = encode_to_vec(&since).into();
            meta.push(MetaOp::Put(Bytes::from_static(KEPT_SINCE), since));
        }
        if let Err(e) = self.submit(
            Token::new(DAEMON_SLOT, 0),
            Txn {
                objects: Vec::new(),
                meta,
            },
        ) {
            self.fail(e.into());
        }
    }

    fn maps_changed(&mut self) {
        let epoch = self.maps.epoch();
        self.mons.client.received("osdmap", u64::from(epoch));
        for peer in self.peers.links.map_changed(&self.maps) {
            self.link_down(peer);
        }
        self.beating().choose_peers();
        self.maps.news.notify_one();
        tracing::debug!(%epoch, up = self.is_up(), "new OSDMap");
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::Fsid;

    use super::*;

    fn map(epoch: Epoch) -> OsdMap {
        let mut map = OsdMap::new(Fsid::default(), spirula_crush::CrushMap::default());
        map.epoch = epoch;
        map
    }

    fn maps(epoch: Epoch) -> Maps {
        Maps {
            view: Arc::new(MapView {
                map: map(epoch),
                created: BTreeMap::new(),
                purged: PurgedSnaps::default(),
            }),
            kept_since: None,
            purged: PurgedSnaps::default(),
            recent: BTreeMap::new(),
            news: Rc::default(),
        }
    }

    #[test]
    fn a_map_that_is_of_another_epoch_than_was_said_is_refused() {
        let mut m = MOsdMap::default();
        m.maps
            .insert(Epoch::new(9), map(Epoch::new(9)).encode_with_crc().0);
        let next = maps(Epoch::new(5)).next(&m).unwrap();
        assert_eq!(
            next.map(|(view, gap)| (view.map.epoch, gap)),
            Some((Epoch::new(9), true))
        );
        m.maps
            .insert(Epoch::new(9), map(Epoch::new(3)).encode_with_crc().0);
        assert!(maps(Epoch::new(5)).next(&m).is_err());
    }

    #[test]
    fn an_incremental_that_leads_to_another_map_than_the_monitors_is_no_map() {
        let (five, six) = (Epoch::new(5), Epoch::new(6));
        let inc = |new_max_osd| Incremental {
            epoch: six,
            new_max_osd,
            ..Incremental::default()
        };
        let mut after = map(five);
        after.apply(&inc(3)).unwrap();
        let message = |new_max_osd| {
            let mut inc = inc(new_max_osd);
            inc.encode_features = spirula_maps::features::OSDMAP_SIGNIFICANT;
            inc.full_crc = after.encode_with_crc().1;
            MOsdMap {
                newest: six,
                incrementals: BTreeMap::from([(six, encode_to_vec(&inc).into())]),
                ..MOsdMap::default()
            }
        };
        let mut maps = maps(five);
        let (wrong, right) = (message(4), message(3));
        assert!(maps.next(&wrong).unwrap().is_none() && maps.needs_full(&wrong, false));
        let (view, gap) = maps.next(&right).unwrap().unwrap();
        assert_eq!((view.map.max_osd, gap), (3, false));
        maps.take_over(view);
        assert!(!maps.needs_full(&right, true) && !maps.needs_full(&right, false));
        // A full map beside the incremental helps, too.
        let mut maps = self::maps(five);
        let mut both = wrong;
        both.maps.insert(six, after.encode_with_crc().0);
        assert_eq!(maps.next(&both).unwrap().unwrap().0.map.max_osd, 3);
    }
}
