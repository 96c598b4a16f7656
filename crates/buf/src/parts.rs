//! Buffers that are filled in parts, in any order and by any thread.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::{ALIGN, Memory, PoolBuf};

/// A buffer that is handed out part by part, first to last. The holder of a part owns it
/// exclusively; when all parts are dropped the buffer is whole again.
pub struct Divided {
    whole: Arc<PoolBuf>,
    /// Bytes that were handed out.
    taken: usize,
}

/// The memory of a part. It keeps the whole buffer alive.
pub(crate) struct Part {
    pub(crate) at: NonNull<u8>,
    _of: Arc<PoolBuf>,
}

// SAFETY: it has its bytes exclusively; nothing in it is tied to a thread.
unsafe impl Send for Part {}
// SAFETY: shared access only ever reads the bytes.
unsafe impl Sync for Part {}

impl Divided {
    pub(crate) fn new(whole: PoolBuf) -> Self {
        Self {
            whole: Arc::new(whole),
            taken: 0,
        }
    }

    /// The next `len` bytes. Only the last part may have a length that is no multiple of [`ALIGN`],
    /// so that all parts are aligned.
    ///
    /// # Panics
    /// If the buffer has fewer bytes left, or another part follows one that is no multiple of it.
    pub fn part(&mut self, len: usize) -> PoolBuf {
        let left = self.whole.len() - self.taken;
        assert!(
            len <= left && self.taken.is_multiple_of(ALIGN),
            "a part of {len} bytes where {left} are left after {}",
            self.taken
        );
        let part = Memory::Part(Part {
            // SAFETY: within the buffer, or at its end. These bytes are not shared: earlier parts
            // end before them, and the whole buffer is visible only when all parts are dropped.
            at: unsafe { self.whole.start().add(self.taken) },
            _of: Arc::clone(&self.whole),
        });
        self.taken += len;
        PoolBuf::of(part, len, Arc::clone(&self.whole.shared))
    }

    /// The whole buffer, if all its parts are dropped.
    pub fn join(self) -> Option<PoolBuf> {
        Arc::into_inner(self.whole)
    }
}

#[cfg(test)]
mod tests {
    use crate::Pool;

    #[test]
    fn parts_make_a_whole() {
        let pool = Pool::new(1 << 20);
        let mut divided = pool.get(20_000).divide();
        let mut parts = [8192, 4096, 7712].map(|len| divided.part(len));
        assert!(parts.iter().all(|p| p.as_ptr().addr().is_multiple_of(4096)));
        for (i, part) in parts.iter_mut().enumerate().rev() {
            part.fill(i as u8);
        }
        // Each may go its own way.
        let [first, second, third] = parts;
        drop(first.freeze());
        drop((third, second));
        let whole = divided.join().unwrap();
        let expected = [vec![0; 8192], vec![1; 4096], vec![2; 7712]].concat();
        assert_eq!((&whole[..], pool.in_use()), (&expected[..], 20_480));
        drop(whole);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_part_keeps_its_memory_and_the_whole_from_coming_back() {
        let pool = Pool::new(1 << 20);
        let mut divided = pool.get(8192).divide();
        let mut part = divided.part(4096);
        assert!(divided.join().is_none());
        part.fill(7);
        assert_eq!((part[4095], pool.in_use()), (7, 8192));
        drop(part);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    #[should_panic(expected = "a part of 1 bytes where 0 are left")]
    fn there_is_no_more_than_the_whole() {
        let mut divided = Pool::new(1 << 20).get(4096).divide();
        let _part = divided.part(4096);
        divided.part(1);
    }
}
