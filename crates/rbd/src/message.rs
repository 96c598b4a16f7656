//! Messages between clients of an image, sent as notifications of its header: `NotifyMessage` and
//! `ResponseMessage` of Ceph's `src/librbd/WatchNotifyTypes.h`, whose `.cc` says which fields came
//! with which version.

use bytes::Bytes;
use spirula_classes::rbd::{Features, SnapshotNamespace};
use spirula_client::errno::{self, Errno};
use spirula_denc::{Decode, Encode, Reader, Result, Writer};

use crate::progress::Share;

/// The version of messages that is written; later fields stand behind those of older versions.
const VERSION: u8 = 7;
/// The version from which all requests have an id.
const WITH_REQUEST_ID: u8 = 7;
/// Requests a snapshot without any flags.
const NO_FLAGS: u64 = 0;

/// A client: its global id, and the number of its watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct ClientId {
    pub(crate) gid: u64,
    pub(crate) handle: u64,
}

impl Encode for ClientId {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.gid);
        w.u64(self.handle);
    }
}

impl Decode for ClientId {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            gid: r.u64()?,
            handle: r.u64()?,
        })
    }
}

/// The id of a request. The owner announces the outcome by it, with [`Announcement::Completed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct RequestId {
    pub(crate) client: ClientId,
    pub(crate) number: u64,
}

impl RequestId {
    /// Whether the request has an id: older clients wait for the answer to the notification
    /// instead.
    pub(crate) fn is_valid(&self) -> bool {
        *self != Self::default()
    }
}

impl Encode for RequestId {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.client);
        w.u64(self.number);
    }
}

impl Decode for RequestId {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            client: r.get()?,
            number: r.u64()?,
        })
    }
}

/// A task that a client asks the owner of the lock to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    Flatten,
    Resize {
        size: u64,
        allow_shrink: bool,
    },
    SnapCreate {
        name: String,
        namespace: SnapshotNamespace,
    },
    SnapRemove {
        name: String,
        namespace: SnapshotNamespace,
    },
    SnapRename {
        id: u64,
        name: String,
    },
    SnapProtect {
        name: String,
    },
    SnapUnprotect {
        name: String,
    },
    Rename {
        name: String,
    },
    UpdateFeatures {
        features: Features,
        enabled: bool,
    },
    RebuildObjectMap,
    /// Free the space of zeros, in pieces of this many bytes.
    Sparsify {
        piece: u64,
    },
    /// Copy the data that the image lacks from the source of its migration.
    Migrate,
    /// A task that is not known here.
    Unknown,
}

impl Task {
    /// The errno of a task that is already done.
    pub(crate) fn errno_where_done(&self) -> Option<Errno> {
        match self {
            Self::SnapCreate { .. } | Self::SnapRename { .. } | Self::Rename { .. } => Some(errno::EEXIST),
            Self::SnapRemove { .. } => Some(errno::ENOENT),
            Self::SnapProtect { .. } => Some(errno::EBUSY),
            Self::SnapUnprotect { .. } | Self::Flatten | Self::UpdateFeatures { .. } => Some(errno::EINVAL),
            Self::Resize { .. }
            | Self::RebuildObjectMap
            | Self::Sparsify { .. }
            | Self::Migrate
            | Self::Unknown => None,
        }
    }
}

/// A request as it is sent.
pub(crate) struct Request<'a> {
    pub(crate) id: RequestId,
    pub(crate) task: &'a Task,
}

/// An announcement of this client, or of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announcement {
    AcquiredLock(ClientId),
    ReleasedLock(ClientId),
    RequestLock {
        client: ClientId,
        force: bool,
    },
    HeaderUpdate,
    /// The owner is still working on a request.
    Progress {
        request: RequestId,
        share: Share,
    },
    /// The owner has finished a request, with a negative errno or 0.
    Completed {
        request: RequestId,
        result: i32,
    },
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Announcement(Announcement),
    Request {
        request: RequestId,
        task: Task,
    },
    /// A message that needs no reaction here, such as that writes should pause or go on.
    Other,
}

const ACQUIRED_LOCK: u32 = 0;
const RELEASED_LOCK: u32 = 1;
const REQUEST_LOCK: u32 = 2;
const HEADER_UPDATE: u32 = 3;
const ASYNC_PROGRESS: u32 = 4;
const ASYNC_COMPLETE: u32 = 5;
const FLATTEN: u32 = 6;
const RESIZE: u32 = 7;
const SNAP_CREATE: u32 = 8;
const SNAP_REMOVE: u32 = 9;
const REBUILD_OBJECT_MAP: u32 = 10;
const SNAP_RENAME: u32 = 11;
const SNAP_PROTECT: u32 = 12;
const SNAP_UNPROTECT: u32 = 13;
const RENAME: u32 = 14;
const UPDATE_FEATURES: u32 = 15;
const MIGRATE: u32 = 16;
const SPARSIFY: u32 = 17;
const QUIESCE: u32 = 18;
const UNQUIESCE: u32 = 19;

