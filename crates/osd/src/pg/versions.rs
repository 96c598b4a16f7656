//! The edition of the messages between OSDs that each OSD speaks, so that OSDs of neighbouring
//! versions make one cluster.

use std::collections::BTreeMap;

use spirula_maps::OsdId;
use spirula_proto::RawMessage;
use spirula_proto::internal::{Edition, Neighbour};

use super::message::PeerMessage;

/// The editions that the other OSDs speak, as one OSD knows them.
#[derive(Debug, Default)]
pub struct Versions {
    own: Edition,
    of: BTreeMap<OsdId, Neighbour>,
}

impl Versions {
    /// The editions as known to an OSD that speaks `own` itself.
    #[cfg(test)]
    pub(crate) fn speaking(own: Edition) -> Self {
        Self {
            own,
            of: BTreeMap::new(),
        }
    }

    /// The edition that this OSD speaks.
    #[cfg(test)]
    pub(crate) fn own(&self) -> Edition {
        self.own
    }

    fn neighbour(&self, osd: OsdId) -> Neighbour {
        let known = self.of.get(&osd).copied();
        known.unwrap_or_else(|| Neighbour::of(self.own))
    }

    /// The edition in which an OSD is written to.
    pub(super) fn to(&self, osd: OsdId) -> Edition {
        self.neighbour(osd).edition()
    }

    /// A message as it goes to an OSD.
    pub fn write(&self, osd: OsdId, msg: &PeerMessage) -> RawMessage {
        self.neighbour(osd).write(msg)
    }

    /// Reads a message of an OSD, and notes which edition it speaks.
    ///
    /// # Errors
    /// Where it is truncated, of another type or of a version that is not understood.
    pub fn read(&mut self, from: OsdId, msg: &RawMessage) -> spirula_proto::Result<PeerMessage> {
        let own = self.own;
        self.of
            .entry(from)
            .or_insert_with(|| Neighbour::of(own))
            .read(msg)
    }

    /// The connection with an OSD has ended.
    pub fn forget(&mut self, osd: OsdId) {
        self.of.remove(&osd);
    }
}

#[cfg(test)]
mod tests {
    use spirula_maps::PgId;
    use spirula_proto::internal::Protocol;

    use spirula_maps::PoolId;

    use super::*;
    use crate::pg::message::{PeerBody, PeeringId};

    #[test]
    fn neighbours_are_written_to_in_what_they_speak() {
        let msg = PeerMessage {
            pgid: PgId::new(PoolId::new(1), 2),
            id: PeeringId::default(),
            body: PeerBody::Query,
        };
        let (mut new, mut old) = (Versions::default(), Versions::speaking(Edition::Previous));
        let first = new.write(OsdId::new(1), &msg);
        assert_eq!(
            (first.header.version, first.header.compat_version),
            (PeerMessage::CURRENT, PeerMessage::PREVIOUS)
        );
        assert_eq!(old.read(OsdId::new(0), &first), Ok(msg.clone()));
        new.read(OsdId::new(1), &old.write(OsdId::new(0), &msg)).unwrap();
        assert_eq!(new.to(OsdId::new(1)), Edition::Previous);
        new.read(OsdId::new(2), &Versions::default().write(OsdId::new(0), &msg))
            .unwrap();
        let known = new.write(OsdId::new(2), &msg);
        assert_eq!(known.header.compat_version, PeerMessage::CURRENT);
        assert!(
            old.read(OsdId::new(0), &known).is_err(),
            "it is not written for it"
        );
        new.forget(OsdId::new(2));
        assert_eq!(new.to(OsdId::new(2)), Edition::Previous);
    }

    #[test]
    fn what_is_older_than_the_version_before_is_refused() {
        let mut msg = Versions::default().write(
            OsdId::new(1),
            &PeerMessage {
                pgid: PgId::new(PoolId::new(1), 2),
                id: PeeringId::default(),
                body: PeerBody::Query,
            },
        );
        msg.header.version = PeerMessage::PREVIOUS - 1;
        msg.header.compat_version = PeerMessage::PREVIOUS - 1;
        let refused = Versions::default().read(OsdId::new(1), &msg);
        assert!(
            matches!(refused, Err(spirula_proto::Error::TooOld { .. })),
            "{refused:?}"
        );
    }
}
