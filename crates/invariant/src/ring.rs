//! The last few events, in memory that does not grow.

/// A ring of entries: if it is full, a new one takes the place of the oldest. Adding one allocates
/// nothing.
#[derive(Debug, Clone)]
pub struct Ring<T> {
    entries: Vec<T>,
    /// The place of the oldest entry; 0 until the ring is full.
    oldest: usize,
    most: usize,
}

impl<T: Copy> Ring<T> {
    /// An empty ring of `most` entries, whose memory is allocated now.
    pub fn new(most: usize) -> Self {
        Self {
            entries: Vec::with_capacity(most),
            oldest: 0,
            most,
        }
    }

    /// The number of entries that fit in `bytes`.
    pub const fn fitting(bytes: usize) -> usize {
        bytes / size_of::<T>()
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: T) {
        if self.entries.len() < self.most {
            self.entries.push(entry);
        } else if let Some(place) = self.entries.get_mut(self.oldest) {
            *place = entry;
            self.oldest = (self.oldest + 1) % self.most;
        }
    }

    /// The newest entry.
    pub fn newest_mut(&mut self) -> Option<&mut T> {
        match self.oldest {
            0 => self.entries.last_mut(),
            n => self.entries.get_mut(n - 1),
        }
    }

    /// The entries, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + '_ {
        let (newer, older) = self.entries.split_at(self.oldest);
        older.iter().chain(newer).copied()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the ring is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The most entries.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The memory of the entries, in bytes, however many there are.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<T>()
    }

    /// Changes the most entries. The newest ones stay.
    pub fn resize(&mut self, most: usize) {
        if most != self.most {
            let mut other = Self::new(most);
            other
                .entries
                .extend(self.iter().skip(self.len().saturating_sub(most)));
            *self = other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ring: &Ring<u32>) -> Vec<u32> {
        ring.iter().collect()
    }

    #[test]
    fn a_full_ring_forgets_the_oldest_and_takes_no_more_memory() {
        let mut ring = Ring::new(3);
        let bytes = ring.bytes();
        assert!(bytes >= 12 && ring.is_empty() && ring.newest_mut().is_none());
        for n in 1..=2 {
            ring.add(n);
        }
        assert_eq!(all(&ring), [1, 2]);
        for n in 3..=10 {
            ring.add(n);
            assert_eq!(ring.newest_mut().copied(), Some(n));
            assert_eq!(ring.iter().next_back(), Some(n));
        }
        assert_eq!(all(&ring), [8, 9, 10]);
        assert_eq!((ring.bytes(), ring.len(), ring.most()), (bytes, 3, 3));
    }

    #[test]
    fn the_newest_stay_where_the_room_changes() {
        let mut ring = Ring::new(4);
        (0..6).for_each(|n| ring.add(n));
        ring.resize(2);
        assert_eq!(all(&ring), [4, 5]);
        ring.add(6);
        assert_eq!(all(&ring), [5, 6]);
        ring.resize(3);
        ring.add(7);
        ring.add(8);
        assert_eq!(all(&ring), [6, 7, 8]);
    }

    #[test]
    fn a_ring_without_room_keeps_nothing() {
        let mut ring = Ring::new(0);
        ring.add(1);
        assert!(ring.is_empty() && ring.newest_mut().is_none() && ring.bytes() == 0);
        assert_eq!(Ring::<u64>::fitting(63), 7);
    }
}
