//! Stretch mode, in which a cluster spans two sites. Kept as it is read; it is never on here.

use spirula_denc::{Decode, Encode, Reader, Result, Writer};

/// The state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StretchMode {
    /// Whether it is on.
    pub enabled: bool,
    /// The number of sites.
    pub bucket_count: u32,
    /// The number of sites that are up while one is down; else 0.
    pub degraded: u32,
    /// 1 while the other comes back.
    pub recovering: u32,
    /// The CRUSH type of a site.
    pub bucket: i32,
}

/// A change of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StretchChange {
    /// Whether it changes.
    pub change: bool,
    /// To what.
    pub mode: StretchMode,
}

impl Encode for StretchMode {
    fn encode(&self, w: &mut Writer) {
        w.bool(self.enabled);
        w.u32(self.bucket_count);
        w.u32(self.degraded);
        w.u32(self.recovering);
        w.i32(self.bucket);
    }
}

impl Decode for StretchMode {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            enabled: r.bool()?,
            bucket_count: r.u32()?,
            degraded: r.u32()?,
            recovering: r.u32()?,
            bucket: r.i32()?,
        })
    }
}

impl Encode for StretchChange {
    fn encode(&self, w: &mut Writer) {
        w.bool(self.change);
        w.u32(self.mode.bucket_count);
        w.u32(self.mode.degraded);
        w.u32(self.mode.recovering);
        w.i32(self.mode.bucket);
        w.bool(self.mode.enabled);
    }
}

impl Decode for StretchChange {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let change = r.bool()?;
        let (bucket_count, degraded, recovering, bucket) = (r.u32()?, r.u32()?, r.u32()?, r.i32()?);
        let enabled = r.bool()?;
        let mode = StretchMode {
            enabled,
            bucket_count,
            degraded,
            recovering,
            bucket,
        };
        Ok(Self { change, mode })
    }
}
