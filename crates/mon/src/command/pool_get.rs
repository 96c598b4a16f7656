//! `ceph osd pool get`.

use serde_json::{Map, Value, json};
use spirula_maps::pool::{PoolOption, PoolOptions};
use spirula_maps::{OsdMap, PgPool, PoolFlags};
use spirula_text::general;

use super::pool_list::pool_id;
use super::pool_option::CSUM_TYPES;
use super::{Call, Done, Reply, commands, errno, now, refuse};
use crate::core::Turn;

commands! {
    "osd pool get pool:Poolname var:{size|min_size|pg_num|pgp_num|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_objects|target_max_bytes|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|erasure_code_profile|min_read_recency_for_promote|all|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|bulk}"
        "osd" "r" get, "show a property of a pool";
}

/// Properties that belong to erasure-coded pools.
const ERASURE: [&str; 2] = ["erasure_code_profile", "allow_ec_overwrites"];
/// Properties that belong to cache tiers, which are not supported.
const TIER: [&str; 16] = [
    "use_gmt_hitset",
    "hit_set_type",
    "hit_set_period",
    "hit_set_count",
    "hit_set_fpp",
    "target_max_objects",
    "target_max_bytes",
    "cache_target_dirty_ratio",
    "cache_target_dirty_high_ratio",
    "cache_target_full_ratio",
    "cache_min_flush_age",
    "cache_min_evict_age",
    "min_read_recency_for_promote",
    "min_write_recency_for_promote",
    "hit_set_grade_decay_rate",
    "hit_set_search_last_n",
];

/// The properties that `all` shows, in its order; options only if they are set, and those of
/// erasure-coded pools only of them.
const ALL: [&str; 41] = [
    "size",
    "min_size",
    "pg_num",
    "pgp_num",
    "crush_rule",
    "hashpspool",
    "allow_ec_overwrites",
    "nodelete",
    "nopgchange",
    "nosizechange",
    "write_fadvise_dontneed",
    "noscrub",
    "nodeep-scrub",
    "use_gmt_hitset",
    "erasure_code_profile",
    "fast_read",
    "scrub_min_interval",
    "scrub_max_interval",
    "deep_scrub_interval",
    "recovery_priority",
    "recovery_op_priority",
    "scrub_priority",
    "compression_mode",
    "compression_algorithm",
    "compression_required_ratio",
    "compression_max_blob_size",
    "compression_min_blob_size",
    "csum_type",
    "csum_max_block",
    "csum_min_block",
    "fingerprint_algorithm",
    "pg_autoscale_mode",
    "pg_num_min",
    "target_size_bytes",
    "target_size_ratio",
    "pg_autoscale_bias",
    "dedup_tier",
    "dedup_chunk_algorithm",
    "dedup_cdc_chunk_size",
    "bulk",
    "pg_num_max",
];

/// The flag of a boolean property.
pub(super) fn flag(name: &str) -> Option<PoolFlags> {
    let known = [
        "hashpspool",
        "nodelete",
        "nopgchange",
        "nosizechange",
        "write_fadvise_dontneed",
        "noscrub",
        "nodeep-scrub",
        "bulk",
    ];
    known
        .contains(&name)
        .then(|| PoolFlags::from_name(name))
        .flatten()
}

/// Whether a property only applies to cache tiers.
pub(super) fn is_tier_var(name: &str) -> bool {
    TIER.contains(&name)
}

fn option(v: &PoolOption) -> Value {
    match v {
        PoolOption::Text(s) => json!(s),
        PoolOption::Int(i) => json!(i),
        PoolOption::Float(f) => json!(f),
    }
}

/// A property's value; `None` if it is not set.
fn value(map: &OsdMap, p: &PgPool, var: &str) -> Option<Value> {
    if let Some(f) = flag(var) {
        return Some(json!(p.flags.contains(f)));
    }
    Some(match var {
        "size" => json!(p.size),
        "min_size" => json!(p.min_size),
        "pg_num" => json!(p.pg_num),
        "pgp_num" => json!(p.pgp_num),
        "crush_rule" => {
            let n = u32::from(p.crush_rule);
            json!(
                map.crush
                    .map()
                    .rule_name(n)
                    .map_or_else(|| n.to_string(), str::to_owned)
            )
        }
        "use_gmt_hitset" => json!(p.use_gmt_hitset),
        "fast_read" => json!(u8::from(p.fast_read)),
        "pg_autoscale_mode" => json!(p.autoscale_mode.name()),
        "erasure_code_profile" => json!(p.erasure_code_profile),
        "allow_ec_overwrites" => json!(p.flags.contains(PoolFlags::EC_OVERWRITES)),
        "csum_type" => match p.opts.get(var)? {
            PoolOption::Int(n) => json!(CSUM_TYPES.get(usize::try_from(n.checked_sub(1)?).ok()?)?),
            other => option(other),
        },
        other => option(p.opts.get(other)?),
    })
}

fn text(var: &str, v: &Value) -> String {
    match v {
        Value::String(s) => s.clone(),
        // The official monitor prints this one as a number.
        Value::Bool(b) if var == "use_gmt_hitset" => u8::from(*b).to_string(),
        Value::Number(n) if n.is_f64() => general(n.as_f64().unwrap_or(0.0), 6),
        other => other.to_string(),
    }
}

fn get(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, var) = (call.args.str("pool")?, call.args.str("var")?);
    let id = pool_id(m.view, &name)?;
    let map = &m.view.state.osd.map;
    let Some(p) = map.pool(id) else {
        return refuse(errno::ENOENT, "");
    };
    let mut vars: Vec<&str> = vec![var.as_str()];
    if var == "all" {
        vars = ALL
            .into_iter()
            .filter(|v| p.is_erasure() || !ERASURE.contains(v))
            .collect();
    } else if ERASURE.contains(&var.as_str()) && !p.is_erasure() {
        return refuse(
            errno::EACCES,
            format!("pool '{name}' is not a erasure pool: variable not applicable"),
        );
    } else if is_tier_var(&var) && var != "use_gmt_hitset" {
        return refuse(
            errno::EACCES,
            format!("pool '{name}' is not a tier pool: variable not applicable"),
        );
    }
    let found: Vec<(&str, Value)> = vars
        .into_iter()
        .filter_map(|v| Some((v, value(map, p, v)?)))
        .collect();
    if found.is_empty() && PoolOptions::kind(&var).is_some() {
        return refuse(
            errno::ENOENT,
            format!("option '{var}' is not set on pool '{name}'"),
        );
    }
    if call.format.is_structured() {
        let mut v = Map::from_iter([
            ("pool".to_owned(), json!(name)),
            ("pool_id".to_owned(), json!(id)),
        ]);
        v.extend(found.into_iter().map(|(k, x)| (k.to_owned(), x)));
        return now(Reply::json(call.format, &Value::Object(v)));
    }
    now(Reply::text(
        found
            .iter()
            .map(|(k, v)| format!("{k}: {}\n", text(k, v)))
            .collect::<String>(),
    ))
}
