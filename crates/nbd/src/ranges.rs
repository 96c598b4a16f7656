//! The ranges of a device that are being changed, in order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use tokio::sync::Notify;

/// Changes under way and waiting, in the order of their arrival. A change waits for earlier ones
/// that overlap it.
#[derive(Clone, Default)]
pub(crate) struct Ranges {
    changes: Rc<RefCell<Changes>>,
}

#[derive(Default)]
struct Changes {
    next: u64,
    all: BTreeMap<u64, Change>,
}

struct Change {
    range: Range<u64>,
    done: Rc<Notify>,
}

/// A change's place in the order, until it is dropped.
pub(crate) struct Place {
    ranges: Ranges,
    number: u64,
    range: Range<u64>,
}

impl Ranges {
    /// Takes a place behind all present changes.
    pub(crate) fn enter(&self, range: Range<u64>) -> Place {
        let mut changes = self.changes.borrow_mut();
        let number = changes.next;
        changes.next += 1;
        let change = Change {
            range: range.clone(),
            done: Rc::default(),
        };
        changes.all.insert(number, change);
        Place {
            ranges: self.clone(),
            number,
            range,
        }
    }

    /// Waits for the present changes of this range, not for later ones.
    pub(crate) async fn settled(&self, range: Range<u64>) {
        let end = self.changes.borrow().next;
        self.wait(end, range).await;
    }

    async fn wait(&self, end: u64, range: Range<u64>) {
        let overlaps = |c: &Change| c.range.start < range.end && range.start < c.range.end;
        loop {
            let earlier = {
                let changes = self.changes.borrow();
                let found = changes.all.range(..end).find(|(_, c)| overlaps(c));
                found.map(|(_, change)| change.done.clone())
            };
            let Some(done) = earlier else {
                return;
            };
            done.notified().await;
        }
    }
}

impl Place {
    /// Waits for the earlier changes.
    pub(crate) async fn reached(&self) {
        self.ranges.wait(self.number, self.range.clone()).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(change) = self.ranges.changes.borrow_mut().all.remove(&self.number) {
            change.done.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_ready(future: std::pin::Pin<&mut impl Future>) -> bool {
        matches!(
            future.poll(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(_)
        )
    }

    #[test]
    fn changes_wait_for_the_earlier_ones_they_overlap() {
        let ranges = Ranges::default();
        let first = ranges.enter(0..10);
        let second = ranges.enter(5..15);
        let apart = ranges.enter(10..20);
        let reached = |place: &Place| is_ready(pin!(place.reached()));
        let mut read = pin!(ranges.settled(14..15));
        let mut all = pin!(ranges.settled(0..u64::MAX));
        assert!(reached(&first) && !reached(&second) && !reached(&apart));
        assert!(!is_ready(read.as_mut()) && !is_ready(all.as_mut()));
        let late = ranges.enter(0..100);
        drop(first);
        assert!(reached(&second) && !reached(&apart));
        drop(second);
        assert!(reached(&apart) && !is_ready(read.as_mut()));
        drop(apart);
        assert!(
            is_ready(read.as_mut()) && is_ready(all.as_mut()),
            "later changes are not waited for"
        );
        drop(late);
    }
}
