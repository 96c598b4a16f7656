//! A client's request and its reply, as the core sees them.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use spirula_cephx::caps::ClassCall;
use spirula_classes::{Caller, Flags, Method};
use spirula_denc::{EntityAddr, EntityName, EntityType, Micros, UTime};
use spirula_maps::{EVersion, Epoch, HObject, OsdId, PgId, ReqId, SnapContext, SnapId};
use spirula_proto::BytesList;
use spirula_proto::osd::{
    ArgsMember, ExtentArgs, MOsdOpReply, OpCode, OpFlags, OsdFlags, OsdOpIn, OsdOpOut, Trace, WatchArgs,
    WatchOp,
};
use spirula_proto::osd_op_data::CallInput;

use super::account::{Held, Hold, Party, Room};
use super::ahead::ticket::Ahead;
use super::cluster::{ClusterMap, PoolView};
use super::turn::Turn;

/// How many copies of data that is in no buffer of a pool are in memory while a request is under
/// way: as a value, in the message to the others, in the store's log, and for its index.
pub const COPIES: usize = 4;

/// The bytes of these ops of a request that are stored from no buffer of a pool.
pub fn copied_bytes(ops: &[OsdOpIn]) -> usize {
    let is_copied = |op: &&OsdOpIn| {
        matches!(
            op.op.code,
            OpCode::SETXATTR | OpCode::OMAPSETVALS | OpCode::OMAPSETHEADER | OpCode::TMAPUP | OpCode::CALL
        )
    };
    ops.iter().filter(is_copied).map(|op| op.data.len()).sum()
}

/// The access rights of a client.
pub trait Access: Debug + Send + Sync {
    /// Whether the client may do this to objects of this pool, namespace and key (or name). `read`
    /// and `write`: whether the request does so other than in the class methods `calls`.
    fn allows(
        &self,
        pool: &PoolView,
        nspace: &[u8],
        key: &[u8],
        read: bool,
        write: bool,
        calls: &[ClassCall<'_>],
    ) -> bool;

    /// Whether the client may do nothing in any pool, whatever the maps say.
    fn allows_nothing(&self) -> bool {
        false
    }

    /// Whether the client may do everything, which commands to the daemon require.
    fn allows_all(&self) -> bool;
}

/// A connected client.
#[derive(Debug)]
pub struct Client {
    /// The connection's number.
    pub conn: u64,
    /// The client's entity name.
    pub name: EntityName,
    /// The address that the client claims, which locks, watches and blocklists name.
    pub addr: EntityAddr,
    /// The address that the connection comes from, with the nonce that the client claims:
    /// blocklists of hosts and networks mean this one, whatever the client claims.
    pub seen: EntityAddr,
    /// The entity under whose key the client logged in.
    pub entity: String,
    /// The client's rights.
    pub access: Arc<dyn Access>,
    /// The account of the client's requests.
    pub held: Arc<Held>,
    /// The account that it shares with all clients under the same key.
    pub party: Arc<Party>,
    /// Whether its connection has ended.
    pub closed: AtomicBool,
    /// The OSD that asks, if no client does.
    pub asker: Option<Asker>,
}

/// Another OSD that reads an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// Its number.
    pub osd: OsdId,
    /// The PG that it asks for.
    pub pgid: PgId,
    /// The OSD's number for the question.
    pub token: u64,
}

/// The rights of the PG's own ops.
#[derive(Debug)]
struct Internal;

impl Access for Internal {
    fn allows(&self, _: &PoolView, _: &[u8], _: &[u8], _: bool, _: bool, _: &[ClassCall<'_>]) -> bool {
        true
    }

    fn allows_all(&self) -> bool {
        true
    }
}

impl Client {
    /// A client on a connection, with the address that it claims.
    pub fn new(conn: u64, name: EntityName, addr: EntityAddr, access: Arc<dyn Access>) -> Self {
        Self {
            conn,
            name,
            addr,
            seen: addr,
            entity: String::new(),
            access,
            held: Arc::default(),
            party: Arc::default(),
            closed: AtomicBool::new(false),
            asker: None,
        }
    }

    /// The PG itself as a client, for ops of its own. Nobody is answered.
    pub(crate) fn internal() -> Self {
        Self::new(
            0,
            EntityName::default(),
            EntityAddr::default(),
            Arc::new(Internal),
        )
    }

    /// Another OSD as a client.
    pub(crate) fn peer(asker: Asker) -> Self {
        Self {
            name: EntityName::new(EntityType::OSD, i64::from(asker.osd)),
            asker: Some(asker),
            ..Self::internal()
        }
    }

    /// Whether the client is the PG itself. Connections are counted from 1.
    pub(crate) fn is_internal(&self) -> bool {
        self.conn == 0
    }

    /// Whether the client is on a map's blocklist.
    pub(crate) fn is_shut_out(&self, map: &dyn ClusterMap) -> bool {
        !self.is_internal() && (map.is_blocklisted(&self.addr) || map.is_blocklisted(&self.seen))
    }

