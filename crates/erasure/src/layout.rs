//! Where an object's bytes lie.
//!
//! An object is divided into stripes of k units, all of one size; its last stripe may be shorter.
//! What a member holds of an object is its fragment: one unit of each stripe, one after the other.
//! So the unit of stripe s lies at offset s * unit of the fragment. Fragments end where their data
//! ends; a coding fragment ends where the longest data fragment does.

mod place;

pub use place::{Piece, Stripes};

use spirula_denc::{Decode, Encode, Error as Malformed, Reader, Writer};

use crate::{Code, CodeKind, Error, Unit};

/// How an object is divided among members. Recorded with each copy of a PG, so what its encoding
/// stands for never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    kind: CodeKind,
    k: u8,
    m: u8,
    /// The logarithm of the bytes of a unit.
    unit_order: u8,
}

impl Layout {
    /// The fewest bytes of a unit: a block of the store.
    pub const MIN_UNIT: u32 = 4 << 10;
    /// The bytes of a unit if nothing else is said: most small requests stay in one unit, and what
    /// a member has of a large object comes in few large pieces.
    pub const DEFAULT_UNIT: u32 = 64 << 10;
    /// The most bytes of a unit: an object of the usual size.
    pub const MAX_UNIT: u32 = 4 << 20;

    /// A layout of k data units and m coding units of `unit` bytes, with the code that new layouts
    /// get.
    ///
    /// # Errors
    /// [`Error::Shape`] as [`Code::new`]; [`Error::UnitSize`] for a unit that is no power of two
    /// from [`Layout::MIN_UNIT`] to [`Layout::MAX_UNIT`].
    pub fn new(k: u8, m: u8, unit: u32) -> Result<Self, Error> {
        let is_size = unit.is_power_of_two() && (Self::MIN_UNIT..=Self::MAX_UNIT).contains(&unit);
        if !is_size {
            return Err(Error::UnitSize(unit));
        }
        // At most 31.
        Self::of_kind(CodeKind::of(k, m), k, m, unit.ilog2() as u8)
    }

    fn of_kind(kind: CodeKind, k: u8, m: u8, unit_order: u8) -> Result<Self, Error> {
        Code::check(kind, k, m)?;
        Ok(Self {
            kind,
            k,
            m,
            unit_order,
        })
    }

    /// The code's kind.
    pub fn kind(self) -> CodeKind {
        self.kind
    }

    /// The number of data units of a stripe.
    pub fn k(self) -> u8 {
        self.k
    }

    /// The number of coding units of a stripe.
    pub fn m(self) -> u8 {
        self.m
    }

    /// The bytes of a unit.
    pub fn unit(self) -> u64 {
        1 << self.unit_order
    }

    /// The bytes of a whole stripe's data units.
    pub fn stripe_width(self) -> u64 {
        self.unit() * u64::from(self.k)
    }

    /// The code.
    pub fn code(self) -> Code {
        Code::checked(self.kind, self.k, self.m)
    }

    /// The number of roles, k + m: so many members hold a part of each object.
    pub fn roles(self) -> u8 {
        self.k + self.m
    }

    /// The unit that a role holds of each stripe, if there is such a role. Role 0 has data unit 0,
    /// the next m roles have the coding units, and the last ones the other data units: so objects
    /// of one unit are the same in the first m + 1 roles, and empty in the others.
    pub fn unit_of(self, role: u8) -> Option<Unit> {
        match role {
            0 => Some(Unit::Data(0)),
            _ if role <= self.m => Some(Unit::Parity(role - 1)),
            _ if role < self.roles() => Some(Unit::Data(role - self.m)),
            _ => None,
        }
    }

    /// The role that holds a unit, if there is such a unit.
    pub fn role_of(self, unit: Unit) -> Option<u8> {
        match unit {
            Unit::Data(0) => Some(0),
            Unit::Data(index) if index < self.k => Some(index + self.m),
            Unit::Parity(index) if index < self.m => Some(index + 1),
            _ => None,
        }
    }
}

/// Four bytes: the number of the code's kind, k, m, and the logarithm of the unit's bytes.
impl Encode for Layout {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.kind.number());
        w.u8(self.k);
        w.u8(self.m);
        w.u8(self.unit_order);
    }
}

impl Decode for Layout {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        let kind = CodeKind::from_number(r.u8()?).ok_or(Malformed::Invalid("kind of erasure code"))?;
        let (k, m, unit_order) = (r.u8()?, r.u8()?, r.u8()?);
        let orders = Self::MIN_UNIT.ilog2()..=Self::MAX_UNIT.ilog2();
        if !orders.contains(&u32::from(unit_order)) {
            return Err(Malformed::Invalid("stripe unit"));
        }
        Self::of_kind(kind, k, m, unit_order).map_err(|_| Malformed::Invalid("shape of erasure code"))
    }
}
