//! What the core asks of the daemon, and what it is told about the world with each event.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::UTime;
use spirula_maps::PgId;
use spirula_proto::RawMessage;
use spirula_proto::mon::LogPriority;
use spirula_proto::osd::{MOsdOpReply, MWatchNotify};

use super::account::Room;
use super::describe::{OpRecord, describe};
use super::errno::{EAGAIN, EPERM};
use super::fetch::{Fetched, ReadError, Want};
use super::image_io::ImageIo;
use super::object::StoredObject;
use super::op::{Client, ClientOp, Stamps};
use super::perf::CorePerf;
use super::txn::Txn;
use super::versions::Versions;

/// Names a request to the store. The upper half tells the PG, the lower one the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

impl Token {
    /// The token of request `seq` of the PG in place `slot`.
    pub fn new(slot: u32, seq: u32) -> Self {
        Self(u64::from(slot) << 32 | u64::from(seq))
    }

    /// The PG's place.
    pub fn slot(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The request.
    pub fn seq(self) -> u32 {
        self.0 as u32
    }
}

/// What a transaction may take of the room that is kept free for changes that were accepted already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// All of it: it is stored in any case, and waits for room where there is none. What frees more than it takes always finds some.
    All,
    /// Half of it: requests wait for this. Refused where that is not there.
    Half,
    /// None of it: it is done in the background. Refused where there is no other room.
    None,
}

/// For whom something is read.
#[derive(Debug)]
pub struct Reader {
    /// The client.
    pub client: Arc<Client>,
    /// Bytes that are held for the same request already.
    pub held: usize,
    /// Whether it need not be read once the client has gone.
    pub only_reads: bool,
}

/// A command to the daemon. They are to be carried out in order.
#[derive(Debug)]
pub enum Output {
    /// Submit to the store; tell when it is durable.
    Submit {
        /// For [`StoreReply::Committed`], or [`StoreReply::NoRoom`].
        token: Token,
        /// What.
        txn: Txn,
        /// What it may take of the room that is kept free.
        claim: Claim,
    },
    /// Look an object up.
    Lookup {
        /// For [`StoreReply::Object`].
        token: Token,
        /// Its key.
        key: Bytes,
    },
    /// Read parts of an object. They are as the transactions submitted before left them.
    Read {
        /// For [`StoreReply::Fetched`].
        token: Token,
        /// Its key.
        key: Bytes,
        /// What.
        wants: Vec<Want>,
        /// For whom; `None` for the PG itself.
        reader: Option<Reader>,
    },
    /// List objects.
    List {
        /// For [`StoreReply::Objects`].
        token: Token,
        /// First key.
        from: Bytes,
        /// Key after the last.
        to: Bytes,
        /// How many at most.
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
        /// How many at most.
        max: usize,
    },
    /// Send to another OSD; dropped where there is no connection.
    Send {
        /// To whom.
        osd: i32,
        /// What.
        msg: RawMessage,
        /// Whether it answers: then it goes back over the connection that the other opened, so that the other notices
        /// its loss.
        reply: bool,
    },
    /// Answer a client.
    Reply {
        /// Whom.
        client: Arc<Client>,
        /// The reply.
        reply: Box<MOsdOpReply>,
        /// Offset of the data in its object.
        data_off: u16,
        /// For the histograms.
        stamps: Stamps,
        /// What to remember of it where it was one of the slow ones.
        record: Option<Box<OpRecord>>,
    },
    /// Tell a client about a watch or notification.
    WatchNotify {
        /// Whom.
        client: Arc<Client>,
        /// What.
        msg: Box<MWatchNotify>,
    },
    /// End the client's connection: it connects again, and sends again what was not answered.
    HangUp {
        /// Whose.
        client: Arc<Client>,
    },
    /// Call [`crate::core::Core::handle_alarm`] at this time, or a little later.
    Alarm {
        /// Microseconds of the monotonic clock.
        usec: u64,
    },
    /// Have the monitors record that this OSD is up in this epoch (`up_thru`).
    Alive {
        /// The epoch.
        epoch: u32,
    },
    /// Have the monitors install an acting set for a while; an empty one ends that.
    PgTemp {
        /// Of this PG.
        pgid: PgId,
        /// The primary first.
        acting: Vec<i32>,
    },
    /// Tell the cluster log.
    ClusterLog {
        /// How bad it is.
        priority: LogPriority,
        /// What happened.
        line: String,
    },
    /// The client uses an old map: send it the newer ones.
    ShareMap {
        /// Who.
        client: Arc<Client>,
        /// What it has.
        epoch: u32,
    },
}

/// Objects by key, with their encoded infos, and where to go on if there is more.
pub type Page = (Vec<(Bytes, Bytes)>, Option<Bytes>);

/// An answer of the store.
#[derive(Debug)]
pub enum StoreReply {
    /// A transaction is durable. They come in the order of submission.
    Committed,
    /// A transaction was refused, as there is no room for it; others that were submitted after it may have been taken.
    NoRoom,
    /// The object, if it exists.
    Object(Result<Option<StoredObject>, ReadError>),
    /// What was wanted, in that order, and the room that it takes.
    Fetched(Vec<Fetched>, Room),
    /// It was not read: the client has gone.
    NotRead,
    /// A page of objects.
    Objects(Result<Page, ReadError>),
    /// Keys of records.
    Records(Result<Vec<Bytes>, ReadError>),
}

/// The circumstances of an event.
pub struct Ctx<'a> {
    /// The wall clock.
    pub now: UTime,
    /// Microseconds of a monotonic clock.
    pub usec: u64,
    /// OSDs, this one among them, that are so full that nothing may grow on them (`osd_failsafe_full_ratio`).
    pub full: &'a BTreeSet<i32>,
    /// What other OSDs speak.
    pub versions: &'a Versions,
    /// Where commands go.
    pub out: &'a mut Vec<Output>,
    /// Where the core counts.
    pub perf: &'a mut CorePerf,
    /// Where requests are counted by image.
    pub images: &'a mut ImageIo,
    /// Requests that took longer, in microseconds, are described to the daemon.
    pub slow_after: u64,
    /// The description of the request that is about to be answered, where it was slow.
    pub described: Option<String>,
}

impl Ctx<'_> {
    /// To be called with a request before its reply takes its ops over: describes it if it was slow.
    pub(super) fn note_slow(&mut self, op: &ClientOp) {
        if self.usec.saturating_sub(op.stamps.received) > self.slow_after {
            self.described = Some(describe(op));
        }
    }

    /// A request of a client that may do nothing.
    pub(crate) fn deny(&mut self, mut op: ClientOp, epoch: u32) {
        self.out.push(Output::Reply {
            reply: Box::new(op.error_reply(-EPERM, epoch)),
            client: op.client,
            data_off: 0,
            stamps: op.stamps,
            record: None,
        });
    }

    /// A request for a PG that this OSD does not serve, at least not yet. Its client's map may be as new as this one's, and then it
    /// hears nothing more: a read that any member may answer is the primary's. All others go to where newer maps say.
    pub(crate) fn turn_away(&mut self, mut op: ClientOp, epoch: u32) {
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
