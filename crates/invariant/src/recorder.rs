//! A part's memory of its transitions, which is reported if an invariant breaks.
//!
//! A part (a PG, a monitor, a store) owns a [`Recorder`] and notes its transitions in it. Code that
//! works on the part marks that ([`Recorder::at_work`]). If the thread panics, the transitions of
//! all parts that it is working on are reported: by the binary's panic hook, which asks for
//! [`told`], or, if the stack is unwound as in tests, on standard error.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ring::Ring;

/// The most entries of a part that are reported: there must be room for them in the last lines of a
/// log.
const TOLD: usize = 32;

thread_local! {
    /// The parts that this thread is working on.
    static AT_WORK: RefCell<Vec<Arc<dyn Tell>>> = const { RefCell::new(Vec::new()) };
}

/// A part that reports its transitions.
trait Tell {
    /// The report: a heading and a line for each entry.
    fn tell(&self) -> String;
}

struct Shared<T> {
    of: String,
    ring: Mutex<Ring<T>>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Ring<T>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Copy + fmt::Display> Tell for Shared<T> {
    fn tell(&self) -> String {
        // Not to be waited for: the panic may have come while it was held.
        let Ok(ring) = self.ring.try_lock() else {
            return String::new();
        };
        let mut out = format!("recent transitions of {}:\n", self.of);
        for entry in ring.iter().skip(ring.len().saturating_sub(TOLD)) {
            out += &format!("    {entry}\n");
        }
        out
    }
}

/// A [`Ring`] of the transitions of one part.
pub struct Recorder<T>(Arc<Shared<T>>);

impl<T> Clone for Recorder<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Recorder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({})", self.0.of)
    }
}

impl<T: Copy + fmt::Display + Send + 'static> Recorder<T> {
    /// A recorder for the transitions of a part with this name, of which `most` are remembered.
    pub fn new(of: impl Into<String>, most: usize) -> Self {
        Self(Arc::new(Shared {
            of: of.into(),
            ring: Mutex::new(Ring::new(most)),
        }))
    }

    /// The part's name.
    pub fn of(&self) -> &str {
        &self.0.of
    }

    /// Notes a transition.
    pub fn add(&self, entry: T) {
        self.0.lock().add(entry);
    }

    /// Notes a transition, unless `merge` merges it into the newest one, and returns true.
    pub fn add_or(&self, entry: T, merge: impl FnOnce(&mut T) -> bool) {
        let mut ring = self.0.lock();
        if !ring.newest_mut().is_some_and(merge) {
            ring.add(entry);
        }
    }

    /// The remembered transitions, the oldest first.
    pub fn entries(&self) -> Vec<T> {
        self.0.lock().iter().collect()
    }

    /// Remembers at most `most` transitions from now on.
    pub fn resize(&self, most: usize) {
        self.0.lock().resize(most);
    }

    /// The memory of the entries, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.lock().bytes()
    }

    /// The report, as a broken invariant prints it.
    pub fn tell(&self) -> String {
        Tell::tell(&*self.0)
    }

    /// Marks this thread as working on the part, until the returned value is dropped.
    pub fn at_work(&self) -> AtWork {
        let part: Arc<dyn Tell> = self.0.clone();
        let _ = AT_WORK.try_with(|all| all.borrow_mut().push(part));
        AtWork(Arc::as_ptr(&self.0).cast())
    }
}

/// Marks this thread as working on a part, as long as it is held.
#[must_use]
#[derive(Debug)]
pub struct AtWork(*const ());

impl Drop for AtWork {
    fn drop(&mut self) {
        let ended = AT_WORK.try_with(|all| {
            let mut all = all.borrow_mut();
            let at = all.iter().rposition(|p| Arc::as_ptr(p).cast::<()>() == self.0)?;
            Some(all.remove(at))
        });
        if std::thread::panicking()
            && let Ok(Some(part)) = ended
        {
            eprint!("{}", part.tell());
        }
    }
}

/// The reports of the parts that this thread is working on, for the last words of a daemon.
pub fn told() -> String {
    let all = AT_WORK.try_with(|all| {
        let all = all.try_borrow().ok()?;
        Some(all.iter().map(|p| p.tell()).collect::<String>())
    });
    all.ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worked_on_is_told() {
        let (outer, inner) = (Recorder::new("the store", 4), Recorder::new("pg 1.2", 2));
        outer.add(7);
        (0..3).for_each(|n| inner.add(n));
        assert_eq!(told(), "");
        let store = outer.at_work();
        {
            let _pg = inner.at_work();
            assert_eq!(
                told(),
                "recent transitions of the store:\n    7\nrecent transitions of pg 1.2:\n    1\n    2\n"
            );
        }
        assert_eq!(told(), outer.tell());
        // In whatever order it ends.
        let pg = inner.at_work();
        drop(store);
        assert_eq!(told(), inner.tell());
        drop(pg);
        assert_eq!(told(), "");
    }

    #[test]
    fn a_panic_is_told_by_a_hook_what_happened_before() {
        let heard = Arc::new(Mutex::new(String::new()));
        let says = Arc::clone(&heard);
        let before = std::panic::take_hook();
        let this = std::thread::current().id();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == this {
                *says.lock().unwrap() = told();
            } else {
                before(panic);
            }
        }));
        let recorder = Recorder::new("pg 1.3", 4);
        let broken = std::panic::catch_unwind(|| {
            let _pg = recorder.at_work();
            recorder.add(5);
            crate::impossible!("a test to go on"; pg = "1.3");
        });
        drop(std::panic::take_hook());
        assert!(broken.is_err());
        assert_eq!(*heard.lock().unwrap(), "recent transitions of pg 1.3:\n    5\n");
        assert_eq!(told(), "");
    }

    #[test]
    fn what_repeats_takes_one_place() {
        let recorder = Recorder::new("a session", 2);
        for n in [1, 1, 1, 2] {
            recorder.add_or(n, |newest| *newest == n);
        }
        assert_eq!(recorder.entries(), [1, 2]);
        recorder.resize(1);
        assert_eq!(recorder.entries(), [2]);
        assert!(recorder.bytes() >= 4);
    }
}
