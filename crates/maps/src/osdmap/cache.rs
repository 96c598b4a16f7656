//! Mappings that were computed before.

use std::collections::HashMap;

use spirula_crush::Workspace;

use super::{OsdMap, PgMapping};
use crate::types::{Epoch, PgId};

/// Caches the mappings of PGs for as long as the map's epoch stays, for code that maps an object
/// per request.
#[derive(Debug, Default)]
pub struct MappingCache {
    epoch: Epoch,
    // Grows with the PGs that are asked for: a map that claims billions of PGs alone costs nothing.
    mappings: HashMap<PgId, PgMapping>,
    workspace: Workspace,
}

impl MappingCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where a PG (not a raw one) of `map` is. All callers must pass maps of one cluster.
    pub fn get(&mut self, map: &OsdMap, pg: PgId) -> &PgMapping {
        if self.epoch != map.epoch {
            self.mappings.clear();
            self.epoch = map.epoch;
        }
        let ws = &mut self.workspace;
        self.mappings.entry(pg).or_insert_with(|| map.map_pg_with(ws, pg))
    }
}
