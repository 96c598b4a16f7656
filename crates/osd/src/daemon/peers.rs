//! The other OSDs: connections from here and to here, and messages of this OSD to itself.

use std::collections::{BTreeMap, VecDeque};

use spirula_invariant::dropped;
use spirula_maps::OsdId;
use spirula_msgr::Sender;
use spirula_proto::RawMessage;

use super::dropped::{DropCounts, Dropped};
use super::links::Links;
use super::maps::Maps;
use crate::pg::versions::Versions;

/// The messages to OSDs.
#[derive(Default)]
pub(super) struct Peers {
    /// The connections that this OSD opens.
    pub(super) links: Links,
    /// The connections that other OSDs opened, by their OSDs' numbers: for answers.
    incoming: BTreeMap<OsdId, (u64, Sender)>,
    /// The number of the last incoming connection.
    last: u64,
    /// Messages from one PG here to another.
    to_self: VecDeque<RawMessage>,
    /// Which version of our messages each speaks.
    pub(super) versions: Versions,
}

impl Peers {
    /// Notes an OSD that has connected; returns the connection's number.
    pub(super) fn opened(&mut self, osd: OsdId, sender: Sender) -> u64 {
        self.last += 1;
        self.incoming.insert(osd, (self.last, sender));
        self.last
    }

    /// Notes that a connection of an OSD has ended; the OSD may have another already.
    pub(super) fn closed(&mut self, osd: OsdId, conn: u64) {
        if self.incoming.get(&osd).is_some_and(|(c, _)| *c == conn) {
            self.incoming.remove(&osd);
        }
    }

    /// Sends an answer on the connection on which an OSD asks.
    pub(super) fn answer(&self, osd: OsdId, msg: RawMessage, dropped: &mut DropCounts) {
        match self.incoming.get(&osd) {
            Some((_, sender)) => drop(sender.send(msg)),
            None => dropped!(dropped, Dropped::ToGoneOsd; osd = osd),
        }
    }

    /// Sends to an OSD, or from OSD `me` to itself.
    pub(super) fn send(
        &mut self,
        osd: OsdId,
        msg: RawMessage,
        me: OsdId,
        maps: &Maps,
        dropped: &mut DropCounts,
    ) {
        if osd == me {
            self.to_self.push_back(msg);
        } else {
            self.links.send(osd, msg, maps, dropped);
        }
    }

    /// The next message of this OSD to itself.
    pub(super) fn next_to_self(&mut self) -> Option<RawMessage> {
        self.to_self.pop_front()
    }

    /// Sends a message to all OSDs that have connected here.
    pub(super) fn tell(&self, news: &RawMessage) {
        for (_, sender) in self.incoming.values() {
            sender.send(news.clone());
        }
    }

    /// Ends all connections, and makes no new ones.
    pub(super) fn hang_up(&mut self) {
        self.incoming.values().for_each(|(_, s)| s.close());
        self.links.hang_up();
    }
}

#[cfg(test)]
mod tests {
    use spirula_proto::Payload;
    use spirula_proto::internal::heartbeat::{Beat, Heartbeat};

    use super::*;

    #[test]
    fn what_is_for_nobody_is_counted() {
        let (mut peers, mut dropped) = (Peers::default(), DropCounts::default());
        let msg = Heartbeat::Room(Beat::default()).to_message();
        peers.answer(OsdId::new(3), msg.clone(), &mut dropped);
        peers.answer(OsdId::new(4), msg, &mut dropped);
        assert_eq!((dropped.of(Dropped::ToGoneOsd), dropped.total()), (2, 2));
        assert!(peers.next_to_self().is_none());
    }
}
