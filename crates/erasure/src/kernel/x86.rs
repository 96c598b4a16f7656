//! The kernels of x86-64.

// Vectors have no safe interface in the stable std. Unsafe here are two things: to load and store
// vectors, which is done through arrays of their size; and to call functions that are compiled for
// instructions that not every processor has, which needs a value that only their detection makes.
#![allow(unsafe_code)]

/// 16 products at once, looked up by halves of bytes.
pub(super) mod ssse3 {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_setzero_si128, _mm_shuffle_epi8,
        _mm_srli_epi64, _mm_storeu_si128, _mm_xor_si128,
    };

    use crate::gf::PRODUCTS;
    use crate::kernel::{Term, portable};

    const WIDTH: usize = 32;

    // Two registers, so that a constant's products are loaded half as often.
    type Vector = [__m128i; 2];

    #[target_feature(enable = "ssse3")]
    fn zero() -> Vector {
        [_mm_setzero_si128(); 2]
    }

    #[target_feature(enable = "ssse3")]
    pub(super) fn load_one(from: &[u8; 16]) -> __m128i {
        // SAFETY: reads the array's 16 bytes, of any alignment.
        unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
    }

    #[target_feature(enable = "ssse3")]
    fn load(from: &[u8; WIDTH]) -> Vector {
        let from = from.as_ptr();
        // SAFETY: reads the array's 32 bytes, of any alignment.
        unsafe { [_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(16).cast())] }
    }

    #[target_feature(enable = "ssse3")]
    fn store(v: Vector, to: &mut [u8; WIDTH]) {
        let to = to.as_mut_ptr();
        // SAFETY: writes the array's 32 bytes, of any alignment.
        unsafe {
            _mm_storeu_si128(to.cast(), v[0]);
            _mm_storeu_si128(to.add(16).cast(), v[1]);
        }
    }

    #[target_feature(enable = "ssse3")]
    fn sum(a: Vector, b: Vector) -> Vector {
        [_mm_xor_si128(a[0], b[0]), _mm_xor_si128(a[1], b[1])]
    }

    #[target_feature(enable = "ssse3")]
    fn product(c: u8, v: Vector) -> Vector {
        let products = &PRODUCTS[usize::from(c)];
        let (low, high) = (load_one(&products.low), load_one(&products.high));
        let half = _mm_set1_epi8(15);
        v.map(|v| {
            let of_low = _mm_shuffle_epi8(low, _mm_and_si128(v, half));
            let of_high = _mm_shuffle_epi8(high, _mm_and_si128(_mm_srli_epi64::<4>(v), half));
            _mm_xor_si128(of_low, of_high)
        })
    }

    kernel!("ssse3", is_x86_feature_detected!("ssse3"));
}

/// 32 products at once, looked up by halves of bytes.
pub(super) mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256, _mm256_set1_epi8,
        _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
    };

    use super::ssse3::load_one;
    use crate::gf::PRODUCTS;
    use crate::kernel::{Term, portable};

    pub(super) const WIDTH: usize = 64;

    pub(super) type Vector = [__m256i; 2];

    #[target_feature(enable = "avx2")]
    pub(super) fn zero() -> Vector {
        [_mm256_setzero_si256(); 2]
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn load(from: &[u8; WIDTH]) -> Vector {
        let from = from.as_ptr();
        // SAFETY: reads the array's 64 bytes, of any alignment.
        unsafe {
            [
                _mm256_loadu_si256(from.cast()),
                _mm256_loadu_si256(from.add(32).cast()),
            ]
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn store(v: Vector, to: &mut [u8; WIDTH]) {
        let to = to.as_mut_ptr();
        // SAFETY: writes the array's 64 bytes, of any alignment.
        unsafe {
            _mm256_storeu_si256(to.cast(), v[0]);
            _mm256_storeu_si256(to.add(32).cast(), v[1]);
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn sum(a: Vector, b: Vector) -> Vector {
        [_mm256_xor_si256(a[0], b[0]), _mm256_xor_si256(a[1], b[1])]
    }

    #[target_feature(enable = "avx2")]
    fn product(c: u8, v: Vector) -> Vector {
        let products = &PRODUCTS[usize::from(c)];
        let low = _mm256_broadcastsi128_si256(load_one(&products.low));
        let high = _mm256_broadcastsi128_si256(load_one(&products.high));
        let half = _mm256_set1_epi8(15);
        v.map(|v| {
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(v, half));
            let of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(v), half));
            _mm256_xor_si256(of_low, of_high)
        })
    }

    kernel!("avx2", is_x86_feature_detected!("avx2"));
}

/// 32 products at once, by an instruction that multiplies bytes by a matrix of bits.
pub(super) mod gfni {
    use std::arch::x86_64::{_mm256_gf2p8affine_epi64_epi8, _mm256_set1_epi64x};

    use super::avx2::{Vector, WIDTH, load, store, sum, zero};
    use crate::gf::PRODUCTS;
    use crate::kernel::{Term, portable};

    #[target_feature(enable = "avx2,gfni")]
    fn product(c: u8, v: Vector) -> Vector {
        let matrix = _mm256_set1_epi64x(MATRICES[usize::from(c)]);
        v.map(|v| _mm256_gf2p8affine_epi64_epi8::<0>(v, matrix))
    }

    /// The matrix of each constant.
    static MATRICES: [i64; 256] = {
        let mut all = [0; 256];
        let mut c = 0;
        while c < 256 {
            all[c] = matrix(c);
            c += 1;
        }
        all
    };

    /// The matrix that multiplies by `c`. Its byte n makes bit 7 - n of a product: it has the bits
    /// of a factor that have, times `c`, this bit.
    const fn matrix(c: usize) -> i64 {
        let mut rows = [0; 8];
        let mut bit = 0;
        while bit < 8 {
            let product = PRODUCTS[c].times(1 << bit);
            let mut n = 0;
            while n < 8 {
                rows[n] |= (product >> (7 - n) & 1) << bit;
                n += 1;
            }
            bit += 1;
        }
        i64::from_le_bytes(rows)
    }

    kernel!(
        "avx2,gfni",
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni")
    );
}
