//! Which part of each object a copy holds, and in which layout.
//!
//! A copy carries that with it ([`super::info::PgInfo`]): what the pool says is what a PG is to become, not what a store has.

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};

/// How a PG's members hold its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Each has all of each object.
    #[default]
    Whole,
}

/// What a copy holds of each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Part {
    /// The layout.
    pub layout: Layout,
    /// Which part in that layout; 0 where there is only one.
    pub role: u8,
}

impl Encode for Part {
    fn encode(&self, w: &mut Writer) {
        w.u8(match self.layout {
            Layout::Whole => 0,
        });
        w.u8(self.role);
    }
}

impl Decode for Part {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let layout = match r.u8()? {
            0 => Layout::Whole,
            _ => return Err(Error::Invalid("layout of a copy")),
        };
        let role = r.u8()?;
        match layout {
            Layout::Whole if role != 0 => Err(Error::Invalid("part of a whole copy")),
            Layout::Whole => Ok(Self { layout, role }),
        }
    }
}
