//! Erasure-coded pools: they do what replicated ones do, and their fragments are true.

use std::cell::Cell;

use spirula_erasure::{Layout as Code, Unit};
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
fn on_coded(test: impl FnOnce()) {
    CODED.set(true);
    test();
    CODED.set(false);
}

/// Tests of replicated pools that must pass on coded ones.
macro_rules! on_coded {
    ($name:ident, $module:ident: $($test:ident),+) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    super::on_coded(crate::sim::$module::$test);
                }
            )+
        }
    };
}

on_coded!(on_classes, classes: a_failed_call_undoes_what_ops_before_it_did, a_call_sent_again_is_answered_as_before, calls_read_and_write_their_object, classes_are_refused_by_name, tags_of_new_versions_differ, maps_that_methods_make_are_bounded_in_all_calls_together, what_many_calls_read_is_fetched_together, what_writes_return_is_for_those_who_ask, what_methods_read_is_bounded_however_much_they_are_asked_for);
on_coded!(on_copy, copy: a_question_of_another_osd_is_as_old_as_it_is, copies_fail_as_with_the_official_osd, a_copy_has_everything_of_its_source_and_its_version, copies_in_a_circle_and_lost_messages_end);
on_coded!(on_dups, dups: requests_are_recognised_beyond_the_log_and_after_a_restart_of_all, they_are_forgotten_in_the_end, what_is_forgotten_before_it_is_durable_is_answered_all_the_same);
on_coded!(on_omap, omap: a_range_removes_what_was_there_before_its_request, a_request_sees_what_was_before_it_also_when_it_is_executed_again, a_write_that_reads_does_not_wait_for_the_one_before_it, bad_input_and_missing_objects_fail_as_with_the_official_osd, omaps_are_copied_to_a_new_member_page_by_page, pairs_are_set_listed_compared_and_removed, the_header_is_kept_and_cleared_with_the_pairs, values_by_keys_are_bounded);
on_coded!(on_ops, ops: a_full_pool_takes_only_what_does_not_grow_it, a_member_without_room_stops_what_stores_and_nothing_else, a_read_waits_for_the_write_before_it_to_be_durable_everywhere, a_request_sent_again_is_answered_alike_also_if_it_failed, a_write_is_read_back_with_its_version, a_write_that_was_dropped_after_the_map_told_of_room_is_sent_again, an_exclusive_create_fails_the_second_time, attributes_are_set_compared_listed_and_removed, checksums_are_those_of_the_official_osd, data_ops_have_the_official_results, filters_leave_objects_out_of_listings, listings_page_through_namespaces_to_the_end_of_the_pg, no_write_overtakes_one_that_was_dropped_for_lack_of_room, several_ops_happen_all_or_not_at_all, versions_count_failures_and_ops_without_effect_but_show_only_changes, what_must_be_refused_is, writesame_repeats_its_pattern);
on_coded!(on_snaps, snaps: a_client_that_was_away_leaves_no_clones_of_purged_snapshots, a_snapshot_keeps_what_was_there, contexts_are_checked, rolling_back_makes_the_head_what_it_was);
on_coded!(on_stage, stage: a_clone_takes_a_large_omap_along, other_objects_go_on_while_one_is_staged, a_request_that_is_sent_again_while_it_is_staged_is_done_once);
on_coded!(on_watch, watch: a_notification_ends_without_those_who_do_not_answer_or_leave, a_watch_is_taken_up_again_after_its_connection_or_primary_was_lost, a_watch_lives_by_its_pings_and_an_old_one_by_its_connection, a_watcher_is_listed_notified_heard_and_removed, the_end_of_a_watch_is_as_old_as_it_is, watches_and_notifications_have_bounds, what_a_shut_out_client_sent_is_refused_even_if_it_waited, whoever_watches_a_deleted_object_is_told);

/// An object as its client knows it.
#[derive(Default)]
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
    /// Checks that the members' fragments of all objects belong together.
    fn check_fragments(&self, layout: Code, seed: u64) {
        let parts: BTreeMap<u8, &Node> = self
            .nodes
            .values()
            .map(|n| {
                (
                    n.core
                        .as_ref()
                        .unwrap()
                        .pgs()
                        .next()
                        .unwrap()
                        .seen()
                        .info()
                        .unwrap()
                        .part
                        .role,
                    n,
                )
            })
            .collect();
        assert_eq!(
            parts.len(),
            usize::from(layout.roles()),
            "seed {seed}: each part is held once"
        );
        let of = |unit| parts[&layout.role_of(unit).unwrap()].store.objects();
        for (key, first) in of(Unit::Data(0)) {
            let data: Vec<&[u8]> = (0..layout.k())
                .map(|i| &of(Unit::Data(i))[key].data[..])
                .collect();
            let longest = data.iter().map(|d| d.len()).max().unwrap_or(0);
            let mut coded = vec![vec![0; longest]; layout.m().into()];
            let mut outputs: Vec<&mut [u8]> = coded.iter_mut().map(Vec::as_mut_slice).collect();
            layout.code().encode(&data, &mut outputs);
            for (i, coded) in coded.iter().enumerate() {
                let mut found = of(Unit::Parity(i as u8))[key].data.clone();
                found.resize(longest, 0);
                assert!(found == *coded, "seed {seed}: coding unit {i} of {key:?}");
            }
            for (role, n) in &parts {
                let o = &n.store.objects()[key];
                let same = (&o.info, &o.attrs, &o.omap) == (&first.info, &first.attrs, &first.omap);
                assert!(same, "seed {seed}: role {role} of {key:?}");
            }
        }
    }
}

/// Ops of many kinds on one object under way at once, while connections break.
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
        let mut writes = Vec::new();
        for _ in 0..4 {
            if object.exists && rng.one_in(8) {
                let id = object.snaps.last().map_or(1, |(id, _)| id + 1);
                object.snaps.push((id, object.data.clone()));
            }
            let ops = (0..=rng.index(3))
                .map(|i| random_op(&mut rng, &mut object, most, i == 0))
                .collect();
            let mut request = sim.build("a", ops);
            request.snapc.seq = object.snaps.last().map_or(0, |(id, _)| *id);
            request.snapc.snaps = object.snaps.iter().rev().map(|(id, _)| *id).collect();
            writes.extend(sim.submit(request));
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
        for tid in writes {
            let reply = sim
                .reply_to(tid)
                .unwrap_or_else(|| panic!("seed {seed}: {:?}", sim.states()));
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
        sim.check_fragments(layout, seed);
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
