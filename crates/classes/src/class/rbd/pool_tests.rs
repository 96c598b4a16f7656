//! Values that official clients made Ceph store, and methods that later releases added.

use bytes::Bytes;
use spirula_denc::{Decode, Encode};

use super::group_snapshot::GroupSnapshot;
use super::mirror::images::{ImageState, MirrorImage};
use super::mirror::peers::Peer;
use super::mirror::status::{CopyState, SiteStatus};
use super::trash::TrashImage;
use crate::class::journal::Client;
use crate::class::journal::tags::Tag;
use crate::method::{Nothing, input, to_bytes};
use crate::testing::{World, unhex};

/// Whether a value is unchanged after decoding and encoding.
fn survives<T: Decode + Encode>(value: &Bytes) -> bool {
    input::<T>(value).is_ok_and(|v| to_bytes(&v) == *value)
}

/// Each line of `rbd_omap.txt` is the kind of an object, a key and its value.
#[test]
fn values_of_official_clients_are_read_and_written_alike() {
    let mut checked = 0;
    for line in include_str!("../../../testdata/rbd_omap.txt").lines() {
        let [object, key, value] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let value = Bytes::from(unhex(value));
        let known = match object {
            "journal" if key.starts_with("client_") => survives::<Client>(&value),
            "journal" if key.starts_with("tag_") => survives::<Tag>(&value),
            "rbd_group_header" if key.starts_with("snapshot_") => survives::<GroupSnapshot>(&value),
            "rbd_mirroring" if key.starts_with("image_") => survives::<MirrorImage>(&value),
            "rbd_mirroring" if key.starts_with("mirror_peer_") => survives::<Peer>(&value),
            "rbd_trash" => survives::<TrashImage>(&value),
            _ => continue,
        };
        assert!(known, "{line}");
        checked += 1;
    }
    assert!(checked >= 6, "{checked} structures");
}

fn call(world: &mut World, method: &str, input: &impl Encode) -> (i32, Bytes) {
    world.call("rbd", method, &to_bytes(input))
}

fn snapshot(id: &'static str, state: u8) -> GroupSnapshot {
    GroupSnapshot {
        id: id.into(),
        name: id.into(),
        state,
        snaps: Vec::new(),
    }
}

#[test]
fn snapshots_of_groups_are_numbered_as_they_are_made() {
    let mut world = World::default();
    for (id, state) in [("b", 0), ("a", 0), ("b", 1), ("c", 0)] {
        assert_eq!(call(&mut world, "group_snap_set", &snapshot(id, state)).0, 0);
    }
    assert_eq!(call(&mut world, "group_snap_remove", &Bytes::from("c")).0, 0);
    assert_eq!(call(&mut world, "group_snap_set", &snapshot("d", 0)).0, 0);
    let (code, orders) = call(&mut world, "group_snap_list_order", &(Bytes::new(), 9u64));
    let want: Vec<(Bytes, u64)> = vec![("a".into(), 2), ("b".into(), 1), ("d".into(), 4)];
    assert_eq!((code, orders), (0, to_bytes(&want)));
    let (_, rest) = call(&mut world, "group_snap_list_order", &(Bytes::from("a"), 1u64));
    assert_eq!(rest, to_bytes(&vec![(Bytes::from("b"), 1u64)]));
    for id in ["a", "b", "d"] {
        assert_eq!(call(&mut world, "group_snap_remove", &Bytes::from(id)).0, 0);
    }
    let left: Vec<_> = world.state.omap.into_keys().collect();
    assert_eq!(left, ["snap_max_order"]);
}

#[test]
fn the_other_ends_namespace_is_known_until_mirroring_is_disabled() {
    let mut world = World::default();
    let (remote, me) = (Bytes::from("there"), Bytes::from("me"));
    assert_eq!(call(&mut world, "mirror_remote_namespace_set", &remote).0, 0);
    assert_eq!(call(&mut world, "mirror_uuid_set", &me).0, 0);
    assert_eq!(call(&mut world, "mirror_mode_set", &3u32).0, 0);
    assert_eq!(call(&mut world, "mirror_remote_namespace_set", &me).0, -22);
    let (code, namespace) = call(&mut world, "mirror_remote_namespace_get", &Nothing);
    assert_eq!((code, namespace), (0, to_bytes(&remote)));
    assert_eq!(call(&mut world, "mirror_mode_set", &0u32).0, 0);
    assert_eq!(call(&mut world, "mirror_remote_namespace_get", &Nothing).0, -2);
    assert!(world.state.omap.is_empty());
}

/// The world here ends where a method asks a hundred times.
#[test]
fn the_statuses_of_many_images_are_read_together() {
    let mut world = World::default();
    world.watchers.push(world.caller);
    for n in 0..150 {
        let (id, global_id) = (Bytes::from(format!("i{n:03}")), Bytes::from(format!("g{n}")));
        let image = MirrorImage {
            global_id: global_id.clone(),
            state: ImageState::ENABLED,
            mode: 1,
        };
        assert_eq!(call(&mut world, "mirror_image_set", &(id, image)).0, 0);
        for uuid in ["", "u", "v"] {
            let status = SiteStatus {
                mirror_uuid: uuid.into(),
                state: CopyState(4),
                ..SiteStatus::default()
            };
            let set = call(
                &mut world,
                "mirror_image_status_set",
                &(global_id.clone(), status),
            );
            assert_eq!(set.0, 0);
        }
    }
    let (code, states) = call(&mut world, "mirror_image_status_get_summary", &Nothing);
    assert_eq!((code, states), (0, to_bytes(&vec![(4u8, 150i32)])));
    for method in ["mirror_image_status_list", "mirror_image_instance_list"] {
        let (code, list) = call(&mut world, method, &(Bytes::new(), 1000u64));
        assert_eq!((code, &list[..4]), (0, &150u32.to_le_bytes()[..]), "{method}");
    }
}
