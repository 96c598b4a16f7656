//! Encryption of a store: its keys, and the cipher of its blocks. See FORMAT.md, "Encryption".

mod keys;
mod xts;

pub use keys::EncryptionKey;
pub(crate) use keys::{DataKey, Part, SLOT_LEN, Slot};
pub(crate) use xts::{Xts, XtsKey};
