//! Progress of long operations, and how listeners end them early.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;

use spirula_client::errno;

use crate::{Error, Result};

/// The finished part of an operation, in any unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) done: u64,
    pub(crate) total: u64,
}

impl Share {
    /// The progress of an operation that does not report any.
    pub(crate) const NONE: Self = Self { done: 0, total: 1 };
}

type Listener = dyn Fn(u64, u64) -> ControlFlow<()>;

/// Hears how much of the total is done. With [`ControlFlow::Break`] the listener ends the
/// operation, which then fails with `ECANCELED`; finished work remains.
#[derive(Clone)]
pub struct Progress(Rc<Listener>);

impl Progress {
    /// Calls `listener` with the finished part and the total whenever more is done.
    pub fn new(listener: impl Fn(u64, u64) -> ControlFlow<()> + 'static) -> Self {
        Self(Rc::new(listener))
    }

    /// Calls nobody.
    pub fn untold() -> Self {
        Self::new(|_, _| ControlFlow::Continue(()))
    }
}

/// Counts the progress of an operation whose parts end in any order.
pub(crate) struct Meter {
    progress: Progress,
    total: u64,
    done: Cell<u64>,
}

impl Meter {
    pub(crate) fn new(progress: &Progress, total: u64) -> Rc<Self> {
        Rc::new(Self {
            progress: progress.clone(),
            total,
            done: Cell::new(0),
        })
    }

    /// Reports a share of the operation. Fails as [`Meter::reached`].
    pub(crate) fn reached_share(&self, Share { done, total }: Share) -> Result<()> {
        self.reached(done.min(total).saturating_mul(self.total) / total.max(1))
    }

    /// Reports that about `place` of the total is done. Fails with `ECANCELED` where the listener
    /// ends the operation.
    pub(crate) fn reached(&self, place: u64) -> Result<()> {
        let done = self.done.get().max(place.min(self.total));
        self.done.set(done);
        match (self.progress.0)(done, self.total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::os("operation", errno::ECANCELED)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_end_in_any_order_never_go_back_and_a_listener_ends_them() {
        let heard = Rc::new(Cell::new((0, 0)));
        let told = Rc::clone(&heard);
        let progress = Progress::new(move |done, total| {
            told.set((done, total));
            if done < 5 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        let meter = Meter::new(&progress, 8);
        for (place, want) in [(2, 2), (1, 2), (4, 4), (3, 4)] {
            meter.reached(place).unwrap();
            assert_eq!(heard.get(), (want, 8));
        }
        assert!(meter.reached(9).unwrap_err().is(errno::ECANCELED));
        assert_eq!(heard.get(), (8, 8));
    }
}
