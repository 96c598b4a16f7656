//! Creating, removing and renaming pools.

use spirula_maps::pool::{AutoscaleMode, PoolOption};
use spirula_maps::{Epoch, PgPool, PoolFlags, PoolId, PoolType};
use spirula_proto::mon::LogPriority;

use super::pool_erasure::{self, NewErasure};
use super::pool_option;
use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd pool create pool:Poolname pg_num?:Int(0) pgp_num?:Int(0) pool_type?:{replicated|erasure} erasure_code_profile?:String[A-Za-z0-9-_.] rule?:String expected_num_objects?:Int(0) size?:Int(0) pg_num_min?:Int(0) pg_num_max?:Int(0) autoscale_mode?:{on|off|warn} bulk?:Bool target_size_bytes?:Int(0) target_size_ratio?:Float(0.0)"
        "osd" "rw" create, "create a pool";
    "osd pool rm pool:Poolname pool2?:Poolname yes_i_really_really_mean_it?:Bool yes_i_really_really_mean_it_not_faking?:Bool"
        "osd" "rw" rm, "remove a pool";
    "osd pool delete pool:Poolname pool2?:Poolname yes_i_really_really_mean_it?:Bool yes_i_really_really_mean_it_not_faking?:Bool"
        "osd" "rw" rm, "remove a pool";
    "osd pool rename srcpool:Poolname destpool:Poolname" "osd" "rw" rename, "rename a pool";
}