/// The official tools' names of notifications, by number.
const NAMES: [&str; 20] = [
    "AcquiredLock",
    "ReleasedLock",
    "RequestLock",
    "HeaderUpdate",
    "AsyncProgress",
    "AsyncComplete",
    "Flatten",
    "Resize",
    "SnapCreate",
    "SnapRemove",
    "RebuildObjectMap",
    "SnapRename",
    "SnapProtect",
    "SnapUnprotect",
    "Rename",
    "UpdateFeatures",
    "Migrate",
    "Sparsify",
    "Quiesce",
    "Unquiesce",
];

/// The name of a notification of an image's header; `None` if it can't be decoded. An old client
/// sends an empty one.
pub fn notification_name(payload: &[u8]) -> Option<String> {
    if payload.is_empty() {
        return Some("HeaderUpdate".to_owned());
    }
    let mut reader = Reader::new(payload);
    let kind = reader.section("NotifyMessage", 1, |_, r| r.u32()).ok()?;
    let name = usize::try_from(kind).ok().and_then(|n| NAMES.get(n));
    Some(name.map_or_else(|| format!("Unknown ({kind})"), |n| (*n).to_owned()))
}

impl Message {
    /// Decodes a notification. An empty one, as old clients send it, says that the header has
    /// changed.
    pub(crate) fn read(payload: &[u8]) -> Result<Self> {
        match payload.is_empty() {
            true => Ok(Self::Announcement(Announcement::HeaderUpdate)),
            false => Reader::new(payload).get(),
        }
    }
}

impl Encode for Announcement {
    fn encode(&self, w: &mut Writer) {
        w.section(VERSION, 1, |w| match self {
            Self::AcquiredLock(client) => {
                w.u32(ACQUIRED_LOCK);
                w.put(client);
            }
            Self::ReleasedLock(client) => {
                w.u32(RELEASED_LOCK);
                w.put(client);
            }
            Self::RequestLock { client, force } => {
                w.u32(REQUEST_LOCK);
                w.put(client);
                w.bool(*force);
            }
            Self::Progress { request, share } => {
                w.u32(ASYNC_PROGRESS);
                w.put(request);
                w.u64(share.done);
                w.u64(share.total);
            }
            Self::Completed { request, result } => {
                w.u32(ASYNC_COMPLETE);
                w.put(request);
                w.i32(*result);
            }
            Self::HeaderUpdate => w.u32(HEADER_UPDATE),
        });
    }
}

impl Encode for Request<'_> {
    fn encode(&self, w: &mut Writer) {
        w.section(VERSION, 1, |w| match self.task {
            Task::Flatten => self.encode_kind(FLATTEN, w),
            Task::Resize { size, allow_shrink } => {
                w.u32(RESIZE);
                w.u64(*size);
                w.put(&self.id);
                w.bool(*allow_shrink);
            }
            Task::SnapCreate { name, namespace } => {
                self.encode_snapshot(SNAP_CREATE, name, namespace, w);
                w.u64(NO_FLAGS);
            }
            Task::SnapRemove { name, namespace } => self.encode_snapshot(SNAP_REMOVE, name, namespace, w),
            Task::SnapRename { id, name } => {
                w.u32(SNAP_RENAME);
                w.u64(*id);
                w.string(name);
                w.put(&SnapshotNamespace::User);
                w.put(&self.id);
            }
            Task::SnapProtect { name } => {
                self.encode_snapshot(SNAP_PROTECT, name, &SnapshotNamespace::User, w)
            }
            Task::SnapUnprotect { name } => {
                self.encode_snapshot(SNAP_UNPROTECT, name, &SnapshotNamespace::User, w);
            }
            Task::Rename { name } => {
                w.u32(RENAME);
                w.string(name);
                w.put(&self.id);
            }
            Task::UpdateFeatures { features, enabled } => {
                w.u32(UPDATE_FEATURES);
                w.put(features);
                w.bool(*enabled);
                w.put(&self.id);
            }
            Task::RebuildObjectMap => self.encode_kind(REBUILD_OBJECT_MAP, w),
            Task::Sparsify { piece } => {
                self.encode_kind(SPARSIFY, w);
                w.u64(*piece);
            }
            Task::Migrate => self.encode_kind(MIGRATE, w),
            // Nobody understands it.
            Task::Unknown => self.encode_kind(u32::MAX, w),
        });
    }
}

