//! What coding spends its time in: sums of bytes that are multiplied by constants.

// First, as its macro is for the modules that follow it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[macro_use]
mod simd;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use spirula_invariant::invariant;

pub use portable::xor;

/// The way to multiply on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kernel {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Ssse3(x86::ssse3::Simd),
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::avx2::Simd),
    #[cfg(target_arch = "x86_64")]
    Gfni(x86::gfni::Simd),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Simd),
}

/// What is added to `N` sums: bytes, times a coefficient for each sum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term<'a, const N: usize> {
    coefficients: [u8; N],
    source: &'a [u8],
}

impl Kernel {
    /// All that this machine has, the fastest first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let simd = [
            x86::gfni::Simd::detect().map(Self::Gfni),
            x86::avx2::Simd::detect().map(Self::Avx2),
            x86::ssse3::Simd::detect().map(Self::Ssse3),
        ];
        #[cfg(target_arch = "aarch64")]
        let simd = [neon::Simd::detect().map(Self::Neon)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let simd = [None];
        simd.into_iter().flatten().chain([Self::Portable])
    }

    /// The fastest that this machine has.
    pub(crate) fn best() -> Self {
        Self::all().next().unwrap_or(Self::Portable)
    }

    /// Adds `c` times `src` to `dst`, which is not shorter.
    pub(crate) fn mul_add(self, c: u8, dst: &mut [u8], src: &[u8]) {
        invariant!(src.len() <= dst.len(), "room for all products"; source = src.len(), room = dst.len());
        let term = Term {
            coefficients: [c],
            source: src,
        };
        let out = [&mut dst[..src.len()]];
        match c {
            1 => self.run::<1, true, true>(&[term], out),
            _ => self.run::<1, false, true>(&[term], out),
        }
    }

    /// Makes each output the sum of all sources, each times its coefficient in the output's row. A
    /// source that is shorter goes on with zeros; what is longer is not looked at.
    pub(crate) fn combine(self, rows: &[&[u8]], sources: &[&[u8]], out: &mut [&mut [u8]]) {
        let longest = out.iter().map(|o| o.len()).max().unwrap_or(0);
        let mut ends: Vec<usize> = out.iter().map(|o| o.len()).collect();
        ends.extend(sources.iter().map(|s| s.len().min(longest)));
        ends.sort_unstable();
        ends.dedup();
        let mut from = 0;
        // Between two ends no source and no output ends.
        for to in ends {
            let sources: Vec<(usize, &[u8])> = sources
                .iter()
                .enumerate()
                .filter_map(|(n, source)| Some((n, source.get(from..to)?)))
                .collect();
            let mut sums: Vec<Sum<'_>> = rows
                .iter()
                .zip(out.iter_mut())
                .filter_map(|(row, out)| Some((*row, out.get_mut(from..to)?)))
                .collect();
            // More than four would not stay in registers.
            for group in sums.chunks_mut(4) {
                match group {
                    [a] => self.sums(&sources, [a]),
                    [a, b] => self.sums(&sources, [a, b]),
                    [a, b, c] => self.sums(&sources, [a, b, c]),
                    [a, b, c, d] => self.sums(&sources, [a, b, c, d]),
                    _ => {}
                }
            }
            from = to;
        }
    }

    /// Makes sums of all sources, which come with their indices in rows. All slices have one length.
    fn sums<const N: usize>(self, sources: &[(usize, &[u8])], sums: [&mut Sum<'_>; N]) {
        let rows = sums.each_ref().map(|sum| sum.0);
        let terms: Vec<Term<'_, N>> = sources
            .iter()
            .map(|(n, source)| Term {
                coefficients: rows.map(|row| row[*n]),
                source,
            })
            .filter(|term| term.coefficients != [0; N])
            .collect();
        let out = sums.map(|sum| &mut *sum.1);
        if terms.iter().all(|term| term.coefficients == [1; N]) {
            self.run::<N, true, false>(&terms, out);
        } else {
            self.run::<N, false, false>(&terms, out);
        }
    }

    /// Makes sums of slices that have one length: instead of what is there or, with `ADD`, added to
    /// it. `XOR` says that all coefficients are 1.
    fn run<const N: usize, const XOR: bool, const ADD: bool>(
        self,
        terms: &[Term<'_, N>],
        out: [&mut [u8]; N],
    ) {
        match self {
            Self::Portable => portable::combine::<N, ADD>(terms.iter().copied(), out),
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3(simd) => simd.combine::<N, XOR, ADD>(terms, out),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.combine::<N, XOR, ADD>(terms, out),
            #[cfg(target_arch = "x86_64")]
            Self::Gfni(simd) => simd.combine::<N, XOR, ADD>(terms, out),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(simd) => simd.combine::<N, XOR, ADD>(terms, out),
        }
    }
}

/// The coefficients of a sum, and where it goes.
type Sum<'a> = (&'a [u8], &'a mut [u8]);
