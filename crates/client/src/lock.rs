//! Advisory locks on objects: methods of the class `lock` (Ceph's `src/cls/lock/cls_lock_ops.h`).

use std::time::Duration;

use spirula_denc::{Decode, Encode, EntityAddr, EntityName, Reader, UTime, Writer, encode_to_vec};
use spirula_maps::ObjectName;
use spirula_proto::osd::OsdOpIn;

use crate::class::call;
use crate::{Connection, IoCtx, Result};

const CLASS: &str = "lock";

/// The type of a lock, which decides how many lockers it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockType(pub u8);

impl LockType {
    /// One locker.
    pub const EXCLUSIVE: Self = Self(1);
    /// Any number of lockers.
    pub const SHARED: Self = Self(2);
    /// One locker; the object goes away with the lock.
    pub const EXCLUSIVE_EPHEMERAL: Self = Self(3);

    /// The type's name.
    pub fn name(self) -> &'static str {
        match self {
            Self(0) => "none",
            Self::EXCLUSIVE => "exclusive",
            Self::SHARED => "shared",
            Self::EXCLUSIVE_EPHEMERAL => "exclusive-ephemeral",
            _ => "<unknown>",
        }
    }
}

/// A lock to take.
#[derive(Debug, Clone)]
pub struct LockRequest {
    /// The lock's name.
    pub name: String,
    /// The lock's type.
    pub kind: LockType,
    /// Tells apart several locks of one client.
    pub cookie: String,
    /// The tag, which all lockers must share.
    pub tag: String,
    /// A description for people.
    pub description: String,
    /// When the lock expires; zero for never.
    pub duration: Duration,
    /// Bits `LOCK_FLAG_*`: 1 for may renew, 2 for must renew.
    pub flags: u8,
}

impl Encode for LockRequest {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| {
            w.string(&self.name);
            w.u8(self.kind.0);
            w.string(&self.cookie);
            w.string(&self.tag);
            w.string(&self.description);
            w.put(&UTime::from(self.duration));
            w.u8(self.flags);
        });
    }
}

/// A holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locker {
    /// The client.
    pub name: EntityName,
    /// Its cookie.
    pub cookie: String,
    /// When its lock expires; zero for never.
    pub expiration: UTime,
    /// The client's address.
    pub addr: EntityAddr,
    /// A description for people.
    pub description: String,
}

/// A lock and its holders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// The holders by name and cookie.
    pub lockers: Vec<Locker>,
    /// The lock's type.
    pub kind: LockType,
    /// The lockers' tag.
    pub tag: String,
}

impl Decode for Locker {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        let (name, cookie) = r.section("locker_id_t", 1, |_, r| Ok((r.get()?, r.string()?)))?;
        r.section("locker_info_t", 1, |_, r| {
            Ok(Self {
                name,
                cookie,
                expiration: r.get()?,
                addr: r.get()?,
                description: r.string()?,
            })
        })
    }
}

impl Decode for LockInfo {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("cls_lock_get_info_reply", 1, |_, r| {
            // A map: the list of pairs.
            let lockers = r.get()?;
            Ok(Self {
                lockers,
                kind: LockType(r.u8()?),
                tag: r.string()?,
            })
        })
    }
}

/// Encodes an input as a versioned section.
fn section(body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::new();
    w.section(1, 1, body);
    w.into_vec()
}

/// The operation that takes a lock, for requests with further operations.
pub(crate) fn lock_op(lock: &LockRequest) -> Result<OsdOpIn> {
    call(CLASS, "lock", &encode_to_vec(lock))
}

impl<C: Connection> IoCtx<C> {
    /// Takes a lock; creates the object where there is none.
    ///
    /// # Errors
    /// `EBUSY` where others hold it, `EEXIST` where this client does.
    pub async fn lock(&self, oid: impl Into<ObjectName>, lock: &LockRequest) -> Result<()> {
        self.exec_write(oid, CLASS, "lock", &encode_to_vec(lock)).await
    }

    /// Gives up this client's lock.
    ///
    /// # Errors
    /// `ENOENT` where it has none.
    pub async fn unlock(&self, oid: impl Into<ObjectName>, name: &str, cookie: &str) -> Result<()> {
        let input = section(|w| {
            w.string(name);
            w.string(cookie);
        });
        self.exec_write(oid, CLASS, "unlock", &input).await
    }

    /// Takes a lock away from another client.
    ///
    /// # Errors
    /// `ENOENT` where it has none.
    pub async fn break_lock(
        &self,
        oid: impl Into<ObjectName>,
        name: &str,
        locker: EntityName,
        cookie: &str,
    ) -> Result<()> {
        let input = section(|w| {
            w.string(name);
            w.put(&locker);
            w.string(cookie);
        });
        self.exec_write(oid, CLASS, "break_lock", &input).await
    }

    /// A lock and its holders; without holders if there is no such lock.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn lock_info(&self, oid: impl Into<ObjectName>, name: &str) -> Result<LockInfo> {
        let out = self
            .exec(oid, CLASS, "get_info", &section(|w| w.string(name)))
            .await?;
        Ok(Reader::new(&out).get()?)
    }

    /// The names of the object's locks.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn locks(&self, oid: impl Into<ObjectName>) -> Result<Vec<String>> {
        let out = self.exec(oid, CLASS, "list_locks", &[]).await?;
        Ok(Reader::new(&out).section("cls_lock_list_locks_reply", 1, |_, r| r.get())?)
    }
}
