//! What a copy remembers of its PG's scrubs.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Result, UTime, Writer};
use spirula_maps::EVersion;

use super::judge::Count;

/// The last scrubs of a PG, and what they found. It is part of each copy's info, so that the next
/// primary knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScrubHistory {
    /// The PG's version when it was last scrubbed.
    pub version: EVersion,
    /// When it was last scrubbed; zero for never.
    pub stamp: UTime,
    /// The PG's version when its contents were last read.
    pub deep_version: EVersion,
    /// When its contents were last read; zero for never.
    pub deep_stamp: UTime,
    /// When a scrub last found nothing.
    pub clean_stamp: UTime,
    /// Errors that a scrub can find without reading contents.
    pub shallow_errors: u32,
    /// Errors that only a deep scrub finds.
    pub deep_errors: u32,
    /// Objects with omaps that are larger than they should be.
    pub large_omaps: u32,
    /// The bytes of all omaps.
    pub omap_bytes: u64,
    /// The keys of all omaps.
    pub omap_keys: u64,
    /// Whether a scrub has begun its list of findings since the PG was made or split.
    pub listed: bool,
    /// How far a scrub is that has not ended.
    pub progress: Option<Progress>,
}

/// How far a scrub is. Another primary, or the same one after a restart, goes on from there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Whether contents are read.
    pub deep: bool,
    /// Whether an operator has ordered it.
    pub requested: bool,
    /// When it began.
    pub began: UTime,
    /// The key of the first object that was not looked at.
    pub cursor: Bytes,
    /// What was found so far.
    pub(super) totals: Totals,
}

/// What a scrub has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Totals {
    /// Errors.
    pub(super) errors: Count,
    /// Objects that a member lacks.
    pub(super) missing: u32,
    /// Objects of which a member's copy is wrong.
    pub(super) inconsistent: u32,
    /// Objects with omaps that are larger than they should be.
    pub(super) large_omaps: u32,
    /// The keys of all omaps.
    pub(super) omap_keys: u64,
    /// The bytes of all omaps.
    pub(super) omap_bytes: u64,
    /// Entries in the list of findings.
    pub(super) listed: u32,
}

impl ScrubHistory {
    /// All errors.
    pub fn errors(&self) -> u32 {
        self.shallow_errors.saturating_add(self.deep_errors)
    }

    /// Whether a scrub has found something since the list last began anew.
    pub(crate) fn has_findings(&self) -> bool {
        let totals = self.progress.as_ref().map(|p| &p.totals);
        self.errors() > 0 || totals.is_some_and(|t| t.listed > 0 || t.errors.all() > 0)
    }

    /// Whether a copy with this history has the list that goes with another one.
    pub(crate) fn has_list_of(&self, other: &Self) -> bool {
        self.listed && self.age() == other.age()
    }

    /// What members' histories are compared by: the last scrub, and how far the one is that came after
    /// it.
    pub(crate) fn age(&self) -> (UTime, UTime, Option<(UTime, &Bytes)>) {
        let progress = self.progress.as_ref().map(|p| (p.began, &p.cursor));
        (self.stamp, self.deep_stamp, progress)
    }

    /// Forgets what was found where: the PG is scrubbed again soon if there was something, and a scrub
    /// that is under way begins again.
    pub(crate) fn forget_list(&mut self) {
        self.listed = false;
        if let Some(progress) = &mut self.progress {
            progress.cursor = Bytes::new();
            progress.totals = Totals::default();
        }
    }

    /// The history of a PG that is as good as scrubbed at `now`, if it never was: its intervals begin
    /// then.
    #[must_use]
    pub(crate) fn begun_by(self, now: UTime) -> Self {
        if !self.stamp.is_zero() {
            return self;
        }
        Self {
            stamp: now,
            deep_stamp: now,
            clean_stamp: now,
            ..self
        }
    }
}

impl Encode for ScrubHistory {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.version);
        w.put(&self.stamp);
        w.put(&self.deep_version);
        w.put(&self.deep_stamp);
        w.put(&self.clean_stamp);
        w.u32(self.shallow_errors);
        w.u32(self.deep_errors);
        w.u32(self.large_omaps);
        w.u64(self.omap_bytes);
        w.u64(self.omap_keys);
        w.bool(self.listed);
        w.put(&self.progress);
    }
}

impl Decode for ScrubHistory {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            version: r.get()?,
            stamp: r.get()?,
            deep_version: r.get()?,
            deep_stamp: r.get()?,
            clean_stamp: r.get()?,
            shallow_errors: r.u32()?,
            deep_errors: r.u32()?,
            large_omaps: r.u32()?,
            omap_bytes: r.u64()?,
            omap_keys: r.u64()?,
            listed: r.bool()?,
            progress: r.get()?,
        })
    }
}

impl Encode for Progress {
    fn encode(&self, w: &mut Writer) {
        w.bool(self.deep);
        w.bool(self.requested);
        w.put(&self.began);
        w.put(&self.cursor);
        let t = &self.totals;
        for n in [
            t.errors.shallow,
            t.errors.deep,
            t.missing,
            t.inconsistent,
            t.large_omaps,
            t.listed,
        ] {
            w.u32(n);
        }
        w.u64(t.omap_keys);
        w.u64(t.omap_bytes);
    }
}

impl Decode for Progress {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            deep: r.bool()?,
            requested: r.bool()?,
            began: r.get()?,
            cursor: r.get()?,
            totals: Totals {
                errors: Count {
                    shallow: r.u32()?,
                    deep: r.u32()?,
                },
                missing: r.u32()?,
                inconsistent: r.u32()?,
                large_omaps: r.u32()?,
                listed: r.u32()?,
                omap_keys: r.u64()?,
                omap_bytes: r.u64()?,
            },
        })
    }
}
