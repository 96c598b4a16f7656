//! The daemon around the core: sockets, store, monitors, other OSDs.
//!
//! Everything runs on one thread (the reactor), on tokio's current-thread runtime; the store has
//! threads of its own. Each event is handed to the `Osd` synchronously by the task that saw it; one
//! more task lets the store work after each batch.

mod accept;
mod admin;
mod alarms;
mod auth;
mod beat_links;
mod below;
mod bench;
mod clients;
mod clock;
mod commands;
mod compact;
mod config;
mod dropped;
mod event_fd;
mod heap;
mod heartbeat;
mod history;
mod host;
mod image_io;
mod index_check;
mod life;
mod links;
mod load;
mod map_view;
mod maps;
mod mempools;
mod mend;
mod metadata;
mod mon;
mod mons;
mod options;
mod peers;
mod perf;
mod pg_states;
mod pressure;
mod purged_snaps;
mod read_turns;
mod refill;
mod report;
mod run;
mod scheduler;
mod scrub_reports;
mod scrubs;
mod setup;
mod shares;
mod shell;
mod slow;
mod space;
mod standing;
mod state;
mod store_calls;
mod store_io;
mod store_lists;
mod store_queue;
mod store_reads;
mod store_txn;
mod store_writes;
mod table;
mod transitions;
mod unread;
mod watchers;

use spirula_store::StoreError;

pub use beat_links::BeatPeer;
pub use config::{MkfsConfig, OsdConfig, mkfs};
pub use host::Host;
pub use links::Cut;
pub use refill::{Outcome, Refill, RefillParts};
pub use run::run;
pub use setup::Addrs;
pub use state::{Osd, Parts};

/// Why an OSD stops, or can't start.
#[derive(Debug, thiserror::Error)]
pub enum OsdError {
    /// The store failed, or belongs to another OSD.
    #[error("store: {0}")]
    Store(#[from] StoreError),
    /// A socket could not be bound.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The index of the store is damaged, and others can do without this OSD: the daemon is to start
    /// anew, with these pages cut out.
    #[error("the index of the store is damaged: it stops to be mended")]
    Mend {
        /// The damaged pages.
        pages: Vec<u64>,
    },
    /// The store is ruined, and an option forbids to make it anew.
    #[error("store: {source}; {option} is off, so it is not made anew and filled from other OSDs")]
    Kept {
        /// The option.
        option: &'static str,
        /// The store's error.
        source: StoreError,
    },
    /// A setting makes no sense.
    #[error("{0}")]
    Config(&'static str),
    /// A record in the store can't be read.
    #[error("{what} in the store is damaged: {source}")]
    Damaged {
        /// The record.
        what: String,
        /// The error in it.
        source: spirula_denc::Error,
    },
    /// The monitors refuse this OSD.
    #[error("the monitors refuse this OSD: {0}")]
    Denied(String),
}

impl OsdError {
    /// The damaged pages of the index because of which the daemon ends, and which may be cut out of it.
    /// `None` if it ends for another reason, or if that is not enough.
    pub fn pages_to_cut(&self) -> Option<Vec<u64>> {
        match self {
            Self::Mend { pages } => Some(pages.clone()),
            Self::Store(StoreError::IndexPage { page, .. }) => Some(vec![*page]),
            Self::Store(StoreError::Ruined { pages, .. }) if !pages.is_empty() => Some(pages.to_vec()),
            _ => None,
        }
    }

    /// Whether the daemon ends because its store is damaged beyond what can be cut out.
    pub fn is_ruin(&self) -> bool {
        matches!(self, Self::Store(StoreError::Ruined { pages, .. }) if pages.is_empty())
    }
}
