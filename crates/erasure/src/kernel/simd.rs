//! The kernel of machines with vectors.

/// Declares the kernel of an instruction set. Its module has, beside this, `zero`, `load`, `store`
/// and `sum` of vectors of `WIDTH` bytes, and `product` of a constant and a vector.
macro_rules! kernel {
    ($features:literal, $is_there:expr) => {
        /// The processor has these instructions.
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct Simd(());

        impl Simd {
            pub(crate) fn detect() -> Option<Self> {
                $is_there.then_some(Self(()))
            }

            /// Makes sums of slices that have one length: instead of what is there or, with `ADD`,
            /// added to it. `XOR` says that all coefficients are 1.
            pub(crate) fn combine<const N: usize, const XOR: bool, const ADD: bool>(
                self,
                terms: &[Term<'_, N>],
                out: [&mut [u8]; N],
            ) {
                // SAFETY: the processor has the instructions, as only `detect` makes `self`.
                unsafe { combine::<N, XOR, ADD>(terms, out) }
            }
        }

        // Each vector of the sources is loaded once for all sums, which stay in registers.
        #[target_feature(enable = $features)]
        fn combine<const N: usize, const XOR: bool, const ADD: bool>(
            terms: &[Term<'_, N>],
            out: [&mut [u8]; N],
        ) {
            let mut out = out.map(|o| o.as_chunks_mut::<WIDTH>());
            let vectors = out
                .iter()
                .map(|(vectors, _)| vectors.len())
                .min()
                .unwrap_or(0);
            for at in 0..vectors {
                let mut sums = [zero(); N];
                if ADD {
                    for (s, (vectors, _)) in sums.iter_mut().zip(&out) {
                        *s = load(&vectors[at]);
                    }
                }
                for term in terms {
                    let v = load(&term.source.as_chunks().0[at]);
                    for (s, c) in sums.iter_mut().zip(term.coefficients) {
                        *s = sum(*s, if XOR { v } else { product(c, v) });
                    }
                }
                for (s, (vectors, _)) in sums.iter().zip(&mut out) {
                    store(*s, &mut vectors[at]);
                }
            }
            let rest = terms.iter().map(|term| Term {
                coefficients: term.coefficients,
                source: &term.source[vectors * WIDTH..],
            });
            portable::combine::<N, ADD>(rest, out.map(|(_, rest)| rest));
        }
    };
}
