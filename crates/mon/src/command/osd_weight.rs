//! The OSDs' weights, states and flags.

use std::collections::{BTreeMap, BTreeSet};

use spirula_maps::osdmap::{WEIGHT_IN, WEIGHT_OUT};
use spirula_maps::{OsdId, OsdOrNone, Positions, UpmapItem};
use spirula_maps::{OsdState, PgId};
use spirula_proto::mon::LogPriority;
use spirula_text::general;

use super::osd_query::{existing, osd_ids};
use super::{Call, Done, Outcome, Reply, commands, committed, errno, refuse};
use crate::core::{Turn, View};

commands! {
    "osd down ids:String... definitely_dead?:Bool" "osd" "rw" down, "mark OSDs down";
    "osd stop ids:String..." "osd" "rw" stop, "stop OSDs' daemons and mark them down";
    "osd out ids:String..." "osd" "rw" out, "mark OSDs out";
    "osd in ids:String..." "osd" "rw" in_, "mark OSDs in";
    "osd reweight id:OsdName weight:Float(0.0|1.0)" "osd" "rw" reweight, "set the share of its data an OSD takes";
    "osd reweightn weights:String" "osd" "rw" reweightn, "set several OSDs' shares: {ID: WEIGHT, ...}";
    "osd primary-affinity id:OsdName weight:Float(0.0|1.0)" "osd" "rw" affinity,
        "set how readily an OSD becomes primary";
    "osd set-group flags:String who:String..." "osd" "rw" set_group, "set flags on OSDs, CRUSH nodes or device classes";
    "osd unset-group flags:String who:String..." "osd" "rw" unset_group, "unset flags set with set-group";
    "osd add-noup ids:String..." "osd" "rw" add_flag, "set a flag on OSDs";
    "osd add-nodown ids:String..." "osd" "rw" add_flag, "set a flag on OSDs";
    "osd add-noin ids:String..." "osd" "rw" add_flag, "set a flag on OSDs";
    "osd add-noout ids:String..." "osd" "rw" add_flag, "set a flag on OSDs";
    "osd rm-noup ids:String..." "osd" "rw" rm_flag, "unset a flag set with add-noup";
    "osd rm-nodown ids:String..." "osd" "rw" rm_flag, "unset a flag set with add-nodown";
    "osd rm-noin ids:String..." "osd" "rw" rm_flag, "unset a flag set with add-noin";
    "osd rm-noout ids:String..." "osd" "rw" rm_flag, "unset a flag set with add-noout";
    "osd pg-temp pgid:Pgid id?:OsdName..." "osd" "rw" pg_temp, "set a placement group's temporary members";
    "osd primary-temp pgid:Pgid id:OsdName" "osd" "rw" primary_temp, "set a placement group's temporary primary";
    "osd pg-upmap pgid:Pgid id:OsdName..." "osd" "rw" pg_upmap, "give a placement group's members";
    "osd rm-pg-upmap pgid:Pgid" "osd" "rw" rm_pg_upmap, "undo pg-upmap";
    "osd pg-upmap-items pgid:Pgid id:OsdName..." "osd" "rw" upmap_items, "replace members of a placement group";
    "osd rm-pg-upmap-items pgid:Pgid" "osd" "rw" rm_upmap_items, "undo pg-upmap-items";
}

