//! The hashes of an erasure-coded object's shards (`ECUtil::HashInfo` in `src/osd/ECUtil.h`).

use spirula_denc::versioned;

versioned! {
    /// Every shard has the hashes of all shards.
    #[derive(Eq)]
    pub struct HashInfo("ECUtil::HashInfo", version 1, compat 1) {
        /// The bytes of each shard.
        pub total_chunk_size: u64;
        /// The CRC-32C of each shard, from -1 on, in the shards' order; none in pools whose objects
        /// may be overwritten.
        pub cumulative_shard_hashes: Vec<u32>;
    }
}
