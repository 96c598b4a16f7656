//! The version in which a peer is written to, so that daemons of neighbouring versions make one
//! cluster.
//!
//! A message's header names the version that its sender speaks (`version`), and the one that the
//! message is written in (`compat_version`). A daemon writes to a peer in the newest version that
//! both speak. Before it has heard from the peer, it writes in the oldest version that it speaks
//! itself, which a daemon of the version before understands. This knowledge of a peer holds as long
//! as the connection: afterwards the peer may be another program.

use crate::{Error, RawMessage, Result};

/// Which of the two versions of a protocol that may meet in one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Edition {
    /// The version of the release before.
    Previous,
    /// The newest version.
    #[default]
    Current,
}

impl Edition {
    /// The edition of a version of a protocol.
    fn of<P: Protocol>(version: u16) -> Self {
        match version >= P::CURRENT {
            true => Self::Current,
            false => Self::Previous,
        }
    }
}

/// One of our protocols, in two editions.
pub trait Protocol: Sized {
    /// The newest version.
    const CURRENT: u16;
    /// The version of the release before, the oldest that is understood and spoken.
    const PREVIOUS: u16;

    /// The message encoded in `edition`, but for the versions in its header.
    fn compose(&self, edition: Edition) -> RawMessage;

    /// Reads a message that is written in `edition`.
    ///
    /// # Errors
    /// Where it is truncated or of another type.
    fn parse(msg: &RawMessage, edition: Edition) -> Result<Self>;

    /// The version that an edition has in this protocol.
    fn version(edition: Edition) -> u16 {
        match edition {
            Edition::Previous => Self::PREVIOUS,
            Edition::Current => Self::CURRENT,
        }
    }

    /// The encoded message of a daemon that speaks `own`, written in `edition`.
    fn to_raw(&self, own: Edition, edition: Edition) -> RawMessage {
        let mut msg = self.compose(edition);
        msg.header.version = Self::version(own);
        msg.header.compat_version = Self::version(edition);
        msg
    }

    /// Reads a message as a daemon that speaks `own`.
    ///
    /// # Errors
    /// Where it is truncated, of another type or of a version that is not understood.
    fn from_raw(msg: &RawMessage, own: Edition) -> Result<Self> {
        let (kind, version, compat) = (msg.kind(), msg.header.version, msg.header.compat_version);
        let known = Self::version(own);
        if compat > known {
            return Err(Error::TooNew { kind, compat, known });
        }
        if version < Self::PREVIOUS {
            return Err(Error::TooOld { kind, version });
        }
        Self::parse(msg, Edition::of::<Self>(compat))
    }
}

/// What a daemon knows of the edition that a peer at the other end of a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Neighbour {
    own: Edition,
    theirs: Option<Edition>,
}

impl Neighbour {
    /// A peer of which a daemon that speaks `own` has heard nothing yet.
    pub fn of(own: Edition) -> Self {
        Self { own, theirs: None }
    }

    /// The edition in which the peer is written to.
    pub fn edition(&self) -> Edition {
        self.theirs.unwrap_or(Edition::Previous).min(self.own)
    }

    /// A message as it goes to the peer.
    pub fn write<P: Protocol>(&self, msg: &P) -> RawMessage {
        msg.to_raw(self.own, self.edition())
    }

    /// Reads a message of the peer, and notes which edition it speaks.
    ///
    /// # Errors
    /// Those of [`Protocol::from_raw`].
    pub fn read<P: Protocol>(&mut self, msg: &RawMessage) -> Result<P> {
        let read = P::from_raw(msg, self.own)?;
        self.theirs = Some(Edition::of::<P>(msg.header.version));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::internal::quorum::{MonPeer, MonPeerReply, TimeAsk, TimeTold};
    use crate::internal::report::{OsdReport, OsdReportReply, PgStatsAck, PurgedSnapsWanted};

    /// Two ends of a connection, on which one asks and the other one answers.
    fn talk<A, B>(ask: &A, answer: &B, of: [Edition; 2]) -> [Edition; 2]
    where
        A: Protocol + PartialEq + std::fmt::Debug,
        B: Protocol + PartialEq + std::fmt::Debug,
    {
        let [mut asks, mut answers] = of.map(Neighbour::of);
        for _ in 0..2 {
            assert_eq!(answers.read::<A>(&asks.write(ask)).as_ref(), Ok(ask));
            assert_eq!(asks.read::<B>(&answers.write(answer)).as_ref(), Ok(answer));
        }
        [asks.edition(), answers.edition()]
    }

    #[test]
    fn neighbours_understand_each_other_and_speak_the_newest_that_both_know() {
        let time = MonPeer::Time(TimeAsk::default());
        let told = MonPeerReply::Time(TimeTold::default());
        let report = OsdReport::WantPurgedSnaps(PurgedSnapsWanted::default());
        let reply = OsdReportReply::PgStatsAck(PgStatsAck::default());
        for a in [Edition::Previous, Edition::Current] {
            for b in [Edition::Previous, Edition::Current] {
                let both = [a.min(b); 2];
                assert_eq!(talk(&time, &told, [a, b]), both);
                assert_eq!(talk(&report, &reply, [a, b]), both);
            }
        }
    }

    #[test]
    fn what_is_older_than_the_previous_edition_is_refused() {
        fn refused<P: Protocol + std::fmt::Debug>(msg: &P) {
            let mut raw = Neighbour::default().write(msg);
            raw.header.version = P::PREVIOUS - 1;
            raw.header.compat_version = P::PREVIOUS - 1;
            let read = Neighbour::default().read::<P>(&raw);
            assert!(matches!(read, Err(Error::TooOld { .. })), "{read:?}");
        }
        refused(&MonPeer::Time(TimeAsk::default()));
        refused(&MonPeerReply::Time(TimeTold::default()));
        refused(&OsdReport::WantPurgedSnaps(PurgedSnapsWanted::default()));
        refused(&OsdReportReply::PgStatsAck(PgStatsAck::default()));
    }

    #[test]
    fn an_older_daemon_refuses_what_is_not_written_for_it() {
        let msg = MonPeer::Time(TimeAsk::default());
        let raw = msg.to_raw(Edition::Current, Edition::Current);
        let read = Neighbour::of(Edition::Previous).read::<MonPeer>(&raw);
        assert!(matches!(read, Err(Error::TooNew { .. })), "{read:?}");
    }
}
