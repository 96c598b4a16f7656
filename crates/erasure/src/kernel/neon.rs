//! The kernel of 64-bit ARM: 16 products at once, looked up by halves of bytes.

// As in `x86.rs`: vectors are loaded and stored through arrays of their size, and the instructions
// need a value that only their detection makes.
#![allow(unsafe_code)]

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};
use std::arch::is_aarch64_feature_detected;

use super::{Term, portable};
use crate::gf::PRODUCTS;

const WIDTH: usize = 32;

type Vector = [uint8x16_t; 2];

#[target_feature(enable = "neon")]
fn zero() -> Vector {
    [vdupq_n_u8(0); 2]
}

#[target_feature(enable = "neon")]
fn load(from: &[u8; WIDTH]) -> Vector {
    let from = from.as_ptr();
    // SAFETY: reads the array's 32 bytes, of any alignment.
    unsafe { [vld1q_u8(from), vld1q_u8(from.add(16))] }
}

#[target_feature(enable = "neon")]
fn store(v: Vector, to: &mut [u8; WIDTH]) {
    let to = to.as_mut_ptr();
    // SAFETY: writes the array's 32 bytes, of any alignment.
    unsafe {
        vst1q_u8(to, v[0]);
        vst1q_u8(to.add(16), v[1]);
    }
}

#[target_feature(enable = "neon")]
fn sum(a: Vector, b: Vector) -> Vector {
    [veorq_u8(a[0], b[0]), veorq_u8(a[1], b[1])]
}

#[target_feature(enable = "neon")]
fn product(c: u8, v: Vector) -> Vector {
    let products = &PRODUCTS[usize::from(c)];
    // SAFETY: reads 16 bytes of each array, which have so many.
    let (low, high) = unsafe { (vld1q_u8(products.low.as_ptr()), vld1q_u8(products.high.as_ptr())) };
    let half = vdupq_n_u8(15);
    v.map(|v| {
        let of_low = vqtbl1q_u8(low, vandq_u8(v, half));
        veorq_u8(of_low, vqtbl1q_u8(high, vshrq_n_u8::<4>(v)))
    })
}

kernel!("neon", is_aarch64_feature_detected!("neon"));
