//! Placement groups.

use std::time::Duration;

use serde_json::{Value, json};
use spirula_maps::{OsdId, PgId, PgStat, PgState, PoolId};
use spirula_text::{Align, Table, size::bytes};

use super::pg_dump::{OMAP_NOTE, pg_json};
use super::{Call, Done, Reply, commands, errno, now, refuse};
use crate::core::{Turn, View};
use crate::health::state_text;

commands! {
    "pg stat" "pg" "r" stat, "summarize the placement groups";
    "pg map pgid:Pgid" "pg" "r" map, "show where a placement group is";
    "pg ls pool?:Int states?:String..." "pg" "r" ls, "list placement groups";
    "pg ls-by-pool poolstr:String states?:String..." "pg" "r" ls_by_pool, "list a pool's placement groups";
    "pg ls-by-primary osd:OsdName pool?:Int states?:String..." "pg" "r" ls_by_primary,
        "list the placement groups that an OSD leads";
    "pg ls-by-osd osd:OsdName pool?:Int states?:String..." "pg" "r" ls_by_osd, "list the placement groups of an OSD";
    "pg dump_stuck stuckops?:{inactive|unclean|stale|undersized|degraded}... threshold?:Int" "pg" "r" dump_stuck,
        "list placement groups that do not get on";
    "pg debug debugop:{unfound_objects_exist|degraded_pgs_exist}" "pg" "r" debug, "tell whether something is missing";
}

fn stat(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let total = m.view.state.stats.total();
    let raw = m.view.state.stats.raw(&m.view.state.osd.map);
    let states = m.view.state.stats.states();
    if call.format.is_structured() {
        let list: Vec<Value> = states
            .iter()
            .map(|(s, n)| json!({"name": state_text(*s), "num": n}))
            .collect();
        let mut v = json!({
            "num_pg_by_state": list, "num_pgs": total.pgs, "num_bytes": total.sum.num_bytes,
            "total_bytes": raw.total, "total_avail_bytes": raw.available, "total_used_bytes": raw.used_raw(),
            "total_used_raw_bytes": raw.used_raw(),
        });
        if let Some(o) = v.as_object_mut() {
            o.extend(super::pool_list::recovery_rate(m.view, None));
            o.extend(super::pool_list::io_rate(m.view, None));
        }
        return now(Reply::json(
            call.format,
            &json!({"pg_ready": true, "pg_summary": v}),
        ));
    }
    let by: Vec<String> = states
        .iter()
        .map(|(s, n)| format!("{n} {}", state_text(*s)))
        .collect();
    let mut t = format!(
        "{} pgs: {}; {} data, {} used, {} / {} avail",
        total.pgs,
        by.join(", "),
        bytes(total.stored()),
        bytes(raw.used_raw()),
        bytes(raw.available),
        bytes(raw.total)
    );
    if let Some(io) = super::pool_list::io_line(m.view, None) {
        t.push_str(&format!("; {io}"));
    }
    let s = &total.sum;
    for (n, what) in [
        (s.num_objects_degraded, "degraded"),
        (s.num_objects_misplaced, "misplaced"),
    ] {
        if n > 0 && s.num_object_copies > 0 {
            let share = n as f64 / s.num_object_copies as f64 * 100.0;
            t.push_str(&format!(
                "; {n}/{} objects {what} ({share:.3}%)",
                s.num_object_copies
            ));
        }
    }
    now(Reply::text(t + "\n"))
}

fn map(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let text = call.args.str("pgid")?;
    let Ok(raw) = text.parse::<PgId>() else {
        return refuse(errno::EINVAL, format!("invalid pgid '{text}'"));
    };
    let map = &m.view.state.osd.map;
    let Some(pg) = map
        .raw_pg_to_pg(raw)
        .filter(|_| map.pool_of(raw).is_some_and(|p| raw.seed < p.pg_num))
    else {
        return refuse(errno::ENOENT, format!("pg '{text}' does not exist"));
    };
    let at = map.map_pg(pg);
    if call.format.is_structured() {
        let v = json!({"epoch": map.epoch, "raw_pgid": raw.to_string(), "pgid": pg.to_string(), "up": at.up,
            "acting": at.acting});
        return now(Reply::json(call.format, &v));
    }
    let text = format!(
        "osdmap e{} pg {raw} ({pg}) -> up {} acting {}\n",
        map.epoch,
        at.up.numbers(),
        at.acting.numbers()
    );
    now(Reply::text(text))
}

