//! Allocation of global ids (`AuthMonitor::assign_global_id` of Ceph's `src/mon/AuthMonitor.cc`).

/// The number of ids that a monitor reserves at once.
pub const GLOBAL_ID_STEP: u64 = 10_000;

/// Global ids that the monitors' replicated log has reserved for one monitor. Reserved ids that are
/// not given out when the monitor ends are lost, so that no id is ever given twice.
#[derive(Debug, Clone, Default)]
pub struct GlobalIds {
    next: u64,
    end: u64,
}

impl GlobalIds {
    /// Adopts a committed reservation, from `first` to before `end`. The rest of an earlier one is
    /// lost.
    pub fn reserve(&mut self, first: u64, end: u64) {
        // 0 means "none yet" on the wire.
        self.next = first.max(1);
        self.end = end;
    }

    /// The next id, `None` where none is left.
    pub fn take(&mut self) -> Option<u64> {
        let id = self.next;
        (id < self.end).then(|| {
            self.next += 1;
            id
        })
    }

    /// Whether it is time to reserve more.
    pub fn is_low(&self) -> bool {
        self.end.saturating_sub(self.next) < GLOBAL_ID_STEP / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_is_given_twice_and_none_is_zero() {
        let mut ids = GlobalIds::default();
        assert_eq!(ids.take(), None);
        assert!(ids.is_low());
        ids.reserve(0, 3);
        assert_eq!([ids.take(), ids.take(), ids.take()], [Some(1), Some(2), None]);
        ids.reserve(10_000, 10_000 + GLOBAL_ID_STEP);
        assert!(!ids.is_low());
        assert_eq!(ids.take(), Some(10_000));
    }
}
