//! The part of each object that a copy holds, and its layout.
//!
//! A copy carries these with it ([`super::info::PgInfo`]): the pool says what a PG is to become,
//! not what a store has.

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};

/// How a PG's members hold its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Each member has all of each object.
    #[default]
    Whole,
}

/// The part of each object that a copy holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Part {
    /// The layout.
    pub layout: Layout,
    /// The part's number in that layout; 0 if there is only one.
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