/// The states that the official refusal lists: the newest are missing from it.
fn choices() -> String {
    let names = || PgState::NAMES.iter().map(|(_, n)| *n);
    let known = names().position(|n| n == "snaptrim_error").map_or(0, |at| at + 1);
    names().take(known).collect::<Vec<_>>().join("+")
}

fn wanted_states(words: &[String]) -> Result<Vec<PgState>, Reply> {
    words
        .iter()
        .flat_map(|w| w.split(','))
        .filter(|w| !w.is_empty() && *w != "all")
        .map(|w| {
            PgState::from_name(w).ok_or_else(|| {
                Reply::error(
                    errno::EINVAL,
                    format!("'{w}' is not a valid pg state, available choices: {}", choices()),
                )
            })
        })
        .collect()
}

fn list(m: &View, call: &Call<'_>, pool: Option<PoolId>, wanted: impl Fn(&PgStat) -> bool) -> Done {
    if let Some(p) = pool.filter(|p| m.state.osd.map.pool(*p).is_none()) {
        return refuse(errno::ENOENT, format!("pool {p} does not exist"));
    }
    let states = wanted_states(&call.args.list("states"))?;
    let pgs: Vec<(&PgId, &PgStat)> = m
        .state
        .stats
        .pgs
        .iter()
        .filter(|(pg, s)| {
            pool.is_none_or(|p| pg.pool == p)
                && (states.is_empty() || states.iter().any(|w| s.state.contains(*w)))
                && wanted(s)
        })
        .collect();
    if call.format.is_structured() {
        let list: Vec<Value> = pgs.iter().map(|(pg, s)| pg_json(**pg, s)).collect();
        // As in Ceph, there is no empty list.
        let v = match list.is_empty() {
            true => json!({"pg_ready": true}),
            false => json!({"pg_ready": true, "pg_stats": list}),
        };
        return now(Reply::json(call.format, &v));
    }
    if pgs.is_empty() {
        return now(Reply::default());
    }
    now(Reply::text(ls_table(m, &pgs) + OMAP_NOTE))
}

fn ls_table(m: &View, pgs: &[(&PgId, &PgStat)]) -> String {
    use Align::{Left, Right};
    let mut t = Table::new(&[("PG", Left, Left)]);
    for c in [
        "OBJECTS",
        "DEGRADED",
        "MISPLACED",
        "UNFOUND",
        "BYTES",
        "OMAP_BYTES*",
        "OMAP_KEYS*",
        "LOG",
    ] {
        t.column(c, Left, Right);
    }
    for (c, a) in [
        ("STATE", Left),
        ("SINCE", Right),
        ("VERSION", Right),
        ("REPORTED", Right),
        ("UP", Left),
        ("ACTING", Left),
        ("SCRUB_STAMP", Left),
        ("DEEP_SCRUB_STAMP", Left),
    ] {
        t.column(c, Left, if ["UP", "ACTING"].contains(&c) { Right } else { a });
    }
    for (pg, s) in pgs {
        let sum = &s.stats.sum;
        let mut row = vec![pg.to_string()];
        row.extend(
            [
                sum.num_objects,
                sum.num_objects_degraded,
                sum.num_objects_misplaced,
                sum.num_objects_unfound,
                sum.num_bytes,
                sum.num_omap_bytes,
                sum.num_omap_keys,
                s.log_size,
            ]
            .map(|n| n.to_string()),
        );
        row.extend([
            state_text(s.state),
            spirula_text::time::age(m.now.since(s.last_change)),
            s.version.to_string(),
            format!("{}:{}", s.reported_epoch, s.reported_seq),
            format!("{}p{}", s.up, s.up_primary),
            format!("{}p{}", s.acting, s.acting_primary),
            s.last_scrub_stamp.to_string(),
            s.last_deep_scrub_stamp.to_string(),
        ]);
        t.row(row);
    }
    t.render()
}

