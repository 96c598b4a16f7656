//! Messages between OSDs about a PG: replication of writes, and agreement after an interval.
//!
//! There is one message type each for replication (hot, carries payload) and peering, both of them
//! this one enum. A message belongs to one attempt at peering, [`PeeringId`]; messages of an older
//! one are dropped.

mod older;

use bytes::Bytes;
use spirula_denc::{Error, Micros, Reader, Result, Writer};
use spirula_maps::{EVersion, Epoch, HObject, OsdId, PgId};
use spirula_proto::internal::{Edition, Protocol};
use spirula_proto::osd_op_data::CopyCursor;
use spirula_proto::{BytesList, MsgHeader2, MsgType, RawMessage, priority};

use super::coded::message as coded;
use super::coded::want::FragmentWant;
use super::dups::DupBatch;
use super::fetch::Pieces;
use super::info::PgInfo;
use super::layout::Part;
use super::log::LogEntry;
use super::promise::Promise;
use super::push::{Push, SyncPlan};
use super::repair::message::RepairBody;
use super::scrub::message::ScrubBody;
use super::txn::Txn;

/// An attempt of a primary to agree with the members: the epoch of its map when it began, and a
/// count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct PeeringId {
    /// The epoch of the primary's map when the attempt began: within the interval. An OSD that
    /// receives the message waits for that map.
    pub epoch: Epoch,
    /// Counts the attempts.
    pub round: u32,
}

/// What a member's log becomes when the PG is activated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogUpdate {
    /// The newest entry that stays; [`EVersion::ZERO`] with `replace` for none.
    pub keep_to: EVersion,
    /// Whether all entries go before the new ones come.
    pub replace: bool,
    /// The entries to append.
    pub entries: Vec<LogEntry>,
    /// With `replace`: the requests to remember besides.
    pub dups: Vec<DupBatch>,
}

impl LogUpdate {
    /// Whether the log of a copy with this version can become this: the added entries ascend, and
    /// come after those that stay.
    pub(super) fn is_sound(&self, last_update: EVersion) -> bool {
        let comes_after = self.entries.first().is_none_or(|e| e.version > self.keep_to);
        let ends = self.entries.last().map_or(self.keep_to, |e| e.version) <= last_update;
        comes_after
            && ends
            && self.entries.is_sorted_by(|a, b| a.version < b.version)
            && self.dups.is_sorted_by(|a, b| a.name() < b.name())
    }
}

/// Asks for part of an object, to copy it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRead {
    /// The number of the question.
    pub token: u64,
    /// The PG that is to be answered.
    pub from: PgId,
    /// The object.
    pub object: HObject,
    /// The user version that the object must have; 0 for any.
    pub version: u64,
    /// Where the part begins.
    pub cursor: CopyCursor,
}

/// The answer to a [`CopyRead`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPart {
    /// The number of the question.
    pub token: u64,
    /// 0, or why there is no part.
    pub result: i32,
    /// The object's user version.
    pub user_version: u64,
    /// The encoded part: output of `COPY_GET`.
    pub data: Bytes,
}

/// A write of the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepOp {
    /// The replica's log must end here.
    pub prev: EVersion,
    /// The encoded log entry.
    pub entry: Bytes,
    /// Entries up to here need not be kept.
    pub trim_to: EVersion,
    /// Everything up to here is durable on all members.
    pub stable: EVersion,
    /// The changes to objects.
    pub txn: Txn,
}

impl RepOp {
    fn encode(&self, w: &mut Writer, data: &mut BytesList) {
        w.put(&self.prev);
        w.put(&self.entry);
        w.put(&self.trim_to);
        w.put(&self.stable);
        self.txn.encode_objects(w, data);
    }

    fn decode(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        Ok(Self {
            prev: r.get()?,
            entry: r.get()?,
            trim_to: r.get()?,
            stable: r.get()?,
            txn: Txn::decode_objects(r, &msg.data)?,
        })
    }
}

/// A member's share in the primary's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseShare {
    /// The time of the question.
    pub stamp: Micros,
    /// How long after that time the lease lasts.
    pub length: Micros,
    /// Everything up to here is durable on all members.
    pub stable: EVersion,
    /// The primary's map.
    pub epoch: Epoch,
}