impl Request<'_> {
    fn encode_kind(&self, kind: u32, w: &mut Writer) {
        w.u32(kind);
        w.put(&self.id);
    }

    fn encode_snapshot(&self, kind: u32, name: &str, namespace: &SnapshotNamespace, w: &mut Writer) {
        w.u32(kind);
        w.string(name);
        w.put(namespace);
        w.put(&self.id);
    }
}

/// The sender of an announcement; old clients do not name it.
fn client(version: u8, r: &mut Reader<'_>) -> Result<ClientId> {
    if version >= 2 {
        r.get()
    } else {
        Ok(ClientId::default())
    }
}

fn request_id(version: u8, r: &mut Reader<'_>) -> Result<RequestId> {
    if version >= WITH_REQUEST_ID {
        r.get()
    } else {
        Ok(RequestId::default())
    }
}

fn snapshot(version: u8, r: &mut Reader<'_>) -> Result<(String, SnapshotNamespace, RequestId)> {
    let name = r.string()?;
    let namespace = if version >= 6 {
        r.get()?
    } else {
        SnapshotNamespace::User
    };
    Ok((name, namespace, request_id(version, r)?))
}

fn task(kind: u32, version: u8, r: &mut Reader<'_>) -> Result<(RequestId, Task)> {
    Ok(match kind {
        FLATTEN => (r.get()?, Task::Flatten),
        RESIZE => {
            let size = r.u64()?;
            let request = r.get()?;
            let allow_shrink = if version >= 4 { r.bool()? } else { true };
            (request, Task::Resize { size, allow_shrink })
        }
        SNAP_CREATE => {
            let (name, mut namespace, request) = snapshot(version, r)?;
            if version == 5 {
                namespace = r.get()?;
            }
            (request, Task::SnapCreate { name, namespace })
        }
        SNAP_REMOVE => {
            let (name, namespace, request) = snapshot(version, r)?;
            (request, Task::SnapRemove { name, namespace })
        }
        SNAP_RENAME => {
            let id = r.u64()?;
            let (name, _, request) = snapshot(version, r)?;
            (request, Task::SnapRename { id, name })
        }
        SNAP_PROTECT => {
            let (name, _, request) = snapshot(version, r)?;
            (request, Task::SnapProtect { name })
        }
        SNAP_UNPROTECT => {
            let (name, _, request) = snapshot(version, r)?;
            (request, Task::SnapUnprotect { name })
        }
        RENAME => {
            let name = r.string()?;
            (request_id(version, r)?, Task::Rename { name })
        }
        UPDATE_FEATURES => {
            let (features, enabled) = (r.get()?, r.bool()?);
            (
                request_id(version, r)?,
                Task::UpdateFeatures { features, enabled },
            )
        }
        MIGRATE => (r.get()?, Task::Migrate),
        REBUILD_OBJECT_MAP => (r.get()?, Task::RebuildObjectMap),
        SPARSIFY => {
            let request = r.get()?;
            (request, Task::Sparsify { piece: r.u64()? })
        }
        _ => (RequestId::default(), Task::Unknown),
    })
}

impl Decode for Message {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("NotifyMessage", 1, |version, r| {
            let announcement = match r.u32()? {
                ACQUIRED_LOCK => Announcement::AcquiredLock(client(version, r)?),
                RELEASED_LOCK => Announcement::ReleasedLock(client(version, r)?),
                REQUEST_LOCK => Announcement::RequestLock {
                    client: client(version, r)?,
                    force: version >= 3 && r.bool()?,
                },
                HEADER_UPDATE => Announcement::HeaderUpdate,
                ASYNC_COMPLETE => Announcement::Completed {
                    request: r.get()?,
                    result: r.i32()?,
                },
                ASYNC_PROGRESS => Announcement::Progress {
                    request: r.get()?,
                    share: Share {
                        done: r.u64()?,
                        total: r.u64()?,
                    },
                },
                QUIESCE | UNQUIESCE => return Ok(Self::Other),
                kind => {
                    let (request, task) = task(kind, version, r)?;
                    return Ok(Self::Request { request, task });
                }
            };
            Ok(Self::Announcement(announcement))
        })
    }
}

/// An answer to a notification: a negative errno or 0.
pub(crate) fn response(result: i32) -> Bytes {
    let mut w = Writer::new();
    w.section(1, 1, |w| w.i32(result));
    w.into_vec().into()
}

/// Reads an answer.
pub(crate) fn read_response(bytes: &[u8]) -> Result<i32> {
    Reader::new(bytes).section("ResponseMessage", 1, |_, r| r.i32())
}

#[cfg(test)]
mod tests {
    use spirula_denc::encode_to_vec;

