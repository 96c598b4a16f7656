//! The blocklist: single clients, whole hosts and networks.

use std::time::Duration;

use serde_json::{Value, json};
use spirula_denc::{AddrType, EntityAddr, UTime};
use spirula_maps::OsdId;
use spirula_text::{addr_legacy, general};

use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd blocklist range?:String[range] blocklistop:{add|rm} addr:EntityAddr expire?:Float(0.0)" "osd" "rw" change,
        "shut a client out, or let it in again";
    "osd blocklist ls" "osd" "r" ls, "list the clients that are shut out";
    "osd blocklist clear" "osd" "rw" clear, "let all clients in again";
    "osd blacklist blacklistop:{add|rm} addr:EntityAddr expire?:Float(0.0)" "osd" "rw" change,
        "shut a client out, or let it in again";
    "osd blacklist ls" "osd" "r" ls, "list the clients that are shut out";
    "osd blacklist clear" "osd" "rw" clear, "let all clients in again";
}

/// Seconds for which a client is on the blocklist, unless the command sets them
/// (`mon_osd_blocklist_default_expire`).
const DEFAULT_EXPIRE: f64 = 3600.0;

/// An entry as commands print it.
pub(super) fn entry(a: &EntityAddr) -> String {
    if a.kind == AddrType::CIDR {
        a.to_string()
    } else {
        addr_legacy(a)
    }
}

/// `1.2.3.4:0/0`, `v2:…`, without a nonce, or with `range` a network: the number of its bits stands
/// in the nonce's place.
fn parse(call: &Call<'_>) -> Result<EntityAddr, Reply> {
    let text = call.args.str("addr")?;
    let Ok(addr) = text.parse::<EntityAddr>() else {
        return refuse(errno::EINVAL, format!("unable to parse address {text}"));
    };
    match call.args.opt_str("range").as_deref() {
        None => return Ok(addr.with_kind(AddrType::ANY)),
        Some("range") => {}
        Some(_) => {
            return refuse(errno::EINVAL, "Did you mean to specify \"osd blocklist range\"?");
        }
    }
    let (port, bits) = addr
        .socket
        .map_or((0, 0), |s| (s.port(), if s.is_ipv4() { 32 } else { 128 }));
    if port != 0 || addr.nonce == 0 {
        let what = format!(
            "You specified a range command, but {} does not parse as a CIDR range",
            addr_legacy(&addr)
        );
        return refuse(errno::EINVAL, what);
    }
    if addr.nonce > bits {
        return refuse(errno::EINVAL, "Too many bits in range for that protocol!");
    }
    Ok(addr.with_kind(AddrType::CIDR))
}

/// Whether an address is that of a daemon of the maps, or of the manager's client. A daemon is
/// known by its port; a client has none, and is known by its nonce.
fn is_daemon(m: &View, addr: &EntityAddr) -> bool {
    let (map, manager) = (&m.state.osd.map, &m.state.manager.map);
    let osds = map.osds().filter(|o| map.is_up(*o)).map(OsdId::index);
    let osds = osds.flat_map(|i| {
        let of = [
            &map.client_addrs,
            &map.cluster_addrs,
            &map.hb_back_addrs,
            &map.hb_front_addrs,
        ];
        of.into_iter().filter_map(move |addrs| addrs.get(i))
    });
    let mut all = osds
        .chain(m.state.monmap.map.mons.values().map(|mon| &mon.public_addrs))
        .chain([&manager.active_addrs])
        .chain(&manager.client_addrs)
        .flat_map(|addrs| &addrs.0);
    all.any(|a| {
        a.socket == addr.socket && (a.nonce == addr.nonce || addr.socket.is_some_and(|s| s.port() != 0))
    })
}

fn change(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let addr = parse(call)?;
    let op = match call.args.opt_str("blocklistop") {
        Some(op) => op,
        None => call.args.str("blacklistop")?,
    };
    // A client with the right to this command alone breaks the locks of clients with it.
    if !m.view.may(call.session, "osd", "w") && is_daemon(m.view, &addr) {
        return refuse(errno::EPERM, format!("{} is a daemon's address", entry(&addr)));
    }
    if op == "rm" {
        remove(m, addr)
    } else {
        add(m, call, addr)
    }
}

fn add(m: &mut Turn<'_>, call: &Call<'_>, addr: EntityAddr) -> Done {
    let seconds = call
        .args
        .opt_float("expire")?
        .unwrap_or(DEFAULT_EXPIRE)
        .clamp(0.0, 1e9);
    let until = m.view.now.plus(Duration::from_secs_f64(seconds));
    let inc = m.pending_osd();
    let (new, old) = if addr.kind == AddrType::CIDR {
        (&mut inc.new_range_blocklist, &mut inc.old_range_blocklist)
    } else {
        (&mut inc.new_blocklist, &mut inc.old_blocklist)
    };
    // An entry that is there keeps its time, by the rules of the map.
    new.insert(addr, until);
    old.retain(|a| *a != addr);
    committed(format!(
        "blocklisting {} until {until} ({} sec)",
        entry(&addr),
        general(seconds, 6)
    ))
}

fn remove(m: &mut Turn<'_>, addr: EntityAddr) -> Done {
    let range = addr.kind == AddrType::CIDR;
    let map = &m.view.state.osd.map;
    let known = if range {
        map.range_blocklist.contains_key(&addr)
    } else {
        map.blocklist.contains_key(&addr)
    };
    let inc = m.pending_osd();
    let (new, old) = if range {
        (&mut inc.new_range_blocklist, &mut inc.old_range_blocklist)
    } else {
        (&mut inc.new_blocklist, &mut inc.old_blocklist)
    };
    let pending = new.remove(&addr).is_some();
    if known {
        old.push(addr);
    }
    if !known && !pending {
        return now(Reply::status(format!("{} isn't blocklisted", entry(&addr))));
    }
    committed(format!("un-blocklisting {}", entry(&addr)))
}

fn clear(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    let all: Vec<EntityAddr> = m.view.state.osd.map.blocklist.keys().copied().collect();
    let ranges: Vec<EntityAddr> = m.view.state.osd.map.range_blocklist.keys().copied().collect();
    let inc = m.pending_osd();
    inc.new_blocklist.clear();
    inc.new_range_blocklist.clear();
    inc.old_blocklist = all;
    inc.old_range_blocklist = ranges;
    committed(" removed all blocklist entries")
}

/// The official monitor writes a second list for networks after the first, which no reader of JSON
/// accepts: here both are one list.
fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = &m.view.state.osd.map;
    let all: Vec<(&EntityAddr, &UTime)> = map.blocklist.iter().chain(&map.range_blocklist).collect();
    let status = format!("listed {} entries", all.len());
    if call.format.is_structured() {
        let v: Vec<Value> = all
            .iter()
            .map(|(a, t)| {
                let what = if a.kind == AddrType::CIDR { "range" } else { "addr" };
                json!({what: addr_legacy(a), "until": t.to_string()})
            })
            .collect();
        return now(Reply::json(call.format, &json!(v)).with_status(status));
    }
    let lines = all.iter().map(|(a, t)| format!("{} {t}\n", entry(a)));
    now(Reply::text(lines.collect::<String>()).with_status(status))
}
