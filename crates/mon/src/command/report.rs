//! `ceph report`: everything the monitor knows, for support from outside.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spirula_maps::{Epoch, OsdId, PgState, PoolId};
use spirula_text::Names;

use super::{Call, Done, Reply, commands, misc, now, services};
use super::{crush_dump, health_cmd, osd_dump, pg_dump, status};
use crate::core::{Turn, View};
use crate::health::state_text;
use crate::version;

commands! {
    "report tags?:String..." "mon" "r" report, "report the cluster's whole state";
}

/// The seed of the checksum in the status line: the official monitor's old port.
const CRC_SEED: u32 = 6789;

/// Ceph's CRC-32C neither begins nor ends with an inversion.
fn checksum(data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!CRC_SEED, data)
}

fn clean_epochs(m: &View) -> Value {
    let mut floors: BTreeMap<PoolId, Epoch> = BTreeMap::new();
    for (pg, s) in &m.state.stats.pgs {
        let floor = floors.entry(pg.pool).or_insert(Epoch::MAX);
        *floor = (*floor).min(s.effective_last_epoch_clean());
    }
    let pools: Vec<Value> = floors
        .iter()
        .map(|(p, f)| json!({"poolid": p, "floor": f}))
        .collect();
    let up = m.state.osd.map.osds().filter(|o| m.state.osd.map.is_up(*o));
    let osds: Vec<(OsdId, Epoch)> = up
        .filter_map(|o| Some((o, m.state.osd.lives.get(o)?.min_last_epoch_clean)))
        .collect();
    let least = osds.iter().map(|(_, e)| *e).min().unwrap_or_default();
    let list: Vec<Value> = osds.iter().map(|(o, e)| json!({"id": o, "epoch": e})).collect();
    json!({"min_last_epoch_clean": least, "last_epoch_clean": {"per_pool": pools}, "osd_epochs": list})
}

fn pgs_by_osd(m: &View) -> Value {
    #[derive(Default)]
    struct Pgs {
        primary: usize,
        acting: usize,
        up_not_acting: usize,
    }
    let mut counts: BTreeMap<OsdId, Pgs> = BTreeMap::new();
    for s in m.state.stats.pgs.values() {
        if let Some(primary) = s.acting_primary.0 {
            counts.entry(primary).or_default().primary += 1;
        }
        for osd in s.acting.osds().filter(|o| m.state.osd.map.exists(*o)) {
            counts.entry(osd).or_default().acting += 1;
        }
        for osd in s.up.osds().filter(|o| !s.acting.contains(*o)) {
            counts.entry(osd).or_default().up_not_acting += 1;
        }
    }
    let one = |(osd, n): (OsdId, Pgs)| {
        json!({
            "osd": osd, "num_primary_pg": n.primary, "num_acting_pg": n.acting,
            "num_up_not_acting_pg": n.up_not_acting,
        })
    };
    counts.into_iter().map(one).collect()
}

fn osd_metadata(m: &View) -> Value {
    let one = |osd: OsdId| {
        let mut v = Map::from_iter([("id".to_owned(), json!(osd))]);
        v.extend(misc::osd_metadata(m, osd).into_iter().map(|(k, x)| (k, json!(x))));
        Value::Object(v)
    };
    m.state.osd.map.osds().map(one).collect()
}

/// The maps.
fn maps(m: &View) -> Value {
    let map = &m.state.osd.map;
    let monmap = &m.state.monmap.map;
    let (first_fsmap, last_fsmap) = m.state.fs.epochs().into_inner();
    json!({
        "monmap_first_committed": 1, "monmap_last_committed": monmap.epoch, "monmap": status::monmap_json(monmap),
        "quorum": status::quorum(m), "osdmap": osd_dump::dump_json(map), "osd_metadata": osd_metadata(m),
        "osdmap_clean_epochs": clean_epochs(m), "osdmap_first_committed": m.state.osd.first,
        "osdmap_last_committed": map.epoch, "crushmap": crush_dump::map_json(map.crush.map()),
        "fsmap": m.state.fs.dump_json(), "mdsmap_first_committed": first_fsmap,
        "mdsmap_last_committed": last_fsmap,
        "auth": {"num_secrets": m.state.auth.entities().len()},
    })
}

/// The statistics.
fn statistics(m: &View) -> Value {
    let pgs = &m.state.stats.pgs;
    let count = |wanted: fn(PgState) -> bool| pgs.values().filter(|s| wanted(s.state)).count();
    let states = m.state.stats.states();
    let states = states
        .iter()
        .map(|(s, n)| json!({"state": state_text(*s), "num": n}));
    let osds = m.state.stats.osds.iter();
    json!({
        "num_pg": pgs.len(), "num_pg_active": count(|s| s.contains(PgState::ACTIVE)),
        "num_pg_unknown": count(|s| s == PgState::empty()), "num_osd": m.state.stats.osds.len(),
        "pool_sum": pg_dump::totals_json(&m.state.stats.total()), "osd_sum": pg_dump::osd_sum_json(m),
        "pool_stats": pg_dump::pools_json(m),
        "osd_stats": osds.map(|(o, s)| json!({"osd": o, "seq": s.seq})).collect::<Vec<_>>(),
        "num_pg_by_state": states.collect::<Vec<_>>(), "num_pg_by_osd": pgs_by_osd(m),
        "servicemap": services::map_json(m),
    })
}

fn report(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let head = json!({
        "cluster_fingerprint": m.view.me.fsid.to_string(), "version": version::SHORT,
        "commit": concat!("spirula ", env!("CARGO_PKG_VERSION")), "timestamp": m.view.now.to_string(),
        "tag": call.args.list("tags").join(" "), "health": health_cmd::health_json(m.view, true),
    });
    let mut all = Map::new();
    for part in [head, maps(m.view), statistics(m.view)] {
        if let Value::Object(o) = part {
            all.extend(o);
        }
    }
    // Rendered here because the status line says the checksum.
    let names = Names {
        root: "report",
        item: "",
    };
    let reply = Reply::json(call.format.or_pretty(), &Value::Object(all)).named(names);
    let status = format!("report {}", checksum(&reply.data));
    now(reply.with_status(status))
}

#[cfg(test)]
mod tests {
    /// `ceph_crc32c(6789, "foo bar baz", 11)`, computed bit by bit.
    #[test]
    fn the_checksum_is_cephs() {
        let slow = b"foo bar baz".iter().fold(6789u32, |mut crc, byte| {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            }
            crc
        });
        assert_eq!(super::checksum(b"foo bar baz"), slow);
    }
}
