//! Memory for blocks of small writes, from the write until the block is at its place.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};

use crate::config::BLOCK;

/// Bytes of one piece. Memory of this size goes back to the system when it is freed; smaller pieces
/// share the allocator's pages with what stays.
const PIECE: usize = 1 << 20;

/// Cuts aligned memory from pieces, as the allocator wastes much on single aligned blocks, and uses
/// a piece again when all its blocks are dropped, as fresh memory costs page faults.
#[derive(Debug)]
pub(crate) struct Arena {
    /// The unused rest of the newest piece.
    rest: BytesMut,
    /// Handles of all pieces, oldest first. One can be used again when it is the only handle of its
    /// piece.
    pieces: VecDeque<BytesMut>,
    /// Pieces that are kept.
    most: usize,
    /// Pieces that were begun since [`Arena::give_back`] was last called.
    begun: usize,
}

impl Arena {
    /// An arena that keeps about `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            rest: BytesMut::new(),
            pieces: VecDeque::new(),
            most: bytes / PIECE,
            begun: 0,
        }
    }

    /// Aligned memory of `len` bytes, a multiple of the block size. What it contains is undefined.
    pub(crate) fn cut(&mut self, len: usize) -> BytesMut {
        if self.rest.len() < len {
            let whole = len.max(PIECE) + BLOCK;
            let mut next = self.reclaim(whole).unwrap_or_default();
            next.resize(whole, 0);
            self.pieces.push_back(next.split_off(whole));
            let at = next.as_ptr().addr();
            next.advance(at.next_multiple_of(BLOCK) - at);
            self.rest = next;
            self.begun += 1;
        }
        self.rest.split_to(len)
    }

    /// The memory of the oldest piece, if all its blocks are dropped.
    fn reclaim(&mut self, len: usize) -> Option<BytesMut> {
        let mut oldest = self.pieces.pop_front()?;
        if oldest.try_reclaim(len) {
            return Some(oldest);
        }
        if self.pieces.len() < self.most {
            self.pieces.push_front(oldest);
        }
        None
    }

    /// Frees the pieces without blocks that were not needed since the last call: after a burst of
    /// small writes the memory goes to others.
    pub(crate) fn give_back(&mut self) {
        let unused = self
            .pieces
            .iter_mut()
            .map(|p| p.try_reclaim(PIECE))
            .take_while(|free| *free);
        let surplus = unused.count().saturating_sub(self.begun);
        self.pieces.drain(..surplus);
        self.begun = 0;
    }

    /// The number of pieces.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The bytes of all pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.len() * PIECE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: usize = PIECE / BLOCK;

    #[test]
    fn blocks_are_aligned_and_pieces_used_again() {
        let mut arena = Arena::new(4 * PIECE);
        let blocks: Vec<_> = (0..2 * BLOCKS).map(|_| arena.cut(BLOCK)).collect();
        assert!(
            blocks
                .iter()
                .all(|b| b.len() == BLOCK && b.as_ptr().addr().is_multiple_of(BLOCK))
        );
        let first = blocks[0].as_ptr();
        let pieces = arena.pieces();
        drop(blocks);
        let again: Vec<_> = (0..BLOCKS).map(|_| arena.cut(BLOCK)).collect();
        assert!(again.iter().any(|b| b.as_ptr() == first));
        assert_eq!(arena.pieces(), pieces);
    }

    #[test]
    fn what_a_burst_needed_is_given_back() {
        let mut arena = Arena::new(16 * PIECE);
        let mut burst: Vec<_> = (0..8 * BLOCKS).map(|_| arena.cut(BLOCK)).collect();
        assert!(arena.pieces() >= 8);
        let pieces = arena.pieces();
        arena.give_back();
        assert_eq!(arena.pieces(), pieces, "blocks in use");
        burst.drain(..6 * BLOCKS);
        // A little was needed since.
        burst.extend((0..BLOCKS).map(|_| arena.cut(BLOCK)));
        arena.give_back();
        assert!((3..=5).contains(&arena.pieces()), "{}", arena.pieces());
        burst.clear();
        arena.give_back();
        assert_eq!(arena.pieces(), 1, "the piece from which blocks are cut");
    }
}
