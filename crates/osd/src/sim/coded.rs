//! Erasure-coded pools: they do what replicated ones do, and their fragments are true.

use std::cell::Cell;

use spirula_erasure::Layout as Code;
use spirula_maps::SnapId;

use super::*;
use crate::pg::layout::Layout;

thread_local! {
    /// Whether new pools of several members are coded in this thread's tests.
    static CODED: Cell<bool> = const { Cell::new(false) };
}

/// How the members of a new pool of this size hold objects.
pub(super) fn layout_of(size: u32) -> Layout {
    if size < 2 || !CODED.get() {
        return Layout::Whole;
    }
    let m = if size < 5 { 1 } else { 2 };
    Layout::Coded(code(size as u8 - m, m))
}

/// A code with small units, so that small objects have many.
fn code(k: u8, m: u8) -> Code {
    Code::new(k, m, Code::MIN_UNIT).unwrap()
}

/// Runs a test with coded pools.
pub(super) fn on_coded(test: impl FnOnce()) {
    CODED.set(true);
    test();
    CODED.set(false);
}

/// An object as its client knows it.
#[derive(Default, Clone)]
struct Object {
    exists: bool,
    data: Vec<u8>,
    /// Its snapshots, the newest last.
    snaps: Vec<(SnapId, Vec<u8>)>,
}

/// What other objects are copied from.
fn source_text() -> String {
    (0..30_000).map(|i| char::from(b'A' + (i % 23) as u8)).collect()
}

/// A random op of a client, and its effect.
fn random_op(rng: &mut Rng, object: &mut Object, most: u64, is_first: bool) -> OsdOpIn {
    let near = |rng: &mut Rng| {
        // Borders of units are where it goes wrong.
        let unit = u64::from(Code::MIN_UNIT);
        let at = rng.index((most / unit) as usize) as u64 * unit + rng.index(9) as u64;
        if rng.one_in(2) {
            at.saturating_sub(4)
        } else {
            rng.index(most as usize) as u64
        }
    };
    let (a, b) = (near(rng), near(rng));
    let (from, to) = (a.min(b), a.max(b) + 1);
    let text = |rng: &mut Rng, len: u64| -> String {
        let letter = |_| char::from(b'a' + rng.index(26) as u8);
        (0..len).map(letter).collect()
    };
    let Object { exists, data, snaps } = object;
    let kind = rng.index(10);
    // The first two change only what is there.
    *exists |= kind > 1;
    match kind {
        0 => {
            if (to as usize) < data.len() {
                data[from as usize..to as usize].fill(0);
            } else {
                // Up to the end, it cuts off.
                data.truncate(from as usize);
            }
            extent(OpCode::ZERO, from, to - from, "")
        }
        1 => {
            if *exists {
                data.resize(from as usize, 0);
            }
            extent(OpCode::TRUNCATE, from, 0, "")
        }
        2 => {
            let text = text(rng, to - from);
            *data = text.clone().into_bytes();
            write_full(&text)
        }
        3 => {
            let some = text(rng, 100);
            data.extend_from_slice(some.as_bytes());
            extent(OpCode::APPEND, 0, 100, &some)
        }
        4 if is_first => {
            *data = source_text().into_bytes();
            copy::copy("source")
        }
        5 if is_first && !snaps.is_empty() => {
            let (id, then) = &snaps[rng.index(snaps.len())];
            data.clone_from(then);
            snaps::roll_back(*id)
        }
        _ => {
            let text = text(rng, to - from);
            data.resize(data.len().max(to as usize), 0);
            data[from as usize..to as usize].copy_from_slice(text.as_bytes());
            write_at(from, &text)
        }
    }
}

impl Sim {
    /// Makes one PG more, up to four.
    fn split(&mut self) {
        self.change_map(|m| {
            let pool = m.pools.get_mut(&POOL).unwrap();
            pool.pg_num = (pool.pg_num + 1).min(4);
        });
    }
}

/// A client's write, which is sent again when its PG is split.
#[derive(Default)]
struct Write {
    ops: Vec<OsdOpIn>,
    snapc: SnapContext,
    reqid: Option<ReqId>,
    tids: Vec<u64>,
}

impl Write {
    fn send(&mut self, sim: &mut Sim) {
        let mut request = sim.build("a", self.ops.clone());
        request.reqid = *self.reqid.get_or_insert(request.reqid);
        request.retry_attempt = self.tids.len() as i32;
        request.snapc = self.snapc.clone();
        self.tids.extend(sim.submit(request));
    }
}

