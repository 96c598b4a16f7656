//! `ceph tell osd.N compact`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spirula_asok::Failure;

use super::shell::Shared;

/// Moves the contents of the store's log into the index, and removes the garbage from the index,
/// which uses its free pages again and is not written anew. Reports how long that took, as official
/// OSDs do, and how much was written.
pub(super) async fn run(shell: &Shared) -> Result<Value, Failure> {
    let started = Instant::now();
    let (mark, before) = shell.with(|o| (o.io.store.compact(), o.io.store.stats()));
    // A store that fails ends the daemon, and this with it.
    while !shell.with(|o| o.io.store.is_compact(mark)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let after = shell.with(|o| o.io.store.stats());
    Ok(json!({
        "elapsed_time": started.elapsed().as_secs_f64(),
        "writeback_bytes": after.writeback_bytes - before.writeback_bytes,
        "index_bytes": after.index_bytes - before.index_bytes,
    }))
}