/// The message proper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerBody {
    /// Primary to replica: apply this write.
    RepOp(RepOp),
    /// Primary to replica: place this data, which a change to come names by its number.
    Ahead {
        /// The number.
        number: u32,
        /// The data, whole blocks of 4 KiB.
        data: BytesList,
    },
    /// The answer to [`PeerBody::Ahead`].
    Placed {
        /// The number.
        number: u32,
        /// Whether the data is durable; else there was no room for it.
        done: bool,
    },
    /// Primary to replica: everything up to this version is durable on all members.
    Stable(EVersion),
    /// Replica to primary: everything up to this version is durable here.
    RepCommitted(EVersion),
    /// Primary to anyone: a query for the OSD's copy.
    Query,
    /// The answer to [`PeerBody::Query`], or the unasked announcement of an OSD that holds a PG
    /// which belongs elsewhere.
    Notify {
        /// The copy's info; `None` for no copy.
        info: Option<PgInfo>,
        /// How long others may answer reads, as the sender has promised.
        promised: Promise,
        /// Since when the sender has its store ([`Ctx::kept_since`]). OSDs of the version before do
        /// not say it.
        ///
        /// [`Ctx::kept_since`]: super::Ctx::kept_since
        kept_since: Option<Epoch>,
    },
    /// Primary to member: let me answer reads.
    Lease {
        /// The primary's time.
        stamp: Micros,
        /// Whether the primary will let members answer, too.
        shared: bool,
    },
    /// The answer to [`PeerBody::Lease`], with the time of the question.
    LeaseGranted(Micros),
    /// Member to primary: let me answer reads. Carries the member's time.
    ShareLease(Micros),
    /// The answer to [`PeerBody::ShareLease`].
    LeaseShared(LeaseShare),
    /// Primary to a holder: send your log.
    GetLog,
    /// The answer to [`PeerBody::GetLog`].
    Log {
        /// The version after which the log has entries.
        tail: EVersion,
        /// The log's end.
        head: EVersion,
        /// The entries.
        entries: Vec<LogEntry>,
        /// The requests that the holder remembers besides.
        dups: Vec<DupBatch>,
    },
    /// Primary to the holder of the authoritative copy: bring these targets up to it.
    StartSync {
        /// The targets.
        targets: Vec<(OsdId, SyncPlan)>,
        /// The parts that they are to hold, and those that others hold in the newest version. OSDs of
        /// the version before do not tell them, as all members of a PG have the same.
        parts: Vec<(OsdId, Part)>,
    },
    /// Holder to target: you are to hold this part of each object.
    Take(Part),
    /// Holder to target: make this change again.
    Redo(RepOp),
    /// The holder to the primary: this target is equal now.
    SyncDone(OsdId),
    /// The holder to the primary: the connection to a target is lost, or the object with this key
    /// can't be read. OSDs of the version before do not name the object.
    SyncFailed(Option<Bytes>),
    /// The holder to the primary: this target lacks objects for which it has no room.
    SyncRefused(OsdId),
    /// Holder to target.
    Push(Push),
    /// Target to holder: a push or scan was applied.
    PushAck,
    /// Target to holder: there is no room for a push, nor for any that follow.
    PushRefused,
    /// Holder to target: in this range of keys there are exactly these objects, in these versions.
    Scan {
        /// First key.
        from: Bytes,
        /// Key after the last.
        to: Bytes,
        /// Keys and versions.
        objects: Vec<(Bytes, EVersion)>,
    },
    /// Target to holder: these of the scanned objects are needed; surplus ones are removed.
    ScanAck(Vec<Bytes>),
    /// Primary to member: serve from now on.
    Activate {
        /// The info to remember.
        info: PgInfo,
        /// The log to have.
        log: LogUpdate,
    },
    /// Primary to a backfill target: your copy is complete up to the info's version. Answered as
    /// [`PeerBody::Activate`].
    Copied {
        /// The info to remember.
        info: PgInfo,
        /// The log to have.
        log: LogUpdate,
    },
    /// Member to primary: the info is remembered durably.
    Activated,
    /// Primary to a backfill target: may I copy to you now? With the priority.
    Reserve(u8),
    /// The answer to [`PeerBody::Reserve`], once it is the primary's turn.
    Reserved,
    /// Primary to a backfill target: I need my turn no more.
    Release,
    /// Backfill target to its primary: others come first.
    Revoked,
    /// Primary to an OSD that is no member: the PG is complete elsewhere, delete your copy.
    Remove,
    /// The primary of one PG to that of another: a question for part of an object.
    CopyRead(CopyRead),
    /// The answer to [`PeerBody::CopyRead`].
    CopyPart(CopyPart),
    /// A message of a repair.
    Repair(RepairBody),
    /// A message of a scrub.
    Scrub(ScrubBody),
    /// Primary to member: a question for parts of a fragment.
    FragmentWant(FragmentWant),
    /// The answer to [`PeerBody::FragmentWant`].
    Fragment {
        /// The number of the question and its round.
        number: (u32, u32),
        /// What is stored of the parts; `None` if it can't be read.
        found: Option<Pieces>,
    },
}

