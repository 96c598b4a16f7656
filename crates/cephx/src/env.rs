//! The inputs of a handshake's step from outside: time and randomness.

use spirula_denc::UTime;

use crate::{Error, Result};

/// A source of unpredictable bytes. A simulation passes a seeded one.
pub trait RandomSource {
    /// Fills `buf`.
    ///
    /// # Errors
    /// [`Error::NoRandomness`] where the source is exhausted or broken; nothing may be done without
    /// it.
    fn fill(&self, buf: &mut [u8]) -> Result<()>;
}

/// The operating system's random generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsRandom;

impl RandomSource for OsRandom {
    fn fill(&self, buf: &mut [u8]) -> Result<()> {
        spirula_random::fill(buf).map_err(|_| Error::NoRandomness)
    }
}

/// The time and randomness of one step.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The wall clock's time.
    pub now: UTime,
    /// The source of keys, challenges and nonces.
    pub random: &'a dyn RandomSource,
}

impl std::fmt::Debug for Env<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl Env<'static> {
    /// The given time and the operating system's randomness.
    pub fn system(now: UTime) -> Self {
        Self {
            now,
            random: &OsRandom,
        }
    }
}

impl Env<'_> {
    /// A random number.
    ///
    /// # Errors
    /// [`crate::Error::NoRandomness`].
    pub fn random_u64(&self) -> Result<u64> {
        let mut b = [0; 8];
        self.random.fill(&mut b)?;
        Ok(u64::from_le_bytes(b))
    }
}
