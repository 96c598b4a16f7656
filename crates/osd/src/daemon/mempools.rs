//! `ceph daemon osd.N dump_mempools`: what the OSD counts of its memory, under the names of
//! official OSDs.

use serde_json::{Map, Value, json};
use spirula_host::Resident;
use spirula_store::Usage;

use super::state::Osd;

/// The pools of official OSDs (`mempool.h` of 16.2), in their order.
const POOLS: [&str; 29] = [
    "bloom_filter",
    "bluestore_alloc",
    "bluestore_cache_data",
    "bluestore_cache_onode",
    "bluestore_cache_meta",
    "bluestore_cache_other",
    "bluestore_Buffer",
    "bluestore_Extent",
    "bluestore_Blob",
    "bluestore_SharedBlob",
    "bluestore_inline_bl",
    "bluestore_fsck",
    "bluestore_txc",
    "bluestore_writing_deferred",
    "bluestore_writing",
    "bluefs",
    "bluefs_file_reader",
    "bluefs_file_writer",
    "buffer_anon",
    "buffer_meta",
    "osd",
    "osd_mapbl",
    "osd_pglog",
    "osdmap",
    "osdmap_mapping",
    "pgmap",
    "mds_co",
    "unittest_1",
    "unittest_2",
];

/// The counted memory, by pool and together, and the rest of what the process has in memory: its
/// program, stacks, the index's pages and other things that are not counted, and what the allocator
/// keeps; and the bytes that payloads are lent less because that is so much.
pub(super) fn dump(o: &Osd) -> Value {
    let buffers = o.io.reads.pool.budget().usage();
    let (store, pgs) = (o.io.store.memory(), o.core.memory());
    let usage = |items, bytes| Usage { items, bytes };
    let requests = o.clients.requests();
    let counted = [
        ("bloom_filter", store.presence),
        ("bluestore_cache_onode", store.onodes),
        ("bluestore_txc", store.log),
        ("bluestore_writing_deferred", store.changes),
        ("bluestore_writing", store.arena),
        ("buffer_anon", usage(1, buffers.in_use + buffers.kept)),
        ("buffer_meta", usage(requests, o.io.reads.totals.held())),
        ("osd", pgs.contexts),
        ("osd_mapbl", o.maps.encoded()),
        ("osd_pglog", pgs.log),
    ];
    let show = |u: Usage| json!({"items": u.items, "bytes": u.bytes});
    let by_pool: Map<String, Value> = POOLS
        .iter()
        .map(|name| {
            let found = counted.iter().find(|(n, _)| n == name);
            (
                (*name).to_owned(),
                show(found.map_or_else(Usage::default, |(_, u)| *u)),
            )
        })
        .collect();
    let total = counted.iter().fold(Usage::default(), |sum, (_, u)| sum + *u);
    let mut all = json!({"mempool": {"by_pool": by_pool, "total": show(total)}});
    if let Some(Resident { bytes, of_files }) = o.setup.host.resident() {
        let heap = bytes.saturating_sub(of_files);
        all["process"] = json!({
            "resident_bytes": bytes,
            "file_bytes": of_files,
            "uncounted_bytes": heap.saturating_sub(total.bytes),
            "osd_memory_target": o.setup.cfg.memory_target,
            "payload_withheld_bytes": buffers.withheld,
        });
    }
    all
}