    use super::*;

    const REQUEST: RequestId = RequestId {
        client: ClientId { gid: 7, handle: 8 },
        number: 9,
    };

    fn message(version: u8, kind: u32, body: impl FnOnce(&mut Writer)) -> Message {
        let mut w = Writer::new();
        w.section(version, 1, |w| {
            w.u32(kind);
            body(w);
        });
        Message::read(w.as_slice()).unwrap()
    }

    #[test]
    fn what_is_said_is_understood() {
        let client = REQUEST.client;
        for said in [
            Announcement::AcquiredLock(client),
            Announcement::ReleasedLock(client),
            Announcement::RequestLock { client, force: true },
            Announcement::HeaderUpdate,
            Announcement::Progress {
                request: REQUEST,
                share: Share { done: 3, total: 4 },
            },
            Announcement::Completed {
                request: REQUEST,
                result: -5,
            },
        ] {
            let heard = Message::read(&encode_to_vec(&said)).unwrap();
            assert_eq!(heard, Message::Announcement(said));
        }
        let empty = Message::read(&[]).unwrap();
        assert_eq!(empty, Message::Announcement(Announcement::HeaderUpdate));
        assert_eq!(read_response(&response(-30)).unwrap(), -30);
    }

    #[test]
    fn requests_of_all_versions_are_understood() {
        let namespace = SnapshotNamespace::User;
        let name = "s".to_owned();
        let create = |request| Message::Request {
            request,
            task: Task::SnapCreate {
                name: name.clone(),
                namespace: namespace.clone(),
            },
        };
        let old = message(6, SNAP_CREATE, |w| {
            w.string("s");
            w.put(&namespace);
        });
        assert_eq!(old, create(RequestId::default()));
        let new = message(7, SNAP_CREATE, |w| {
            w.string("s");
            w.put(&namespace);
            w.put(&REQUEST);
            w.u64(0);
        });
        assert_eq!(new, create(REQUEST));
        let resize = message(7, RESIZE, |w| {
            w.u64(99);
            w.put(&REQUEST);
            w.bool(false);
        });
        let task = Task::Resize {
            size: 99,
            allow_shrink: false,
        };
        assert_eq!(
            resize,
            Message::Request {
                request: REQUEST,
                task
            }
        );
        let unknown = message(9, 77, |_| {});
        let task = Task::Unknown;
        assert_eq!(
            unknown,
            Message::Request {
                request: RequestId::default(),
                task
            }
        );
        assert_eq!(message(7, QUIESCE, |w| w.put(&REQUEST)), Message::Other);
    }

    #[test]
    fn what_is_asked_is_understood() {
        let (name, namespace) = ("s".to_owned(), SnapshotNamespace::User);
        for task in [
            Task::Flatten,
            Task::Resize {
                size: 5,
                allow_shrink: true,
            },
            Task::SnapCreate {
                name: name.clone(),
                namespace: namespace.clone(),
            },
            Task::SnapRemove {
                name: name.clone(),
                namespace,
            },
            Task::SnapRename {
                id: 3,
                name: name.clone(),
            },
            Task::SnapProtect { name: name.clone() },
            Task::SnapUnprotect { name: name.clone() },
            Task::Rename { name },
            Task::UpdateFeatures {
                features: Features::OBJECT_MAP.with(Features::FAST_DIFF),
                enabled: true,
            },
            Task::RebuildObjectMap,
            Task::Sparsify { piece: 4096 },
            Task::Migrate,
        ] {
            let sent = encode_to_vec(&Request {
                id: REQUEST,
                task: &task,
            });
            let heard = Message::read(&sent).unwrap();
            assert_eq!(
                heard,
                Message::Request {
                    request: REQUEST,
                    task
                }
            );
        }
    }

    #[test]
    fn notifications_have_names() {
        let name = |said: Announcement| notification_name(&encode_to_vec(&said)).unwrap();
        assert_eq!(name(Announcement::AcquiredLock(REQUEST.client)), "AcquiredLock");
        let task = Task::UpdateFeatures {
            features: Features::LAYERING,
            enabled: true,
        };
        let sent = encode_to_vec(&Request {
            id: REQUEST,
            task: &task,
        });
        assert_eq!(notification_name(&sent).unwrap(), "UpdateFeatures");
        assert_eq!(notification_name(&[]).unwrap(), "HeaderUpdate");
        assert_eq!(notification_name(&[1]), None);
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let whole = encode_to_vec(&Announcement::Completed {
            request: REQUEST,
            result: 0,
        });
        for n in 1..whole.len() {
            assert!(Message::read(&whole[..n]).is_err(), "{n}");
        }
    }
}