/// Applies `change` to each named OSD; `change` returns the line for that OSD and whether anything
/// changed.
fn each(
    m: &mut Turn<'_>,
    call: &Call<'_>,
    mut change: impl FnMut(&mut Turn<'_>, OsdId) -> (String, bool),
) -> Done {
    let mut lines = Vec::new();
    let mut changed = false;
    for osd in osd_ids(m.view, &call.args.list("ids"))? {
        if !m.view.state.osd.map.exists(osd) {
            lines.push(format!("osd.{osd} does not exist. "));
            continue;
        }
        let (line, did) = change(m, osd);
        lines.push(line);
        changed |= did;
    }
    let reply = Reply::status(lines.concat());
    Ok(if changed {
        Outcome::Commit(reply)
    } else {
        Outcome::Now(reply)
    })
}

fn down(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let dead = call.args.flag("definitely_dead");
    each(m, call, |m, osd| {
        if m.view.state.osd.map.is_down(osd) {
            return (format!("osd.{osd} is already down. "), false);
        }
        m.mark_down(osd, None);
        if dead {
            let epoch = m.view.state.osd.map.epoch.next();
            if let Some(x) = m.pending_osd().new_xinfo.get_mut(&osd) {
                x.dead_epoch = epoch;
            }
        }
        (format!("marked down osd.{osd}. "), true)
    })
}

fn stop(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    each(m, call, |m, osd| {
        if m.view.state.osd.map.is_down(osd) {
            return (format!("osd.{osd} is already down. "), false);
        }
        m.mark_down(osd, None);
        m.pending_osd()
            .new_state
            .entry(osd)
            .or_default()
            .insert(OsdState::STOP);
        (format!("stop down osd.{osd}. "), true)
    })
}

fn out(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    each(m, call, |m, osd| {
        if m.view.state.osd.map.is_out(osd) {
            return (format!("osd.{osd} is already out. "), false);
        }
        let weight = m.view.state.osd.map.weight(osd);
        m.set_weight(osd, WEIGHT_OUT);
        if weight != WEIGHT_IN {
            let mut x = m.view.state.osd.map.osd_xinfo[osd.index()];
            x.old_weight = weight;
            m.pending_osd().new_xinfo.insert(osd, x);
        }
        let state = match m.view.state.osd.lives.get(osd).and_then(|l| l.down_since) {
            Some(since) => {
                let down = m.view.steady.now().saturating_sub(since);
                format!("after it was down for {} seconds", down.as_secs())
            }
            None => "while it was still marked up".to_owned(),
        };
        let who = m.view.sender(call.session).map(|s| s.name.to_string());
        m.log_event(
            LogPriority::INFO,
            format!("Client {} marked osd.{osd} out, {state}", who.unwrap_or_default()),
        );
        (format!("marked out osd.{osd}. "), true)
    })
}

fn in_(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    each(m, call, |m, osd| {
        if m.view.state.osd.map.is_in(osd) {
            return (format!("osd.{osd} is already in. "), false);
        }
        let old = m.view.state.osd.map.osd_xinfo[osd.index()].old_weight;
        m.set_weight(osd, if old > 0 { old } else { WEIGHT_IN });
        (format!("marked in osd.{osd}. "), true)
    })
}

/// 0 to 1 as 16.16 fixed point.
fn fixed(call: &Call<'_>) -> Result<(u32, f64), Reply> {
    let w = call.args.float("weight")?;
    if !(0.0..=1.0).contains(&w) {
        return refuse(
            errno::EINVAL,
            format!("weight must be in the range [0..1], got {}", general(w, 6)),
        );
    }
    Ok(((w * 65536.0) as u32, w))
}

fn reweight(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osd = existing(m.view, call, "id")?;
    let (w, text) = fixed(call)?;
    m.set_weight(osd, w);
    committed(format!("reweighted osd.{osd} to {} ({w:x})", general(text, 6)))
}

fn reweightn(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let text = call.args.str("weights")?;
    let bad = |errno| Reply::error(errno, format!("unable to parse 'weights' value '{text}'"));
    // The manager's module sends it with single quotes.
    let weights: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&text.replace('\'', "\"")).map_err(|_| bad(errno::EINVAL))?;
    let mut parsed = Vec::new();
    for (osd, w) in weights {
        let osd = super::parse_osd(&osd)
            .ok()
            .filter(|o| m.view.state.osd.map.exists(*o))
            .ok_or_else(|| bad(errno::ENOENT))?;
        let w = w
            .as_u64()
            .or_else(|| w.as_str()?.parse().ok())
            .and_then(|w| u32::try_from(w).ok());
        parsed.push((
            osd,
            w.filter(|w| *w <= WEIGHT_IN).ok_or_else(|| bad(errno::EINVAL))?,
        ));
    }
    for (osd, w) in parsed {
        m.set_weight(osd, w);
    }
    committed("")
}

fn affinity(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osd = existing(m.view, call, "id")?;
    let (w, text) = fixed(call)?;
    m.pending_osd().new_primary_affinity.insert(osd, w);
    // The official text prints the fixed-point value in decimal.
    committed(format!(
        "set osd.{osd} primary-affinity to {} ({w})",
        general(text, 6)
    ))
}

fn group_flags(text: &str) -> Result<OsdState, Reply> {
    let mut out = OsdState::empty();
    for f in text.split(',') {
        match f {
            "noup" => out.insert(OsdState::NOUP),
            "nodown" => out.insert(OsdState::NODOWN),
            "noin" => out.insert(OsdState::NOIN),
            "noout" => out.insert(OsdState::NOOUT),
            other => {
                return refuse(
                    errno::EINVAL,
                    format!("unrecognized flag '{other}', must be one of {{noup,nodown,noin,noout}}"),
                );
            }
        }
    }
    Ok(out)
}