/// A message about a PG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerMessage {
    /// The PG.
    pub pgid: PgId,
    /// The attempt at peering that it belongs to.
    pub id: PeeringId,
    /// The message's contents.
    pub body: PeerBody,
}

impl Protocol for PeerMessage {
    /// - Version 13: that of release 0.1.0, which takes no newer ones.
    /// - Version 14: the header tells which version the sender speaks, and what is sent to an OSD
    ///   is written in the newest that both speak. An OSD says since when it has its store, and the
    ///   holder of the newest copy which object it can't read. Members of coded PGs ask each other
    ///   for fragments, and for accounts of objects that are scrubbed. Large data of writes comes
    ///   ahead of their changes. Infos of objects have digests.
    const CURRENT: u16 = 14;
    const PREVIOUS: u16 = 13;

    fn compose(&self, edition: Edition) -> RawMessage {
        let (kind, priority) = match self.body {
            PeerBody::RepOp(_) | PeerBody::RepCommitted(_) | PeerBody::Placed { .. } => {
                (MsgType::REPLICATION, priority::DEFAULT)
            }
            PeerBody::Ahead { .. } => (MsgType::PLACEMENT, priority::DEFAULT),
            _ => (MsgType::PEERING, priority::HIGH),
        };
        let (mut front, mut data) = (Writer::with_capacity(512), BytesList::new());
        match edition {
            Edition::Current => self.encode(edition, &mut front, &mut data),
            Edition::Previous => self.without_digests().encode(edition, &mut front, &mut data),
        }
        RawMessage {
            header: MsgHeader2 {
                kind,
                priority,
                ..MsgHeader2::default()
            },
            front: front.into_vec().into(),
            middle: Bytes::new(),
            data,
        }
    }

    fn parse(msg: &RawMessage, edition: Edition) -> spirula_proto::Result<Self> {
        let kind = msg.kind();
        if !Self::is_kind(kind) {
            return Err(spirula_proto::Error::WrongType {
                wanted: MsgType::PEERING,
                found: kind,
            });
        }
        Self::decode(&mut Reader::new(&msg.front), msg, edition)
            .map_err(|source| spirula_proto::Error::Field { kind, source })
    }
}

impl PeerMessage {
    /// Whether a raw message is one of these.
    pub fn is_kind(kind: MsgType) -> bool {
        [MsgType::REPLICATION, MsgType::PLACEMENT, MsgType::PEERING].contains(&kind)
    }

    /// The message with infos of objects as release 0.1.0 knows them.
    fn without_digests(&self) -> Self {
        let mut message = self.clone();
        match &mut message.body {
            PeerBody::RepOp(op) => older::remove_from_txn(&mut op.txn),
            PeerBody::Push(push) => older::remove_from_push(push),
            PeerBody::Repair(RepairBody::Part {
                found: Some(part), ..
            }) => older::remove_from_push(&mut part.push),
            _ => {}
        }
        message
    }

