//! The machine under the daemon: its clocks and its randomness. A trait, so that a simulation
//! controls both.

use std::io;
use std::path::Path;
use std::time::Instant;

use spirula_cephx::{OsRandom, RandomSource};
use spirula_denc::{Micros, UTime};
use spirula_host::Metadata;
use spirula_host::Resident;

/// The machine of a daemon.
pub trait Host {
    /// The time by a monotonic clock; never zero, which means "not yet".
    fn usec(&self) -> Micros;
    /// The time of day.
    fn now(&self) -> UTime;
    /// A random number for spreading load, not for security.
    fn random(&self) -> u32;
    /// A description of the system, for `ceph osd metadata`.
    fn system(&self) -> Metadata;
    /// The bytes of the process in memory, and how many of them are pages of files; `None` if the
    /// system does not tell.
    fn resident(&self) -> Option<Resident>;
    /// The load of the machine in the last minute, for each of its processors; `None` if the system
    /// does not tell.
    fn load(&self) -> Option<f64>;
    /// Bytes that the file system under a store can still give it, of which `lacking` bytes occupy
    /// no space yet.
    ///
    /// # Errors
    /// What the file system says.
    fn below(&self, store: &Path, lacking: u64) -> io::Result<u64>;
}

/// The machine that the process runs on.
#[derive(Debug)]
pub(super) struct SystemHost {
    started: Instant,
}

impl SystemHost {
    /// The machine, with a monotonic clock that begins now.
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Host for SystemHost {
    fn usec(&self) -> Micros {
        Micros::from(self.started.elapsed()) + Micros::new(1)
    }

    fn now(&self) -> UTime {
        UTime::now()
    }

    fn random(&self) -> u32 {
        let mut random = [0; 4];
        // Any number does.
        let _ = OsRandom.fill(&mut random);
        u32::from_le_bytes(random)
    }

    fn system(&self) -> Metadata {
        spirula_host::system()
    }

    fn resident(&self) -> Option<Resident> {
        spirula_host::resident()
    }

    fn load(&self) -> Option<f64> {
        spirula_host::load()
    }

    fn below(&self, store: &Path, lacking: u64) -> io::Result<u64> {
        super::below::below(store, lacking)
    }
}
