//! Input of the manager: data in pools, and messages between it and its monitor.

use spirula_denc::{Decode, Encode, decode_all, encode_to_vec};
use spirula_manager::{News, Request, Start};

use crate::input::Input;

/// The first byte of an input chooses the reader of the rest: the monitor, the manager, or the
/// manager in a pool.
pub(crate) fn manager(data: &[u8]) {
    let mut from = Input::new(data);
    match from.u8() % 4 {
        0 => heard::<News>(from.rest()),
        1 => heard::<Request>(from.rest()),
        2 => heard::<Start>(from.rest()),
        _ => spirula_manager::read_stored(from.rest()),
    }
}

/// A decoded value must encode.
fn heard<T: Decode + Encode>(data: &[u8]) {
    if let Ok(message) = decode_all::<T>(data) {
        let said = encode_to_vec(&message);
        assert!(
            decode_all::<T>(&said).is_ok(),
            "a message is not understood when it is said again"
        );
    }
}

/// Headers, journals, object maps, migrations, notifications.
pub(crate) fn rbd(data: &[u8]) {
    spirula_rbd::read_stored(data);
}
