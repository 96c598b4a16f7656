//! The OSDMap as text and JSON.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use spirula_denc::{EntityAddrVec, encode_to_vec};
use spirula_maps::{Epoch, IntervalSet, OsdMap, OsdState, PgPool, PoolFlags, PoolId, release};
use spirula_maps::{OsdId, Positions, osd_or_hole, pool::PoolOption};
use spirula_text::{addr_legacy, general};

use super::status::{addrvec, legacy_addr};
use super::{Call, Done, Reply, commands, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd dump epoch?:Int(0)" "osd" "r" dump, "show the OSDMap";
    "osd getmap epoch?:Int(0)" "osd" "r" getmap, "give the encoded OSDMap";
    "osd getcrushmap epoch?:Int(0)" "osd" "r" getcrushmap, "give the encoded CRUSH map";
    "osd info id?:OsdName" "osd" "r" info, "show what the map says of an OSD, or of all";
}

/// The map that a command's `epoch` names.
pub(super) fn map_of(m: &View, call: &Call<'_>) -> Result<Rc<OsdMap>, Reply> {
    let epoch = call.args.opt_int("epoch")?.unwrap_or(0);
    if epoch == 0 {
        return Ok(m.state.osd.map.clone());
    }
    let missing = || Reply::error(errno::ENOENT, format!("there is no map for epoch {epoch}"));
    let epoch = u32::try_from(epoch).map_err(|_| missing())?;
    let found = m
        .state
        .osd
        .at(Epoch::new(epoch))
        .map_err(|e| Reply::error(errno::EIO, e.to_string()))?;
    found.ok_or_else(missing)
}

fn release_name(r: u8) -> &'static str {
    release::name(r)
}

fn getmap(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = map_of(m.view, call)?;
    let bytes = match map.epoch == m.view.state.osd.map.epoch {
        true => m.view.state.osd.encoded().clone(),
        false => map.encode_with_crc().0,
    };
    now(Reply::data(bytes).with_status(format!("got osdmap epoch {}", map.epoch)))
}

fn getcrushmap(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = map_of(m.view, call)?;
    now(Reply::data(encode_to_vec(map.crush.map().as_ref())).with_status(map.crush_version.to_string()))
}

/// One OSD's line of `osd dump`.
pub(super) fn osd_line(map: &OsdMap, osd: OsdId) -> String {
    let i = osd.index();
    let side = |b: bool, yes: &'static str, no: &'static str| if b { yes } else { no };
    let mut t = format!(
        "osd.{osd} {} {} weight {}",
        side(map.is_up(osd), "up  ", "down"),
        side(map.is_in(osd), "in ", "out"),
        general(map.weight_f64(osd), 6)
    );
    if map.affinity(osd) != 0x10000 {
        t.push_str(&format!(
            " primary_affinity {}",
            general(f64::from(map.affinity(osd)) / 65536.0, 6)
        ));
    }
    let addrs = |v: &EntityAddrVec| {
        if v.is_blank() {
            String::new()
        } else {
            v.to_string()
        }
    };
    t.push_str(&format!(
        " {} {} {} {}",
        map.osd_info[i],
        addrs(&map.client_addrs[i]),
        addrs(&map.cluster_addrs[i]),
        map.osd_state[i]
    ));
    if !map.osd_uuid[i].is_zero() {
        t.push_str(&format!(" {}", map.osd_uuid[i]));
    }
    t
}

fn dump_text(map: &OsdMap) -> String {
    let mut t = format!(
        "epoch {}\nfsid {}\ncreated {}\nmodified {}\nflags {}\ncrush_version {}\nfull_ratio {}\nbackfillfull_ratio {}\n\
         nearfull_ratio {}\n",
        map.epoch,
        map.fsid,
        map.created,
        map.modified,
        map.flags,
        map.crush_version,
        general(f64::from(map.full_ratio), 6),
        general(f64::from(map.backfillfull_ratio), 6),
        general(f64::from(map.nearfull_ratio), 6)
    );
    if map.require_min_compat_client > 0 {
        t.push_str(&format!(
            "require_min_compat_client {}\n",
            release_name(map.require_min_compat_client)
        ));
    }
    t.push_str(&format!(
        "min_compat_client {}\n",
        release_name(map.min_compat_client())
    ));
    if map.require_osd_release > 0 {
        t.push_str(&format!(
            "require_osd_release {}\n",
            release_name(map.require_osd_release)
        ));
    }
    t.push_str("stretch_mode_enabled false\n");
    t.push_str(&pools_text(map));
    t.push_str(&format!("max_osd {}\n", map.max_osd));
    for osd in map.osds() {
        t.push_str(&osd_line(map, osd));
        t.push('\n');
    }
    for (pg, osds) in &map.pg_upmap {
        t.push_str(&format!("pg_upmap {pg} {}\n", osds.numbers()));
    }
    for (pg, items) in &map.pg_upmap_items {
        let flat: Positions = items.iter().flat_map(|i| [Some(i.from), i.to]).collect();
        t.push_str(&format!("pg_upmap_items {pg} {flat}\n"));
    }
    for (pg, osds) in &map.pg_temp {
        t.push_str(&format!("pg_temp {pg} {}\n", osds.numbers()));
    }
    for (pg, osd) in &map.primary_temp {
        t.push_str(&format!("primary_temp {pg} {osd}\n"));
    }
    for (addr, until) in &map.blocklist {
        t.push_str(&format!("blocklist {} expires {until}\n", addr_legacy(addr)));
    }
    for (addr, until) in &map.range_blocklist {
        t.push_str(&format!("range blocklist {addr} expires {until}\n"));
    }
    t
}

