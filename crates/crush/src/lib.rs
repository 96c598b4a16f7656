//! CRUSH: the cluster's hierarchy of devices, placement rules, and the mapper that turns a
//! placement seed into an ordered list of devices.
//!
//! Every client computes placement itself, so the mapper gives the same result as Ceph's, bit for
//! bit, for every bucket algorithm and every set of tunables; golden tests compare it with the
//! official `crushtool`. Nothing here does I/O.
//!
//! - [`CrushMap`]: the map; look-ups; [`CrushMap::do_rule`]. Encoded and decoded as in an OSDMap at
//!   Pacific's level.
//! - Changes ([`CrushMap::insert_item`], [`CrushMap::add_simple_rule`], …) are all or nothing and
//!   keep the map valid.
//! - [`CrushMap::walk`]: the hierarchy in the order of `ceph osd tree`.

mod bucket;
mod build;
mod choose;
mod choose_args;
mod class;
mod codec;
mod error;
mod hash;
mod ln;
mod map;
mod mapper;
mod remove;
mod reweigh;
mod rule;
mod simple_rule;
mod straw;
mod swap;
mod tunables;
mod walk;
mod weight;
mod weight_set;

pub use bucket::{Alg, Bucket, TREE_MAX_ITEMS, Weights};
pub use build::Location;
pub use choose_args::{ChooseArg, ChooseArgs, DEFAULT_CHOOSE_ARGS};
pub use error::{Error, Result};
pub use hash::{HASH_RJENKINS1, hash_name, hash32_2, hash32_3, hash32_4};
pub use map::{CrushMap, is_valid_name};
pub(crate) use mapper::ITEM_UNDEF;
pub use mapper::{ITEM_NONE, Workspace};
pub use rule::{Op, RULE_ERASURE, RULE_REPLICATED, Rule, Step};
pub use simple_rule::{RuleMode, SimpleRule};
pub use tunables::{Profile, Tunables};
pub use walk::{Walk, WalkItem};
pub use weight::{weight_from_f64, weight_to_f64};
