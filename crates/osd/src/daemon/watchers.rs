//! The commands of `ceph daemon osd.N …` that show watches and blocklisted clients.

use serde_json::{Value, json};
use spirula_maps::OsdMap;
use spirula_text::addr_value;

use crate::core::Core;

/// The watches of the PGs that this OSD leads.
pub(super) fn dump(core: &Core) -> Value {
    let all = core.pgs().flat_map(|pg| pg.seen().watches());
    all.map(|(object, (cookie, name), w)| {
        json!({
            "namespace": object.nspace.to_string(),
            "object": object.oid.to_string(),
            "entity_name": {"type": name.kind.name(), "num": name.num},
            "cookie": cookie,
            "timeout": w.timeout,
            "entity_addr_t": addr_value(&w.addr),
        })
    })
    .collect()
}

/// The clients, hosts and networks on the blocklist. The official OSD writes two lists, one behind
/// the other, which no reader of JSON accepts.
pub(super) fn blocklist(map: &OsdMap) -> Value {
    let all = map.blocklist.iter().chain(&map.range_blocklist);
    all.map(|(a, until)| json!({"entity_addr_t": addr_value(a), "expire_time": until.to_string()}))
        .collect()
}