/// The settings of a new pool; `None` for the defaults.
#[derive(Debug, Default)]
pub(crate) struct NewPool {
    pub(crate) name: String,
    pub(crate) pg_num: Option<u32>,
    pub(crate) pgp_num: Option<u32>,
    pub(crate) size: Option<u8>,
    pub(crate) rule: Option<u32>,
    /// Of an erasure-coded pool, which then has no `size` and `rule` of its own.
    pub(crate) erasure: Option<NewErasure>,
    pub(crate) expected_objects: u64,
    pub(crate) autoscale: Option<String>,
    pub(crate) bulk: bool,
    pub(crate) options: Vec<(&'static str, PoolOption)>,
}

/// Flags of new pools that options set.
const DEFAULT_FLAGS: [(&str, PoolFlags); 4] = [
    ("osd_pool_default_flag_bulk", PoolFlags::BULK),
    ("osd_pool_default_flag_nodelete", PoolFlags::NODELETE),
    ("osd_pool_default_flag_nopgchange", PoolFlags::NOPGCHANGE),
    ("osd_pool_default_flag_nosizechange", PoolFlags::NOSIZECHANGE),
];

/// Official pools are created with at most this many replicas.
const MAX_SIZE: u8 = 10;

/// A pool's `pg_num`, if it is within the allowed range.
pub(super) fn pg_num_in_range(m: &View, n: i64) -> Result<u32, Reply> {
    let most = m.values.uint("mon_max_pool_pg_num");
    let fits = |n: &u32| *n > 0 && u64::from(*n) <= most;
    match u32::try_from(n).ok().filter(fits) {
        Some(n) => Ok(n),
        None => refuse(
            errno::ERANGE,
            format!(
                "'pg_num' must be greater than 0 and less than or equal to {most} (you may adjust 'mon max pool pg num' for higher values)"
            ),
        ),
    }
}

/// Whether all pools together stay below `mon_max_pg_per_osd` with this pool (`None`: a new one) of
/// that size.
pub(super) fn check_pg_num(m: &View, id: Option<PoolId>, pg_num: u32, size: u8) -> Result<(), Reply> {
    let map = &m.state.osd.map;
    let inside = map.osds().filter(|o| map.is_in(*o)).count().max(3) as u64;
    let per = m.values.uint("mon_max_pg_per_osd");
    let others = map.pools.iter().filter(|(other, _)| id != Some(**other));
    let now: u64 = others
        .map(|(_, p)| u64::from(p.pg_num_target) * u64::from(p.size))
        .sum();
    let total = now + u64::from(pg_num) * u64::from(size);
    if total > per * inside {
        let which = id.map(|id| format!("pool id {id}")).unwrap_or_default();
        return refuse(
            errno::ERANGE,
            format!(
                "{which} pg_num {pg_num} size {size} would mean {total} total pgs, which exceeds max {} (mon_max_pg_per_osd {per} * num_in_osds {inside})",
                per * inside
            ),
        );
    }
    Ok(())
}

fn default_min_size(m: &View, size: u8) -> u8 {
    match u8::try_from(m.values.uint("osd_pool_default_min_size")).unwrap_or(0) {
        0 => size - size / 2,
        n => n.min(size),
    }
}

fn default_rule(m: &View) -> Result<u32, Reply> {
    let crush = m.state.osd.map.crush.map();
    if let Ok(n) = u32::try_from(m.values.int("osd_pool_default_crush_rule"))
        && crush.rule(n).is_some()
    {
        return Ok(n);
    }
    let none = || {
        Reply::error(
            errno::ENOENT,
            "No suitable CRUSH rule exists, check 'osd pool default crush *' config options",
        )
    };
    crush
        .first_rule_of_type(spirula_crush::RULE_REPLICATED)
        .ok_or_else(none)
}

/// A pool's autoscale mode: `off`, as nothing implements the others.
pub(super) fn autoscale_mode(name: &str) -> Result<AutoscaleMode, Reply> {
    match AutoscaleMode::from_name(name) {
        Some(AutoscaleMode::OFF) => Ok(AutoscaleMode::OFF),
        Some(_) => refuse(
            errno::EOPNOTSUPP,
            format!(
                "pg_autoscale_mode {name} is not supported: there is no autoscaler; set pg_num with `ceph osd pool set`"
            ),
        ),
        None => refuse(errno::EINVAL, format!("specified invalid mode {name}")),
    }
}

/// Refuses a rule that is for pools of another type, or of other sizes.
pub(super) fn check_rule(m: &View, number: u32, kind: PoolType, size: u8) -> Result<(), Reply> {
    let Some(rule) = m.state.osd.map.crush.map().rule(number) else {
        return Ok(());
    };
    if rule.rule_type != kind.0 {
        // The official monitor says no more than the number's meaning.
        return refuse(errno::EINVAL, errno::EINVAL.to_string());
    }
    match size {
        n if n < rule.min_size => refuse(errno::EINVAL, "pool size is smaller than the crush rule min size"),
        n if n > rule.max_size => refuse(errno::EINVAL, "pool size is bigger than the crush rule max size"),
        _ => Ok(()),
    }
}

/// A replicated pool, with one PG so far.
fn replicated(m: &View, new: &NewPool) -> Result<PgPool, Reply> {
    let rule = match new.rule {
        Some(r) if m.state.osd.map.crush.map().rule(r).is_some() => r,
        Some(r) => return refuse(errno::ENOENT, format!("specified rule {r} doesn't exist")),
        None => default_rule(m)?,
    };
    let default_size = u8::try_from(m.values.uint("osd_pool_default_size")).unwrap_or(3);
    let size = new.size.unwrap_or(default_size).max(1);
    check_rule(m, rule, PoolType::REPLICATED, size)?;
    if size > MAX_SIZE {
        return refuse(errno::EINVAL, "pool size must be between 1 and 10");
    }
    let rule = u8::try_from(rule).map_err(|_| Reply::error(errno::ERANGE, "rule number too large"))?;
    Ok(PgPool::replicated(size, default_min_size(m, size), 1, rule))
}

/// Prepares a pool; returns its id.
pub(crate) fn create_pool(m: &mut Turn<'_>, new: NewPool) -> Result<PoolId, Reply> {
    if new.name.is_empty() {
        return refuse(errno::EINVAL, "empty pool name");
    }
    let mut pool = match &new.erasure {
        None => replicated(m.view, &new)?,
        Some(erasure) => pool_erasure::pool(m, erasure)?,
    };
    if let Some(mode) = &new.autoscale {
        autoscale_mode(mode)?;
    }
    let default_pgs = u32::try_from(m.view.values.uint("osd_pool_default_pg_num")).unwrap_or(32);
    let pg_num = new.pg_num.filter(|n| *n > 0).unwrap_or(default_pgs);
    pg_num_in_range(m.view, i64::from(pg_num))?;
    check_pg_num(m.view, None, pg_num, pool.size)?;
    let pgp_num = new.pgp_num.filter(|n| *n > 0).unwrap_or(pg_num);
    if pgp_num > pg_num {
        return refuse(
            errno::ERANGE,
            format!(
                "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is {pg_num}"
            ),
        );
    }
    (pool.pg_num, pool.pg_num_target, pool.pg_num_pending) = (pg_num, pg_num, pg_num);
    (pool.pgp_num, pool.pgp_num_target) = (pgp_num, pgp_num);
    // Whatever `osd_pool_default_pg_autoscale_mode` says.
    pool.autoscale_mode = AutoscaleMode::OFF;
    pool.expected_num_objects = new.expected_objects;
    pool.create_time = m.view.now;
    pool.last_force_op_resend_preluminous = Epoch::NONE;
    for (option, flag) in DEFAULT_FLAGS {
        if m.view.values.flag(option) {
            pool.flags.insert(flag);
        }
    }
    if new.bulk {
        pool.flags.insert(PoolFlags::BULK);
    }
    for (name, value) in new.options {
        pool.opts.set(name, value);
    }
    let id = m.view.state.osd.map.pool_max.next();
    let inc = m.pending_osd();
    inc.new_pool_max = Some(id);
    inc.new_pools.insert(id, pool);
    inc.new_pool_names.insert(id, new.name);
    Ok(id)
}

fn int<T: TryFrom<i64>>(call: &Call<'_>, name: &str) -> Result<Option<T>, Reply> {
    match call.args.opt_int(name)? {
        None => Ok(None),
        Some(n) => match T::try_from(n) {
            Ok(v) => Ok(Some(v)),
            Err(_) => refuse(errno::ERANGE, format!("{name} {n} is out of range")),
        },
    }
}

fn create(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("pool")?;
    if name.is_empty() {
        return refuse(errno::EINVAL, errno::EINVAL.to_string());
    }
    for number in ["pg_num", "pgp_num", "expected_num_objects", "size"] {
        call.args.opt_int(number)?;
    }
    let pool_type = call
        .args
        .opt_str("pool_type")
        .unwrap_or_else(|| m.view.values.get("osd_pool_default_type").to_owned());
    if name.starts_with('.') && name.len() == 1 {
        return refuse(errno::EINVAL, "bad pool name");
    }
    if let Some(id) = m.view.state.osd.map.pool_id(&name) {
        let same = m
            .view
            .state
            .osd
            .map
            .pool(id)
            .is_some_and(|p| p.kind.name() == pool_type);
        if !same {
            return refuse(
                errno::EINVAL,
                format!("pool '{name}' cannot change to type {pool_type}"),
            );
        }
        return now(Reply::status(format!("pool '{name}' already exists")));
    }
    let given = |name: &str| call.args.opt_str(name).filter(|text| !text.is_empty());
    let (mut rule_name, mut expected) = (given("rule"), int(call, "expected_num_objects")?);
    let mut erasure = None;
    if pool_type == "erasure" {
        let new = NewErasure::new(given("erasure_code_profile"), rule_name.clone(), &name);
        erasure = Some(new);
    } else if let Some(rule) = given("erasure_code_profile") {
        // `osd pool create NAME PG PGP replicated RULE OBJECTS`: all stands one place earlier.
        if let Some(objects) = rule_name {
            expected = u64::try_from(pool_option::int(&objects)?).ok();
        }
        rule_name = Some(rule);
    }
    let rule = match rule_name {
        None => None,
        Some(r) => match m.view.state.osd.map.crush.map().rule_id(&r) {
            Some(id) => Some(id),
            None => return refuse(errno::ENOENT, format!("specified rule {r} doesn't exist")),
        },
    };
    let mut options = Vec::new();
    for key in ["pg_num_min", "pg_num_max", "target_size_bytes"] {
        if let Some(n) = call.args.opt_int(key)?.filter(|n| *n > 0) {
            options.push((key, PoolOption::Int(n)));
        }
    }
    if let Some(r) = call.args.opt_float("target_size_ratio")?.filter(|r| *r > 0.0) {
        options.push(("target_size_ratio", PoolOption::Float(r)));
    }
    let size: Option<u8> = int(call, "size")?.filter(|s| *s > 0);
    if size == Some(1) && erasure.is_none() && !m.view.values.flag("mon_allow_pool_size_one") {
        return refuse(errno::EPERM, "configuring pool size as 1 is disabled by default.");
    }
    let new = NewPool {
        name: name.clone(),
        pg_num: int(call, "pg_num")?,
        pgp_num: int(call, "pgp_num")?,
        size,
        rule,
        erasure,
        expected_objects: expected.unwrap_or(0),
        autoscale: call.args.opt_str("autoscale_mode"),
        bulk: call.args.flag("bulk"),
        options,
    };
    create_pool(m, new)?;
    committed(format!("pool '{name}' created"))
}

/// Prepares a pool's removal, if that is allowed.
pub(crate) fn delete_pool(m: &mut Turn<'_>, id: PoolId) -> Result<(), Reply> {
    if !m.view.values.flag("mon_allow_pool_delete") {
        return refuse(
            errno::EPERM,
            "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before you can destroy a pool",
        );
    }
    let Some(pool) = m.view.state.osd.map.pool(id) else {
        return refuse(errno::ENOENT, "no such pool");
    };
    if pool.flags.contains(PoolFlags::NODELETE) {
        return refuse(
            errno::EPERM,
            "pool deletion is disabled; you must unset nodelete flag for the pool first",
        );
    }
    let name = m.view.state.osd.map.pool_name(id).unwrap_or_default().to_owned();
    m.pending_osd().old_pools.insert(id);
    m.log_event(LogPriority::INFO, format!("pool '{name}' removed"));
    Ok(())
}

fn rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("pool")?;
    let Some(id) = m.view.state.osd.map.pool_id(&name) else {
        return now(Reply::status(format!("pool '{name}' does not exist")));
    };
    let sure = call.args.flag("yes_i_really_really_mean_it")
        || call.args.flag("yes_i_really_really_mean_it_not_faking");
    if call.args.opt_str("pool2").as_deref() != Some(&name) || !sure {
        return refuse(
            errno::EPERM,
            format!(
                "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY CERTAIN* that is what you want, pass the pool name *twice*, followed by --yes-i-really-really-mean-it."
            ),
        );
    }
    delete_pool(m, id)?;
    committed(format!("pool '{name}' removed"))
}

fn rename(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (from, to) = (call.args.str("srcpool")?, call.args.str("destpool")?);
    let map = &m.view.state.osd.map;
    let Some(id) = map.pool_id(&from) else {
        if map.pool_id(&to).is_some() {
            return now(Reply::status(format!(
                "pool '{from}' does not exist; pool '{to}' does -- assuming successful rename"
            )));
        }
        return refuse(errno::ENOENT, format!("unrecognized pool '{from}'"));
    };
    if map.pool_id(&to).is_some() {
        return refuse(errno::EEXIST, format!("pool '{to}' already exists"));
    }
    m.pending_osd().new_pool_names.insert(id, to.clone());
    committed(format!("pool '{from}' renamed to '{to}'"))
}
