//! The field of 256 elements that the code calculates in.
//!
//! An element is a polynomial over GF(2) in one byte, modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d), as
//! in RAID-6 (<https://www.kernel.org/pub/linux/kernel/people/hpa/raid6.pdf>), ISA-L and jerasure.
//! A sum is XOR.

/// The polynomial without x^8.
const REDUCED: u8 = 0x1d;

/// The products of one constant, by halves of a byte: the instructions that look up bytes choose
/// from 16.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Products {
    /// The constant times 0 to 15.
    pub(crate) low: [u8; 16],
    /// The constant times 0, 16, 32 and so on.
    pub(crate) high: [u8; 16],
}

impl Products {
    const fn new(constant: u8) -> Self {
        let mut of = Self {
            low: [0; 16],
            high: [0; 16],
        };
        // The constant times 1, 2, 4 and so on: all others are sums of these.
        let mut power = constant;
        let mut bit = 0;
        while bit < 8 {
            let half = if bit < 4 { &mut of.low } else { &mut of.high };
            let mut n = 0;
            while n < 16 {
                if n >> (bit % 4) & 1 == 1 {
                    half[n] ^= power;
                }
                n += 1;
            }
            power = (power << 1) ^ if power & 0x80 == 0 { 0 } else { REDUCED };
            bit += 1;
        }
        of
    }

    /// The constant times `b`.
    pub(crate) const fn times(&self, b: u8) -> u8 {
        self.low[(b & 15) as usize] ^ self.high[(b >> 4) as usize]
    }
}

/// The products of each constant.
pub(crate) static PRODUCTS: [Products; 256] = {
    let mut all = [Products::new(0); 256];
    let mut c = 1;
    while c < 256 {
        all[c] = Products::new(c as u8);
        c += 1;
    }
    all
};

/// The product of two elements.
pub(crate) fn mul(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)].times(b)
}

/// `a` to the power of `n`.
pub(crate) fn pow(a: u8, n: u32) -> u8 {
    (0..n).fold(1, |product, _| mul(product, a))
}

/// The element whose product with `a` is 1; 0 for 0, which has none.
pub(crate) fn inverse(a: u8) -> u8 {
    // The 255 elements other than 0 are a group.
    pow(a, 254)
}
