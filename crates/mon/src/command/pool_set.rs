//! `ceph osd pool set` and other changes of a pool.

use spirula_conf::amount;
use spirula_maps::pool::PoolOption;
use spirula_maps::{PgPool, PoolFlags, PoolId};

use super::pool::{autoscale_mode, check_pg_num, check_rule, pg_num_in_range};
use super::pool_erasure::least_min_size;
use super::pool_get::{flag, is_tier_var};
use super::pool_list::pool_id;
use super::pool_option::{self, int};
use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd pool set pool:Poolname var:{size|min_size|pg_num|pgp_num|pgp_num_actual|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_bytes|target_max_objects|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|min_read_recency_for_promote|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|bulk} val:String yes_i_really_mean_it?:Bool"
        "osd" "rw" set, "set a property of a pool";
    "osd pool set-quota pool:Poolname field:{max_objects|max_bytes} val:String" "osd" "rw" set_quota,
        "limit a pool's objects or bytes";
    "osd pool application enable pool:Poolname app:String[A-Za-z0-9-_.] yes_i_really_mean_it?:Bool" "osd" "rw"
        app_enable, "say what a pool is used for";
    "osd pool application disable pool:Poolname app:String yes_i_really_mean_it?:Bool" "osd" "rw" app_disable,
        "say that a pool is not used for something any more";
    "osd pool application set pool:Poolname app:String key:String[A-Za-z0-9-_.] value:String[A-Za-z0-9-_.=]" "osd"
        "rw" app_set, "note something about a pool's application";
    "osd pool application rm pool:Poolname app:String key:String" "osd" "rw" app_rm,
        "remove a note about a pool's application";
}

/// The pool as the next map is to have it.
fn pool(m: &View, call: &Call<'_>) -> Result<(String, PoolId, PgPool), Reply> {
    let name = call.args.str("pool")?;
    let id = pool_id(m, &name)?;
    let missing = || Reply::error(errno::ENOENT, format!("unrecognized pool '{name}'"));
    let p = m.state.osd.map.pool(id).cloned().ok_or_else(missing)?;
    Ok((name, id, p))
}

fn store(m: &mut Turn<'_>, id: PoolId, p: PgPool) {
    m.pending_osd().new_pools.insert(id, p);
}

fn yes_no(val: &str) -> Result<bool, Reply> {
    match val {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => refuse(errno::EINVAL, "expecting value 'true', 'false', '0', or '1'"),
    }
}

fn set(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (var, val) = (call.args.str("var")?, call.args.str("val")?);
    let (name, id, mut p) = pool(m.view, call)?;
    let sure = call.args.flag("yes_i_really_mean_it");
    // The official monitor says no more than the number's meaning.
    if is_tier_var(&var) {
        return refuse(errno::EACCES, "(13) Permission denied");
    }
    if let Some(f) = flag(&var) {
        if f == PoolFlags::HASHPSPOOL && !sure {
            return refuse(
                errno::EPERM,
                "are you SURE?  this will remap all placement groups in this pool, this triggers large data movement, pass --yes-i-really-mean-it if you really do.",
            );
        }
        if yes_no(&val)? {
            p.flags.insert(f)
        } else {
            p.flags.remove(f)
        }
    } else {
        match var.as_str() {
            "size" => set_size(m.view, id, &mut p, &val, sure)?,
            "min_size" => set_min_size(m.view, &mut p, int(&val)?)?,
            "pg_num" => set_pg_num(m.view, id, &mut p, int(&val)?)?,
            "pgp_num" | "pgp_num_actual" => set_pgp_num(&mut p, int(&val)?)?,
            "crush_rule" => {
                let Some(rule) = m
                    .view
                    .state
                    .osd
                    .map
                    .crush
                    .map()
                    .rule_id(&val)
                    .and_then(|r| u8::try_from(r).ok())
                else {
                    return refuse(errno::ENOENT, format!("crush rule {val} does not exist"));
                };
                check_rule(m.view, u32::from(rule), p.kind, p.size)?;
                p.crush_rule = rule;
            }
            "pg_autoscale_mode" => p.autoscale_mode = autoscale_mode(&val)?,
            "fast_read" => {
                if !p.is_erasure() {
                    return refuse(errno::EINVAL, "fast read is not supported in replication pool");
                }
                p.fast_read = yes_no(&val)?;
            }
            "allow_ec_overwrites" => {
                if !p.is_erasure() {
                    return refuse(
                        errno::EINVAL,
                        "ec overwrites can only be enabled for an erasure coded pool",
                    );
                }
                // They always are.
                if !yes_no(&val)? {
                    return refuse(errno::EINVAL, "ec overwrites cannot be disabled once enabled");
                }
            }
            "dedup_tier" if p.is_erasure() && int(&val).is_err() => {
                return refuse(
                    errno::EOPNOTSUPP,
                    format!("pool '{name}' is an ec pool, which cannot be a base tier"),
                );
            }
            _ => pool_option::set(m.view, &mut p, &var, &val)?,
        }
    }
    m.view.adjust_pg_num(id, &mut p);
    store(m, id, p);
    committed(match val.as_str() {
        "unset" => format!("unset pool {id} {var}"),
        _ => format!("set pool {id} {var} to {val}"),
    })
}

