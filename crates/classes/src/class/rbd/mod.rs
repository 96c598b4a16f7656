//! Block images (RBD): the headers of images, the directories that list them, their object maps,
//! and the methods of clones' data objects. Formats and results are those of Ceph's
//! `src/cls/rbd/cls_rbd.cc`, as releases from Nautilus on write them: the parent of an image is
//! stored once, and snapshots only have their overlap with it.
//!
//! All of an image's properties are omap keys of its header, so the object's data is empty.

mod arguments;
mod bit_vector;
mod children;
mod data;
mod directory;
mod features;
mod group;
mod group_snapshot;
mod header;
mod id;
mod keys;
mod metadata;
pub mod migration;
mod mirror;
mod namespace;
mod object_map;
mod old_header;
mod parent;
pub mod protection;
mod snapshot;
mod snapshot_limit;
mod snapshot_namespace;
mod snapshot_record;
mod timestamps;
mod trash;

#[cfg(test)]
mod pool_tests;

pub use bit_vector::BitVector;
pub use children::ChildImageSpec;
pub use features::{FeatureChange, Features, FeaturesFound, ImageFlags, OpFeatures};
pub use group::GroupSpec;
pub use header::Striping;
pub use mirror::images::{ImageState as MirrorImageState, MirrorImage};
pub use mirror::peers::{Direction as MirrorDirection, Peer as MirrorPeer};
pub use object_map::object_state;
pub use parent::ParentImageSpec;
pub use snapshot::SnapshotInfo;
pub use snapshot_namespace::{MirrorSnapshot, SnapshotNamespace};
pub use trash::TrashImage;

use crate::method::class;

class! { "rbd" {
    "create": RD | WR => header::create;
    "get_size": RD => header::get_size;
    "set_size": RD | WR => header::set_size;
    "get_object_prefix": RD => header::get_object_prefix;
    "get_data_pool": RD => header::get_data_pool;
    "get_stripe_unit_count": RD => header::get_stripe_unit_count;
    "set_stripe_unit_count": RD | WR => header::set_stripe_unit_count;

    "get_features": RD => features::get_features;
    "set_features": RD | WR => features::set_features;
    "get_all_features": RD => features::get_all_features;
    "op_features_get": RD => features::op_features_get;
    "op_features_set": RD | WR => features::op_features_set;
    "get_flags": RD => features::get_flags;
    "set_flags": RD | WR => features::set_flags;

    "get_create_timestamp": RD => timestamps::get_create;
    "get_access_timestamp": RD => timestamps::get_access;
    "get_modify_timestamp": RD => timestamps::get_modify;
    "set_access_timestamp": RD | WR => timestamps::set_access;
    "set_modify_timestamp": RD | WR => timestamps::set_modify;

    "get_snapcontext": RD => snapshot::get_context;
    "get_snapshot_name": RD => snapshot::get_name;
    "get_snapshot_timestamp": RD => snapshot::get_timestamp;
    "snapshot_get": RD => snapshot::get;
    "snapshot_add": RD | WR => snapshot::add;
    "snapshot_remove": RD | WR => snapshot::remove;
    "snapshot_rename": RD | WR => snapshot::rename;
    "snapshot_trash_add": RD | WR => snapshot::trash_add;
    "get_protection_status": RD => snapshot::get_protection_status;
    "set_protection_status": RD | WR => snapshot::set_protection_status;
    "snapshot_get_limit": RD => snapshot_limit::get;
    "snapshot_set_limit": RD | WR => snapshot_limit::set;

    "get_parent": RD => parent::get_legacy;
    "set_parent": RD | WR => parent::set_legacy;
    "remove_parent": RD | WR => parent::remove_legacy;
    "parent_get": RD => parent::get;
    "parent_overlap_get": RD => parent::overlap_get;
    "parent_attach": RD | WR => parent::attach;
    "parent_detach": RD | WR => parent::detach;

    "add_child": RD | WR => children::add;
    "remove_child": RD | WR => children::remove;
    "get_children": RD => children::get;
    "child_attach": RD | WR => children::attach;
    "child_detach": RD | WR => children::detach;
    "children_list": RD => children::list;

    "metadata_list": RD => metadata::list;
    "metadata_set": RD | WR => metadata::set;
    "metadata_remove": RD | WR => metadata::remove;
    "metadata_get": RD => metadata::get;

    "migration_set": RD | WR => migration::set;
    "migration_set_state": RD | WR => migration::set_state;
    "migration_get": RD => migration::get;
    "migration_remove": RD | WR => migration::remove;

    "get_id": RD => id::get;
    "set_id": RD | WR => id::set;