    /// Whether its connection has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// The information on a request for class methods, besides the object.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request {
    /// The sender.
    pub caller: Caller,
    /// The time of the execution.
    pub now: UTime,
    /// The request's unique id.
    pub reqid: ReqId,
    /// The newest version in the PG that clients have seen.
    pub last_user_version: u64,
}

/// The method that a CALL is for.
#[derive(Debug, Clone)]
pub struct Call {
    /// The class's name.
    pub class: Bytes,
    /// The method's name.
    pub name: Bytes,
    /// The method; `None` if it does not exist.
    pub method: Option<&'static Method>,
    /// Its input.
    pub input: Bytes,
    /// The note of an earlier run.
    pub(crate) noted: Option<Note>,
}

/// What a method has made of the part of an object that it has read in earlier runs.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    /// The version of the object: of another, the note says nothing.
    pub version: EVersion,
    /// The method's own bytes.
    pub bytes: Bytes,
}

impl Call {
    fn of(op: &OsdOpIn) -> Option<Self> {
        let CallInput { class, method, input } = CallInput::of(op)?;
        Some(Self {
            method: spirula_classes::find(&class).and_then(|c| c.method(&method)),
            class,
            name: method,
            input,
            noted: None,
        })
    }

    fn has(&self, flag: Flags) -> bool {
        self.method.is_some_and(|m| m.flags.contains(flag))
    }

    /// Whether the method only reads.
    pub(crate) fn is_reading(&self) -> bool {
        self.has(Flags::RD) && !self.has(Flags::WR)
    }
}

/// One op of a request; in the reply with its results.
#[derive(Debug, Clone, Default)]
pub struct OsdOp {
    /// The op's code.
    pub code: OpCode,
    /// The op's flags.
    pub flags: OpFlags,
    /// The union of `ceph_osd_op`, whose meaning depends on `code`.
    pub body: [u8; 28],
    /// The data that came with it.
    pub indata: Bytes,
    /// The method of a CALL; `None` for other ops, and if the lengths are wrong.
    pub call: Option<Box<Call>>,
    /// The data it returns.
    pub outdata: BytesList,
    /// Its own result.
    pub rval: i32,
    /// `code` and `body` as they were sent, for executing it again.
    sent: (OpCode, [u8; 28]),
}

impl OsdOp {
    /// Drops the results of an execution.
    fn reset(&mut self) {
        (self.code, self.body) = self.sent;
        self.outdata = BytesList::new();
        self.rval = 0;
    }

    /// The arguments, read as the member of the union that belongs to the code.
    pub fn args<T: ArgsMember>(&self) -> T {
        T::read(&self.body)
    }

    /// Sets the arguments.
    pub fn set_args<T: ArgsMember>(&mut self, args: &T) {
        args.write(&mut self.body);
    }

    /// The arguments as an extent.
    pub fn extent(&self) -> ExtentArgs {
        self.args()
    }

    /// Sets the length of an extent: for the reply, the bytes of output.
    pub fn set_length(&mut self, length: u64) {
        let extent = ExtentArgs {
            length,
            ..self.extent()
        };
        self.set_args(&extent);
    }

    /// Whether the op changes the object. A ping of a watch does not, though it is ordered with the
    /// ops that do.
    pub fn is_modify(&self) -> bool {
        let is_ping = || self.args::<WatchArgs>().op == WatchOp::PING;
        self.code.is_modify() && !(self.code == OpCode::WATCH && is_ping())
    }
}

impl From<OsdOpIn> for OsdOp {
    fn from(o: OsdOpIn) -> Self {
        Self {
            call: Call::of(&o).map(Box::new),
            code: o.op.code,
            flags: o.op.flags,
            body: o.op.raw_args,
            indata: o.data.into_bytes(),
            sent: (o.op.code, o.op.raw_args),
            ..Self::default()
        }
    }
}

impl From<OsdOp> for OsdOpOut {
    fn from(o: OsdOp) -> Self {
        let op = spirula_proto::osd::OsdOp {
            code: o.code,
            flags: o.flags,
            raw_args: o.body,
            payload_len: 0,
        };
        Self {
            op,
            result: o.rval,
            data: o.outdata,
        }
    }
}

/// A request.
#[derive(Debug)]
pub struct ClientOp {
    /// The client that sent it.
    pub client: Arc<Client>,
    /// Its transaction id, which the reply carries.
    pub tid: u64,
    /// The request's unique id, which is the same when it is sent again.
    pub reqid: ReqId,
    /// The PG it was sent to, for the reply.
    pub pgid: PgId,
    /// The object. For listings, the namespace to list.
    pub object: HObject,
    /// The client's map epoch.
    pub epoch: Epoch,
    /// The request's flags.
    pub flags: OsdFlags,
    /// The client's time.
    pub mtime: UTime,
    /// The request's ops.
    pub ops: Vec<OsdOp>,
    /// The snapshot to read.
    pub snapid: SnapId,
    /// The snapshots to preserve.
    pub snapc: SnapContext,
    /// How often the request was sent before; -1 if the client does not say.
    pub retry_attempt: i32,
    /// For the reply.
    pub trace: Trace,
    /// When it arrived, and when it reached each stage since.
    pub stamps: Stamps,
    /// The request's use of resources that all requests share.
    pub taken: Taken,
}

