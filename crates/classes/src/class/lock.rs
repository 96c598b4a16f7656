//! Advisory locks on objects, exclusive or shared, each under a name of its own. A holder is a
//! client together with a cookie of its choice. Formats: Ceph's `src/cls/lock/cls_lock_types.h` and
//! `cls_lock_ops.h`.
//!
//! A lock is the attribute `lock.` and its name. Locks are advisory: other clients can write all
//! the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{AddrType, EntityAddr, EntityName, UTime, flags, versioned};

use crate::error::unless;
use crate::method::{Nothing, class, stored, to_bytes};
use crate::text::until_nul;
use crate::{Error, Object, Result};

class! { "lock" {
    "lock": RD | WR | PROMOTE => lock;
    "unlock": RD | WR | PROMOTE => unlock;
    "break_lock": RD | WR => break_lock;
    "get_info": RD => get_info;
    "list_locks": RD => list_locks;
    "assert_locked": RD | PROMOTE => assert_locked;
    "set_cookie": RD | WR | PROMOTE => set_cookie;
} }

/// The type of a lock. Unknown values survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LockType(pub(crate) u8);

impl LockType {
    pub(crate) const EXCLUSIVE: Self = Self(1);
    pub(crate) const SHARED: Self = Self(2);
    /// An exclusive lock; the object is removed with it.
    pub(crate) const EXCLUSIVE_EPHEMERAL: Self = Self(3);

    fn is_known(self) -> bool {
        self.is_exclusive() || self == Self::SHARED
    }

    fn is_exclusive(self) -> bool {
        self == Self::EXCLUSIVE || self.is_ephemeral()
    }

    fn is_ephemeral(self) -> bool {
        self == Self::EXCLUSIVE_EPHEMERAL
    }
}

spirula_denc::transparent!(LockType);

flags! {
    /// Flags of the request for a lock.
    pub(crate) struct LockFlags(u8), joined "|" {
        /// A holder may take the lock again, which renews it.
        MAY_RENEW = 0, "may_renew";
        /// Only a holder may take the lock, which renews it.
        MUST_RENEW = 1, "must_renew";
    }
}

versioned! {
    /// Input of `lock`.
    #[derive(Eq)]
    pub(crate) struct LockOp("cls_lock_lock_op", version 1, compat 1) {
        pub(crate) name: Bytes;
        pub(crate) kind: LockType;
        pub(crate) cookie: Bytes;
        pub(crate) tag: Bytes;
        pub(crate) description: Bytes;
        /// How long the lock lasts; zero for ever.
        pub(crate) duration: UTime;
        pub(crate) flags: LockFlags;
    }

    /// Input of `unlock`.
    #[derive(Eq)]
    pub(crate) struct UnlockOp("cls_lock_unlock_op", version 1, compat 1) {
        pub(crate) name: Bytes;
        pub(crate) cookie: Bytes;
    }

    /// Input of `break_lock`.
    #[derive(Eq)]
    pub(crate) struct BreakOp("cls_lock_break_op", version 1, compat 1) {
        pub(crate) name: Bytes;
        pub(crate) locker: EntityName;
        pub(crate) cookie: Bytes;
    }

    /// Input of `get_info`.
    #[derive(Eq)]
    pub(crate) struct GetInfoOp("cls_lock_get_info_op", version 1, compat 1) {
        pub(crate) name: Bytes;
    }

    /// Output of `list_locks`.
    #[derive(Eq)]
    pub(crate) struct ListLocksReply("cls_lock_list_locks_reply", version 1, compat 1) {
        pub(crate) locks: Vec<Bytes>;
    }

    /// Input of `assert_locked`.
    #[derive(Eq)]
    pub(crate) struct AssertOp("cls_lock_assert_op", version 1, compat 1) {
        pub(crate) name: Bytes;
        pub(crate) kind: LockType;
        pub(crate) cookie: Bytes;
        pub(crate) tag: Bytes;
    }

    /// Input of `set_cookie`.
    #[derive(Eq)]
    pub(crate) struct SetCookieOp("cls_lock_set_cookie_op", version 1, compat 1) {
        pub(crate) name: Bytes;
        pub(crate) kind: LockType;
        pub(crate) cookie: Bytes;
        pub(crate) tag: Bytes;
        pub(crate) new_cookie: Bytes;
    }

    /// A lock as its attribute holds it, and the output of `get_info`.
    #[derive(Eq)]
    pub(crate) struct LockInfo("lock_info_t", version 1, compat 1) {
        pub(crate) lockers: BTreeMap<LockerId, LockerInfo>;
        pub(crate) kind: LockType;
        /// While the lock is held, only clients with the same tag may take it too.
        pub(crate) tag: Bytes;
    }

    /// The record of a holder.
    #[derive(Eq)]
    pub(crate) struct LockerInfo("locker_info_t", version 1, compat 1) {
        /// When its hold ends; zero for never.
        pub(crate) expiration: UTime;
        pub(crate) addr: EntityAddr;
        pub(crate) description: Bytes;
    }
}

