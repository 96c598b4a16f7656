//! What is simulated, and what comes out.

use spirula_osd::pg::config::PgConfig;

/// A cluster, what its clients do, and what happens to it.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Monitors.
    pub mons: usize,
    /// OSDs, each on a host of its own.
    pub osds: i32,
    /// Copies of each object.
    pub size: u8,
    /// Copies without which nothing is served.
    pub min_size: u8,
    /// PGs.
    pub pg_num: u32,
    /// Clients.
    pub clients: usize,
    /// Requests that each of them has under way at a time.
    pub workers: usize,
    /// Objects that they use.
    pub objects: usize,
    /// The longest pause between two requests, in microseconds.
    pub pause: u64,
    /// For how many seconds things go wrong.
    pub seconds: u64,
    /// The mean time between two things that go wrong, in milliseconds.
    pub calm_ms: u64,
    /// OSDs that may be away at a time.
    pub most_down: usize,
    /// `osd_heartbeat_grace`: for how many seconds an OSD may be silent.
    pub grace: u32,
    /// What may go wrong.
    pub faults: Faults,
    /// Bytes of each OSD's disk.
    pub disk: usize,
    /// The OSDs' settings.
    pub pg: PgConfig,
}

/// What may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// Processes end, and hosts lose their power.
    pub deaths: bool,
    /// Nodes can't reach each other, one way or both, and connections break.
    pub network: bool,
    /// Disks are slow.
    pub slow_disks: bool,
    /// Bits of one OSD's disk flip.
    pub rot: bool,
    /// The operator takes OSDs out and in, says that they are down, and splits PGs.
    pub operator: bool,
    /// Clients end.
    pub clients: bool,
}

impl Faults {
    /// All but damaged disks, after which copies may differ.
    pub const ALL: Self = Self {
        deaths: true,
        network: true,
        slow_disks: true,
        rot: false,
        operator: true,
        clients: true,
    };
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        deaths: false,
        network: false,
        slow_disks: false,
        rot: false,
        operator: false,
        clients: false,
    };
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mons: 1,
            osds: 4,
            size: 3,
            min_size: 2,
            pg_num: 4,
            clients: 3,
            workers: 6,
            objects: 6,
            pause: 2_000_000,
            seconds: 20,
            calm_ms: 1500,
            most_down: 2,
            grace: 20,
            faults: Faults::ALL,
            disk: 12 << 20,
            pg: PgConfig {
                // Few, so that logs do not reach back to whoever was away.
                log_entries_per_pg: (20, 20),
                ..PgConfig::default()
            },
        }
    }
}

impl Setup {
    /// A cluster of those that this seed stands for: small and large ones, calm and wild ones.
    pub fn of(seed: u64) -> Self {
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
            pg: PgConfig {
                sync_objects: [1, 3, 64][n(6, 3)],
                ..base.pg.clone()
            },
            ..base
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Says what happened, in one number.
    pub digest: u64,
    /// Events.
    pub events: u64,
    /// Microseconds of virtual time.
    pub usec: u64,
    /// Requests that were answered.
    pub answered: usize,
    /// Epochs of the OSDMap.
    pub epochs: u32,
    /// Reads that ended with an error, as what they would have read was damaged.
    pub unreadable: u64,
}

/// What went wrong that never may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What.
    pub what: String,
    /// When, in microseconds of virtual time.
    pub at: u64,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "after {:.6} s: {}", self.at as f64 / 1e6, self.what)
    }
}

impl std::error::Error for Failure {}
