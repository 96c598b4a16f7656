//! Which units to read, and how to make others of them.

use spirula_invariant::{impossible, invariant};

use crate::kernel::Kernel;
use crate::matrix::{inverse, row_product, unit_row};
use crate::{Code, Error, Unit, UnitSet};

/// How to make the wanted units of k others. It depends on which units are there and not on their
/// bytes, so it serves all stripes that lack the same units; to make one takes far longer than to
/// look it up.
#[derive(Debug, Clone)]
pub struct DecodePlan {
    sources: Vec<Unit>,
    wanted: Vec<Unit>,
    /// The coefficients of the sources, by wanted units.
    pub(crate) rows: Vec<Vec<u8>>,
    kernel: Kernel,
}

impl Code {
    /// How to make the units `wanted`, data and coding units alike, of those that are `present`.
    ///
    /// Data units are read first, then coding units by their index: where one data unit is missing
    /// and coding unit 0 is there, the plan is a XOR.
    ///
    /// # Errors
    /// [`Error::NoUnit`] for a unit that the code does not have; [`Error::TooFew`] if less than k
    /// units are present.
    pub fn plan(&self, present: UnitSet, wanted: UnitSet) -> Result<DecodePlan, Error> {
        if let Some(unit) = present.iter().chain(wanted.iter()).find(|unit| !self.has(*unit)) {
            return Err(Error::NoUnit(unit));
        }
        let k = usize::from(self.k());
        let sources: Vec<Unit> = present.iter().take(k).collect();
        if sources.len() < k {
            return Err(Error::TooFew {
                present: present.len(),
                needed: self.k(),
            });
        }
        // How the data units make a unit; the inverse for all sources is how these make the data
        // units.
        let of_data = |unit: &Unit| match unit {
            Unit::Data(index) => unit_row(k, usize::from(*index)),
            Unit::Parity(index) => self.row(*index).to_vec(),
        };
        let Some(of_sources) = inverse(sources.iter().map(of_data).collect()) else {
            impossible!("k units that give all others"; sources = format!("{sources:?}"));
        };
        let wanted: Vec<Unit> = wanted.iter().collect();
        Ok(DecodePlan {
            rows: wanted
                .iter()
                .map(|unit| row_product(&of_data(unit), &of_sources))
                .collect(),
            sources,
            wanted,
            kernel: self.kernel,
        })
    }
}

impl DecodePlan {
    /// The units that are to be read: k of those that are present.
    pub fn sources(&self) -> &[Unit] {
        &self.sources
    }

    /// The units that are made, in the order of the outputs.
    pub fn wanted(&self) -> &[Unit] {
        &self.wanted
    }

    /// Makes the wanted units of the sources, which come in the order of [`DecodePlan::sources`]
    /// and all begin at the same offset. A source that is shorter than an output goes on with
    /// zeros; of one that is longer only the beginning counts.
    pub fn run(&self, sources: &[&[u8]], out: &mut [&mut [u8]]) {
        let (all, outputs) = (self.sources.len(), self.wanted.len());
        invariant!(sources.len() == all, "all sources of the plan"; sources = sources.len(), planned = all);
        invariant!(out.len() == outputs, "an output for each unit"; outputs = out.len(), planned = outputs);
        let rows: Vec<&[u8]> = self.rows.iter().map(Vec::as_slice).collect();
        self.kernel.combine(&rows, sources, out);
    }
}
