//! The parameters of a simulation, and its outcome.

use std::collections::BTreeMap;

use spirula_denc::Micros;
use spirula_maps::{Epoch, OsdId};
use spirula_osd::pg::config::{PgConfig, ScrubConfig};
use spirula_osd::pg::scrub::Strides;

use crate::history::Sums;

/// The bytes of a stripe's unit: few, so that objects have many.
pub(crate) const UNIT: u32 = 4096;

/// A cluster, its clients and their work, and the faults.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Monitors.
    pub mons: usize,
    /// OSDs.
    pub osds: u32,
    /// How many of them share a host.
    pub per_host: u32,
    /// How many hosts share a rack; 0 for no racks.
    pub per_rack: u32,
    /// The erasure code of the pool: how many data and coding units a stripe has. None for copies.
    pub code: Option<(u8, u8)>,
    /// Copies of each object, or units of a stripe.
    pub size: u8,
    /// Copies that a PG needs to serve.
    pub min_size: u8,
    /// PGs.
    pub pg_num: u32,
    /// Clients.
    pub clients: usize,
    /// The first of the clients that only read, so that they see what others have written.
    pub readers: usize,
    /// Reads go to all members in turn, not only to the primary; of a pool with copies.
    pub balanced: bool,
    /// Requests that each client has under way at a time.
    pub workers: usize,
    /// Objects that the clients use.
    pub objects: usize,
    /// The longest pause between two requests, in microseconds.
    pub pause: u64,
    /// Writes are so large that the disks become full.
    pub fat: bool,
    /// Checksums of the whole blocks that are written.
    pub sums: Sums,
    /// Seconds during which faults are injected.
    pub seconds: u64,
    /// The mean time between two faults, in milliseconds.
    pub calm_ms: u64,
    /// OSDs that may be away at a time.
    pub most_down: usize,
    /// Stores may be ruined that have the only newest copy: then PGs wait for ever.
    pub lonely: bool,
    /// `osd_heartbeat_grace`: for how many seconds an OSD may be silent.
    pub grace: u32,
    /// The kinds of faults.
    pub faults: Faults,
    /// Bytes of each OSD's disk.
    pub disk: usize,
    /// Bytes of the store's log there.
    pub log: usize,
    /// The OSDs' settings.
    pub pg: PgConfig,
}

/// The frequencies of the kinds of faults, relative to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// No fault.
    pub calm: u32,
    /// An OSD's process ends, or its host loses its power.
    pub deaths: u32,
    /// All OSDs that share a PG, or all that may be away, lose their power.
    pub blackouts: u32,
    /// A monitor's process ends.
    pub monitors: u32,
    /// Some nodes only reach each other.
    pub partitions: u32,
    /// An OSD and a client only reach each other.
    pub isolations: u32,
    /// A path is blocked in one direction.
    pub one_way: u32,
    /// Connections break.
    pub breaks: u32,
    /// A disk is slow.
    pub slow_disks: u32,
    /// Bits of one OSD's disk flip.
    pub rot: u32,
    /// Bits of objects on that disk flip.
    pub rot_data: u32,
    /// A write to that disk goes to another place.
    pub misdirected: u32,
    /// The operator marks an OSD down that is up.
    pub slanders: u32,
    /// The operator takes an OSD out or in.
    pub moves: u32,
    /// The operator raises the pool's number of PGs.
    pub splits: u32,
    /// A client's process ends.
    pub clients: u32,
    /// The operator has all PGs scrubbed, perhaps repaired.
    pub scrubs: u32,
    /// An OSD's store is ruined.
    pub ruins: u32,
    /// A page of an OSD's index is damaged.
    pub rot_index: u32,
}

