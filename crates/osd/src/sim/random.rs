//! Random histories: crashes, cuts, restarts, moves and splits under load. After all of it every acknowledged write
//! must be there, and every object one that was written.

use super::*;

/// What was written to an object: versions in order of submission, and the newest acknowledged.
#[derive(Default)]
struct History {
    next: usize,
    acked: usize,
}

fn run(seed: u64) {
    let cfg = PgConfig {
        log_entries_per_pg: (20, 20),
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(5, 3, 2, seed, cfg);
    sim.settle();
    let mut histories: BTreeMap<String, History> = BTreeMap::new();
    let mut pending: BTreeMap<u64, (String, usize, ReqId)> = BTreeMap::new();
    let mut down: Vec<i32> = Vec::new();
    for _ in 0..150 {
        match sim.random(12) {
            0 if down.len() < 2 => {
                let id = sim.random(5) as i32;
                if !down.contains(&id) {
                    sim.crash_and_mark_down(id);
                    down.push(id);
                }
            }
            1 | 2 if !down.is_empty() => {
                let at = sim.random(down.len());
                let id = down.remove(at);
                sim.start_and_mark_up(id);
            }
            3 => {
                let (a, b) = (sim.random(5) as i32, sim.random(5) as i32);
                if a != b {
                    sim.cut_link(a, b);
                }
            }
            4 if sim.random(6) == 0 => {
                let id = sim.random(5) as i32;
                sim.change_map(|m| match m.out.iter().position(|o| *o == id) {
                    Some(at) => drop(m.out.remove(at)),
                    None if m.out.is_empty() => m.out.push(id),
                    None => {}
                });
            }
            5 if sim.random(20) == 0 => sim.change_map(|m| {
                let pool = m.pools.get_mut(&POOL).unwrap();
                pool.pg_num = (pool.pg_num + 1).min(8);
            }),
            6 => {
                sim.usec += 1_000_000;
                for id in sim.nodes.keys().copied().collect::<Vec<_>>() {
                    sim.with(id, Core::handle_tick);
                }
            }
            _ => {
                let name = format!("o{}", sim.random(12));
                let h = histories.entry(name.clone()).or_default();
                h.next += 1;
                let n = h.next;
                let op = sim.build(&name, vec![write_full(&format!("{n}"))]);
                let reqid = op.reqid;
                if let Some(tid) = sim.submit(op) {
                    pending.insert(tid, (name, n, reqid));
                }
            }
        }
        let n = sim.random(40);
        sim.run_some(n);
        while let Some(r) = sim.replies.pop_front() {
            if let Some((name, n, _)) = pending.remove(&r.tid) {
                assert_eq!(r.result, 0);
                let h = histories.get_mut(&name).unwrap();
                h.acked = h.acked.max(n);
            }
        }
    }
    for id in std::mem::take(&mut down) {
        sim.start_and_mark_up(id);
    }
    sim.settle();
    sim.settle();
    assert!(sim.all_clean(), "seed {seed}: {:?}", sim.states());
    sim.replies.clear();
    for (name, h) in &histories {
        let found = match sim.read(name) {
            Ok(b) => std::str::from_utf8(&b).unwrap().parse::<usize>().unwrap(),
            Err(e) => {
                assert_eq!((e, h.acked), (-2, 0), "seed {seed}: {name} lost");
                continue;
            }
        };
        assert!(found <= h.next);
        assert!(
            found >= h.acked,
            "seed {seed}: {name} is {found}, {} was acknowledged",
            h.acked
        );
    }
    let copies: usize = sim.nodes.values().map(|n| n.store.objects().len()).sum();
    let objects = histories.keys().filter(|n| sim.read(n).is_ok()).count();
    assert_eq!(copies, objects * 3, "seed {seed}: copies left over or missing");
}

#[test]
fn no_acknowledged_write_is_lost_in_random_histories() {
    let seeds = std::env::var("SPIRULA_SIM_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(30);
    for seed in 1..=seeds {
        run(seed);
    }
}
