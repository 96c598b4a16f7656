//! This OSD's role in a PG, with the state of that role.

use std::collections::VecDeque;

use spirula_denc::Micros;
use spirula_maps::{EVersion, IntervalSet, OsdId};

use super::ahead::placing::Aheads;
use super::backfill::Backfill;
use super::bug::Bug;
use super::cluster::ClusterMap;
use super::config::PgConfig;
use super::in_flight::InFlight;
use super::lease::Lease;
use super::peering::Peering;
use super::repair::Lost;
use super::repair::Repairs;
use super::replica::Replica;
use super::scrub::Scrub;
use super::snaps::trim::{TrimState, Trimmer};

/// This OSD's role in the PG.
#[derive(Debug)]
pub(super) enum Role {
    /// None yet: the OSD is not up in the map it knows.
    Idle,
    /// The OSD leads, and agrees with the other members.
    Peering(Box<Peering>),
    /// The OSD leads, and serves.
    Active(Active),
    /// The OSD follows a primary.
    Replica(Replica),
    /// The OSD has, or had, a copy that belongs elsewhere.
    Stray,
    /// The OSD is deleting its copy.
    Deleting,
}

/// A primary that serves.
#[derive(Debug)]
pub(super) struct Active {
    /// The replicas, and the version up to which each is durable.
    pub(super) peers: Vec<(OsdId, EVersion)>,
    /// The version up to which this OSD itself is durable.
    pub(super) local: EVersion,
    /// The version up to which all members are durable.
    pub(super) committed: EVersion,
    /// Writes that are not durable everywhere, in order.
    pub(super) in_flight: VecDeque<InFlight>,
    /// The lease with which it answers reads.
    pub(super) lease: Box<Lease>,
    /// The backfill of members to be.
    pub(super) backfill: Box<Backfill>,
    /// The trimming of removed snapshots.
    pub(super) trimmer: Box<Trimmer>,
    /// The repairs of objects that members can't read.
    pub(super) repairs: Box<Repairs>,
    /// The scrub, under way or ordered.
    pub(super) scrub: Box<Scrub>,
    /// Data on its way to the members ahead of changes.
    pub(super) aheads: Aheads,
    /// When the oldest write in flight was last sent.
    pub(super) sent: Micros,
}

impl Role {
    /// The backfill, if this OSD serves.
    pub(super) fn backfill(&self) -> Option<&Backfill> {
        match self {
            Self::Active(a) => Some(&a.backfill),
            _ => None,
        }
    }

    /// Whether reads may be answered now.
    pub(super) fn has_lease(&self, cfg: &PgConfig, usec: Micros) -> bool {
        match self {
            Self::Active(a) => a.peers.is_empty() || a.lease.holds(usec) || cfg.has_bug(Bug::NoLease),
            Self::Replica(r) => usec < r.share.until,
            _ => false,
        }
    }

    /// Whether this OSD leads the PG.
    pub(super) fn is_primary(&self) -> bool {
        matches!(self, Self::Peering(_) | Self::Active(_))
    }

    /// Whether this OSD leads the PG and serves clients.
    pub(super) fn is_active(&self) -> bool {
        matches!(self, Self::Active(_))
    }

    /// Whether this OSD follows a primary that serves, or is about to.
    pub(super) fn is_active_replica(&self) -> bool {
        matches!(self, Self::Replica(r) if r.active)
    }

    /// The repairs, if this OSD serves.
    pub(super) fn repairs(&mut self) -> Option<&mut Repairs> {
        match self {
            Self::Active(a) => Some(&mut *a.repairs),
            _ => None,
        }
    }

    /// The scrub, if this OSD serves.
    pub(super) fn scrub(&mut self) -> Option<&mut Scrub> {
        match self {
            Self::Active(a) => Some(&mut *a.scrub),
            _ => None,
        }
    }

    /// The objects that no member can read, if this OSD serves.
    pub(super) fn lost(&mut self) -> Option<&mut Lost> {
        self.repairs().map(|r| &mut r.lost).filter(|l| !l.is_empty())
    }

    /// The trimming of removed snapshots, if this OSD serves.
    pub(super) fn trimmer(&mut self) -> Option<&mut Trimmer> {
        match self {
            Self::Active(a) => Some(&mut *a.trimmer),
            _ => None,
        }
    }

    /// The state of trimming removed snapshots.
    pub(super) fn trim_state(&self, map: &dyn ClusterMap) -> TrimState {
        match self {
            Self::Active(a) if !map.no_snap_trim() || a.trimmer.has_failed() => a.trimmer.state(),
            _ => TrimState::Idle,
        }
    }

    /// The removed snapshots that are to be trimmed.
    pub(super) fn trim_queue(&self) -> IntervalSet {
        match self {
            Self::Active(a) => a.trimmer.queue().clone(),
            _ => IntervalSet::new(),
        }
    }
}