impl Faults {
    /// All but damaged disks, after which copies may differ.
    pub const ALL: Self = Self {
        calm: 14,
        deaths: 16,
        blackouts: 2,
        monitors: 4,
        partitions: 10,
        isolations: 6,
        one_way: 8,
        breaks: 8,
        slow_disks: 4,
        rot: 0,
        rot_data: 0,
        misdirected: 0,
        slanders: 4,
        moves: 4,
        splits: 1,
        clients: 4,
        scrubs: 0,
        ruins: 0,
        rot_index: 0,
    };
    /// No faults.
    pub const NONE: Self = Self {
        calm: 1,
        deaths: 0,
        blackouts: 0,
        monitors: 0,
        partitions: 0,
        isolations: 0,
        one_way: 0,
        breaks: 0,
        slow_disks: 0,
        rot: 0,
        rot_data: 0,
        misdirected: 0,
        slanders: 0,
        moves: 0,
        splits: 0,
        clients: 0,
        scrubs: 0,
        ruins: 0,
        rot_index: 0,
    };
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mons: 1,
            osds: 4,
            per_host: 1,
            per_rack: 0,
            code: None,
            size: 3,
            min_size: 2,
            pg_num: 4,
            clients: 3,
            readers: 0,
            balanced: false,
            workers: 6,
            objects: 6,
            pause: 2_000_000,
            fat: false,
            sums: Sums::Equal,
            seconds: 20,
            calm_ms: 1500,
            most_down: 2,
            lonely: false,
            grace: 20,
            faults: Faults::ALL,
            disk: 13 << 20,
            // One record holds all of a PG's log: a member that begins anew gets it at once, and it is
            // twenty times as long as usual while copies are made.
            log: 2 << 20,
            pg: PgConfig {
                // Few, so that logs do not reach back to an OSD that was away.
                log_entries_per_pg: 20..=20,
                // All of two blocks or more.
                least_ahead: 8192,
                ..PgConfig::default()
            },
        }
    }
}

impl Setup {
    /// The number of an OSD's host.
    pub(crate) fn host(&self, id: OsdId) -> u32 {
        u32::from(id) / self.per_host
    }

    /// An OSD's CRUSH location.
    pub(crate) fn location(&self, id: OsdId) -> BTreeMap<String, String> {
        let host = self.host(id);
        let mut at = BTreeMap::from([
            ("host".to_owned(), format!("host{host}")),
            ("root".to_owned(), "default".to_owned()),
        ]);
        if let Some(rack) = host.checked_div(self.per_rack) {
            at.insert("rack".to_owned(), format!("rack{rack}"));
        }
        at
    }