    fn encode(&self, edition: Edition, w: &mut Writer, data: &mut BytesList) {
        w.put(&self.pgid);
        w.put(&self.id.epoch);
        w.u32(self.id.round);
        match &self.body {
            PeerBody::RepOp(op) => {
                w.u8(0);
                op.encode(w, data);
            }
            PeerBody::RepCommitted(v) => {
                w.u8(1);
                w.put(v);
            }
            PeerBody::Ahead { number, data: ahead } => {
                w.u8(36);
                w.u32(*number);
                data.extend(ahead);
            }
            PeerBody::Placed { number, done } => {
                w.u8(37);
                w.u32(*number);
                w.bool(*done);
            }
            PeerBody::Query => w.u8(2),
            PeerBody::Notify {
                info,
                promised,
                kept_since,
            } => {
                w.u8(3);
                w.put(info);
                w.put(&promised.primary);
                w.put(&promised.members);
                if edition >= Edition::Current {
                    w.put(kept_since);
                }
            }
            PeerBody::Lease { stamp, shared } => {
                w.u8(18);
                w.put(stamp);
                w.u8(u8::from(*shared));
            }
            PeerBody::ShareLease(stamp) => {
                w.u8(21);
                w.put(stamp);
            }
            PeerBody::LeaseShared(share) => {
                w.u8(22);
                w.put(&share.stamp);
                w.put(&share.length);
                w.put(&share.stable);
                w.put(&share.epoch);
            }
            PeerBody::LeaseGranted(stamp) => {
                w.u8(19);
                w.put(stamp);
            }
            PeerBody::GetLog => w.u8(4),
            PeerBody::Log {
                tail,
                head,
                entries,
                dups,
            } => {
                w.u8(5);
                w.put(tail);
                w.put(head);
                w.put(entries);
                w.put(dups);
            }
            PeerBody::StartSync { targets, parts } => {
                w.u8(6);
                w.put(targets);
                if edition >= Edition::Current {
                    w.put(parts);
                }
            }
            PeerBody::Take(part) => {
                w.u8(32);
                w.put(part);
            }
            PeerBody::Redo(op) => {
                w.u8(33);
                op.encode(w, data);
            }
            PeerBody::Stable(version) => {
                w.u8(34);
                w.put(version);
            }
            PeerBody::SyncDone(osd) => {
                w.u8(7);
                w.put(osd);
            }
            PeerBody::Push(push) => {
                w.u8(8);
                push.encode(w, data);
            }
            PeerBody::PushAck => w.u8(9),
            PeerBody::PushRefused => w.u8(28),
            PeerBody::Scan { from, to, objects } => {
                w.u8(10);
                w.put(from);
                w.put(to);
                w.put(objects);
            }
            PeerBody::ScanAck(needed) => {
                w.u8(11);
                w.put(needed);
            }
            PeerBody::Activate { info, log } => {
                w.u8(12);
                w.put(info);
                log.encode(w);
            }
            PeerBody::Copied { info, log } => {
                w.u8(20);
                w.put(info);
                log.encode(w);
            }
            PeerBody::Reserve(priority) => {
                w.u8(23);
                w.u8(*priority);
            }
            PeerBody::Reserved => w.u8(24),
            PeerBody::Release => w.u8(25),
            PeerBody::Revoked => w.u8(26),
            PeerBody::Activated => w.u8(13),
            PeerBody::Remove => w.u8(14),
            PeerBody::SyncFailed(unreadable) => {
                w.u8(15);
                if edition >= Edition::Current {
                    w.put(unreadable);
                }
            }
            PeerBody::SyncRefused(osd) => {
                w.u8(29);
                w.put(osd);
            }
            PeerBody::CopyRead(r) => {
                w.u8(16);
                w.u64(r.token);
                w.put(&r.from);
                w.put(&r.object);
                w.u64(r.version);
                w.put(&r.cursor);
            }
            PeerBody::CopyPart(p) => {
                w.u8(17);
                w.u64(p.token);
                w.i32(p.result);
                w.u64(p.user_version);
                data.push(p.data.clone());
            }
            PeerBody::Repair(r) => {
                w.u8(27);
                r.encode(w, data);
            }
            PeerBody::Scrub(s) => {
                w.u8(35);
                s.encode(w);
            }
            PeerBody::FragmentWant(want) => {
                w.u8(30);
                w.put(&want.number);
                w.put(&want.key);
                w.put(&want.extents);
                w.put(&want.at);
            }
            PeerBody::Fragment { number, found } => {
                w.u8(31);
                w.put(number);
                w.bool(found.is_some());
                if let Some(pieces) = found {
                    coded::encode_pieces(pieces, w, data);
                }
            }
        }
    }

