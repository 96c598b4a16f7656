//! The reasons why the daemon drops a message. A PG counts the messages that it drops itself
//! ([`crate::pg::perf::DropReason`]).

use spirula_invariant::{Counts, reasons};

reasons! {
    /// Why a message is not sent, or not handled.
    pub(super) enum Dropped {
        /// The map has the receiving OSD down: what matters is sent again in the next interval.
        ToDown => "to_down_osd", "Messages to OSDs that are down by the map";
        /// Too many messages wait for the connection already: PGs send again what is not confirmed.
        ToQueue => "to_unreached_osd", "Messages to an OSD beyond those that wait for its connection";
        /// The connection on which an OSD asked has ended: it asks again.
        ToGoneOsd => "to_gone_osd", "Answers to OSDs whose connection has ended";
        /// The client's connection has ended: it sends its requests again.
        ToGoneClient => "to_gone_client", "Replies to clients whose connection has ended";
        /// The client was hung up on while its request was on the way.
        FromGoneClient => "from_gone_client", "Requests of clients that were hung up on";
        /// The OSD does not read earlier messages, or is down: the next ping follows soon.
        Ping => "pings", "Pings to OSDs that are down, or do not read them";
        /// The OSD does not lead the PG, or not any more.
        ScrubOrder => "scrub_orders", "Orders to scrub PGs that the OSD does not lead";
        /// The message is of another cluster, or of a kind that does not belong on such a
        /// connection.
        Misdirected => "misdirected", "Messages that are not for an OSD, or of another cluster";
    }
}

/// How often messages were dropped, by reason.
pub(super) type DropCounts = Counts<Dropped>;