    /// The operator's commands that make the pool.
    pub(crate) fn pool_commands(&self) -> Vec<String> {
        let (pg_num, size, min_size) = (self.pg_num, self.size, self.min_size);
        let create = |more: &str| {
            format!(
                r#"{{"prefix":"osd pool create","pool":"p","pg_num":{pg_num},"autoscale_mode":"off",{more}}}"#
            )
        };
        let mut commands = match self.code {
            None => vec![create(&format!(r#""size":{size}"#))],
            Some((k, m)) => {
                let enough = self.osds / self.per_host >= u32::from(size);
                let domain = if enough { "host" } else { "osd" };
                let profile =
                    format!(r#"["k={k}","m={m}","stripe_unit={UNIT}","crush-failure-domain={domain}"]"#);
                vec![
                    format!(r#"{{"prefix":"osd erasure-code-profile set","name":"c","profile":{profile}}}"#),
                    create(r#""pool_type":"erasure","erasure_code_profile":"c""#),
                ]
            }
        };
        commands.push(format!(
            r#"{{"prefix":"osd pool set","pool":"p","var":"min_size","val":"{min_size}"}}"#
        ));
        commands
    }

    /// The cluster of a seed: small and large ones, calm and wild ones. A third have coded pools.
    pub fn of(seed: u64) -> Self {
        let copies = Self::with_copies(seed);
        match seed / 6 % 3 {
            2 => copies.coded(seed),
            _ => copies,
        }
    }

    /// The cluster with an erasure-coded pool, all OSDs of which may be away in some seeds.
    #[must_use]
    pub fn coded(self, seed: u64) -> Self {
        let of = usize::try_from(seed % 6).unwrap_or(0);
        let (osds, code, min_size, most_down) = [
            (3, (2, 1), 2, 2),
            (4, (2, 1), 2, 4),
            (5, (3, 2), 3, 3),
            (6, (3, 2), 4, 2),
            (6, (4, 2), 4, 6),
            (7, (4, 2), 5, 3),
        ][of];
        Self {
            osds,
            code: Some(code),
            size: code.0 + code.1,
            min_size,
            most_down,
            // The records of changes have all that clients write, and lie in the log too.
            disk: 15 << 20,
            log: 4 << 20,
            ..self
        }
    }

    /// The cluster whose PGs serve only while what is on any one OSD is on others too, also
    /// without one of their members.
    #[must_use]
    pub fn redundant(self) -> Self {
        let code = self.code.map(|(k, m)| (k, m.max(2)));
        let (size, min_size) = match code {
            Some((k, m)) => (k + m, k + 1),
            None => (3, 2),
        };
        Self {
            osds: self.osds.max(u32::from(size) + 1),
            code,
            size,
            min_size,
            ..self
        }
    }

    /// The cluster of a seed, with copies.
    fn with_copies(seed: u64) -> Self {
        let n = |places: u64, of: u64| usize::try_from(seed / places % of).unwrap_or(0);
        let base = Self::default();
        let (osds, size, min_size, most_down) = [
            (3, 3, 2, 2),
            (4, 3, 2, 2),
            (5, 3, 2, 3),
            (3, 3, 1, 3),
            (4, 2, 1, 3),
            (6, 3, 2, 6),
        ][n(1, 6)];
        Self {
            mons: [1, 3, 1, 5, 3][n(1, 5)],
            osds,
            size,
            min_size,
            most_down,
            calm_ms: [700, 1500, 3000][n(2, 3)],
            grace: [4, 20, 6][n(3, 3)],
            readers: [0, 1][n(5, 2)],
            balanced: n(7, 2) == 0,
            pg: PgConfig {
                sync_objects: [1, 3, 64][n(6, 3)],
                ..base.pg.clone()
            },
            ..base
        }
    }

    /// A large cluster, with several OSDs to a host and hosts in racks.
    pub fn large(seed: u64) -> Self {
        let base = Self::of(seed);
        let n = |of: u64| usize::try_from(seed % of).unwrap_or(0);
        let (osds, pg_num) = [(30, 32), (12, 8), (20, 16)][n(3)];
        Self {
            mons: [3, 5][n(2)],
            osds,
            pg_num,
            per_host: 2,
            per_rack: 2,
            size: base.code.map_or(3, |_| base.size),
            min_size: base.code.map_or(2, |_| base.min_size),
            most_down: [2, 4, 8][n(3)],
            objects: 40,
            seconds: 15,
            ..base
        }
    }

    /// A cluster in which the operator has PGs scrubbed all the time, a few blocks of a few objects at
    /// once.
    #[must_use]
    pub fn scrubbed(self) -> Self {
        Self {
            pg: PgConfig {
                scrub: ScrubConfig {
                    chunk: 2,
                    strides: Strides { data: 4096, keys: 2 },
                    patience: 2,
                    digest_min_age: Micros::ZERO,
                    ..self.pg.scrub
                },
                ..self.pg.clone()
            },
            faults: Faults {
                scrubs: 20,
                ..self.faults
            },
            ..self
        }
    }

    /// A cluster whose disks become full.
    pub fn full(seed: u64) -> Self {
        let base = Self::of(seed);
        Self {
            fat: true,
            objects: 30,
            pause: 500_000,
            seconds: 30,
            disk: match base.code {
                None => base.disk - (4 << 20),
                // The records of changes take much of the index, which does not become smaller.
                Some(_) => base.disk + (4 << 20),
            },
            log: match base.code {
                None => base.log,
                Some(_) => 2 * base.log,
            },
            ..base
        }
    }

    /// A cluster in which one disk writes to wrong places now and then.
    pub fn misdirected(seed: u64) -> Self {
        let base = Self::of(seed);
        Self {
            // A misdirected write leaves old data where it should have gone.
            sums: Sums::Own,
            // A store's log may have lost its end: other OSDs must have the lost entries.
            most_down: 1,
            calm_ms: 800,
            faults: Faults {
                deaths: 3,
                misdirected: 6,
                moves: 2,
                slow_disks: 2,
                calm: 2,
                ..Faults::NONE
            },
            ..base.redundant()
        }
    }
}

/// The figures of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// A digest of all events.
    pub digest: u64,
    /// Events.
    pub events: u64,
    /// Microseconds of virtual time.
    pub usec: u64,
    /// Requests that were answered.
    pub answered: usize,
    /// Epochs of the OSDMap.
    pub epochs: Epoch,
    /// Reads that failed because the object is damaged.
    pub unreadable: u64,
    /// Reads that were answered by members other than the primary.
    pub member_reads: u64,
    /// Whether the pool was full for a while.
    pub was_full: bool,
    /// How often an OSD ended because it had accepted more data than it had room for.
    pub overrun: u64,
    /// How often an OSD ended because its index was damaged.
    pub mended: u64,
    /// How often a ruined store was made anew.
    pub refills: u64,
}

/// A broken guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub what: String,
    /// When it happened, in microseconds of virtual time.
    pub at: u64,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "after {:.6} s: {}", self.at as f64 / 1e6, self.what)
    }
}

impl std::error::Error for Failure {}
