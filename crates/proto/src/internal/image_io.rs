//! Clients' I/O on block images, counted by OSDs and collected by the leading monitor, which is the
//! manager too. OSDs only count while the monitor polls them.

use super::{plain_parts, protocol};
use crate::macros::packed;
use spirula_maps::PoolId;

protocol! {
    /// Monitor to OSD, repeated as long as the counts are wanted.
    ///
    /// - Version 1: that of release 0.1.0.
    pub enum ImageIoQuery: IMAGE_IO_QUERY, version 1, oldest 1, priority DEFAULT {
        /// Send the counts so far, and go on counting.
        Poll(ImageIoPoll) = 1,
    }
}

protocol! {
    /// OSD to the leading monitor, in answer to that.
    ///
    /// - Version 1: that of release 0.1.0.
    pub enum ImageIoReport: IMAGE_IO_REPORT, version 1, oldest 1, priority DEFAULT {
        /// The counts since the last answer.
        Counts(ImageIoCounts) = 1,
    }
}

packed! {
    /// A question.
    pub struct ImageIoPoll {
        /// Its number, for the answer.
        pub round: u64,
        /// How long to count without another poll, in milliseconds.
        pub hold_ms: u32,
        /// Only images of these pools, which may have data in others; empty for all.
        pub pools: Vec<PoolId>,
    }
}

packed! {
    /// An answer.
    pub struct ImageIoCounts {
        /// The question's number.
        pub round: u64,
        /// By image.
        pub images: Vec<ImageIo>,
    }
}

packed! {
    /// Requests of an image that an OSD has answered.
    pub struct ImageIo {
        /// The image's pool.
        pub pool: PoolId,
        /// The image's namespace.
        pub nspace: String,
        /// The image's id.
        pub id: String,
        /// Requests that wrote.
        pub write_ops: u64,
        /// Requests that read.
        pub read_ops: u64,
        /// Bytes written.
        pub write_bytes: u64,
        /// Bytes read.
        pub read_bytes: u64,
        /// The sum of the times from arrival to answer of writing requests, in nanoseconds.
        pub write_latency: u64,
        /// The sum of the times from arrival to answer of reading requests, in nanoseconds.
        pub read_latency: u64,
    }
}

impl ImageIo {
    /// The numbers, in the order of the fields.
    pub fn numbers(&self) -> [u64; 6] {
        [
            self.write_ops,
            self.read_ops,
            self.write_bytes,
            self.read_bytes,
            self.write_latency,
            self.read_latency,
        ]
    }
}

plain_parts!(ImageIoPoll, ImageIoCounts);
