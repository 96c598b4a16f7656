//! Mappings that were computed before.

use std::collections::HashMap;

use spirula_crush::Workspace;

use super::{OsdMap, PgMapping};
use crate::types::PgId;

/// Remembers where PGs are for as long as the map's epoch stays. For those who map an object per request.
#[derive(Debug, Default)]
pub struct MappingCache {
    epoch: u32,
    by_pool: HashMap<u64, Vec<Option<Box<PgMapping>>>>,
    nowhere: PgMapping,
    workspace: Workspace,
}

impl MappingCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self {
            nowhere: PgMapping::nowhere(),
            ..Self::default()
        }
    }

    /// Where a PG (not a raw one) of `map` is. All callers must pass maps of one cluster.
    pub fn get(&mut self, map: &OsdMap, pg: PgId) -> &PgMapping {
        if self.epoch != map.epoch {
            self.by_pool.clear();
            self.epoch = map.epoch;
        }
        let Some(pool) = map.pool_of(pg).filter(|pool| pg.seed < pool.pg_num) else {
            return &self.nowhere;
        };
        let mappings = self.by_pool.entry(pg.pool).or_default();
        let at = pg.seed as usize;
        if mappings.len() <= at {
            // Grows with what is asked for: a hostile map's pg_num alone allocates nothing.
            mappings.resize(
                at.saturating_add(1).next_power_of_two().min(pool.pg_num as usize),
                None,
            );
        }
        let ws = &mut self.workspace;
        mappings[at].get_or_insert_with(|| Box::new(map.map_pg_with(ws, pg)))
    }
}
