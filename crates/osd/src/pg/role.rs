//! What this OSD is to a PG, with what it has only in that role.

use std::collections::VecDeque;

use spirula_maps::{EVersion, IntervalSet};

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
use super::snaps::trim::{TrimState, Trimmer};

/// What this OSD is to the PG.
#[derive(Debug)]
pub(super) enum Role {
    /// Nothing yet: the OSD is not up in the map it knows.
    Idle,
    /// It leads, and agrees with the other members.
    Peering(Box<Peering>),
    /// It leads, and serves.
    Active(Active),
    /// It follows a primary.
    Replica(Replica),
    /// It has, or had, a copy that belongs elsewhere.
    Stray,
    /// It is deleting its copy.
    Deleting,
}

/// A primary that serves.
#[derive(Debug)]
pub(super) struct Active {
    /// The replicas, and up to where each is durable.
    pub(super) peers: Vec<(i32, EVersion)>,
    /// Up to where this OSD itself is durable.
    pub(super) local: EVersion,
    /// Up to where all are.
    pub(super) committed: EVersion,
    /// Writes that are not durable everywhere, in order.
    pub(super) in_flight: VecDeque<InFlight>,
    /// Lets it answer reads.
    pub(super) lease: Box<Lease>,
    /// Brings up the members to be.
    pub(super) backfill: Box<Backfill>,
    /// Trims removed snapshots.
    pub(super) trimmer: Box<Trimmer>,
    /// Has objects repaired that members can't read.
    pub(super) repairs: Box<Repairs>,
    /// When the oldest of them was sent (again).
    pub(super) sent: u64,
}

impl Role {
    /// What is done for members to be, where this OSD serves.
    pub(super) fn backfill(&self) -> Option<&Backfill> {
        match self {
            Self::Active(a) => Some(&a.backfill),
            _ => None,
        }
    }

    /// Whether reads may be answered now.
    pub(super) fn has_lease(&self, cfg: &PgConfig, usec: u64) -> bool {
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

    /// Whether it follows a primary that serves, or is about to.
    pub(super) fn is_active_replica(&self) -> bool {
        matches!(self, Self::Replica(r) if r.active)
    }

    /// Repairs, where this OSD serves.
    pub(super) fn repairs(&mut self) -> Option<&mut Repairs> {
        match self {
            Self::Active(a) => Some(&mut *a.repairs),
            _ => None,
        }
    }

    /// Objects that no member can read.
    pub(super) fn lost(&mut self) -> Option<&mut Lost> {
        self.repairs().map(|r| &mut r.lost).filter(|l| !l.is_empty())
    }

    /// What is done about removed snapshots, where this OSD serves.
    pub(super) fn trimmer(&mut self) -> Option<&mut Trimmer> {
        match self {
            Self::Active(a) => Some(&mut *a.trimmer),
            _ => None,
        }
    }

    /// What the PG is doing about removed snapshots.
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
