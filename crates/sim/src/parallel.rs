//! Many runs at the same time, each independent of the others.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The remaining seeds, and the first seed with a result.
struct Shared<I, T> {
    seeds: I,
    found: Option<(u64, T)>,
}

/// The first of ascending seeds for which `look` returns something, on all cores; no seed after it
/// is begun.
pub fn first_of<I, T, F>(seeds: I, look: F) -> Option<(u64, T)>
where
    I: IntoIterator<Item = u64>,
    I::IntoIter: Send,
    T: Send,
    F: Fn(u64) -> Option<T> + Sync,
{
    let shared = Mutex::new(Shared {
        seeds: seeds.into_iter(),
        found: None,
    });
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || {
        let mut s = lock();
        match s.found {
            // The seeds before it are under way or done.
            Some(_) => None,
            None => s.seeds.next(),
        }
    };
    let work = || {
        while let Some(seed) = next() {
            if let Some(what) = look(seed) {
                let mut s = lock();
                if s.found.as_ref().is_none_or(|(first, _)| seed < *first) {
                    s.found = Some((seed, what));
                }
            }
        }
    };
    thread::scope(|s| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            s.spawn(work);
        }
    });
    shared.into_inner().unwrap_or_else(PoisonError::into_inner).found
}

#[cfg(test)]
mod tests {
    use super::first_of;

    #[test]
    fn the_first_seed_counts_however_long_it_takes() {
        let look = |seed| {
            if seed == 5 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            (seed >= 5).then_some(seed * 2)
        };
        assert_eq!(first_of(1..=100, look), Some((5, 10)));
        assert_eq!(first_of(1..=4, look), None);
    }
}
