//! AES-256-XTS (IEEE Std 1619) on blocks of 4 KiB, each a data unit whose tweak is its number.

// The library has this mode behind its C interface only. Each call passes slices whose lengths are
// checked, and contexts that their owner alone uses.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::ptr::{self, NonNull};

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CipherInit_ex, EVP_CipherUpdate,
    EVP_aes_256_xts,
};
use zeroize::Zeroizing;

/// The two keys of AES-256-XTS, one after the other.
pub(crate) type XtsKey = Zeroizing<[u8; 64]>;

/// The cipher under one key, in both directions.
#[derive(Debug)]
pub(crate) struct Xts {
    encrypt: Context,
    decrypt: Context,
}

impl Xts {
    /// The cipher under `key`.
    ///
    /// # Errors
    /// No memory, or two keys that are the same.
    pub(crate) fn new(key: &XtsKey) -> io::Result<Self> {
        Ok(Self {
            encrypt: Context::new(key, true)?,
            decrypt: Context::new(key, false)?,
        })
    }

    /// Encrypts block number `block` from `from` to `to`, which are of one length.
    ///
    /// # Errors
    /// Lengths that differ, or are below 16 bytes.
    pub(crate) fn encrypt(&mut self, block: u64, from: &[u8], to: &mut [u8]) -> io::Result<()> {
        if from.len() != to.len() {
            return Err(refused());
        }
        self.encrypt.run(block, from.as_ptr(), to)
    }

    /// Decrypts block number `block` in its place.
    ///
    /// # Errors
    /// Less than 16 bytes.
    pub(crate) fn decrypt(&mut self, block: u64, data: &mut [u8]) -> io::Result<()> {
        let from = data.as_ptr();
        self.decrypt.run(block, from, data)
    }
}

/// A context of the library, which clears its keys when it is freed.
#[derive(Debug)]
struct Context(NonNull<EVP_CIPHER_CTX>);

// SAFETY: a context belongs to no thread. It is not `Sync`, and is changed through `&mut` only.
unsafe impl Send for Context {}

impl Context {
    fn new(key: &XtsKey, encrypt: bool) -> io::Result<Self> {
        // SAFETY: takes no arguments; the result is owned here.
        let raw = unsafe { EVP_CIPHER_CTX_new() };
        let context = Self(NonNull::new(raw).ok_or(io::ErrorKind::OutOfMemory)?);
        // SAFETY: the context is new; the cipher reads the 64 bytes that `key` has, and no tweak as
        // none is given.
        let done = unsafe {
            EVP_CipherInit_ex(
                context.0.as_ptr(),
                EVP_aes_256_xts(),
                ptr::null_mut(),
                key.as_ptr(),
                ptr::null(),
                c_int::from(encrypt),
            )
        };
        if done == 1 { Ok(context) } else { Err(refused()) }
    }

    /// Passes `to.len()` bytes at `from`, which may be those of `to`, through the cipher.
    fn run(&mut self, block: u64, from: *const u8, to: &mut [u8]) -> io::Result<()> {
        let tweak = u128::from(block).to_le_bytes();
        let len = c_int::try_from(to.len()).map_err(io::Error::other)?;
        let mut written: c_int = 0;
        // SAFETY: the context is initialised with a key; the tweak has the 16 bytes that this mode
        // reads; the callers' `from` and `to` are of `len` bytes, and either the same ones or
        // apart, which the cipher allows.
        let done = unsafe {
            EVP_CipherInit_ex(
                self.0.as_ptr(),
                ptr::null(),
                ptr::null_mut(),
                ptr::null(),
                tweak.as_ptr(),
                -1,
            ) == 1
                && EVP_CipherUpdate(self.0.as_ptr(), to.as_mut_ptr(), &mut written, from, len) == 1
        };
        if done && written == len {
            Ok(())
        } else {
            Err(refused())
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: owned here, and freed once.
        unsafe { EVP_CIPHER_CTX_free(self.0.as_ptr()) };
    }
}

fn refused() -> io::Error {
    io::Error::other("AES-XTS refuses a key or a block")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes()
            .chunks(2)
            .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn vector_10_of_the_standard() {
        let mut key = XtsKey::new([0; 64]);
        key.copy_from_slice(&bytes(concat!(
            "2718281828459045235360287471352662497757247093699959574966967627",
            "3141592653589793238462643383279502884197169399375105820974944592"
        )));
        let plain: Vec<u8> = (0..512u32).map(|i| i as u8).collect();
        let mut xts = Xts::new(&key).unwrap();
        let mut sealed = vec![0; 512];
        xts.encrypt(0xff, &plain, &mut sealed).unwrap();
        assert_eq!(
            sealed[..64],
            bytes(concat!(
                "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b",
                "5d31e276f8fe4a8d66b317f9ac683f44680a86ac35adfc3345befecb4bb188fd"
            ))
        );
        xts.decrypt(0xff, &mut sealed).unwrap();
        assert_eq!(sealed, plain);
        sealed[0] ^= 1;
        xts.decrypt(0xfe, &mut sealed).unwrap();
        assert_ne!(sealed, plain);
    }

    #[test]
    fn what_is_no_key_or_no_block_is_refused() {
        assert!(
            Xts::new(&XtsKey::new([7; 64])).is_err(),
            "both halves are the same"
        );
        let mut key = XtsKey::new([7; 64]);
        key[0] = 8;
        let mut xts = Xts::new(&key).unwrap();
        assert!(xts.encrypt(0, &[0; 32], &mut [0; 16]).is_err());
        assert!(xts.decrypt(0, &mut [0; 15]).is_err());
    }

    #[test]
    fn a_torn_ciphertext_is_the_ciphertext_of_what_is_torn() {
        let mut key = XtsKey::new([7; 64]);
        key[0] = 8;
        let mut xts = Xts::new(&key).unwrap();
        let (old, new) = ([1; 4096], [2; 4096]);
        let (mut torn, mut other) = ([0; 4096], [0; 4096]);
        xts.encrypt(5, &old, &mut torn).unwrap();
        xts.encrypt(5, &new, &mut other).unwrap();
        torn[512..1536].copy_from_slice(&other[512..1536]);
        xts.decrypt(5, &mut torn).unwrap();
        let mut expected = old;
        expected[512..1536].copy_from_slice(&new[512..1536]);
        assert_eq!(torn, expected);
    }
}
