//! How far an operation is.

/// Says on standard error how far an operation is.
pub(super) struct Progress {
    what: &'static str,
    shown: bool,
    percent: u64,
}

impl Progress {
    pub(super) fn new(what: &'static str, shown: bool) -> Self {
        Self {
            what,
            shown,
            percent: 0,
        }
    }

    /// So much of all is done.
    pub(super) fn update(&mut self, done: u64, all: u64) {
        let percent = u128::from(done) * 100 / u128::from(all.max(1));
        let percent = u64::try_from(percent).unwrap_or(100);
        if self.shown && percent > self.percent {
            self.percent = percent;
            eprint!("\r{}: {percent}% complete...", self.what);
        }
    }

    /// The end, good or bad.
    pub(super) fn end<T, E>(&self, result: Result<T, E>) -> Result<T, E> {
        if self.shown {
            match result.is_ok() {
                true => eprintln!("\r{}: 100% complete...done.", self.what),
                false => eprintln!("\r{}: {}% complete...failed.", self.what, self.percent),
            }
        }
        result
    }
}
