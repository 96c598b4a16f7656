//! Tests of buffers, pools and the budget that they share.

use super::*;

/// How often a task was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl std::task::Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn buffers_are_aligned_counted_and_reused() {
    let pool = Pool::new(1 << 20);
    let mut b = pool.get(5000);
    assert_eq!(b.as_ptr() as usize % ALIGN, 0);
    b[4999] = 7;
    let at = b.as_ptr();
    let frozen = b.freeze();
    assert_eq!(pool.in_use(), 8192);
    let slice = frozen.slice(4000..);
    drop(frozen);
    assert_eq!((slice[999], pool.in_use()), (7, 8192));
    drop(slice);
    assert_eq!(pool.in_use(), 0);
    assert_eq!(pool.get(6000).as_ptr(), at);
}

#[test]
fn other_memory_counts_until_it_is_dropped() {
    let pool = Pool::new(10_000);
    let mut charge = pool.charge(9000);
    assert!(!pool.has_room(2000));
    charge.set(100);
    assert_eq!((pool.in_use(), pool.has_room(2000)), (100, true));
    charge.set(20_000);
    assert!(!pool.has_room(20_000));
    drop(charge);
    assert_eq!((pool.in_use(), pool.has_room(10_000)), (0, true));
}

#[test]
fn a_returned_buffer_wakes_those_who_wait_for_room() {
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    let pool = Pool::new(8192);
    let (a, b) = (pool.get(4096), pool.get(4096));
    assert!(pool.poll_room(4096, &mut cx).is_pending());
    assert!(pool.poll_room(4096, &mut cx).is_pending());
    drop(a);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(pool.poll_room(4096, &mut cx).is_ready());
    drop(b);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
}

#[test]
fn pools_borrow_what_the_others_do_not_need() {
    let budget = Budget::new(8 * 4096, 4 * 4096);
    let (a, b) = (budget.pool(4 * 4096), budget.pool(4 * 4096));
    let of_a: Vec<PoolBuf> = (0..8).map(|_| a.get(4096)).collect();
    assert!(!a.has_room(1) && b.has_room(4 * 4096));
    let of_b: Vec<PoolBuf> = (0..4).map(|_| b.get(4096)).collect();
    assert!(!b.has_room(1));
    drop(of_a);
    assert!(b.has_room(4 * 4096) && !b.has_room(4 * 4096 + 1));
    drop(of_b);
    let common = &a.shared.common;
    assert_eq!(
        (
            common.borrowed.load(Ordering::SeqCst),
            common.in_use.load(Ordering::SeqCst),
            common.shelf().bytes
        ),
        (0, 0, 12 * 4096)
    );
    budget.trim();
    assert_eq!(common.shelf().bytes, 12 * 4096);
    budget.trim();
    assert_eq!(common.shelf().bytes, 6 * 4096);
    // Buffers kept for reuse are freed.
    let large = a.get(5 * 4096);
    assert!(common.shelf().bytes + 5 * 4096 <= common.total);
    drop(large);
}

#[test]
fn what_is_withheld_is_neither_lent_nor_kept() {
    let budget = Budget::new(8 * 4096, 4 * 4096);
    let (a, b) = (budget.pool(4 * 4096), budget.pool(4 * 4096));
    let of_a: Vec<PoolBuf> = (0..6).map(|_| a.get(4096)).collect();
    let _of_b = b.get(4096);
    assert!(b.has_room(5 * 4096) && !b.has_room(6 * 4096));
    budget.withhold(3 * 4096);
    assert_eq!(budget.usage().withheld, 3 * 4096);
    // What is borrowed already stays so.
    assert!(b.has_room(3 * 4096) && !b.has_room(4 * 4096) && !a.has_room(1));
    drop(of_a);
    let common = &a.shared.common;
    assert_eq!(common.borrowed.load(Ordering::SeqCst), 3 * 4096);
    assert!(a.has_room(8 * 4096), "one that uses nothing gets on");
    assert!(b.has_room(4 * 4096) && !b.has_room(5 * 4096));
    budget.withhold(usize::MAX);
    assert_eq!(budget.usage().withheld, 4 * 4096, "all that could be lent");
    assert_eq!(common.borrowed.load(Ordering::SeqCst), 4 * 4096);
    assert!(b.has_room(3 * 4096) && !b.has_room(4 * 4096));
    assert!(budget.usage().in_use + budget.usage().kept <= 8 * 4096);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(
        b.poll_room(4 * 4096, &mut Context::from_waker(&waker))
            .is_pending()
    );
    budget.withhold(0);
    assert_eq!(common.borrowed.load(Ordering::SeqCst), 0);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(b.has_room(7 * 4096));
}