/// The pool whose PGs are asked for; all pools also where the number is negative.
fn wanted_pool(call: &Call<'_>) -> Result<Option<PoolId>, Reply> {
    let id = call.args.opt_int("pool")?;
    Ok(id.and_then(|id| PoolId::try_from(id).ok()))
}

fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    list(m.view, call, wanted_pool(call)?, |_| true)
}

fn ls_by_pool(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("poolstr")?;
    match m.view.state.osd.map.pool_id(&name) {
        Some(id) => list(m.view, call, Some(id), |_| true),
        None => refuse(errno::ENOENT, format!("pool {name} does not exist")),
    }
}

fn ls_by_primary(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osd = running(m.view, call)?;
    list(m.view, call, wanted_pool(call)?, |s| {
        s.acting_primary.0 == Some(osd)
    })
}

/// The OSD whose PGs are asked for.
fn running(m: &View, call: &Call<'_>) -> Result<OsdId, Reply> {
    let osd = call.args.osd("osd")?;
    match m.state.osd.map.is_up(osd) {
        true => Ok(osd),
        false => refuse(errno::EAGAIN, format!("osd {osd} is not up")),
    }
}

fn ls_by_osd(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osd = running(m.view, call)?;
    list(m.view, call, wanted_pool(call)?, |s| {
        s.up.contains(osd) || s.acting.contains(osd)
    })
}

fn dump_stuck(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let mut kinds = call.args.list("stuckops");
    if kinds.is_empty() {
        kinds.push("unclean".to_owned());
    }
    let seconds = match call.args.opt_int("threshold")? {
        Some(n) => u64::try_from(n).unwrap_or(0),
        None => m.view.values.uint("mon_pg_stuck_threshold"),
    };
    let now_ = m.view.now;
    let stuck = |s: &PgStat| {
        kinds.iter().any(|k| {
            let (bad, since) = match k.as_str() {
                "inactive" => (!s.state.contains(PgState::ACTIVE), s.last_active),
                "stale" => (s.state.contains(PgState::STALE), s.last_unstale),
                "undersized" => (s.state.contains(PgState::UNDERSIZED), s.last_fullsized),
                "degraded" => (s.state.contains(PgState::DEGRADED), s.last_undegraded),
                _ => (!s.state.contains(PgState::CLEAN), s.last_clean),
            };
            let since = if since.is_zero() { s.last_change } else { since };
            bad && now_.since(since) >= Duration::from_secs(seconds)
        })
    };
    let pgs: Vec<(&PgId, &PgStat)> = m.view.state.stats.pgs.iter().filter(|(_, s)| stuck(s)).collect();
    if call.format.is_structured() {
        let v: Vec<Value> = pgs.iter().map(|(pg, s)| pg_json(**pg, s)).collect();
        return now(Reply::json(call.format, &json!({"stuck_pg_stats": v})).with_status("ok"));
    }
    if pgs.is_empty() {
        return now(Reply::status("ok"));
    }
    use Align::{Left, Right};
    let mut t = Table::new(&[
        ("PG_STAT", Left, Left),
        ("STATE", Left, Right),
        ("UP", Left, Right),
        ("UP_PRIMARY", Left, Right),
        ("ACTING", Left, Right),
        ("ACTING_PRIMARY", Left, Right),
    ]);
    for (pg, s) in pgs {
        t.row([
            pg.to_string(),
            state_text(s.state),
            s.up.numbers(),
            s.up_primary.to_string(),
            s.acting.numbers(),
            s.acting_primary.to_string(),
        ]);
    }
    now(Reply::text(t.render()).with_status("ok"))
}

fn debug(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let what = call.args.str("debugop")?;
    let yes = match what.as_str() {
        "unfound_objects_exist" => m.view.state.stats.total().sum.num_objects_unfound > 0,
        _ => m
            .view
            .state
            .stats
            .pgs
            .values()
            .any(|s| s.state.contains(PgState::DEGRADED)),
    };
    now(Reply::text(if yes { "TRUE\n" } else { "FALSE\n" }))
}
