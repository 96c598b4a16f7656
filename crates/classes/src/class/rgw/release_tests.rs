//! What clients of releases after 16.2 send, of which there is no recording. The values are of
//! Ceph's object corpus, with other numbers in them.

use bytes::Bytes;

use crate::testing::{World, unhex};

fn section(version: u8, compat: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&[version, compat], &length[..], &body].concat()
}

/// The omap value of a key.
fn kept<'w>(world: &'w World, key: &str) -> &'w Bytes {
    &world.state.omap[key.as_bytes()]
}

fn call(world: &mut World, method: &str, input: &[u8]) -> Bytes {
    let (code, output) = world.call("rgw", method, input);
    assert_eq!(code, 0, "{method}");
    output
}

#[test]
fn a_head_with_a_rollover_is_kept_and_can_be_read_by_older_clients() {
    let fields = unhex("0500000000000000 01000000 61");
    let rollover = 9u64.to_le_bytes();
    for (date, head) in [
        (rollover, section(2, 1, &[&fields, &rollover])),
        ([0; 8], section(1, 1, &[&fields])),
    ] {
        let mut world = World::default();
        let sent = section(2, 2, &[&fields, &date]);
        call(&mut world, "lc_put_head", &section(1, 1, &[&sent]));
        assert_eq!(world.state.header, head);
        let got = call(&mut world, "lc_get_head", b"");
        assert_eq!(got, section(1, 1, &[&head]));
    }
}

/// Tenant `t`, bucket `b`, id `i`.
const NAMES: &str = "02000000 03000000 01000000 74 01000000 62 01000000 69";
/// Eight shards before, 64 behind.
const SHARDS: &str = "08000000 40000000";

#[test]
fn buckets_to_reshard_are_kept_for_older_clients_unless_somebody_is_known_to_want_it() {
    let names = unhex(NAMES);
    let shards = unhex(SHARDS);
    let old = section(1, 1, &[&names, &[0; 4], &shards]);
    for (sent, stored) in [
        (section(2, 1, &[&names, &shards]), old.clone()),
        (section(3, 1, &[&names, &shards, &[0]]), old),
        (
            section(3, 1, &[&names, &shards, &[2]]),
            section(3, 1, &[&names, &shards, &[2]]),
        ),
    ] {
        let mut world = World::default();
        call(&mut world, "reshard_add", &section(1, 1, &[&sent]));
        assert_eq!(*kept(&world, "t:b"), stored);
        let got = call(&mut world, "reshard_get", &section(1, 1, &[&sent]));
        assert_eq!(got, section(1, 1, &[&stored]));
    }
}

#[test]
fn a_queued_bucket_stays_as_it_is_if_the_client_wants_that() {
    let mut world = World::default();
    let entry = |initiator| section(3, 1, &[&unhex(NAMES), &unhex(SHARDS), &[initiator]]);
    let add = |initiator, create_only| section(2, 1, &[&entry(initiator), &[create_only]]);
    call(&mut world, "reshard_add", &add(2, 1));
    assert_eq!(world.call("rgw", "reshard_add", &add(1, 1)).0, -17);
    assert_eq!(*kept(&world, "t:b"), entry(2));
    call(&mut world, "reshard_add", &add(1, 0));
    assert_eq!(*kept(&world, "t:b"), entry(1));
}

/// A usage record of the hour 3600: no categories, but bytes that S3 Select processed and returned.
fn selected(processed: u64, returned: u64) -> Vec<u8> {
    let names = unhex("01000000 75 01000000 62 100e000000000000");
    let select = [processed.to_le_bytes(), returned.to_le_bytes()].concat();
    // No requests, no categories, no payer.
    section(4, 1, &[&names, &[0; 32], &[0; 8], &section(1, 1, &[&select])])
}

fn usage_add(entry: &[u8]) -> Vec<u8> {
    section(2, 1, &[&section(1, 1, &[&[1, 0, 0, 0], entry]), &[0; 4]])
}

#[test]
fn usage_of_s3_select_is_added_and_zero_is_not_stored() {
    let mut world = World::default();
    call(&mut world, "user_usage_log_add", &usage_add(&selected(0, 0)));
    let zero = section(3, 1, &[&selected(0, 0)[6..64]]);
    assert_eq!(*kept(&world, "u_00000003600_b"), zero);
    call(&mut world, "user_usage_log_add", &usage_add(&selected(5, 6)));
    call(
        &mut world,
        "user_usage_log_add",
        &usage_add(&selected(u64::MAX, 1)),
    );
    for key in ["00000003600_u_b", "u_00000003600_b"] {
        assert_eq!(*kept(&world, key), selected(4, 7));
    }
}

#[test]
fn no_call_reads_or_removes_more_than_a_page() {
    let mut world = World::default();
    world.state.exists = true;
    let value = Bytes::from(selected(1, 1));
    for n in 0..1100 {
        world
            .state
            .omap
            .insert(format!("00000003600_{n:04}").into(), value.clone());
    }
    let read = section(1, 1, &[&[0; 8], &[0xff; 8], &[0; 4], &[0; 4], &[0; 4]]);
    let got = call(&mut world, "user_usage_log_read", &read);
    let marker = [&[1, 16, 0, 0, 0], &b"00000003600_0999"[..]].concat();
    assert!(got.ends_with(&marker), "{got:?}");

    let trim = section(2, 2, &[&[0; 8], &[0xff; 8], &[0; 4]]);
    // Keys are made of what the records say.
    for key in ["00000003600_u_b", "u_00000003600_b"] {
        world.state.omap.insert(key.into(), value.clone());
    }
    call(&mut world, "user_usage_log_trim", &trim);
    assert_eq!(world.state.omap.len(), 1100);

    world.state.omap.clear();
    let info = section(1, 1, &[&[0; 4], &section(1, 1, &[&[0; 4]]), &[0; 8]]);
    for n in 0..200 {
        world
            .state
            .omap
            .insert(format!("1_{n:04}").into(), info.clone().into());
    }
    let list = section(2, 1, &[&[0; 4], &[0; 4], &[0]]);
    let got = call(&mut world, "gc_list", &list);
    assert_eq!(got[6..10], 128u32.to_le_bytes());
    assert!(got.ends_with(b"1_0127\x01"), "{got:?}");
}