/// `pool ID 'NAME' …` for each pool, and its snapshots.
pub(super) fn pools_text(map: &OsdMap) -> String {
    let mut t = String::new();
    for (id, pool) in &map.pools {
        let name = map.pool_name(*id).unwrap_or("<unknown>");
        t.push_str(&format!("pool {id} '{name}' {pool}\n"));
        for s in pool.snaps.values() {
            t.push_str(&format!("\tsnap {} '{}' {}\n", s.snapid, s.name, s.stamp));
        }
        if !pool.removed_snaps.is_empty() {
            t.push_str(&format!("\tremoved_snaps {}\n", pool.removed_snaps));
        }
        if let Some(q) = map.removed_snaps_queue.get(id) {
            t.push_str(&format!("\tremoved_snaps_queue {q}\n"));
        }
    }
    t
}

fn dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = map_of(m.view, call)?;
    match call.format.is_structured() {
        true => now(Reply::json(call.format, &dump_json(&map))),
        false => now(Reply::text(dump_text(&map))),
    }
}

/// One OSD of the map.
pub(super) fn osd_json(map: &OsdMap, osd: OsdId) -> Value {
    let i = osd.index();
    let info = &map.osd_info[i];
    let states: Vec<&str> = map.osd_state[i].names().collect();
    json!({
        "osd": osd, "uuid": map.osd_uuid[i].to_string(), "up": u8::from(map.is_up(osd)), "in": u8::from(map.is_in(osd)),
        "weight": number(map.weight_f64(osd)), "primary_affinity": number(f64::from(map.affinity(osd)) / 65536.0),
        "last_clean_begin": info.last_clean_begin, "last_clean_end": info.last_clean_end, "up_from": info.up_from,
        "up_thru": info.up_thru, "down_at": info.down_at, "lost_at": info.lost_at,
        "public_addrs": addrvec(&map.client_addrs[i]), "cluster_addrs": addrvec(&map.cluster_addrs[i]),
        "heartbeat_back_addrs": addrvec(&map.hb_back_addrs[i]),
        "heartbeat_front_addrs": addrvec(&map.hb_front_addrs[i]),
        "public_addr": legacy_addr(&map.client_addrs[i]), "cluster_addr": legacy_addr(&map.cluster_addrs[i]),
        "heartbeat_back_addr": legacy_addr(&map.hb_back_addrs[i]),
        "heartbeat_front_addr": legacy_addr(&map.hb_front_addrs[i]), "state": states,
    })
}

/// A float; whole ones print without a fraction anyway.
pub(super) fn number(v: f64) -> Value {
    json!(v)
}

fn option_json(v: &PoolOption) -> Value {
    match v {
        PoolOption::Text(s) => json!(s),
        PoolOption::Int(i) => json!(i),
        PoolOption::Float(f) => json!(f),
    }
}

