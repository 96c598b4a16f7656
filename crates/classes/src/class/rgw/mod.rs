//! The S3 and Swift gateway (radosgw): the index of a bucket, and the lists of what the gateway has
//! yet to do. Formats and results are those of Ceph's `src/cls/rgw`.
//!
//! A bucket's index is spread over objects, its shards. The omap of a shard has a *plain* entry for
//! each object, in the order of their names. In a bucket with versions, an object also has one
//! *instance* entry for each version, and one that tells which version is current, the *OLH* (object
//! logical head); the listing then finds its versions as plain entries whose keys tell their epochs.
//! The shard's omap header has the sums of all entries.
//!
//! What releases 16.2 to 20.2 of radosgw send and read is served alike. Stored bytes are those of
//! 16.2, except where a comment says why not. The methods with which 20.2 logs changes while it moves
//! an index to other shards are not there: radosgw asks for `bucket_init_index2`, sees that the OSD
//! does not know it, and blocks the bucket's writes instead.
//!
//! Beside the index, radosgw keeps lists: what is to be removed, lifecycles, usage, buckets to be
//! resharded. Where releases differ, a structure of these is stored in the oldest version that holds
//! its values: radosgw of 16.2 and all later ones read that. Fields of newer releases are stored where
//! a client sets them.

mod bi;
mod bi_log;
mod check;
mod complete;
mod entry;
mod gc;
pub(crate) mod gc_entry;
mod header;
mod key;
mod keys;
mod lifecycle;
mod link;
mod list;
mod multipart;
mod object;
mod olh;
mod packed;
mod prepare;
mod reshard;
mod resharding;
mod suggest;
mod unlink;
mod usage;
mod user;
mod version;

#[cfg(test)]
mod index_tests;
#[cfg(test)]
mod release_tests;

use crate::method::class;

class! { "rgw" {
    "bucket_init_index": RD | WR => header::init_index;
    "bucket_set_tag_timeout": RD | WR => header::set_tag_timeout;
    "bucket_update_stats": RD | WR => header::update_stats;
    "bucket_check_index": RD => check::check_index;
    "bucket_rebuild_index": RD | WR => check::rebuild_index;
    "bucket_list": RD => list::bucket_list;
    "bucket_prepare_op": RD | WR => prepare::prepare_op;
    "bucket_complete_op": RD | WR => complete::complete_op;
    "dir_suggest_changes": RD | WR => suggest::suggest_changes;

    "bucket_link_olh": RD | WR => link::link_olh;
    "bucket_unlink_instance": RD | WR => unlink::unlink_instance;
    "bucket_read_olh_log": RD => olh::read_log;
    "bucket_trim_olh_log": RD | WR => olh::trim_log;
    "bucket_clear_olh": RD | WR => olh::clear;

    "bi_get": RD => bi::get;
    "bi_put": RD | WR => bi::put;
    "bi_list": RD => bi::list;

    "bi_log_list": RD => bi_log::list;
    "bi_log_trim": RD | WR => bi_log::trim;
    "bi_log_resync": RD | WR => bi_log::resync;
    "bi_log_stop": RD | WR => bi_log::stop;

    "set_bucket_resharding": RD | WR => resharding::set;
    "clear_bucket_resharding": RD | WR => resharding::clear;
    "guard_bucket_resharding": RD => resharding::guard;
    "get_bucket_resharding": RD => resharding::get;

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