versioned! {
    /// A holder of a lock.
    #[derive(Eq, PartialOrd, Ord)]
    pub(crate) struct LockerId("locker_id_t", version 1, compat 1) {
        pub(crate) locker: EntityName;
        pub(crate) cookie: Bytes;
    }
}

const PREFIX: &[u8] = b"lock.";

fn attribute(name: &[u8]) -> Vec<u8> {
    // Where the name holds a NUL, Ceph's attribute ends.
    [PREFIX, until_nul(name)].concat()
}

/// The lock of that name without expired holders; empty if it was never taken.
fn read_lock(object: &mut dyn Object, name: &[u8]) -> Result<LockInfo> {
    let Some(bytes) = unless(object.getxattr(&attribute(name)), &[Error::ENODATA])? else {
        return Ok(LockInfo::default());
    };
    let mut lock: LockInfo = stored(&bytes)?;
    let now = object.now();
    lock.lockers
        .retain(|_, l| l.expiration.is_zero() || l.expiration >= now);
    if lock.lockers.is_empty() && lock.kind.is_ephemeral() {
        // The last holder's time is over, so the object goes. That it can't is no reason to fail.
        match object.remove() {
            Err(Error::NotFetched) => return Err(Error::NotFetched),
            Ok(()) | Err(Error::Errno(_)) => {}
        }
    }
    Ok(lock)
}

fn write_lock(object: &mut dyn Object, name: &[u8], lock: &LockInfo) -> Result<()> {
    object.setxattr(&attribute(name), to_bytes(lock))
}

fn lock(object: &mut dyn Object, op: LockOp) -> Result<Nothing> {
    let may_renew = op.flags.contains(LockFlags::MAY_RENEW);
    let must_renew = op.flags.contains(LockFlags::MUST_RENEW);
    if !op.kind.is_known() || op.name.is_empty() || (may_renew && must_renew) {
        return Err(Error::EINVAL);
    }
    let mut lock = unless(read_lock(object, &op.name), &[Error::ENOENT])?.unwrap_or_default();
    if !lock.lockers.is_empty() && op.tag != lock.tag {
        return Err(Error::EBUSY);
    }
    let caller = object.caller();
    let id = LockerId {
        locker: caller.name,
        cookie: op.cookie,
    };
    match lock.lockers.remove(&id) {
        Some(_) if !may_renew && !must_renew => return Err(Error::EEXIST),
        None if must_renew => return Err(Error::ENOENT),
        _ => {}
    }
    if !lock.lockers.is_empty() && (op.kind.is_exclusive() || lock.kind != op.kind) {
        return Err(Error::EBUSY);
    }
    let expiration = match op.duration.is_zero() {
        true => UTime::ZERO,
        false => sum(object.now(), op.duration),
    };
    lock.kind = op.kind;
    lock.tag = op.tag;
    // Blocklists and old clients know an address without its protocol only as a legacy one.
    let info = LockerInfo {
        expiration,
        addr: caller.addr.with_kind(AddrType::LEGACY),
        description: op.description,
    };
    lock.lockers.insert(id, info);
    write_lock(object, &op.name, &lock).map(|()| Nothing)
}