/// A pool, after its id and name.
pub(super) fn pool_json(p: &PgPool) -> Map<String, Value> {
    let merge = &p.last_pg_merge_meta;
    let snaps: Vec<Value> = p
        .snaps
        .values()
        .map(|s| json!({"snapid": s.snapid, "stamp": s.stamp.to_string(), "name": s.name}))
        .collect();
    let mode = if p.flags.contains(PoolFlags::POOL_SNAPS) {
        "pool"
    } else {
        "selfmanaged"
    };
    let options: Map<String, Value> = p
        .opts
        .iter()
        .map(|(k, v)| (k.to_owned(), option_json(v)))
        .collect();
    let v = json!({
        "create_time": p.create_time.to_string(), "flags": p.flags.0, "flags_names": p.flags.to_string(),
        "type": p.kind.0, "size": p.size, "min_size": p.min_size, "crush_rule": p.crush_rule,
        "peering_crush_bucket_count": 0, "peering_crush_bucket_target": 0, "peering_crush_bucket_barrier": 0,
        "peering_crush_bucket_mandatory_member": i32::MAX, "object_hash": p.object_hash.0,
        "pg_autoscale_mode": p.autoscale_mode.name(), "pg_num": p.pg_num, "pg_placement_num": p.pgp_num,
        "pg_placement_num_target": p.pgp_num_target, "pg_num_target": p.pg_num_target,
        "pg_num_pending": p.pg_num_pending,
        "last_pg_merge_meta": {
            "source_pgid": merge.source_pgid.to_string(), "ready_epoch": merge.ready_epoch,
            "last_epoch_started": merge.last_epoch_started, "last_epoch_clean": merge.last_epoch_clean,
            "source_version": merge.source_version.to_string(), "target_version": merge.target_version.to_string(),
        },
        "last_change": p.last_change.to_string(), "last_force_op_resend": p.last_force_op_resend.to_string(),
        "last_force_op_resend_prenautilus": p.last_force_op_resend_prenautilus.to_string(),
        "last_force_op_resend_preluminous": p.last_force_op_resend_preluminous.to_string(),
        "auid": p.auid, "snap_mode": mode, "snap_seq": p.snap_seq, "snap_epoch": p.snap_epoch, "pool_snaps": snaps,
        "removed_snaps": p.removed_snaps.to_string(), "quota_max_bytes": p.quota_max_bytes,
        "quota_max_objects": p.quota_max_objects, "tiers": p.tiers, "tier_of": p.tier_of,
        "read_tier": p.read_tier, "write_tier": p.write_tier, "cache_mode": p.cache_mode.name(),
        "target_max_bytes": p.target_max_bytes, "target_max_objects": p.target_max_objects,
        "cache_target_dirty_ratio_micro": p.cache_target_dirty_ratio_micro,
        "cache_target_dirty_high_ratio_micro": p.cache_target_dirty_high_ratio_micro,
        "cache_target_full_ratio_micro": p.cache_target_full_ratio_micro,
        "cache_min_flush_age": p.cache_min_flush_age, "cache_min_evict_age": p.cache_min_evict_age,
        "erasure_code_profile": p.erasure_code_profile, "hit_set_params": {"type": "none"},
        "hit_set_period": p.hit_set_period, "hit_set_count": p.hit_set_count, "use_gmt_hitset": p.use_gmt_hitset,
        "min_read_recency_for_promote": p.min_read_recency_for_promote,
        "min_write_recency_for_promote": p.min_write_recency_for_promote,
        "hit_set_grade_decay_rate": p.hit_set_grade_decay_rate, "hit_set_search_last_n": p.hit_set_search_last_n,
        "grade_table": [], "stripe_width": p.stripe_width, "expected_num_objects": p.expected_num_objects,
        "fast_read": p.fast_read, "options": options, "application_metadata": p.application_metadata,
    });
    match v {
        Value::Object(o) => o,
        _ => Map::new(),
    }
}

fn snaps_json(map: &std::collections::BTreeMap<PoolId, IntervalSet>) -> Value {
    map.iter()
        .map(|(pool, s)| json!({"pool": pool, "snaps": s.to_string()}))
        .collect()
}