    fn decode(r: &mut Reader<'_>, msg: &RawMessage, edition: Edition) -> Result<Self> {
        let pgid = r.get()?;
        let id = PeeringId {
            epoch: r.get()?,
            round: r.u32()?,
        };
        let body = match r.u8()? {
            0 => PeerBody::RepOp(RepOp::decode(r, msg)?),
            1 => PeerBody::RepCommitted(r.get()?),
            2 => PeerBody::Query,
            3 => PeerBody::Notify {
                info: r.get()?,
                promised: Promise {
                    primary: r.get()?,
                    members: r.get()?,
                },
                kept_since: match edition >= Edition::Current {
                    true => r.get()?,
                    false => None,
                },
            },
            4 => PeerBody::GetLog,
            5 => PeerBody::Log {
                tail: r.get()?,
                head: r.get()?,
                entries: r.get()?,
                dups: r.get()?,
            },
            6 => PeerBody::StartSync {
                targets: r.get()?,
                parts: match edition {
                    Edition::Current => r.get()?,
                    Edition::Previous => Vec::new(),
                },
            },
            32 => PeerBody::Take(r.get()?),
            33 => PeerBody::Redo(RepOp::decode(r, msg)?),
            34 => PeerBody::Stable(r.get()?),
            7 => PeerBody::SyncDone(r.get()?),
            8 => PeerBody::Push(Push::decode(r, msg)?),
            9 => PeerBody::PushAck,
            10 => PeerBody::Scan {
                from: r.get()?,
                to: r.get()?,
                objects: r.get()?,
            },
            11 => PeerBody::ScanAck(r.get()?),
            12 => PeerBody::Activate {
                info: r.get()?,
                log: LogUpdate::decode(r)?,
            },
            13 => PeerBody::Activated,
            14 => PeerBody::Remove,
            15 => PeerBody::SyncFailed(match edition >= Edition::Current {
                true => r.get()?,
                false => None,
            }),
            16 => PeerBody::CopyRead(CopyRead {
                token: r.u64()?,
                from: r.get()?,
                object: r.get()?,
                version: r.u64()?,
                cursor: r.get()?,
            }),
            17 => PeerBody::CopyPart(CopyPart {
                token: r.u64()?,
                result: r.i32()?,
                user_version: r.u64()?,
                data: msg.data.to_bytes(),
            }),
            18 => PeerBody::Lease {
                stamp: r.get()?,
                shared: r.u8()? != 0,
            },
            19 => PeerBody::LeaseGranted(r.get()?),
            20 => PeerBody::Copied {
                info: r.get()?,
                log: LogUpdate::decode(r)?,
            },
            21 => PeerBody::ShareLease(r.get()?),
            22 => PeerBody::LeaseShared(LeaseShare {
                stamp: r.get()?,
                length: r.get()?,
                stable: r.get()?,
                epoch: r.get()?,
            }),
            23 => PeerBody::Reserve(r.u8()?),
            24 => PeerBody::Reserved,
            25 => PeerBody::Release,
            26 => PeerBody::Revoked,
            27 => PeerBody::Repair(RepairBody::decode(r, msg)?),
            28 => PeerBody::PushRefused,
            30 => PeerBody::FragmentWant(FragmentWant {
                number: r.get()?,
                key: r.get()?,
                extents: r.get()?,
                at: r.get()?,
            }),
            31 => PeerBody::Fragment {
                number: r.get()?,
                found: match r.bool()? {
                    true => Some(coded::decode_pieces(r, &msg.data)?),
                    false => None,
                },
            },
            29 => PeerBody::SyncRefused(r.get()?),
            35 => PeerBody::Scrub(ScrubBody::decode(r)?),
            36 => PeerBody::Ahead {
                number: r.u32()?,
                data: msg.data.clone(),
            },
            37 => PeerBody::Placed {
                number: r.u32()?,
                done: r.bool()?,
            },
            _ => return Err(Error::Invalid("message between OSDs")),
        };
        Ok(Self { pgid, id, body })
    }
}

impl LogUpdate {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.keep_to);
        w.bool(self.replace);
        w.put(&self.entries);
        w.put(&self.dups);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            keep_to: r.get()?,
            replace: r.bool()?,
            entries: r.get()?,
            dups: r.get()?,
        })
    }
}

#[cfg(test)]
mod tests;
