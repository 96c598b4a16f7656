//! The core's commands to the daemon, and the circumstances that come with each event.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::{Micros, UTime};
use spirula_errno::{EAGAIN, EPERM};
use spirula_maps::{Epoch, OsdId, PgId};
use spirula_proto::RawMessage;
use spirula_proto::mon::LogPriority;
use spirula_proto::osd::{MOsdOpReply, MWatchNotify};

use super::account::Room;
use super::describe::{OpRecord, describe};
use super::fetch::{Fetched, ReadError, Want};
use super::image_io::ImageIo;
use super::object::StoredObject;
use super::op::{Client, ClientOp, Stamps};
use super::perf::CorePerf;
use super::placed_data::PlacedData;
use super::txn::Txn;
use super::versions::Versions;

/// The name of a call to the store. The upper half is the PG's slot, the lower one the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

impl Token {
    /// The token of call `seq` of the PG in `slot`.
    pub fn new(slot: u32, seq: u32) -> Self {
        Self(u64::from(slot) << 32 | u64::from(seq))
    }

    /// The PG's slot.
    pub fn slot(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The call.
    pub fn seq(self) -> u32 {
        self.0 as u32
    }
}

/// The part that a transaction may use of the room kept free for changes that were accepted
/// already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// All of it: the transaction is stored in any case, and waits for room if there is none. One
    /// that frees more than it takes always finds some.
    All,
    /// Half of it: requests wait for the transaction. It is refused if half is not there.
    Half,
    /// None of it: the transaction is background work. It is refused if there is no other room.
    None,
}

/// The client for which something is read.
#[derive(Debug)]
pub struct Reader {
    /// The client.
    pub client: Arc<Client>,
    /// Bytes that are held for the same request already.
    pub held: usize,
    /// Whether the read may be dropped once the client has gone.
    pub only_reads: bool,
    /// Whether the client said that what it reads is not worth keeping.
    pub only_once: bool,
}

/// A command to the daemon. They are to be carried out in order.
#[derive(Debug)]
pub enum Output {
    /// Submit to the store; tell when it is durable.
    Submit {
        /// For [`StoreReply::Committed`], or [`StoreReply::NoRoom`].
        token: Token,
        /// The transaction.
        txn: Txn,
        /// The part that it may use of the room kept free.
        claim: Claim,
    },
    /// Bring data, whole blocks of 4 KiB, to free blocks of the store.
    Place {
        /// For [`StoreReply::Placed`].
        token: Token,
        /// The data.
        data: Bytes,
    },
    /// Look an object up.
    Lookup {
        /// For [`StoreReply::Object`].
        token: Token,
        /// The object's key.
        key: Bytes,
    },
    /// Read parts of an object, as the transactions submitted before leave it.
    Read {
        /// For [`StoreReply::Fetched`].
        token: Token,
        /// The object's key.
        key: Bytes,
        /// The parts.
        wants: Vec<Want>,
        /// The client; `None` for the PG itself.
        reader: Option<Reader>,
        /// Whether the read begins though there is no room: room was taken for it, here or by the
        /// member that asks. Those that have room would wait for those that wait for it.
        has_room: bool,
    },
    /// List objects.
    List {
        /// For [`StoreReply::Objects`].
        token: Token,
        /// First key.
        from: Bytes,
        /// Key after the last.
        to: Bytes,
        /// The most objects.
        max: usize,
    },
    /// List the PG's own records.
    ListRecords {
        /// For [`StoreReply::Records`].
        token: Token,
        /// First key.
        from: Bytes,
        /// Key after the last.
        to: Bytes,
        /// The most records.
        max: usize,
    },
    /// Send a message to another OSD; it is dropped if there is no connection.
    Send {
        /// The receiver.
        osd: OsdId,
        /// The message.
        msg: RawMessage,
        /// Whether it is an answer: then it goes back over the connection that the other OSD
        /// opened, so that the other OSD notices its loss.
        reply: bool,
    },
    /// Answer a client.
    Reply {
        /// The client.
        client: Arc<Client>,
        /// The reply.
        reply: Box<MOsdOpReply>,
        /// Offset of the data in its object.
        data_off: u16,
        /// The times of the request's stages, for the histograms.
        stamps: Stamps,
        /// The record to remember of the request, if it was a slow one.
        record: Option<Box<OpRecord>>,
    },
    /// Tell a client about a watch or notification.
    WatchNotify {
        /// The client.
        client: Arc<Client>,
        /// The message.
        msg: Box<MWatchNotify>,
    },
    /// End the client's connection: it connects again, and sends unanswered requests again.
    HangUp {
        /// The client.
        client: Arc<Client>,
    },
    /// Call [`crate::core::Core::handle_alarm`] at this time, or a little later.
    Alarm {
        /// By the monotonic clock.
        usec: Micros,
    },
    /// Have the monitors record that this OSD is up in this epoch (`up_thru`).
    Alive {
        /// The epoch.
        epoch: Epoch,
    },
    /// Have the monitors install an acting set for a while; an empty one ends that.
    PgTemp {
        /// The PG.
        pgid: PgId,
        /// The acting set, the primary first.
        acting: Vec<OsdId>,
    },
    /// Tell the cluster log.
    ClusterLog {
        /// The priority of the line.
        priority: LogPriority,
        /// The line.
        line: String,
    },
    /// Send newer maps to a client that uses an old one.
    ShareMap {
        /// The client.
        client: Arc<Client>,
        /// The client's epoch.
        epoch: Epoch,
    },
}

