//! What `radosgw` keeps of a user or an account: the user's buckets with their sizes, and the names
//! in an account. Formats and results are those of Ceph's `src/cls/user`.
//!
//! An object of a user has an omap key for each bucket, and the sum of their sizes in the omap
//! header. An index of an account has an omap key for each name, and their number in the header.

mod account;
mod bucket;
mod buckets;
mod stats;

use crate::method::class;

class! { "user" {
    "set_buckets_info": RD | WR => buckets::set_info;
    "remove_bucket": RD | WR => buckets::remove;
    "list_buckets": RD => buckets::list;

    "get_header": RD => stats::get_header;
    "complete_stats_sync": RD | WR => stats::complete_sync;
    "reset_user_stats": RD | WR => stats::reset;
    "reset_user_stats2": RD | WR => stats::reset_page;

    "account_resource_add": RD | WR => account::add;
    "account_resource_get": RD => account::get;
    "account_resource_rm": RD | WR => account::remove;
    "account_resource_list": RD => account::list;
} }