/// The targets of flags, and the official remarks on words that name no target.
#[derive(Default)]
struct Targets {
    osds: BTreeSet<OsdId>,
    nodes: BTreeSet<i32>,
    classes: BTreeSet<i32>,
    notes: String,
}

impl Targets {
    fn of(m: &View, words: &[String]) -> Self {
        let map = &m.state.osd.map;
        let crush = map.crush.map();
        let mut out = Self::default();
        for word in words {
            if ["any", "all", "*"].contains(&word.as_str()) {
                out.osds.extend(map.osds());
                break;
            }
            if let Ok(osd) = super::parse_osd(word) {
                out.osds.insert(osd);
            } else if let Some(id) = crush.item_id(word) {
                out.nodes.insert(id);
            } else if let Some(id) = crush.class_id(word) {
                out.classes.insert(id);
            } else {
                out.notes.push_str(&format!(
                    "unable to parse osd id or crush node or device class: \"{word}\". "
                ));
            }
        }
        out
    }
}

fn group(m: &mut Turn<'_>, flags: OsdState, words: &[String], set: bool) -> Done {
    let mut targets = Targets::of(m.view, words);
    if targets.osds.is_empty() && targets.nodes.is_empty() && targets.classes.is_empty() {
        return refuse(errno::EINVAL, targets.notes);
    }
    let map = m.view.state.osd.map.clone();
    let change = |old: OsdState| if set { old.with(flags) } else { old.without(flags) };
    let mut changed = false;
    for osd in targets.osds {
        if !map.exists(osd) {
            targets.notes.push_str(&format!("osd.{osd} does not exist. "));
            continue;
        }
        let old = map.state(osd);
        let flip = OsdState(old.0 ^ change(old).0);
        if flip != OsdState::empty() {
            m.pending_osd().new_state.insert(osd, flip);
        }
        changed = true;
    }
    for id in targets.nodes {
        let old = map.crush_node_flags.get(&id).copied().unwrap_or_default();
        m.pending_osd().new_crush_node_flags.insert(id, change(old));
        changed = true;
    }
    for id in targets.classes {
        let old = map.device_class_flags.get(&id).copied().unwrap_or_default();
        m.pending_osd().new_device_class_flags.insert(id, change(old));
        changed = true;
    }
    let reply = Reply::status(targets.notes);
    Ok(if changed {
        Outcome::Commit(reply)
    } else {
        Outcome::Now(reply)
    })
}

/// The deprecated commands have the flag in their name: `osd add-noup`.
fn named_flag(m: &mut Turn<'_>, call: &Call<'_>, set: bool) -> Done {
    let flag = call.args.prefix().rsplit('-').next().unwrap_or_default();
    let flags = group_flags(flag)?;
    group(m, flags, &call.args.list("ids"), set)
}

fn add_flag(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    named_flag(m, call, true)
}

fn rm_flag(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    named_flag(m, call, false)
}

fn set_group(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let flags = group_flags(&call.args.str("flags")?)?;
    group(m, flags, &call.args.list("who"), true)
}

fn unset_group(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let flags = group_flags(&call.args.str("flags")?)?;
    group(m, flags, &call.args.list("who"), false)
}

fn pgid(m: &View, call: &Call<'_>) -> Result<PgId, Reply> {
    let text = call.args.str("pgid")?;
    let Ok(pg) = text.parse::<PgId>() else {
        return refuse(errno::EINVAL, format!("invalid pgid '{text}'"));
    };
    let exists = m.state.osd.map.pool_of(pg).is_some_and(|p| pg.seed < p.pg_num);
    if exists {
        Ok(pg)
    } else {
        refuse(errno::ENOENT, format!("pg {pg} does not exist"))
    }
}

fn members(m: &View, call: &Call<'_>) -> Result<Vec<OsdId>, Reply> {
    let osds = osd_ids(m, &call.args.list("id"))?;
    match osds.iter().find(|o| !m.state.osd.map.exists(**o)) {
        Some(o) => refuse(errno::ENOENT, format!("osd.{o} does not exist")),
        None => Ok(osds),
    }
}

