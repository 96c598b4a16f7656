//! The fields that `src/messages/PaxosServiceMessage.h` puts before those of many monitor messages.

use spirula_denc::{Decode, Encode, Reader, Result, Writer};

/// The version of the service's map that the sender has seen; two obsolete fields follow it on the
/// wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PaxosVersion(pub u64);

impl Encode for PaxosVersion {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
        // Once the session's monitor and its transaction id there.
        w.i16(-1);
        w.u64(0);
    }
}

impl Decode for PaxosVersion {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let v = r.u64()?;
        r.skip(10)?;
        Ok(Self(v))
    }
}
