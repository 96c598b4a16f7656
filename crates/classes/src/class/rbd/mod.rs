//! Block images (RBD): the header objects of images, the directories that list them, their object maps, and what keeps
//! the data of clones. Formats and results are those of Ceph's `src/cls/rbd/cls_rbd.cc`, written as releases from
//! Nautilus on write them: the parent of an image is kept once, and its snapshots only say how much of it they see.
//!
//! All of an image's properties are omap keys of its header, so the object itself is empty.

mod arguments;
mod bit_vector;
mod children;
mod data;
mod directory;
mod features;
mod header;
mod id;
mod keys;
mod metadata;
mod migration;
mod object_map;
mod old_header;
mod parent;
mod snapshot;
mod snapshot_limit;
mod snapshot_namespace;
mod snapshot_record;
mod timestamps;

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
} }
