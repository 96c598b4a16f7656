//! The version of the messages between OSDs that each OSD speaks, so that OSDs of neighbouring
//! versions make one cluster.
//!
//! A message's header names the version that its sender speaks (`version`), and the one that the
//! message is written in (`compat_version`). An OSD writes to another in the newest version that
//! both speak. Before it has heard from the other one, it writes in the oldest version that it
//! speaks itself, which an OSD of the version before understands. A peer's version is known for as
//! long as the connection: afterwards the peer may be another program.

use std::collections::BTreeMap;

use spirula_proto::RawMessage;

use super::message::{OLDEST, PeerMessage, VERSION};

/// The versions that the other OSDs speak, as one OSD knows them.
#[derive(Debug)]
pub struct Versions {
    own: u16,
    of: BTreeMap<i32, u16>,
}

impl Default for Versions {
    fn default() -> Self {
        Self::speaking(VERSION)
    }
}

impl Versions {
    /// The versions as known to an OSD that speaks `own` itself.
    pub(crate) fn speaking(own: u16) -> Self {
        Self {
            own,
            of: BTreeMap::new(),
        }
    }

    /// The version that this OSD speaks.
    #[cfg(test)]
    pub(crate) fn own(&self) -> u16 {
        self.own
    }

    /// The version in which an OSD is written to.
    pub(super) fn to(&self, osd: i32) -> u16 {
        let theirs = self.of.get(&osd).copied().unwrap_or(OLDEST);
        theirs.clamp(OLDEST, self.own)
    }

    /// A message in this version, which is one of [`Versions::to`].
    pub(super) fn write_in(&self, version: u16, msg: &PeerMessage) -> RawMessage {
        msg.to_raw(self.own, version)
    }

    /// A message as it goes to an OSD.
    pub fn write(&self, osd: i32, msg: &PeerMessage) -> RawMessage {
        self.write_in(self.to(osd), msg)
    }

    /// Reads a message of an OSD, and notes which version it speaks.
    ///
    /// # Errors
    /// Those of [`PeerMessage::from_raw`].
    pub fn read(&mut self, from: i32, msg: &RawMessage) -> spirula_proto::Result<PeerMessage> {
        self.of.insert(from, msg.header.version);
        PeerMessage::from_raw(msg, self.own)
    }

    /// The connection with an OSD has ended.
    pub fn forget(&mut self, osd: i32) {
        self.of.remove(&osd);
    }
}

#[cfg(test)]
mod tests {
    use spirula_maps::PgId;

    use super::*;
    use crate::pg::message::{PeerBody, PeeringId};

    #[test]
    fn neighbours_are_written_to_in_what_they_speak() {
        let msg = PeerMessage {
            pgid: PgId::new(1, 2),
            id: PeeringId::default(),
            body: PeerBody::Query,
        };
        let (mut new, mut old) = (Versions::default(), Versions::speaking(OLDEST));
        let first = new.write(1, &msg);
        assert_eq!(
            (first.header.version, first.header.compat_version),
            (VERSION, OLDEST)
        );
        assert_eq!(old.read(0, &first), Ok(msg.clone()));
        new.read(1, &old.write(0, &msg)).unwrap();
        assert_eq!(new.to(1), OLDEST);
        new.read(2, &Versions::default().write(0, &msg)).unwrap();
        let known = new.write(2, &msg);
        assert_eq!(known.header.compat_version, VERSION);
        assert!(old.read(0, &known).is_err(), "it is not written for it");
        new.forget(2);
        assert_eq!(new.to(2), OLDEST);
    }

    #[test]
    fn what_is_older_than_the_version_before_is_refused() {
        let mut msg = Versions::default().write(
            1,
            &PeerMessage {
                pgid: PgId::new(1, 2),
                id: PeeringId::default(),
                body: PeerBody::Query,
            },
        );
        msg.header.version = OLDEST - 1;
        msg.header.compat_version = OLDEST - 1;
        let refused = Versions::default().read(1, &msg);
        assert!(
            matches!(refused, Err(spirula_proto::Error::TooOld { .. })),
            "{refused:?}"
        );
    }
}
