//! Loading the PGs from the store, at start-up.

use std::sync::Arc;

use spirula_denc::decode_all;
use spirula_maps::OsdId;

use super::OsdError;
use super::maps::Maps;
use super::store_io::StoreIo;
use crate::core::{Core, Shard};
use crate::pg::coded::redo::Redo;
use crate::pg::config::PgConfig;
use crate::pg::dups::DupBatch;
use crate::pg::info::PgInfo;
use crate::pg::key;
use crate::pg::layout::Layout;
use crate::pg::log::LogEntry;
use crate::pg::staged::Staged;

/// A core with the PGs that the store remembers.
pub(super) fn core(id: OsdId, cfg: Arc<PgConfig>, maps: &Maps, io: &mut StoreIo) -> Result<Core, OsdError> {
    let mut core = Core::new(id, Shard::WHOLE, cfg, maps.view().clone());
    for (k, v) in io.load_records(&key::all_infos())? {
        let Some(pgid) = key::parse_info_key(&k) else {
            continue;
        };
        let damaged = |source| OsdError::Damaged {
            what: format!("PG {pgid}"),
            source,
        };
        let info: PgInfo = decode_all(&v).map_err(damaged)?;
        let records = io.load_records(&key::log_range(pgid))?;
        let entries: Result<Vec<LogEntry>, _> = records.iter().map(|(_, v)| decode_all(v)).collect();
        let entries = entries.map_err(damaged)?;
        let records = io.load_records(&key::redo_range(pgid))?;
        let redo = Redo::load(&records, &entries).map_err(damaged)?;
        let staged = match info.part.layout {
            Layout::Whole => Staged::default(),
            Layout::Coded(_) => {
                let range = key::coded_stage_range(pgid, info.pg_num);
                Staged::load(io.load_objects(&range)?)
            }
        };
        core.load(pgid, info, entries);
        let records = io.load_records(&key::dups_range(pgid))?;
        let batches: Result<Vec<DupBatch>, _> = records.iter().map(|(_, v)| decode_all(v)).collect();
        core.load_beside(pgid, batches.map_err(damaged)?, redo, staged);
    }
    Ok(core)
}
