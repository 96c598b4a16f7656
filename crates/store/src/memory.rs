//! The memory of a store, as far as it is counted.

use std::ops::Add;

use crate::store::Store;

/// The number and memory of some items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// The number of items.
    pub items: usize,
    /// Their memory in bytes, roughly.
    pub bytes: usize,
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            items: self.items + other.items,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// The memory of a store besides buffers of its pool, and besides the index's pages, which are not
/// counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Changes that the index has not taken in.
    pub changes: Usage,
    /// Memory of written-back blocks, kept for later blocks.
    pub arena: Usage,
    /// Transactions that are not in the log.
    pub log: Usage,
    /// Onodes that were looked up, and those that the index took in last.
    pub onodes: Usage,
    /// The filter that tells which objects do not exist.
    pub presence: Usage,
}

impl Store {
    /// The store's memory. Reads every object that was changed lately, so it is not for every
    /// request.
    pub fn memory(&self) -> Memory {
        let state = &self.state;
        let tables = state.tables.iter();
        let (cached, retired) = (state.cache.usage(), state.retired_usage());
        Memory {
            changes: Usage {
                items: tables.clone().map(|t| t.entries() + t.dirty.len()).sum(),
                bytes: tables.map(|t| t.memory()).sum(),
            },
            arena: state.arena_usage(),
            log: self.log.usage(),
            onodes: Usage {
                items: cached.items + retired.items,
                bytes: cached.bytes + retired.bytes,
            },
            presence: Usage {
                items: 1,
                bytes: state.cfg.presence_bytes,
            },
        }
    }
}
