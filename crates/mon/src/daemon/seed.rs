//! The seed that `mkfs` leaves for a monitor that is not a member of a cluster yet, and how the
//! monitor becomes a member.
//!
//! If a monitor that it knows is a member, it asks to be made one too; it then gets the state
//! through the log. If none is, the cluster is new: once all monitors of its first map are there,
//! the first of them founds a group of one with the first state, and the others join it. All have
//! to be there, so that monitors that lost their disks do not found a second cluster while a
//! monitor that has the state is only away.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spirula_cephx::CryptoKey;
use spirula_denc::{Decode, Encode, Reader, Result, UTime, Writer, decode_all, encode_to_vec};
use spirula_maps::MonMap;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::Error;
use super::hub::{Hub, addresses_in};
use crate::kv::{KvRead, Txn};
use crate::raft::{Applied, Raft, Store, node_of};

/// Version byte of an encoded [`Seed`]. 1: the first form.
const VERSION: u8 = 1;
/// How often the situation is checked, and the wish to be a member repeated.
const STEP: Duration = Duration::from_millis(100);
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often the log says what the monitor waits for.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// The seed.
#[derive(Debug, Clone)]
pub(super) struct Seed {
    /// The monitors of the cluster, as far as known.
    pub(super) monmap: MonMap,
    /// The key of `mon.`.
    pub(super) key: CryptoKey,
    /// The first state, if the cluster is new.
    pub(super) first: Txn,
}

impl Encode for Seed {
    fn encode(&self, w: &mut Writer) {
        w.u8(VERSION);
        w.put(&self.monmap);
        w.put(&self.key);
        w.put(&Bytes::from(encode_to_vec(&self.first)));
    }
}

impl Decode for Seed {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        if r.u8()? != VERSION {
            return Err(spirula_denc::Error::Invalid("version of a monitor's seed"));
        }
        Ok(Self {
            monmap: r.get()?,
            key: r.get()?,
            first: decode_all(r.blob()?)?,
        })
    }
}

impl Seed {
    pub(super) fn load(store: &Store) -> std::result::Result<Option<Self>, Error> {
        let stored = store.seed()?.filter(|s| !s.is_empty());
        let decoded = stored.map(|s| decode_all(&s)).transpose();
        decoded.map_err(|e| Error::Config(format!("what mkfs left does not decode: {e}")))
    }
}

/// Founds a group of one with the first state, or completes that if it was begun before.
pub(super) async fn found(
    raft: &Raft,
    store: &Store,
    me: crate::raft::Node,
    seed: &Seed,
) -> std::result::Result<(), Error> {
    raft.found(me).await?;
    raft.lead_alone().await?;
    if !has_state(store)? {
        raft.propose(Arc::new(seed.first.clone())).await?;
    }
    Ok(store.weed()?)
}

/// Whether the store holds a cluster's state.
pub(super) fn has_state(store: &Store) -> std::result::Result<bool, Error> {
    let of = |service, key| store.get(service, key).map_err(crate::core::LoadError::from);
    Ok(of("monmap", "current")?.is_some() && of("osdmap", "last")?.is_some())
}

/// Waits until this monitor is a member.
pub(super) async fn become_member(
    hub: &Rc<Hub>,
    store: &Store,
    seed: &Seed,
    applied: &mut UnboundedReceiver<Applied>,
) -> std::result::Result<(), Error> {
    let others = |map: &MonMap| -> Vec<String> {
        let names = map.ranks.iter().filter(|n| *n != hub.name());
        names.cloned().collect()
    };
    let first = seed.monmap.ranks.first().map(String::as_str) == Some(hub.name());
    let (mut asked, mut said) = (None::<Instant>, None::<Instant>);
    loop {
        while applied.try_recv().is_ok() {}
        let view = hub.raft().view();
        if let Some(why) = view.failed {
            return Err(crate::raft::Error::Raft(why).into());
        }
        // Once a majority has agreed: before, another leader may take it back, and nobody would ask
        // again.
        if hub.raft().settled_voters()?.contains(&hub.me().node) && has_state(store)? {
            return Ok(store.weed()?);
        }
        let mut addrs = addresses_in(&seed.monmap);
        let known = hub.known_by_others();
        // Members whose map does not name this monitor do not dial it; they are known from their
        // answers.
        let are_members = !known.is_empty() || hub.hears_members();
        addrs.extend(known);
        addrs.extend(
            view.voters
                .values()
                .filter_map(|n| n.addr.parse::<SocketAddr>().ok()),
        );
        hub.dial(&addrs);
        hub.tick();
        let missing: BTreeSet<String> = others(&seed.monmap)
            .into_iter()
            .filter(|n| !hub.hears_waiting(n))
            .collect();
        if are_members {
            if asked.is_none_or(|t| t.elapsed() >= ASK_EVERY) {
                hub.ask_to_join();
                asked = Some(Instant::now());
            }
        } else if first && missing.is_empty() {
            tracing::info!("all monitors of the new cluster are there");
            found(hub.raft(), store, node_of(hub.me()), seed).await?;
        } else if said.is_none_or(|t| t.elapsed() >= SAY_EVERY) {
            let wait: Vec<String> = missing.iter().map(|n| format!("mon.{n}")).collect();
            tracing::info!("at {}: waiting for {}", UTime::now(), wait.join(", "));
            said = Some(Instant::now());
        }
        tokio::time::sleep(STEP).await;
    }
}
