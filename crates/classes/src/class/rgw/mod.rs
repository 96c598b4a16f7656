//! What radosgw keeps beside its objects. Formats and results are those of Ceph's `src/cls/rgw`.
//!
//! Where releases differ, a structure is stored in the oldest version that holds its values:
//! radosgw of 16.2 and all later ones read that. Fields of newer releases are stored where a client
//! sets them.

mod gc;
mod key;
mod lifecycle;
mod multipart;
mod object;
mod reshard;
mod usage;
mod user;

#[cfg(test)]
mod release_tests;

use crate::method::class;

class! { "rgw" {
    "obj_remove": RD | WR => object::remove;
    "obj_store_pg_ver": WR => object::store_pg_ver;
    "obj_check_attrs_prefix": RD => object::check_attrs_prefix;
    "obj_check_mtime": RD => object::check_mtime;

    "user_usage_log_add": RD | WR => usage::add;
    "user_usage_log_read": RD => usage::read;
    "user_usage_log_trim": RD | WR => usage::trim;
    "usage_log_clear": WR => usage::clear;

    "gc_set_entry": RD | WR => gc::set_entry;
    "gc_defer_entry": RD | WR => gc::defer_entry;
    "gc_list": RD => gc::list;
    "gc_remove": RD | WR => gc::remove;

    "lc_get_entry": RD => lifecycle::get_entry;
    "lc_set_entry": RD | WR => lifecycle::set_entry;
    "lc_rm_entry": RD | WR => lifecycle::rm_entry;
    "lc_get_next_entry": RD => lifecycle::get_next_entry;
    "lc_put_head": RD | WR => lifecycle::put_head;
    "lc_get_head": RD => lifecycle::get_head;
    "lc_list_entries": RD => lifecycle::list_entries;

    "mp_upload_part_info_update": RD | WR => multipart::part_info_update;

    "reshard_add": RD | WR => reshard::add;
    "reshard_list": RD => reshard::list;
    "reshard_get": RD => reshard::get;
    "reshard_remove": RD | WR => reshard::remove;
} }