fn set_size(m: &View, id: PoolId, p: &mut PgPool, val: &str, sure: bool) -> Result<(), Reply> {
    if p.flags.contains(PoolFlags::NOSIZECHANGE) {
        return refuse(
            errno::EPERM,
            "pool size change is disabled; you must unset nosizechange flag for the pool first",
        );
    }
    if p.is_erasure() {
        return refuse(
            errno::EOPNOTSUPP,
            "can not change the size of an erasure-coded pool",
        );
    }
    let Some(size) = u8::try_from(int(val)?).ok().filter(|s| (1..=10).contains(s)) else {
        return refuse(errno::EINVAL, "pool size must be between 1 and 10");
    };
    if size == 1 && !m.values.flag("mon_allow_pool_size_one") {
        return refuse(errno::EPERM, "configuring pool size as 1 is disabled by default.");
    }
    if size == 1 && !sure {
        return refuse(
            errno::EPERM,
            "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.",
        );
    }
    check_rule(m, u32::from(p.crush_rule), p.kind, size)?;
    if size > p.size {
        check_pg_num(m, Some(id), p.pg_num_target, size)?;
    }
    p.size = size;
    let default = u8::try_from(m.values.uint("osd_pool_default_min_size")).unwrap_or(0);
    p.min_size = match default {
        0 => size - size / 2,
        n => n.min(size),
    };
    Ok(())
}

fn set_min_size(m: &View, p: &mut PgPool, n: i64) -> Result<(), Reply> {
    if p.flags.contains(PoolFlags::NOSIZECHANGE) {
        return refuse(
            errno::EPERM,
            "pool min size change is disabled; you must unset nosizechange flag for the pool first",
        );
    }
    let least = if p.is_erasure() { least_min_size(m, p)? } else { 1 };
    match u8::try_from(n).ok().filter(|s| (least..=p.size).contains(s)) {
        Some(s) => {
            p.min_size = s;
            Ok(())
        }
        None => refuse(
            errno::EINVAL,
            format!(
                "pool min_size must be between {least} and size, which is set to {}",
                p.size
            ),
        ),
    }
}

/// Sets the target of `pg_num`; [`Monitor::adjust_pg_nums`] takes it there. `pgp_num` follows if it
/// was the same.
fn set_pg_num(m: &View, id: PoolId, p: &mut PgPool, n: i64) -> Result<(), Reply> {
    if p.flags.contains(PoolFlags::NOPGCHANGE) {
        return refuse(
            errno::EPERM,
            "pool pg_num change is disabled; you must unset nopgchange flag for the pool first",
        );
    }
    if n == i64::from(p.pg_num_target) {
        return Ok(());
    }
    let new = pg_num_in_range(m, n)?;
    if new < p.pg_num {
        return refuse(
            errno::EOPNOTSUPP,
            format!(
                "specified pg_num {new} < current {}: merging placement groups is not supported by this version",
                p.pg_num
            ),
        );
    }
    check_pg_num(m, Some(id), new, p.size)?;
    for (key, outside) in [
        ("pg_num_min", (|n, limit| n < limit) as fn(i64, i64) -> bool),
        ("pg_num_max", |n, limit| n > limit),
    ] {
        if let Some(PoolOption::Int(limit)) = p.opts.get(key)
            && *limit > 0
            && outside(n, *limit)
        {
            // The official text has the same sign for both.
            return refuse(errno::EINVAL, format!("specified pg_num {n} < {key} {limit}"));
        }
    }
    if p.pg_num_target == p.pgp_num_target {
        p.pgp_num_target = new;
    }
    p.pg_num_target = new;
    Ok(())
}

fn set_pgp_num(p: &mut PgPool, n: i64) -> Result<(), Reply> {
    if p.flags.contains(PoolFlags::NOPGCHANGE) {
        return refuse(
            errno::EPERM,
            "pool pgp_num change is disabled; you must unset nopgchange flag for the pool first",
        );
    }
    let Some(new) = u32::try_from(n).ok().filter(|n| *n > 0) else {
        return refuse(
            errno::EINVAL,
            format!("specified pgp_num must > 0, but you set to {n}"),
        );
    };
    if new > p.pg_num_target {
        return refuse(
            errno::EINVAL,
            format!("specified pgp_num {new} > pg_num {}", p.pg_num_target),
        );
    }
    p.pgp_num_target = new;
    Ok(())
}