    "dir_get_id": RD => directory::get_id;
    "dir_get_name": RD => directory::get_name;
    "dir_list": RD => directory::list;
    "dir_add_image": RD | WR => directory::add_image;
    "dir_remove_image": RD | WR => directory::remove_image;
    "dir_rename_image": RD | WR => directory::rename_image;
    "dir_state_assert": RD => directory::state_assert;
    "dir_state_set": RD | WR => directory::state_set;

    "object_map_load": RD => object_map::load;
    "object_map_save": RD | WR => object_map::save;
    "object_map_resize": RD | WR => object_map::resize;
    "object_map_update": RD | WR => object_map::update;
    "object_map_snap_add": RD | WR => object_map::snap_add;
    "object_map_snap_remove": RD | WR => object_map::snap_remove;

    "snap_list": RD => old_header::list;
    "snap_add": RD | WR => old_header::add;
    "snap_remove": RD | WR => old_header::remove;
    "snap_rename": RD | WR => old_header::rename;

    "copyup": RD | WR => data::copyup;
    "sparse_copyup": RD | WR => data::sparse_copyup;
    "assert_snapc_seq": RD | WR => data::assert_snapc_seq;
    "sparsify": RD | WR => data::sparsify;

    "group_dir_list": RD => directory::list;
    "group_dir_add": RD | WR => directory::add_image;
    "group_dir_remove": RD | WR => directory::remove_image;
    "group_dir_rename": RD | WR => directory::rename_image;
    "group_image_set": RD | WR => group::image_set;
    "group_image_remove": RD | WR => group::image_remove;
    "group_image_list": RD => group::image_list;
    "image_group_add": RD | WR => group::join;
    "image_group_remove": RD | WR => group::leave;
    "image_group_get": RD => group::get;
    "group_snap_set": RD | WR => group_snapshot::set;
    "group_snap_remove": RD | WR => group_snapshot::remove;
    "group_snap_get_by_id": RD => group_snapshot::get_by_id;
    "group_snap_list": RD => group_snapshot::list;
    "group_snap_list_order": RD => group_snapshot::list_order;

    "trash_add": RD | WR => trash::add;
    "trash_remove": RD | WR => trash::remove;
    "trash_list": RD => trash::list;
    "trash_get": RD => trash::get;
    "trash_state_set": RD | WR => trash::state_set;

    "namespace_add": RD | WR => namespace::add;
    "namespace_remove": RD | WR => namespace::remove;
    "namespace_list": RD => namespace::list;

    "mirror_uuid_get": RD => mirror::uuid_get;
    "mirror_uuid_set": RD | WR => mirror::uuid_set;
    "mirror_mode_get": RD => mirror::mode_get;
    "mirror_mode_set": RD | WR => mirror::mode_set;
    "mirror_remote_namespace_get": RD => mirror::remote_namespace_get;
    "mirror_remote_namespace_set": RD | WR => mirror::remote_namespace_set;
    "mirror_peer_ping": RD | WR => mirror::peers::ping;
    "mirror_peer_list": RD => mirror::peers::list;
    "mirror_peer_add": RD | WR => mirror::peers::add;
    "mirror_peer_remove": RD | WR => mirror::peers::remove;
    "mirror_peer_set_client": RD | WR => mirror::peers::set_client;
    "mirror_peer_set_cluster": RD | WR => mirror::peers::set_cluster;
    "mirror_peer_set_direction": RD | WR => mirror::peers::set_direction;
    "mirror_image_list": RD => mirror::images::list;
    "mirror_image_get_image_id": RD => mirror::images::get_image_id;
    "mirror_image_get": RD => mirror::images::get;
    "mirror_image_set": RD | WR => mirror::images::set;
    "mirror_image_remove": RD | WR => mirror::images::remove;
    "mirror_image_status_set": RD | WR | PROMOTE => mirror::status::set;
    "mirror_image_status_remove": RD | WR => mirror::status::remove;
    "mirror_image_status_get": RD => mirror::status::get;
    "mirror_image_status_list": RD => mirror::status::list;
    "mirror_image_status_get_summary": RD => mirror::status::get_summary;
    "mirror_image_status_remove_down": RD | WR => mirror::status::remove_down;
    "mirror_image_instance_get": RD => mirror::instances::of_image;
    "mirror_image_instance_list": RD => mirror::instances::of_images;
    "mirror_instances_list": RD => mirror::instances::list;
    "mirror_instances_add": RD | WR | PROMOTE => mirror::instances::add;
    "mirror_instances_remove": RD | WR => mirror::instances::remove;
    "mirror_image_map_list": RD => mirror::instances::map_list;
    "mirror_image_map_update": WR => mirror::instances::map_update;
    "mirror_image_map_remove": WR => mirror::instances::map_remove;
    "mirror_image_snapshot_unlink_peer": RD | WR => mirror::snapshots::unlink_peer;
    "mirror_image_snapshot_set_copy_progress": RD | WR => mirror::snapshots::set_copy_progress;
} }