/// Ops of many kinds on one object under way at once, while connections break and its PG is split.
#[test]
fn fragments_are_true_whatever_the_ops_and_lost_messages() {
    for seed in 0..150 {
        on_coded(|| history(seed));
    }
}

fn history(seed: u64) {
    let mut rng = Rng::new(seed);
    let (osds, layout) = [(3, code(2, 1)), (4, code(3, 1)), (6, code(4, 2))][seed as usize % 3];
    let cfg = PgConfig {
        copy_chunk: 8000,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(osds, osds.into(), 1, seed, cfg);
    sim.settle();
    sim.write_full("source", &source_text());
    let mut object = Object::default();
    let most = layout.stripe_width() * 2 + 100;
    for round in 0..6 {
        let mut writes = Vec::<Write>::new();
        for _ in 0..4 {
            if rng.one_in(10) {
                // The client sends again what was not answered, in its order.
                sim.split();
                writes.iter_mut().for_each(|w| w.send(&mut sim));
            }
            if object.exists && rng.one_in(8) {
                let id = object.snaps.last().map_or(1, |(id, _)| id + 1);
                object.snaps.push((id, object.data.clone()));
            }
            let ops = (0..=rng.index(3))
                .map(|i| random_op(&mut rng, &mut object, most, i == 0))
                .collect();
            let mut write = Write {
                ops,
                snapc: SnapContext {
                    seq: object.snaps.last().map_or(0, |(id, _)| *id),
                    snaps: object.snaps.iter().rev().map(|(id, _)| *id).collect(),
                },
                ..Write::default()
            };
            write.send(&mut sim);
            writes.push(write);
            sim.run_some(rng.index(30));
            if rng.one_in(3) {
                let (a, b) = (sim.random_osd(osds.into()), sim.random_osd(osds.into()));
                if a != b {
                    sim.cut_link(a, b);
                }
            }
        }
        sim.run_some(100_000);
        sim.pass(15);
        for write in writes {
            let mut replies = write.tids.iter().filter_map(|tid| sim.reply_to(*tid));
            let Some(reply) = replies.next() else {
                panic!("seed {seed}: {:?}", sim.states());
            };
            assert!(matches!(reply.result, 0 | -2), "seed {seed}: {}", reply.result);
        }
        let found = sim.read("a").unwrap_or_default();
        assert!(
            found == object.data,
            "seed {seed}, round {round}: {} bytes, not {}",
            found.len(),
            object.data.len()
        );
        for (id, then) in &object.snaps {
            let mut request = sim.build("a", vec![extent(OpCode::READ, 0, 0, "")]);
            request.snapid = *id;
            let found = sim.call_op(request);
            assert!(
                found.ops[0].data.to_bytes() == then,
                "seed {seed}, round {round}: snapshot {id}"
            );
        }
        let (from, len) = (rng.index(9000) as u64, rng.index(9000) as u64 + 1);
        let reply = sim.call("a", vec![extent(OpCode::READ, from, len, "")]);
        let end = ((from + len) as usize).min(object.data.len());
        let expected = &object.data[(from as usize).min(end)..end];
        assert!(
            reply.ops[0].data.to_bytes() == expected,
            "seed {seed}, round {round}: {from}+{len}"
        );
        sim.assert_copies(layout.roles().into(), format!("seed {seed}"));
    }
}

/// A fragment that its member can't read is made of the others.
#[test]
fn what_a_member_can_not_read_the_others_know() {
    on_coded(|| {
        let mut sim = Sim::new(6, 6, 1, 1);
        sim.settle();
        let text: String = (0..40_000).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
        sim.write_full("a", &text);
        let key = crate::pg::key::object_key(&sim.object("a"));
        for away in [[0, 3], [1, 4], [4, 5], [2, 3]] {
            for (id, n) in &mut sim.nodes {
                n.store.rotten.clear();
                if away.contains(&id.index()) {
                    n.store.rotten.insert(key.clone());
                }
            }
            assert_eq!(sim.read("a").unwrap(), text, "without {away:?}");
        }
        for n in sim.nodes.values_mut() {
            n.store.rotten.insert(key.clone());
        }
        assert_eq!(sim.read("a"), Err(-5));
    });
}

/// A fragment that can't be read is noticed when it is needed, and made again of the others.
#[test]
fn a_fragment_that_rotted_is_repaired_by_whoever_needs_it() {
    for (osds, seed) in [(3, 2), (3, 3), (6, 4)] {
        on_coded(|| {
            let mut sim = Sim::new(osds, osds.into(), 1, seed);
            sim.settle();
            let mut text = source_text();
            sim.write_full("a", &text);
            let key = crate::pg::key::object_key(&sim.object("a"));
            for round in 0..4 * osds {
                let rotten = OsdId::new(round % osds);
                sim.nodes
                    .get_mut(&rotten)
                    .unwrap()
                    .store
                    .rotten
                    .insert(key.clone());
                // Reads need data units, and overwrites the coding ones as well.
                assert_eq!(sim.read("a").unwrap(), text);
                sim.settle();
                let at = usize::from(round) * 900;
                text.replace_range(at..at + 700, &"x".repeat(700));
                let overwrite = write_at(at as u64, &"x".repeat(700));
                assert_eq!(sim.call("a", vec![overwrite]).result, 0);
                sim.pass(20);
                sim.settle();
                assert!(sim.all_clean(), "{:?}", sim.states());
                let is_read = !sim.nodes[&rotten].store.rotten.contains(&key);
                assert!(is_read || round >= osds, "osd.{rotten} in round {round}");
                sim.assert_all_agree();
            }
            assert_eq!(sim.read("a").unwrap(), text);
        });
    }
}

/// An object of which too few fragments can be read is named, until it is written anew: in one step,
/// or in two.
#[test]
fn what_too_few_members_can_read_is_named_until_it_is_written_anew() {
    for new in [source_text(), "x".to_owned()] {
        on_coded(|| {
            let mut sim = Sim::new(3, 3, 1, 5);
            sim.settle();
            sim.write_full("a", &source_text());
            let key = crate::pg::key::object_key(&sim.object("a"));
            for node in sim.nodes.values_mut() {
                node.store.rotten.insert(key.clone());
            }
            assert_eq!(sim.read("a").unwrap_err(), -spirula_errno::EIO);
            sim.pass(20);
            sim.settle();
            assert!(!sim.all_clean(), "{:?}", sim.states());
            sim.write_full("a", &new);
            for node in sim.nodes.values_mut() {
                // All blocks are new.
                node.store.rotten.remove(&key);
            }
            sim.settle();
            assert!(sim.all_clean(), "{:?}", sim.states());
            assert_eq!(sim.read("a").unwrap(), new);
        });
    }
}

/// Data of another member's unit and omap keys of this one, in one request.
#[test]
fn data_and_keys_are_answered_together_in_whichever_order_they_come() {
    for seed in 0..200 {
        on_coded(|| {
            let mut sim = Sim::new(3, 3, 1, seed);
            sim.settle();
            let text = source_text();
            sim.call("a", vec![write_full(&text), omap::set(&[("k", "v")])]);
            for unit in 0..4 {
                let from = unit * u64::from(Code::MIN_UNIT);
                let ops = vec![extent(OpCode::READ, from, 100, ""), plain(OpCode::OMAPGETHEADER)];
                let reply = sim.call("a", ops);
                let expected = &text.as_bytes()[from as usize..from as usize + 100];
                assert!(reply.ops[0].data.to_bytes() == expected, "seed {seed}: {from}");
                assert_eq!(reply.result, 0, "seed {seed}");
            }
        });
    }
}

/// Members die and return, also several at once and all of them, while ops are under way and PGs are
/// split.
#[test]
fn what_was_acknowledged_is_there_whoever_dies() {
    for seed in seeds(40) {
        on_coded(|| deaths(seed));
    }
}

fn deaths(seed: u64) {
    let mut rng = Rng::new(seed);
    let (osds, layout) = [
        (3u16, code(2, 1)),
        (5, code(2, 1)),
        (6, code(4, 2)),
        (8, code(4, 2)),
    ][seed as usize % 4];
    let size = u32::from(layout.roles());
    // Half of the seeds copy everything in the background.
    let cfg = match seed % 8 < 4 {
        true => PgConfig::default(),
        false => PgConfig {
            sync_objects: 0,
            ..PgConfig::default()
        },
    };
    let mut sim = Sim::with_config(osds, size, 1, seed, cfg);
    sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().min_size = u32::from(layout.k()));
    sim.settle();
    let most = layout.stripe_width() * 2 + 100;
    let mut objects: Vec<Object> = (0..3).map(|_| Object::default()).collect();
    let mut down: Vec<OsdId> = Vec::new();
    for round in 0..8 {
        // Ops that may be under way when somebody dies: each is done or not, in their order.
        let mut sent: Vec<(usize, Vec<u64>, Vec<Object>)> = Vec::new();
        for (at, object) in objects.iter().enumerate() {
            let (mut tids, mut states) = (Vec::new(), vec![object.clone()]);
            for _ in 0..rng.index(4) {
                let mut object = states.last().unwrap().clone();
                let op = random_op(&mut rng, &mut object, most, false);
                let request = sim.build(&format!("o{at}"), vec![op]);
                let Some(tid) = sim.submit(request) else { break };
                tids.push(tid);
                states.push(object);
                sim.run_some(rng.index(20));
            }
            sent.push((at, tids, states));
        }
        if rng.one_in(3) {
            sim.split();
        }
        sim.run_some(rng.index(60));
        let up: Vec<OsdId> = OsdId::below(osds.into()).filter(|o| !down.contains(o)).collect();
        match rng.index(6) {
            5 => {
                // More than the code can do without, for a while, one after the other.
                let mut away = Vec::new();
                for _ in 0..=layout.m() {
                    let left: Vec<OsdId> = up.iter().copied().filter(|o| !away.contains(o)).collect();
                    let Some(dead) = left.get(rng.index(left.len().max(1))).copied() else {
                        break;
                    };
                    sim.crash_and_mark_down(dead);
                    away.push(dead);
                    sim.run_some(rng.index(300));
                    if rng.one_in(2) {
                        sim.pass(10);
                    }
                }
                while !away.is_empty() {
                    let back = away.swap_remove(rng.index(away.len()));
                    sim.start_and_mark_up(back);
                    sim.run_some(rng.index(300));
                }
            }
            0 => {
                // A power cut of all.
                for o in &up {
                    sim.crash(*o);
                }
                sim.change_map(|m| up.iter().for_each(|o| m.mark_down(*o)));
                up.iter().for_each(|o| sim.start(*o));
                sim.change_map(|m| up.iter().for_each(|o| m.mark_up(*o)));
            }
            1 | 2 if down.len() < usize::from(layout.m()) => {
                let dead = up[rng.index(up.len())];
                sim.crash_and_mark_down(dead);
                down.push(dead);
            }
            3 if !down.is_empty() => {
                let back = down.swap_remove(rng.index(down.len()));
                sim.start_and_mark_up(back);
            }
            4 => {
                let dead = up[rng.index(up.len())];
                sim.crash(dead);
                sim.change_map(|m| m.mark_down(dead));
                sim.run_some(rng.index(100));
                sim.start_and_mark_up(dead);
            }
            _ => {}
        }
        sim.run_some(100_000);
        sim.pass(40);
        assert!(
            sim.states().iter().any(|s| s.contains("active")),
            "seed {seed}, round {round}: down {down:?} {:?}\n{}",
            sim.states(),
            sim.traces()
        );
        for (at, tids, states) in sent {
            let replies: Vec<bool> = tids.iter().map(|tid| sim.reply_to(*tid).is_some()).collect();
            let acked = replies.iter().rposition(|r| *r).map_or(0, |i| i + 1);
            let found = sim.read(&format!("o{at}"));
            let same = |o: &Object| match &found {
                Ok(data) => o.exists && *data == o.data,
                Err(e) => *e == -2 && !o.exists,
            };
            let is = (acked..states.len()).find(|i| same(&states[*i]));
            let Some(is) = is else {
                panic!(
                    "seed {seed}, round {round}: o{at} is none of its states from {acked} of {}: {:?}\n{}",
                    states.len(),
                    found.map(|d| d.len()),
                    sim.traces()
                );
            };
            objects[at] = states[is].clone();
        }
    }
    for o in down {
        sim.start_and_mark_up(o);
    }
    sim.settle_clean(seed);
    for (at, object) in objects.iter().enumerate() {
        let found = sim.read(&format!("o{at}"));
        assert!(
            found
                == if object.exists {
                    Ok(object.data.clone().into())
                } else {
                    Err(-2)
                },
            "seed {seed}: o{at} in the end"
        );
    }
    sim.assert_copies(layout.roles().into(), format!("seed {seed}"));
}

/// Large objects are copied in several parts, each of which is staged at once.
#[test]
fn a_large_object_is_copied_in_parts() {
    on_coded(|| {
        let mut sim = Sim::with_config(3, 3, 8, 1, PgConfig::default());
        sim.settle();
        let text: String = (0..1_300_000)
            .map(|i| format!("{:07}", i * 37 % 9_999_991))
            .collect();
        assert!(text.len() as u64 > PgConfig::default().copy_chunk);
        sim.write_full("source", &text);
        let request = sim.build("target", vec![copy::copy("source")]);
        sim.submit(request);
        sim.settle();
        assert_eq!(sim.read("target").unwrap(), text.as_bytes());
    });
}
