//! The core's rules for its callers.

use std::collections::BTreeSet;
use std::sync::Arc;

use spirula_denc::{Micros, UTime};
use spirula_maps::{Epoch, OsdId, PgId, PoolId};

use super::map::FakeMap;
use crate::core::{Core, Shard};
use crate::pg::config::PgConfig;
use crate::pg::image_io::ImageIo;
use crate::pg::info::PgInfo;
use crate::pg::perf::{CorePerf, DropReason};
use crate::pg::versions::Versions;
use crate::pg::{Ctx, StoreReply, Token};

/// A core with a map of this epoch and a pool.
fn core(epoch: Epoch) -> Core {
    core_of(Shard::WHOLE, epoch)
}

/// The core of one of several reactors.
fn core_of(shard: Shard, epoch: Epoch) -> Core {
    Core::new(
        OsdId::new(0),
        shard,
        Arc::new(PgConfig::default()),
        Arc::new(map(epoch)),
    )
}

fn map(epoch: Epoch) -> FakeMap {
    let mut map = FakeMap::new(3);
    map.add_pool(PoolId::new(1), 3, 8);
    map.epoch = epoch;
    map
}

/// Hands an event to a core; returns how often it was dropped as late.
fn run(core: &mut Core, f: impl FnOnce(&mut Core, &mut Ctx<'_>)) -> u64 {
    let (mut out, mut perf, mut images) = (Vec::new(), CorePerf::default(), ImageIo::default());
    let mut cx = Ctx {
        now: UTime::ZERO,
        usec: Micros::new(1),
        kept_since: None,
        full: &BTreeSet::new(),
        versions: &Versions::default(),
        out: &mut out,
        perf: &mut perf,
        images: &mut images,
        slow_after: Micros::MAX,
        described: None,
    };
    f(core, &mut cx);
    perf.dropped.of(DropReason::StoreLate)
}

#[test]
#[should_panic(expected = "invariant broken: expected a PG to be here once, pg 1.3, epoch 5")]
fn a_pg_is_here_once() {
    let mut core = core(Epoch::new(5));
    core.load(PgId::new(PoolId::new(1), 3), PgInfo::default(), Vec::new());
    core.load(PgId::new(PoolId::new(1), 3), PgInfo::default(), Vec::new());
}

#[test]
#[should_panic(expected = "invariant broken: expected maps whose epochs ascend, osd 0, newest 5, epoch 4")]
fn no_older_map_comes_after_a_newer_one() {
    run(&mut core(Epoch::new(5)), |core, cx| {
        core.handle_map(Arc::new(map(Epoch::new(4))), false, false, cx);
    });
}

/// Also where PGs come one after the other and no map follows, as those that a primary makes here.
#[test]
fn the_memory_is_shared_by_all_pgs() {
    let mut core = core(Epoch::new(5));
    for seed in 0..200 {
        core.load(PgId::new(PoolId::new(1), seed), PgInfo::default(), Vec::new());
    }
    let share = PgConfig::default().shares(200);
    assert!(share != PgConfig::default().shares(1));
    assert!(core.pgs().all(|pg| pg.seen().shares() == share));
}

#[test]
fn an_answer_for_a_pg_that_was_deleted_is_counted() {
    let late = run(&mut core(Epoch::new(5)), |core, cx| {
        core.handle_store(Token::new(77, 1), StoreReply::Committed, cx);
    });
    assert_eq!(late, 1);
}

/// There is only one reactor, which has all PGs: nothing hands a child over to another.
#[test]
#[should_panic(expected = "expected PGs that are split off to belong to the reactor")]
fn no_pg_is_split_off_that_another_reactor_would_look_for() {
    let pgid = PgId::new(PoolId::new(1), 0);
    let shard = Shard {
        number: Core::shard_of(pgid, 2),
        count: 2,
    };
    let mut core = core_of(shard, Epoch::new(5));
    let info = PgInfo {
        pg_num: 1,
        ..PgInfo::default()
    };
    core.load(pgid, info, Vec::new());
    run(&mut core, |core, cx| {
        core.handle_map(Arc::new(map(Epoch::new(6))), false, true, cx);
    });
}
