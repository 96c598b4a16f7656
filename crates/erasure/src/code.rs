//! The code: which coefficients make coding units of data units.

use spirula_invariant::invariant;

use crate::gf;
use crate::kernel::Kernel;
use crate::{Error, MAX_UNITS, Unit};

/// How the coefficients are chosen. Recorded on disk by its number, so what a number stands for
/// never changes.
///
/// In both kinds a coefficient depends on the indices of the two units alone, not on k or m; and
/// the coefficients of coding unit 0 and those of data unit 0 are all 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CodeKind {
    /// 2^(i * j) for coding unit i and data unit j, as ISA-L's `gf_gen_rs_matrix`; with two coding
    /// units it is RAID-6's P and Q. Only shapes for which all units can be rebuilt: m up to 3, and
    /// m = 4 with k up to 21.
    Vandermonde = 1,
    /// The Cauchy matrix of 1 / ((32 + i) xor j), whose columns and then rows are divided by their
    /// first coefficients. No square part of a Cauchy matrix is singular, and to scale it does not
    /// change that: all shapes can be rebuilt.
    Cauchy = 2,
}

impl CodeKind {
    /// The kind that new layouts of this shape get.
    pub fn of(k: u8, m: u8) -> Self {
        match Self::Vandermonde.allows(k, m) {
            true => Self::Vandermonde,
            false => Self::Cauchy,
        }
    }

    /// The number that stands for the kind on disk.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The kind of a number.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Vandermonde, Self::Cauchy]
            .into_iter()
            .find(|kind| kind.number() == number)
    }

    /// Whether in a code of this shape any k units give all the others.
    fn allows(self, k: u8, m: u8) -> bool {
        match self {
            Self::Vandermonde => m <= 3 || m == 4 && k <= 21,
            Self::Cauchy => true,
        }
    }

    fn coefficient(self, parity: u8, data: u8) -> u8 {
        match self {
            Self::Vandermonde => gf::pow(2, u32::from(parity) * u32::from(data)),
            Self::Cauchy => {
                // The inverse of the entry at (i, j).
                let below = |i: u8, j: u8| (32 + i) ^ j;
                let first_ones = gf::mul(below(parity, 0), below(0, data));
                let entries = gf::mul(below(parity, data), below(0, 0));
                gf::mul(first_ones, gf::inverse(entries))
            }
        }
    }
}

/// A systematic code of k data units and m coding units: any k of them give all the others.
#[derive(Debug, Clone)]
pub struct Code {
    k: u8,
    m: u8,
    /// The coefficients of the data units, coding unit after coding unit.
    rows: Vec<u8>,
    pub(crate) kernel: Kernel,
}

impl Code {
    /// The code of this kind and shape.
    ///
    /// # Errors
    /// [`Error::Shape`] without data or coding units, or with more than [`MAX_UNITS`];
    /// [`Error::Kind`] if the kind is not for this shape.
    pub fn new(kind: CodeKind, k: u8, m: u8) -> Result<Self, Error> {
        Self::check(kind, k, m)?;
        Ok(Self::checked(kind, k, m))
    }

    pub(crate) fn check(kind: CodeKind, k: u8, m: u8) -> Result<(), Error> {
        let is_shape = k > 0 && m > 0 && u16::from(k) + u16::from(m) <= u16::from(MAX_UNITS);
        match is_shape {
            false => Err(Error::Shape { k, m }),
            true if !kind.allows(k, m) => Err(Error::Kind { kind, k, m }),
            true => Ok(()),
        }
    }

    /// The code of a shape that was checked.
    pub(crate) fn checked(kind: CodeKind, k: u8, m: u8) -> Self {
        let of_unit = |parity| (0..k).map(move |data| kind.coefficient(parity, data));
        Self {
            k,
            m,
            rows: (0..m).flat_map(of_unit).collect(),
            kernel: Kernel::best(),
        }
    }

    /// The number of data units.
    pub fn k(&self) -> u8 {
        self.k
    }

    /// The number of coding units.
    pub fn m(&self) -> u8 {
        self.m
    }

    /// What a data unit is multiplied by to be added to a coding unit.
    pub fn coefficient(&self, parity: u8, data: u8) -> u8 {
        invariant!(data < self.k, "a data unit of the code"; index = data, k = self.k);
        self.row(parity)[usize::from(data)]
    }

    /// The coefficients of a coding unit, by data units.
    pub(crate) fn row(&self, parity: u8) -> &[u8] {
        invariant!(parity < self.m, "a coding unit of the code"; index = parity, m = self.m);
        let k = usize::from(self.k);
        &self.rows[usize::from(parity) * k..][..k]
    }

    /// Whether the code has such a unit.
    pub fn has(&self, unit: Unit) -> bool {
        match unit {
            Unit::Data(index) => index < self.k,
            Unit::Parity(index) => index < self.m,
        }
    }

    /// Makes all coding units of all data units. Data that is shorter than a coding unit goes on
    /// with zeros; none may be longer.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        invariant!(data.len() == usize::from(self.k), "all data units"; units = data.len(), k = self.k);
        invariant!(parity.len() == usize::from(self.m), "all coding units"; units = parity.len(), m = self.m);
        let longest = data.iter().map(|d| d.len()).max().unwrap_or(0);
        let room = parity.iter().map(|p| p.len()).min().unwrap_or(0);
        invariant!(longest <= room, "room in each coding unit"; longest = longest, room = room);
        let rows: Vec<&[u8]> = (0..self.m).map(|n| self.row(n)).collect();
        self.kernel.combine(&rows, data, parity);
    }

    /// Brings a coding unit up to date: adds the difference of a data unit, old xor new, times its
    /// coefficient. `into` is the part of the coding unit at the offset of `delta` and not shorter.
    pub fn add_delta(&self, parity: u8, data: u8, delta: &[u8], into: &mut [u8]) {
        self.kernel.mul_add(self.coefficient(parity, data), into, delta);
    }
}
