//! The units of a stripe, and sets of them.

use spirula_invariant::invariant;

use crate::MAX_UNITS;

/// A unit of a stripe, and so the fragment that has this unit of each stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// The data unit of this index: below k.
    Data(u8),
    /// The coding unit of this index: below m.
    Parity(u8),
}

/// A set of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct UnitSet {
    data: u32,
    parity: u32,
}

impl UnitSet {
    /// No units.
    pub const fn new() -> Self {
        Self { data: 0, parity: 0 }
    }

    /// Adds a unit.
    pub fn insert(&mut self, unit: Unit) {
        let (units, index) = match unit {
            Unit::Data(index) => (&mut self.data, index),
            Unit::Parity(index) => (&mut self.parity, index),
        };
        invariant!(index < MAX_UNITS, "a unit that a code can have"; index = index);
        *units |= 1 << index;
    }

    /// Takes a unit away.
    pub fn remove(&mut self, unit: Unit) {
        match unit {
            Unit::Data(index) => self.data &= !bit(index),
            Unit::Parity(index) => self.parity &= !bit(index),
        }
    }

    /// Whether a unit is in the set.
    pub fn contains(self, unit: Unit) -> bool {
        match unit {
            Unit::Data(index) => self.data & bit(index) != 0,
            Unit::Parity(index) => self.parity & bit(index) != 0,
        }
    }

    /// The number of units.
    pub fn len(self) -> u8 {
        // At most 64.
        (self.data.count_ones() + self.parity.count_ones()) as u8
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self == Self::new()
    }

    /// The units: data units by their index, then coding units by theirs.
    pub fn iter(self) -> impl Iterator<Item = Unit> {
        let data = (0..MAX_UNITS).map(Unit::Data);
        data.chain((0..MAX_UNITS).map(Unit::Parity))
            .filter(move |unit| self.contains(*unit))
    }
}

/// The bit of an index, if it has one.
fn bit(index: u8) -> u32 {
    1_u32.checked_shl(u32::from(index)).unwrap_or(0)
}

impl FromIterator<Unit> for UnitSet {
    fn from_iter<I: IntoIterator<Item = Unit>>(units: I) -> Self {
        let mut set = Self::new();
        set.extend(units);
        set
    }
}

impl Extend<Unit> for UnitSet {
    fn extend<I: IntoIterator<Item = Unit>>(&mut self, units: I) {
        for unit in units {
            self.insert(unit);
        }
    }
}
