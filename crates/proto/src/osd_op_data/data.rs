//! Size and time.

use spirula_denc::UTime;

use crate::macros::packed;

packed! {
    /// Output of `STAT`.
    pub struct StatResult {
        /// The object's size in bytes.
        pub size: u64,
        /// When it changed, by the writer's clock.
        pub mtime: UTime,
    }
}
