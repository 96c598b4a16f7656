//! The namespaces of a pool.

use bytes::Bytes;
use spirula_client::{IoCtx, errno};

use crate::bounds::Room;
use crate::cls::ask;
use crate::error::unless;
use crate::header::text;
use crate::{Result, names};

/// Names asked for at a time.
const BATCH: u64 = 1024;

/// The names of a pool's namespaces, in order.
///
/// # Errors
/// Where they can't be read. `E2BIG` where there are too many.
pub async fn namespaces(io: &IoCtx) -> Result<Vec<String>> {
    let io = io.clone().with_namespace("");
    let (mut found, mut room) = (Vec::new(), Room::new());
    let mut after = Bytes::new();
    loop {
        let listed = ask(&io, names::NAMESPACES, "namespace_list", &(after.clone(), BATCH)).await;
        let Some(batch) = unless::<Vec<Bytes>>(listed, errno::ENOENT)? else {
            return Ok(found);
        };
        let is_last = (batch.len() as u64) < BATCH;
        if let Some(last) = batch.last() {
            after = last.clone();
        }
        for namespace in &batch {
            room.take(namespace.len())?;
            found.push(text(namespace));
        }
        if is_last {
            return Ok(found);
        }
    }
}
