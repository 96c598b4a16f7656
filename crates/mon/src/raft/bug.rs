//! Deliberate bugs of the log's store, which the simulation must catch: that shows what it would
//! notice. Only tests can switch one on, by the feature `bugs`.

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A vote is answered before it is on disk.
    LazyVote,
    /// Entries are acknowledged before they are on disk.
    LazyAppend,
    /// Entries that another leader replaced stay in the log.
    KeptTail,
    /// A snapshot replaces the state but not the members.
    OldMembers,
    /// A snapshot is added to the state that was there.
    MixedSnapshot,
    /// A snapshot is installed, and only later on disk.
    LazySnapshot,
    /// Parts of a snapshot that was broken off stay.
    MixedStage,
    /// The applied state is stored, but not its place in the log.
    UncountedApply,
}