fn set_quota(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, id, mut p) = pool(m.view, call)?;
    let (field, val) = (call.args.str("field")?, call.args.str("val")?);
    let amount = if field == "max_bytes" {
        amount::iec(&val)
    } else {
        amount::si(&val)
    };
    let n = amount.or_else(|why| refuse(errno::EINVAL, format!("error parsing value '{val}': {why}")))?;
    if field == "max_bytes" {
        p.quota_max_bytes = n;
    } else {
        p.quota_max_objects = n;
    }
    store(m, id, p);
    committed(format!("set-quota {field} = {n} for pool {name}"))
}

/// The most applications of a pool, and the most keys of an application.
const MAX_APPS: usize = 4;
const MAX_KEYS: usize = 64;
/// Longest application name, key and value.
const MAX_TEXT: usize = 128;

/// Refuses a text that is too long. `shown` names it in the message.
fn short(what: &str, text: &str, shown: &str) -> Result<(), Reply> {
    if text.len() > MAX_TEXT {
        return refuse(
            errno::EINVAL,
            format!("{what} '{shown}' too long; max length {MAX_TEXT}"),
        );
    }
    Ok(())
}

fn given(what: &str, text: &str) -> Result<(), Reply> {
    if text.is_empty() {
        return refuse(errno::EINVAL, format!("{what} must be provided"));
    }
    Ok(())
}

fn app_enable(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, id, mut p) = pool(m.view, call)?;
    let app = call.args.str("app")?;
    given("application name", &app)?;
    let enabled = p.application_metadata.contains_key(&app);
    if !enabled && !p.application_metadata.is_empty() && !call.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            format!(
                "Are you SURE? Pool '{name}' already has an enabled application; pass --yes-i-really-mean-it to proceed anyway"
            ),
        );
    }
    if !enabled && p.application_metadata.len() >= MAX_APPS {
        return refuse(
            errno::EINVAL,
            format!("too many enabled applications on pool '{name}'; max {MAX_APPS}"),
        );
    }
    short("application name", &app, &app)?;
    p.application_metadata.entry(app.clone()).or_default();
    store(m, id, p);
    committed(format!("enabled application '{app}' on pool '{name}'"))
}

fn app_disable(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, id, mut p) = pool(m.view, call)?;
    let app = call.args.str("app")?;
    if !call.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            "Are you SURE? Disabling an application within a pool might result in loss of application functionality; pass --yes-i-really-mean-it to proceed anyway",
        );
    }
    if p.application_metadata.remove(&app).is_none() {
        return now(Reply::status(format!(
            "application '{app}' is not enabled on pool '{name}'"
        )));
    }
    store(m, id, p);
    committed(format!("disable application '{app}' on pool '{name}'"))
}

fn app_set(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, id, mut p) = pool(m.view, call)?;
    let (app, key, value) = (
        call.args.str("app")?,
        call.args.str("key")?,
        call.args.str("value")?,
    );
    given("key", &key)?;
    let Some(notes) = p.application_metadata.get_mut(&app) else {
        return refuse(
            errno::ENOENT,
            format!("application '{app}' is not enabled on pool '{name}'"),
        );
    };
    if notes.len() >= MAX_KEYS && !notes.contains_key(&key) {
        return refuse(
            errno::EINVAL,
            format!("too many keys set for application '{app}' on pool '{name}'; max {MAX_KEYS}"),
        );
    }
    // The official text names the application where the key is too long.
    short("key", &key, &app)?;
    short("value", &value, &value)?;
    notes.insert(key.clone(), value.clone());
    store(m, id, p);
    committed(format!(
        "set application '{app}' key '{key}' to '{value}' on pool '{name}'"
    ))
}

fn app_rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, id, mut p) = pool(m.view, call)?;
    let (app, key) = (call.args.str("app")?, call.args.str("key")?);
    let Some(notes) = p.application_metadata.get_mut(&app) else {
        return refuse(
            errno::ENOENT,
            format!("application '{app}' is not enabled on pool '{name}'"),
        );
    };
    if notes.remove(&key).is_none() {
        return now(Reply::status(format!(
            "application '{app}' on pool '{name}' does not have key '{key}'"
        )));
    }
    store(m, id, p);
    committed(format!(
        "removed application '{app}' key '{key}' on pool '{name}'"
    ))
}