fn pg_temp(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (pg, osds) = (pgid(m.view, call)?, members(m.view, call)?);
    let pool = m.view.state.osd.map.pool_of(pg);
    let (least, most) = pool.map_or((0, u8::MAX), |p| (p.min_size, p.size));
    if !osds.is_empty() && osds.len() < usize::from(least) {
        let text = format!("num of osds ({}) < pool min size ({least})", osds.len());
        return refuse(errno::EINVAL, text);
    }
    if osds.len() > usize::from(most) {
        let text = format!("num of osds ({}) > pool size ({most})", osds.len());
        return refuse(errno::EINVAL, text);
    }
    let text = match osds.is_empty() {
        true => format!("done cleaning up pg_temp of {pg}"),
        false => format!("set {pg} pg_temp mapping to {}", Positions::from(osds.clone())),
    };
    m.pending_osd().new_pg_temp.insert(pg, osds.into());
    committed(text)
}

fn primary_temp(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let pg = pgid(m.view, call)?;
    let osd = OsdOrNone(if call.args.str("id")? == "-1" {
        None
    } else {
        Some(existing(m.view, call, "id")?)
    });
    m.pending_osd().new_primary_temp.insert(pg, osd);
    committed(format!("set {pg} primary_temp mapping to {osd}"))
}

/// Clients older than Luminous do not know upmaps.
fn upmap_allowed(m: &View) -> Result<(), Reply> {
    if m.state.osd.map.require_min_compat_client >= spirula_maps::release::LUMINOUS {
        return Ok(());
    }
    refuse(
        errno::EPERM,
        "min_compat_client is not luminous or later, which is required for pg-upmap. Try 'ceph osd set-require-min-compat-client luminous' before using the new interface",
    )
}

fn pg_upmap(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    upmap_allowed(m.view)?;
    let pg = pgid(m.view, call)?;
    let given = call.args.list("id").len();
    let (size, min) = m
        .view
        .state
        .osd
        .map
        .pool_of(pg)
        .map_or((0, 0), |p| (usize::from(p.size), usize::from(p.min_size)));
    if given < min {
        return refuse(
            errno::EINVAL,
            format!("num of osds ({given}) < pool min size ({min})"),
        );
    }
    if given > size {
        return refuse(
            errno::EINVAL,
            format!("num of osds ({given}) > pool size ({size})"),
        );
    }
    let mut osds = Vec::new();
    for osd in members(m.view, call)? {
        if !osds.contains(&osd) {
            osds.push(osd);
        }
    }
    let text = format!("set {pg} pg_upmap mapping to {}", Positions::from(osds.clone()));
    m.pending_osd().new_pg_upmap.insert(pg, osds.into());
    committed(text)
}

fn rm_pg_upmap(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let pg = pgid(m.view, call)?;
    if m.view.state.osd.map.pg_upmap.contains_key(&pg) {
        m.pending_osd().old_pg_upmap.insert(pg);
    }
    committed(format!("clear {pg} pg_upmap mapping"))
}

fn upmap_items(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    upmap_allowed(m.view)?;
    let (pg, osds) = (pgid(m.view, call)?, members(m.view, call)?);
    if osds.is_empty() || !osds.len().is_multiple_of(2) {
        return refuse(errno::EINVAL, "you must specify pairs of osd ids to be remapped");
    }
    let pairs = || osds.chunks(2).map(|pair| (pair[0], pair[1]));
    let notes: String = pairs()
        .filter(|(from, to)| from == to)
        .map(|(from, to)| format!("from osd.{from} == to osd.{to}, "))
        .collect();
    let pairs = || pairs().filter(|(from, to)| from != to);
    let item = |(from, to)| UpmapItem { from, to: Some(to) };
    let items: Vec<UpmapItem> = pairs().map(item).collect();
    if items.is_empty() {
        return refuse(
            errno::EINVAL,
            format!("{notes}no valid upmap items(pairs) is specified"),
        );
    }
    let text: Vec<String> = pairs().map(|(from, to)| format!("{from}->{to}")).collect();
    m.pending_osd().new_pg_upmap_items.insert(pg, items);
    committed(format!(
        "{notes}set {pg} pg_upmap_items mapping to [{}]",
        text.join(",")
    ))
}

fn rm_upmap_items(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let pg = pgid(m.view, call)?;
    if m.view.state.osd.map.pg_upmap_items.contains_key(&pg) {
        m.pending_osd().old_pg_upmap_items.insert(pg);
    }
    committed(format!("clear {pg} pg_upmap_items mapping"))
}
