//! Objects' infos, snap sets and hash infos as trees (`dump` of the structures in
//! `src/osd/{osd_types,ECUtil}.cc` and `src/common/hobject.cc`).

use serde_json::{Map, Value, json};
use spirula_maps::{HObject, Interval, IntervalSet, SnapId};
use spirula_proto::osd_op_data::attr::{
    ChunkInfo, HashInfo, Manifest, ObjectInfo, ObjectInfoFlags, SnapSet, WatchInfo, WatchKey,
};
use spirula_text::addr_value;

use super::format::text;

/// A digest as 32 bits in hexadecimal.
pub(super) fn digest(digest: u32) -> String {
    format!("0x{digest:08x}")
}

/// An object's name and place.
pub(crate) fn object(o: &HObject) -> Value {
    json!({
        "oid": text(o.oid.as_bytes()),
        "key": text(o.key.as_bytes()),
        "snapid": o.snap.cast_signed(),
        "hash": o.hash,
        "max": u8::from(o.max),
        "pool": o.pool,
        "namespace": text(o.nspace.as_bytes()),
    })
}

fn manifest(m: &Manifest) -> Value {
    let kind = m.kind();
    match m {
        Manifest::None => json!({"type": kind}),
        Manifest::Redirect(target) => json!({"type": kind, "redirect_target": object(target)}),
        Manifest::Chunked(chunks) => {
            let chunk = |(offset, c): (&u64, &ChunkInfo)| json!({"offset": offset, "length": c.length, "oid": object(&c.oid), "flags": c.flags});
            let chunks: Vec<Value> = chunks.iter().map(chunk).collect();
            json!({"type": kind, "chunk_map": chunks})
        }
    }
}

/// An object's info. Of a client with several watches one is shown: they have the same name.
pub(super) fn object_info(info: &ObjectInfo) -> Value {
    let watch = |((_, name), w): (&WatchKey, &WatchInfo)| {
        let watch = json!({
            "cookie": w.cookie,
            "timeout_seconds": w.timeout_seconds,
            "addr": addr_value(&w.addr),
        });
        (name.to_string(), watch)
    };
    let watchers: Map<String, Value> = info.watchers.iter().map(watch).collect();
    let flags: Vec<&str> = info.flags.names().collect();
    json!({
        "oid": object(&info.soid),
        "version": info.version.to_string(),
        "prior_version": info.prior_version.to_string(),
        "last_reqid": info.last_reqid.to_string(),
        "user_version": info.user_version,
        "size": info.size,
        "mtime": info.mtime.to_string(),
        "local_mtime": info.local_mtime.to_string(),
        "lost": u8::from(info.flags.contains(ObjectInfoFlags::LOST)),
        "flags": flags,
        "truncate_seq": info.truncate_seq,
        "truncate_size": info.truncate_size,
        "data_digest": digest(info.data_digest),
        "omap_digest": digest(info.omap_digest),
        "expected_object_size": info.expected_object_size,
        "expected_write_size": info.expected_write_size,
        "alloc_hint_flags": info.alloc_hint_flags.0,
        "manifest": manifest(&info.manifest),
        "watchers": watchers,
    })
}

/// Ranges of bytes, in decimal.
fn ranges(set: &IntervalSet) -> String {
    let range = |Interval { start, len }| format!("{start}~{len}");
    let ranges: Vec<String> = set.ranges().map(range).collect();
    format!("[{}]", ranges.join(","))
}

/// Stands for what a damaged snap set does not tell of a clone.
const UNKNOWN: &str = "????";

/// A snap set.
pub(super) fn snap_set(set: &SnapSet) -> Value {
    let clone = |id: &SnapId| {
        let size = set.clone_size.get(id);
        let overlap = set.clone_overlap.get(id).map(ranges);
        let mut clone = json!({
            "snap": id,
            "size": size.map_or_else(|| json!(UNKNOWN), |size| json!(size)),
            "overlap": overlap.unwrap_or_else(|| UNKNOWN.to_owned()),
        });
        if let Some(snaps) = set.clone_snaps.get(id) {
            clone["snaps"] = json!(snaps);
        }
        clone
    };
    let clones: Vec<Value> = set.clones.iter().map(clone).collect();
    json!({"seq": set.seq, "clones": clones})
}

/// A hash info.
pub(super) fn hash_info(info: &HashInfo) -> Value {
    let hash = |(shard, hash): (usize, &u32)| json!({"shard": shard, "hash": hash});
    let hashes: Vec<Value> = info
        .cumulative_shard_hashes
        .iter()
        .enumerate()
        .map(hash)
        .collect();
    json!({"total_chunk_size": info.total_chunk_size, "cumulative_shard_hashes": hashes})
}