/// The resources that a request uses.
#[derive(Debug, Default)]
pub struct Taken {
    /// The work of executing it so far, all its runs together.
    pub spent: u64,
    /// Counts the request among its client's.
    pub hold: Option<Hold>,
    /// The room for the data read for the request.
    pub room: Room,
    /// Counts the request among those under way on the OSD.
    pub turn: Option<Turn>,
    /// The request's data, if members have it ahead of its change.
    pub ahead: Option<Box<Ahead>>,
}

/// When an op reached each stage, by a monotonic clock; zero for not yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stamps {
    /// When it was read from the socket.
    pub received: Micros,
    /// When it began to wait for its turn, if it did.
    pub scheduled: Micros,
    /// When it came to its PG.
    pub queued: Micros,
    /// When its execution began.
    pub started: Micros,
    /// When the sub-ops were sent.
    pub sub_ops_sent: Micros,
    /// When it was durable here.
    pub local_commit: Micros,
    /// When it was durable on the last peer.
    pub peer_commit: Micros,
}

impl ClientOp {
    /// Gives up what others could use while the request waits for its PG.
    pub(super) fn park(&mut self) {
        self.taken.turn = None;
        // The next interval knows nothing of it.
        self.taken.ahead = None;
        if let Some(hold) = &mut self.taken.hold {
            hold.forget_copies();
        }
    }

    /// Whether the request reads other than in class methods.
    pub fn needs_read_cap(&self) -> bool {
        self.ops
            .iter()
            .any(|o| o.code.is_read() || o.code == OpCode::WATCH)
    }

    /// Whether the request changes the object other than in class methods.
    pub fn needs_write_cap(&self) -> bool {
        self.ops.iter().any(OsdOp::is_modify)
    }

    /// Whether it reads.
    pub fn may_read(&self) -> bool {
        self.needs_read_cap() || self.calls().any(|c| c.has(Flags::RD))
    }

    /// Whether it changes the object.
    pub fn may_write(&self) -> bool {
        self.needs_write_cap() || self.calls().any(|c| c.has(Flags::WR))
    }

    /// Whether the request only reads, and its client accepts any member's answer.
    pub fn is_any_members(&self) -> bool {
        let any = OsdFlags::BALANCE_READS.with(OsdFlags::LOCALIZE_READS);
        self.flags.intersects(any) && !self.may_write()
    }

    /// The class methods that it calls.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.ops.iter().filter_map(|o| o.call.as_deref())
    }

    /// The information on the request for class methods.
    pub(crate) fn request(&self, now: UTime, last_user_version: u64) -> Request {
        Request {
            caller: Caller {
                name: self.client.name,
                addr: self.client.addr,
            },
            now,
            reqid: self.reqid,
            last_user_version,
        }
    }

    /// Whether it is ordered with writes.
    pub fn write_ordered(&self) -> bool {
        let ordered = |o: &OsdOp| o.code.is_modify() || o.code.is_cache();
        self.may_write() || self.flags.intersects(OsdFlags::RWORDERED) || self.ops.iter().any(ordered)
    }

    /// Whether the request is about the PG and not about an object.
    pub fn is_pg_op(&self) -> bool {
        self.ops.iter().any(|o| o.code.is_pg())
    }

    /// Drops the results of an execution in the ops, so that the request can be executed again.
    pub fn reset(&mut self) {
        self.ops.iter_mut().for_each(OsdOp::reset);
    }

    /// Bytes of payload.
    pub fn data_len(&self) -> usize {
        self.ops.iter().map(|o| o.indata.len()).sum()
    }

    /// The bytes that the request moves: its payload, and what it asks to read.
    pub fn traffic(&self) -> u64 {
        let reads = self
            .ops
            .iter()
            .filter(|o| o.code == OpCode::READ || o.code == OpCode::SPARSE_READ);
        reads.fold(self.data_len() as u64, |sum, o| {
            sum.saturating_add(o.extent().length)
        })
    }

    /// A reply without results or data, as for a request that was not executed.
    pub fn error_reply(&mut self, result: i32, epoch: Epoch) -> MOsdOpReply {
        let acks = self.flags.intersection(OsdFlags::ACK.with(OsdFlags::ONDISK));
        self.reply(result, epoch, acks)
    }

    /// A reply with the present results of the ops.
    pub fn reply(&mut self, result: i32, epoch: Epoch, acks: OsdFlags) -> MOsdOpReply {
        let all = OsdFlags::ACK.with(OsdFlags::ONNVRAM).with(OsdFlags::ONDISK);
        MOsdOpReply {
            tid: self.tid,
            oid: self.object.oid.clone(),
            pgid: self.pgid,
            flags: self.flags.without(all).with(acks),
            result,
            epoch,
            ops: std::mem::take(&mut self.ops)
                .into_iter()
                .map(OsdOpOut::from)
                .collect(),
            retry_attempt: self.retry_attempt,
            trace: self.trace.clone(),
            ..MOsdOpReply::default()
        }
    }
}
