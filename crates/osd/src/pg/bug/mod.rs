//! Deliberate bugs, which the simulation must catch: that shows what it would notice. Only tests
//! can switch one on, by the feature `bugs`.

pub(super) mod effect;

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A replica says that a write is durable as soon as it has received it.
    EarlyAck,
    /// A primary serves before the map says that it is up.
    NoUpThru,
    /// Only the members are asked.
    NoPrior,
    /// Intervals that ended are forgotten.
    NoHistory,
    /// The newest object that a log names is not brought over.
    SkippedObject,
    /// A further round of a copy in the background brings over only what changed after the round
    /// before.
    LateBase,
    /// Objects that only a divergent log names stay as they are.
    KeptDivergent,
    /// A primary answers reads without a lease.
    NoLease,
    /// A new primary does not wait for members that may answer reads.
    NoSharedWait,
    /// A primary answers a write when it alone has made it durable.
    AloneAck,
    /// Requests that are sent again are executed again.
    TwiceDone,
    /// Reads return writes that are not durable everywhere yet.
    DirtyRead,
    /// A primary serves with fewer members than `min_size`, which intervals that are remembered
    /// never have.
    NoMinSize,
    /// Writes that were lost with a connection are not sent again.
    NoResend,
    /// Members that stand in for others are never told to go.
    KeptTemporary,
    /// A member with a coding fragment does not add differences to it.
    ForgottenDelta,
    /// A member that makes a change again adds the differences to its fragments twice.
    TwiceAdded,
    /// A member removes all that is staged before it makes changes again, one of which may take it.
    EarlySweep,
    /// A member with a coding fragment leaves in it what was cut off of the object.
    KeptCut,
    /// A member answers at once for its fragment, also where it lacks the write before the question.
    MixedVersions,
    /// A member forgets the steps of a change as soon as it has carried them out itself.
    EarlyForget,
    /// Positions without a member count for `min_size`.
    CountedHoles,
    /// A member keeps the fragments that it has, whatever part it is to hold.
    KeptRole,
    /// What changed of an object while a fragment of it was made of others is not made again.
    KeptDirt,
    /// A scrub compares objects that are written while members look at them.
    UnseenWrites,
    /// A scrub does not judge the last object of those that it looks at together.
    SkippedLast,
    /// Writes of objects that a scrub has counted are not counted.
    UncountedWrites,
    /// A scrub does not look again at what was written or seems to be wrong.
    ForgottenLook,
    /// A member keeps the slot of a scrub that has ended.
    KeptSlot,
    /// What members are told of scrubs is not sent again if it was lost.
    ToldOnce,
    /// A scrub says that it has repaired a copy, and has not.
    FeignedRepair,
    /// A member takes any data that came ahead of its change for that of the next change.
    MixedAhead,
    /// A write in the middle of an object leaves the digest of its data as it was.
    StaleDigest,
    /// A scrub notes the digests that it has found for an object that was written since.
    LateDigest,
    /// An OSD whose store is ruined makes it anew without asking who needs what it has.
    EarlyRefill,
}