#[test]
fn what_is_larger_than_the_limit_comes_one_at_a_time() {
    let pool = Pool::new(10_000);
    let held = pool.get(4096);
    assert!(pool.has_room(5000) && !pool.has_room(10_000));
    assert!(pool.has_room(1 << 20));
    let large = pool.get(1 << 20);
    assert!(pool.has_room(1) && !pool.has_room(10_000) && !pool.has_room(1 << 20));
    assert_eq!(pool.in_use(), (1 << 20) + 4096);
    drop(held);
    assert!(pool.has_room(10_000) && !pool.has_room(1 << 20));
    drop(large);
    assert!(pool.has_room(1 << 20));
}

#[test]
fn what_is_too_much_lies_in_a_file() {
    let dir = std::env::temp_dir();
    let pool = Budget::with_files(16 << 20, 0, Some(dir)).pool(16 << 20);
    let is_filed = |b: &PoolBuf| matches!(&b.memory, Some(Memory::Whole(r)) if r.file.is_some());
    let first = pool.get(12 << 20);
    let mut second = pool.get(8 << 20);
    let third = pool.get(4 << 20);
    assert_eq!([&first, &second, &third].map(is_filed), [false, true, false]);
    assert_eq!(second.as_ptr().addr() % ALIGN, 0);
    second.fill(7);
    let frozen = second.freeze();
    assert!(frozen.iter().all(|b| *b == 7));
    assert_eq!(pool.in_use(), 24 << 20);
    drop((first, frozen, third));
    assert_eq!(pool.in_use(), 0);
    // It is not kept for reuse.
    assert!(!is_filed(&pool.get(8 << 20)));
    let huge = pool.get(90 << 20);
    assert!(is_filed(&huge) && !is_filed(&Pool::new(1 << 20).get(8 << 20)));
}

#[test]
fn what_is_larger_leaves_all_pools_their_own() {
    let budget = Budget::new(8 * 4096, 4 * 4096);
    let (a, b) = (budget.pool(4 * 4096), budget.pool(4 * 4096));
    let large = a.get(9 * 4096);
    for pool in [&a, &b] {
        let own = pool.get(4 * 4096);
        assert!(!pool.has_room(1));
        drop(own);
    }
    drop(large);
    let of_a = a.get(4 * 4096);
    assert!(a.has_room(4 * 4096));
    drop(of_a);
    assert_eq!(
        (a.in_use(), a.shared.common.borrowed.load(Ordering::SeqCst)),
        (0, 0)
    );
}

#[test]
fn no_party_takes_the_room_of_all_by_sending_slowly() {
    const MIB: usize = 1 << 20;
    let pool = Pool::new(24 * MIB);
    let mut held = Vec::new();
    let mut fill = |party: &Pool| {
        let mut taken = 0;
        while party.has_room(MIB) {
            held.push((party.arrive(MIB), party.get(MIB)));
            taken += 1;
        }
        taken
    };
    let parties: Vec<Pool> = (0..4).map(|_| pool.party()).collect();
    assert_eq!(parties.iter().map(&mut fill).collect::<Vec<_>>(), [12, 6, 3, 2]);
    let other = pool.party();
    assert!(other.has_room(MIB) && !other.has_room(2 * MIB));
    // An arrived message counts for the pool only.
    assert_eq!(parties[0].arriving(), 12 * MIB);
    let buffers: Vec<PoolBuf> = held.into_iter().map(|(_, buffer)| buffer).collect();
    assert_eq!((parties[0].arriving(), pool.in_use()), (0, 23 * MIB));
    assert!(parties[0].has_room(MIB));
    drop(buffers);
    // A party that is alone receives one message after the other, however large.
    assert!(parties[0].has_room(24 * MIB) && parties[0].has_room(90 * MIB));
}