/// Adds a time span to a time, with any number of nanoseconds; seconds saturate.
fn sum(time: UTime, span: UTime) -> UTime {
    const SECOND: u64 = 1_000_000_000;
    let cap = |sec: u64| u32::try_from(sec).unwrap_or(u32::MAX);
    // Ceph adds both in 32 bits, where only an absurd span wraps.
    let nsec = u64::from(time.nsec.wrapping_add(span.nsec));
    let sec = u64::from(cap(u64::from(time.sec) + u64::from(span.sec)));
    UTime {
        sec: cap(sec + nsec / SECOND),
        nsec: cap(nsec % SECOND),
    }
}

fn unlock(object: &mut dyn Object, op: UnlockOp) -> Result<Nothing> {
    let locker = object.caller().name;
    remove_locker(object, &op.name, locker, op.cookie)
}

fn break_lock(object: &mut dyn Object, op: BreakOp) -> Result<Nothing> {
    remove_locker(object, &op.name, op.locker, op.cookie)
}

fn remove_locker(object: &mut dyn Object, name: &[u8], locker: EntityName, cookie: Bytes) -> Result<Nothing> {
    let mut lock = read_lock(object, name)?;
    if lock.lockers.remove(&LockerId { locker, cookie }).is_none() {
        return Err(Error::ENOENT);
    }
    if lock.kind.is_ephemeral() {
        object.remove()?;
    } else {
        write_lock(object, name, &lock)?;
    }
    Ok(Nothing)
}

fn get_info(object: &mut dyn Object, op: GetInfoOp) -> Result<LockInfo> {
    read_lock(object, &op.name)
}

fn list_locks(object: &mut dyn Object, _: Nothing) -> Result<ListLocksReply> {
    let attrs = object.getxattrs()?;
    let locks = attrs
        .into_keys()
        .filter(|name| name.starts_with(PREFIX))
        .map(|name| name.slice(PREFIX.len()..));
    Ok(ListLocksReply {
        locks: locks.collect(),
    })
}

fn assert_locked(object: &mut dyn Object, op: AssertOp) -> Result<Nothing> {
    held_by_caller(object, op).map(|_| Nothing)
}

/// The lock, and the caller as its holder. EBUSY where the caller does not hold it with this type
/// and tag.
fn held_by_caller(object: &mut dyn Object, op: AssertOp) -> Result<(LockInfo, LockerId)> {
    if !op.kind.is_known() || op.name.is_empty() {
        return Err(Error::EINVAL);
    }
    let lock = read_lock(object, &op.name)?;
    let id = LockerId {
        locker: object.caller().name,
        cookie: op.cookie,
    };
    if lock.kind != op.kind || lock.tag != op.tag || !lock.lockers.contains_key(&id) {
        return Err(Error::EBUSY);
    }
    Ok((lock, id))
}

fn set_cookie(object: &mut dyn Object, op: SetCookieOp) -> Result<Nothing> {
    let assert = AssertOp {
        name: op.name.clone(),
        kind: op.kind,
        cookie: op.cookie,
        tag: op.tag,
    };
    let (mut lock, old) = held_by_caller(object, assert)?;
    let new = LockerId {
        locker: old.locker,
        cookie: op.new_cookie,
    };
    if lock.lockers.contains_key(&new) {
        return Err(Error::EBUSY);
    }
    if let Some(info) = lock.lockers.remove(&old) {
        lock.lockers.insert(new, info);
    }
    write_lock(object, &op.name, &lock).map(|()| Nothing)
}
