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
    /// Each member has a fragment of each object, by this erasure code.
    Coded(spirula_erasure::Layout),
}

impl Layout {
    /// The number of different parts.
    pub fn roles(&self) -> u8 {
        match self {
            Self::Whole => 1,
            Self::Coded(layout) => layout.roles(),
        }
    }
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
        match &self.layout {
            Layout::Whole => w.u8(0),
            Layout::Coded(layout) => {
                w.u8(1);
                w.put(layout);
            }
        }
        w.u8(self.role);
    }
}

impl Decode for Part {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let layout = match r.u8()? {
            0 => Layout::Whole,
            1 => Layout::Coded(r.get()?),
            _ => return Err(Error::Invalid("layout of a copy")),
        };
        let role = r.u8()?;
        if role >= layout.roles() {
            return Err(Error::Invalid("part of a copy"));
        }
        Ok(Self { layout, role })
    }
}