/// The map as JSON.
pub(super) fn dump_json(map: &OsdMap) -> Value {
    let mut flags: Vec<&str> = map.flags.names().collect();
    flags.sort_unstable();
    let pools: Vec<Value> = map
        .pools
        .iter()
        .map(|(id, p)| {
            let mut v = Map::from_iter([
                ("pool".to_owned(), json!(id)),
                (
                    "pool_name".to_owned(),
                    json!(map.pool_name(*id).unwrap_or("<unknown>")),
                ),
            ]);
            v.extend(pool_json(p));
            Value::Object(v)
        })
        .collect();
    let xinfo: Vec<Value> = map
        .osds()
        .map(|o| {
            let x = &map.osd_xinfo[o.index()];
            json!({
                "osd": o, "down_stamp": x.down_stamp.to_string(), "laggy_probability": x.laggy_probability(),
                "laggy_interval": x.laggy_interval, "features": x.features, "old_weight": x.old_weight,
                "last_purged_snaps_scrub": x.last_purged_snaps_scrub.to_string(), "dead_epoch": x.dead_epoch,
            })
        })
        .collect();
    let blocklist: Map<String, Value> = map
        .blocklist
        .iter()
        .map(|(a, t)| (addr_legacy(a), json!(t.to_string())))
        .collect();
    let range_blocklist: Map<String, Value> = map
        .range_blocklist
        .iter()
        .map(|(a, t)| (a.to_string(), json!(t.to_string())))
        .collect();
    let upmap_items = map.pg_upmap_items.iter().map(|(pg, items)| {
        let m: Vec<Value> = items
            .iter()
            .map(|i| json!({"from": i.from, "to": osd_or_hole::number(i.to)}))
            .collect();
        json!({"pgid": pg.to_string(), "mappings": m})
    });
    json!({
        "epoch": map.epoch, "fsid": map.fsid.to_string(), "created": map.created.to_string(),
        "modified": map.modified.to_string(), "last_up_change": map.last_up_change.to_string(),
        "last_in_change": map.last_in_change.to_string(), "flags": map.flags.to_string(), "flags_num": map.flags.0,
        "flags_set": flags, "crush_version": map.crush_version, "full_ratio": f64::from(map.full_ratio),
        "backfillfull_ratio": f64::from(map.backfillfull_ratio), "nearfull_ratio": f64::from(map.nearfull_ratio),
        "cluster_snapshot": map.cluster_snapshot, "pool_max": map.pool_max, "max_osd": map.max_osd,
        "require_min_compat_client": release_name(map.require_min_compat_client),
        "min_compat_client": release_name(map.min_compat_client()),
        "require_osd_release": release_name(map.require_osd_release), "pools": pools,
        "osds": map.osds().map(|o| osd_json(map, o)).collect::<Vec<_>>(), "osd_xinfo": xinfo,
        "pg_upmap": map.pg_upmap.iter().map(|(pg, o)| json!({"pgid": pg.to_string(), "osds": o})).collect::<Vec<_>>(),
        "pg_upmap_items": upmap_items.collect::<Vec<_>>(),
        "pg_temp": map.pg_temp.iter().map(|(pg, o)| json!({"pgid": pg.to_string(), "osds": o})).collect::<Vec<_>>(),
        "primary_temp": map.primary_temp.iter().map(|(pg, o)| json!({"pgid": pg.to_string(), "osd": o})).collect::<Vec<_>>(),
        "blocklist": blocklist, "range_blocklist": range_blocklist, "erasure_code_profiles": map.erasure_code_profiles,
        "removed_snaps_queue": snaps_json(&map.removed_snaps_queue),
        "new_removed_snaps": snaps_json(&map.new_removed_snaps),
        "new_purged_snaps": snaps_json(&map.new_purged_snaps),
        "crush_node_flags": node_flags(map), "device_class_flags": class_flags(map),
        "stretch_mode": {"stretch_mode_enabled": false, "stretch_bucket_count": 0, "degraded_stretch_mode": 0,
                         "recovering_stretch_mode": 0, "stretch_mode_bucket": 0},
    })
}

fn names_of(s: &OsdState) -> Vec<&'static str> {
    s.names().collect()
}

fn node_flags(map: &OsdMap) -> Map<String, Value> {
    let name = |id: &i32| {
        map.crush
            .map()
            .name(*id)
            .map_or_else(|| format!("osd.{id}"), str::to_owned)
    };
    map.crush_node_flags
        .iter()
        .map(|(id, f)| (name(id), json!(names_of(f))))
        .collect()
}

fn class_flags(map: &OsdMap) -> Map<String, Value> {
    let crush = map.crush.map();
    let name = |id: &i32| crush.class_names.get(id).cloned().unwrap_or_default();
    map.device_class_flags
        .iter()
        .map(|(id, f)| (name(id), json!(names_of(f))))
        .collect()
}

fn info(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = m.view.state.osd.map.clone();
    let one = call.args.opt_osd("id")?;
    if let Some(id) = one.filter(|id| !map.exists(*id)) {
        return refuse(errno::EINVAL, format!("osd.{id} does not exist"));
    }
    let ids: Vec<OsdId> = map.osds().filter(|o| one.is_none_or(|id| id == *o)).collect();
    if call.format.is_structured() {
        let list: Vec<Value> = ids.iter().map(|o| osd_json(&map, *o)).collect();
        let v = if one.is_some() {
            list.into_iter().next().unwrap_or_default()
        } else {
            json!(list)
        };
        return now(Reply::json(call.format, &v));
    }
    now(Reply::text(
        ids.iter().map(|o| osd_line(&map, *o) + "\n").collect::<String>(),
    ))
}
