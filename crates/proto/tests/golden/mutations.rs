//! Damaged input: an error or a value, never a panic, and no allocation beyond a multiple of the
//! input.

// The allocator trait has no safe interface; this one only counts before it hands on to the
// system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use spirula_proto::RawMessage;

/// Counts the bytes that each thread ever allocated.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to `System` unchanged; the counter is a const-initialised thread-local
// without a destructor, so touching it never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|n| n.set(n.get().saturating_add(layout.size())));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that `f` allocates.
fn allocated(f: impl FnOnce()) -> usize {
    let before = ALLOCATED.with(Cell::get);
    f();
    ALLOCATED.with(Cell::get) - before
}

/// A change to encoded bytes.
#[derive(Debug, Clone)]
enum Mutation {
    /// Another byte.
    Set(Index, u8),
    /// The largest length.
    Huge(Index),
    /// Cut short.
    Truncate(Index),
    /// Bytes left out.
    Remove(Index),
    /// Bytes put in.
    Insert(Index, Vec<u8>),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(i, b)| Mutation::Set(i, b)),
        2 => any::<Index>().prop_map(Mutation::Huge),
        1 => any::<Index>().prop_map(Mutation::Truncate),
        1 => any::<Index>().prop_map(Mutation::Remove),
        1 => (any::<Index>(), prop::collection::vec(any::<u8>(), 1..9)).prop_map(|(i, b)| Mutation::Insert(i, b)),
    ]
}

fn apply(bytes: &Bytes, mutations: &[Mutation]) -> Bytes {
    let mut v = bytes.to_vec();
    for m in mutations {
        if v.is_empty() {
            break;
        }
        match m {
            Mutation::Set(i, b) => *i.get_mut(&mut v) = *b,
            Mutation::Huge(i) => {
                let at = i.index(v.len());
                let end = v.len().min(at + 4);
                v[at..end].fill(0xff);
            }
            Mutation::Truncate(i) => v.truncate(i.index(v.len())),
            Mutation::Remove(i) => {
                v.remove(i.index(v.len()));
            }
            Mutation::Insert(i, b) => {
                let at = i.index(v.len());
                v.splice(at..at, b.iter().copied());
            }
        }
    }
    v.into()
}

/// The bytes that decoding `len` bytes and encoding them again may allocate.
fn bound(len: usize) -> usize {
    64 * len + 4096
}

static SAMPLES: LazyLock<Vec<RawMessage>> = LazyLock::new(|| {
    crate::hex::messages()
        .into_iter()
        .map(|(_, m)| m)
        .chain(crate::internal::samples())
        .collect()
});

static STRUCTURES: LazyLock<Vec<(&str, Bytes)>> = LazyLock::new(|| {
    let recorded = crate::hex::structures().into_iter();
    recorded.chain(crate::structures::scrubs()).collect()
});

fn round_trip(m: &RawMessage) {
    let _ = crate::messages::round_trip(m).or_else(|| crate::internal::round_trip(m));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn damaged_messages_are_errors(
        which: Index,
        version in prop::option::of(0u16..12),
        front in prop::collection::vec(mutation(), 0..4),
        data in prop::collection::vec(mutation(), 0..2),
    ) {
        let mut m = which.get(&SAMPLES).clone();
        m.front = apply(&m.front, &front);
        m.data = apply(&m.data.to_bytes(), &data).into();
        m.header.version = version.unwrap_or(m.header.version);
        let used = allocated(|| round_trip(&m));
        prop_assert!(used <= bound(m.len()), "{}: {used} bytes for {}", m.kind(), m.len());
    }

    #[test]
    fn damaged_structures_are_errors(which: Index, changes in prop::collection::vec(mutation(), 1..4)) {
        let (name, bytes) = which.get(&STRUCTURES);
        let b = apply(bytes, &changes);
        let used = allocated(|| drop(crate::structures::round_trip(name, &b)));
        prop_assert!(used <= bound(b.len()), "{name}: {used} bytes for {}", b.len());
    }
}