/// Objects by key, with their encoded infos, and the key to go on with if there are more.
pub type Page = (Vec<(Bytes, Bytes)>, Option<Bytes>);

/// An answer of the store.
#[derive(Debug)]
pub enum StoreReply {
    /// A transaction is durable. These answers come in the order of submission.
    Committed,
    /// A transaction was refused, as there is no room for it; others that were submitted after it
    /// may have been accepted.
    NoRoom,
    /// The data is durable, or there is no room for it.
    Placed(Option<PlacedData>),
    /// The object, if it exists.
    Object(Result<Option<StoredObject>, ReadError>),
    /// The answers in the order of the wants, and the room that they take.
    Fetched(Vec<Fetched>, Room),
    /// The read was dropped, as the client has gone.
    NotRead,
    /// A page of objects.
    Objects(Result<Page, ReadError>),
    /// Records: fewer than wanted though there are more, but not none.
    Records(Result<Vec<(Bytes, Bytes)>, ReadError>),
}

/// The circumstances of an event.
pub struct Ctx<'a> {
    /// The wall clock.
    pub now: UTime,
    /// A monotonic clock.
    pub usec: Micros,
    /// The epoch in which this OSD was first up with the store that it has: the store keeps all
    /// that the OSD was given from then on. `None` if that is not known.
    pub kept_since: Option<Epoch>,
    /// The OSDs, perhaps this one among them, that are so full that nothing may grow on them
    /// (`osd_failsafe_full_ratio`).
    pub full: &'a BTreeSet<OsdId>,
    /// The versions that other OSDs speak.
    pub versions: &'a Versions,
    /// The commands to the daemon.
    pub out: &'a mut Vec<Output>,
    /// The core's counters.
    pub perf: &'a mut CorePerf,
    /// The counters of requests by image.
    pub images: &'a mut ImageIo,
    /// Requests that took longer than this are described to the daemon.
    pub slow_after: Micros,
    /// The description of the request that is about to be answered, if it was slow.
    pub described: Option<String>,
}

impl Ctx<'_> {
    /// Describes a request if it was slow; to be called before its reply takes its ops.
    pub(super) fn note_slow(&mut self, op: &ClientOp) {
        if self.usec.saturating_sub(op.stamps.received) > self.slow_after {
            self.described = Some(describe(op));
        }
    }

    /// Refuses a request of a client that may do nothing.
    pub(crate) fn deny(&mut self, mut op: ClientOp, epoch: Epoch) {
        self.out.push(Output::Reply {
            reply: Box::new(op.error_reply(-EPERM, epoch)),
            client: op.client,
            data_off: 0,
            stamps: op.stamps,
            record: None,
        });
    }

    /// Turns away a request for a PG that this OSD does not serve, at least not yet. A read that
    /// any member may answer fails with `EAGAIN`, so that its client turns to the primary: its map
    /// may be as new as this one's, and then it would hear nothing more. The clients of all other
    /// requests follow newer maps.
    pub(crate) fn turn_away(&mut self, mut op: ClientOp, epoch: Epoch) {
        self.out.push(if op.is_any_members() {
            Output::Reply {
                reply: Box::new(op.error_reply(-EAGAIN, epoch)),
                client: op.client,
                data_off: 0,
                stamps: op.stamps,
                record: None,
            }
        } else {
            Output::ShareMap {
                client: op.client,
                epoch: op.epoch,
            }
        });
    }
}
