//! The virtual clock, and the machines that have it.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use spirula_denc::{Micros, UTime};
use spirula_host::Metadata;
use spirula_host::Resident;
use spirula_osd::Host;

use spirula_random::Rng;

/// The time of day when a run begins, in seconds since 1970.
const START: u32 = 1_700_000_000;
/// Microseconds of a second.
pub(crate) const SECOND: u64 = 1_000_000;

/// Microseconds since the run began.
#[derive(Debug, Default)]
pub(crate) struct Clock(Cell<u64>);

impl Clock {
    pub(crate) fn usec(&self) -> u64 {
        self.0.get()
    }

    pub(crate) fn set(&self, usec: u64) {
        self.0.set(usec);
    }

    pub(crate) fn now(&self) -> UTime {
        UTime::from_secs(START).plus(Duration::from_micros(self.usec()))
    }
}

/// The machine under an OSD.
pub(crate) struct Machine {
    pub(crate) clock: Rc<Clock>,
    /// When the process began.
    pub(crate) since: u64,
    pub(crate) rng: RefCell<Rng>,
    pub(crate) name: String,
}

impl Host for Machine {
    fn usec(&self) -> Micros {
        Micros::new(self.clock.usec() - self.since + 1)
    }

    fn now(&self) -> UTime {
        self.clock.now()
    }

    fn random(&self) -> u32 {
        u32::try_from(self.rng.borrow_mut().below(1 << 32)).unwrap_or(0)
    }

    fn system(&self) -> Metadata {
        Metadata::from([("hostname".to_owned(), self.name.clone())])
    }

    fn resident(&self) -> Option<Resident> {
        None
    }

    fn load(&self) -> Option<f64> {
        None
    }

    fn below(&self, _store: &Path, _lacking: u64) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}
