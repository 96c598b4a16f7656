//! The progress of an operation.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Shows the progress of an operation on standard error.
pub(super) struct Progress {
    what: &'static str,
    shown: bool,
    percent: Rc<Cell<u64>>,
}

fn show(what: &str, shown: &Cell<u64>, done: u64, all: u64) {
    let percent = u128::from(done) * 100 / u128::from(all.max(1));
    let percent = u64::try_from(percent).unwrap_or(100);
    if percent > shown.replace(percent.max(shown.get())) {
        eprint!("\r{what}: {percent}% complete...");
    }
}

impl Progress {
    pub(super) fn new(what: &'static str, shown: bool) -> Self {
        Self {
            what,
            shown,
            percent: Rc::default(),
        }
    }

    /// Shows that `done` of `all` is done.
    pub(super) fn update(&self, done: u64, all: u64) {
        if self.shown {
            show(self.what, &self.percent, done, all);
        }
    }

    /// The listener for the library.
    pub(super) fn listener(&self) -> spirula_rbd::Progress {
        let (what, shown, percent) = (self.what, self.shown, Rc::clone(&self.percent));
        spirula_rbd::Progress::new(move |done, all| {
            if shown {
                show(what, &percent, done, all);
            }
            ControlFlow::Continue(())
        })
    }

    /// Shows the end of the operation, good or bad.
    pub(super) fn end<T, E>(&self, result: Result<T, E>) -> Result<T, E> {
        if self.shown {
            match result.is_ok() {
                true => eprintln!("\r{}: 100% complete...done.", self.what),
                false => eprintln!("\r{}: {}% complete...failed.", self.what, self.percent.get()),
            }
        }
        result
    }
}
