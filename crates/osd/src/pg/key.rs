//! The store's keys of objects, PG logs and PG infos.
//!
//! An object's key sorts as the object does (pool, bit-reversed hash, namespace, key, name,
//! snapshot), so a PG is one contiguous range of keys and a split moves no object. The PG's number
//! is no part of the key.
//!
//! ```text
//! object   pool:u64be  reverse(hash):u32be  namespace 00 00  effective key 00 00  name|"" 00 00  snap:u64be
//! log      'L' pool:u64be seed:u32be version:u64be epoch:u32be
//! dups     'D' pool:u64be seed:u32be version:u64be epoch:u32be (of the first)
//! info     'I' pool:u64be seed:u32be
//! snap     'S' pool:u64be snap:u64be (a clone's object key without its pool)
//! redo     'R' pool:u64be seed:u32be version:u64be epoch:u32be
//! finding  'F' pool:u64be seed:u32be kind:u8 place
//! staging  ff 'T' pool:u64be seed:u32be slot:u8
//!          ff 'U' pool:u64be reverse(hash):u32be slot:u8 (if coded)
//! ```
//! Staging objects (see `stage`) sort behind all others, so that nothing that lists objects meets
//! them. Where objects are erasure-coded, a change that takes one may be made again after a split: so
//! its key has the hash of the object that it is for, and it belongs to the same PG always. A clone has a record for each snapshot that it stands for, so the clones of a snapshot in
//! a PG are one range too. A zero byte within a name is written `00 ff`. The name is left empty
//! where it equals the effective key.

use bytes::Bytes;
use spirula_maps::{EVersion, Epoch, HObject, ObjectName, PgId, PoolId, SnapId, snap};

const LOG: u8 = b'L';
const DUPS: u8 = b'D';
const INFO: u8 = b'I';
const SNAP: u8 = b'S';
const REDO: u8 = b'R';
const FINDING: u8 = b'F';
/// The beginning of the keys of staging objects, with which no pool's number begins.
const STAGE: [u8; 2] = [0xff, b'T'];
/// The same for objects that are erasure-coded.
const CODED_STAGE: [u8; 2] = [0xff, b'U'];
/// The length of a pool's id and a hash, with which an object's key begins.
const PLACE_LEN: usize = 12;
/// Length of the pool's id in a key.
const POOL_LEN: usize = 8;
/// Length of the snapshot at the end of an object's key.
const SNAP_LEN: usize = 8;
/// Length of the key of a log entry.
const LOG_LEN: usize = 25;

/// A range of the store's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key in it.
    pub from: Bytes,
    /// The first key after it that is not in it.
    pub to: Bytes,
}

impl KeyRange {
    /// Whether a key is in the range.
    pub fn contains(&self, key: &Bytes) -> bool {
        (&self.from..&self.to).contains(&key)
    }

    /// The part of a range of objects that is left from a key on, from 0 to 1, if objects are spread
    /// evenly.
    pub(super) fn part_from(&self, key: &Bytes) -> f64 {
        let place = |key: &Bytes| {
            let mut key = &key[..];
            let (pool, hash) = (take(&mut key), take(&mut key));
            let pool = u64::from_be_bytes(pool.unwrap_or_default()) as f64;
            pool * 2_f64.powi(32) + f64::from(u32::from_be_bytes(hash.unwrap_or_default()))
        };
        let (from, to, at) = (place(&self.from), place(&self.to), place(key));
        ((to - at) / (to - from).max(1.0)).clamp(0.0, 1.0)
    }

    /// The rest of the range, from a key on.
    pub(super) fn rest(self, from: Bytes) -> Self {
        Self { from, ..self }
    }
}

fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    for &b in name {
        out.push(b);
        if b == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

fn take_name<'a>(buf: &mut &'a [u8]) -> Option<(Vec<u8>, &'a [u8])> {
    let mut out = Vec::new();
    let mut at = 0;
    loop {
        let b = *buf.get(at)?;
        if b != 0 {
            out.push(b);
            at += 1;
            continue;
        }
        match *buf.get(at + 1)? {
            0 => break,
            0xff => out.push(0),
            _ => return None,
        }
        at += 2;
    }
    let (raw, rest) = (&buf[..at], &buf[at + 2..]);
    *buf = rest;
    Some((out, raw))
}

fn take<const N: usize>(buf: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = buf.split_first_chunk::<N>()?;
    *buf = rest;
    Some(*head)
}

/// The store key of an object, or of a place between objects that listings start from.
pub fn object_key(o: &HObject) -> Bytes {
    if o.max {
        return Bytes::from_static(&[0xff; 12]);
    }
    let mut out = Vec::with_capacity(28 + o.nspace.len() + 2 * o.key.len() + o.oid.len());
    out.extend_from_slice(&o.pool.max(0).to_be_bytes());
    out.extend_from_slice(&o.bitwise_key().to_be_bytes());
    put_name(&mut out, o.nspace.as_bytes());
    put_name(&mut out, o.effective_key().as_bytes());
    put_name(&mut out, if o.key.is_empty() { b"" } else { o.oid.as_bytes() });
    out.extend_from_slice(&o.snap.to_be_bytes());
    out.into()
}

/// Whether an object's store key would be longer than the store takes: zero bytes in names count
/// twice.
pub fn is_too_long(o: &HObject) -> bool {
    const MOST: usize = spirula_store::ObjectKey::MAX_LEN;
    let names = o.nspace.len() + o.key.len() + o.oid.len();
    2 * names + 64 > MOST && object_key(o).len() > MOST
}

/// The object with this store key; `None` if the bytes are no key.
pub fn parse_object_key(mut key: &[u8]) -> Option<HObject> {
    let buf = &mut key;
    let pool = i64::from_be_bytes(take(buf)?);
    let hash = u32::from_be_bytes(take(buf)?).reverse_bits();
    let nspace = ObjectName::from(take_name(buf)?.0);
    let effective = ObjectName::from(take_name(buf)?.0);
    let oid = ObjectName::from(take_name(buf)?.0);
    let snap = u64::from_be_bytes(take(buf)?);
    if !buf.is_empty() {
        return None;
    }
    let (key, oid) = if oid.is_empty() {
        (ObjectName::EMPTY, effective)
    } else {
        (effective, oid)
    };
    Some(HObject {
        key,
        oid,
        snap,
        hash,
        max: false,
        nspace,
        pool,
    })
}

/// The object with this key, for messages to people.
pub(crate) fn named(key: &[u8]) -> HObject {
    parse_object_key(key).unwrap_or_else(HObject::min)
}

/// The range of the PG's objects, in a pool of `pg_num` PGs.
pub fn pg_range(pgid: PgId, pg_num: u32) -> KeyRange {
    let bits = pgid.split_bits(pg_num);
    let start = pgid.seed.reverse_bits();
    let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
    let place = |pool: u64, hash: u32| {
        let mut out = Vec::with_capacity(12);
        out.extend_from_slice(&pool.to_be_bytes());
        out.extend_from_slice(&hash.to_be_bytes());
        Bytes::from(out)
    };
    let to = match (start | rest).checked_add(1) {
        Some(end) => place(pgid.pool.unsigned(), end),
        None => place(pgid.pool.unsigned() + 1, 0),
    };
    let from = place(pgid.pool.unsigned(), start);
    KeyRange { from, to }
}

fn pg_key(kind: u8, pgid: PgId) -> Vec<u8> {
    let mut out = Vec::with_capacity(LOG_LEN);
    out.push(kind);
    out.extend_from_slice(&pgid.pool.unsigned().to_be_bytes());
    out.extend_from_slice(&pgid.seed.to_be_bytes());
    out
}

/// The key of a PG's info.
pub fn info_key(pgid: PgId) -> Bytes {
    pg_key(INFO, pgid).into()
}

/// The range that holds the infos of all PGs.
pub fn all_infos() -> KeyRange {
    KeyRange {
        from: Bytes::from_static(&[INFO]),
        to: Bytes::from_static(&[INFO + 1]),
    }
}

/// The PG whose info has this key.
pub fn parse_info_key(mut key: &[u8]) -> Option<PgId> {
    let buf = &mut key;
    (take::<1>(buf)? == [INFO]).then_some(())?;
    let pool = PoolId::try_from(u64::from_be_bytes(take(buf)?)).ok()?;
    let pgid = PgId::new(pool, u32::from_be_bytes(take(buf)?));
    buf.is_empty().then_some(pgid)
}

/// The key of one of a PG's staging objects.
pub fn stage_key(pgid: PgId, slot: u8) -> Bytes {
    let (pool, seed) = (pgid.pool.unsigned().to_be_bytes(), pgid.seed.to_be_bytes());
    [&STAGE[..], &pool, &seed, &[slot]].concat().into()
}

/// The key of the staging object in a slot for the erasure-coded object with this key.
pub fn coded_stage_key(object: &[u8], slot: u8) -> Bytes {
    let place = &object[..PLACE_LEN.min(object.len())];
    [&CODED_STAGE[..], place, &[slot]].concat().into()
}

/// The range of the staging objects for a PG's erasure-coded objects, in a pool of `pg_num` PGs.
pub fn coded_stage_range(pgid: PgId, pg_num: u32) -> KeyRange {
    let KeyRange { from, to } = pg_range(pgid, pg_num);
    let place = |at: Bytes| [&CODED_STAGE[..], &at].concat().into();
    KeyRange {
        from: place(from),
        to: place(to),
    }
}

/// Whether a key is that of a staging object.
pub fn is_stage_key(key: &[u8]) -> bool {
    key.starts_with(&STAGE) || key.starts_with(&CODED_STAGE)
}

/// The key under which a member builds an object of the PG that it repairs: one more staging
/// object.
pub fn repair_key(pgid: PgId) -> Bytes {
    stage_key(pgid, u8::MAX)
}

/// The key of another clone of the object (or of its head) with this key.
pub fn clone_key(object: &[u8], snap: SnapId) -> Bytes {
    let end = object.len().saturating_sub(SNAP_LEN);
    [&object[..end], &snap.to_be_bytes()].concat().into()
}

/// The key of the head of the object, or clone, with this key.
pub fn head_key(object: &[u8]) -> Bytes {
    clone_key(object, snap::NOSNAP)
}

/// The range of the keys of the object, or clone, with this key, and all its clones.
pub fn group_range(object: &[u8]) -> KeyRange {
    KeyRange {
        from: clone_key(object, SnapId::MIN),
        to: [&clone_key(object, SnapId::MAX)[..], &[0]].concat().into(),
    }
}

/// The snapshot, or clone, of an object's key.
pub fn snap_of(object: &[u8]) -> Option<SnapId> {
    object.last_chunk().map(|b| SnapId::from_be_bytes(*b))
}

/// The key of the record that a clone stands for a snapshot.
pub fn snap_key(snap: SnapId, clone: &[u8]) -> Bytes {
    let (pool, rest) = clone.split_at(POOL_LEN.min(clone.len()));
    [&[SNAP], pool, &snap.to_be_bytes(), rest].concat().into()
}

/// The range of the records of a snapshot's clones between two object keys of a pool, or up to the
/// next pool.
pub fn snap_records(snap: SnapId, from: &[u8], to: &[u8]) -> KeyRange {
    let pool = &from[..POOL_LEN.min(from.len())];
    let to = if to.starts_with(pool) {
        snap_key(snap, to)
    } else {
        snap_key(snap.saturating_add(1), pool)
    };
    let from = snap_key(snap, from);
    KeyRange { from, to }
}

/// The range of the records of a snapshot's clones in a PG.
pub fn snap_range(pgid: PgId, pg_num: u32, snap: SnapId) -> KeyRange {
    let KeyRange { from, to } = pg_range(pgid, pg_num);
    snap_records(snap, &from, &to)
}

/// The key of the clone that a record is about.
pub fn parse_snap_key(key: &[u8]) -> Option<Bytes> {
    let rest = key.strip_prefix(&[SNAP])?;
    let (pool, rest) = rest.split_at_checked(POOL_LEN)?;
    let (_, object) = rest.split_at_checked(SNAP_LEN)?;
    Some([pool, object].concat().into())
}

fn version_key(kind: u8, pgid: PgId, v: EVersion) -> Bytes {
    let mut out = pg_key(kind, pgid);
    out.extend_from_slice(&v.version.to_be_bytes());
    out.extend_from_slice(&v.epoch.number().to_be_bytes());
    out.into()
}

/// The key at which the log entries of a PG after `v` begin.
pub fn after_log_key(pgid: PgId, v: EVersion) -> Bytes {
    log_key(pgid, EVersion::new(Epoch::NONE, v.version.saturating_add(1)))
}

fn version_range(kind: u8, pgid: PgId) -> KeyRange {
    let (from, mut to) = (pg_key(kind, pgid), pg_key(kind, pgid));
    to.extend_from_slice(&[0xff; 13]);
    KeyRange {
        from: from.into(),
        to: to.into(),
    }
}

/// The key of a log entry.
pub fn log_key(pgid: PgId, v: EVersion) -> Bytes {
    version_key(LOG, pgid, v)
}

/// The kind of something that a scrub of a PG has found, by its key, and its place in the list of
/// those.
pub fn parse_finding_key(pgid: PgId, key: &[u8]) -> Option<(u8, Bytes)> {
    let rest = key.strip_prefix(&pg_key(FINDING, pgid)[..])?;
    let (kind, place) = rest.split_first()?;
    Some((*kind, Bytes::copy_from_slice(place)))
}

/// The key of something that a scrub of a PG has found: of a kind, at its place in the list of those.
pub fn finding_key(pgid: PgId, kind: u8, place: &[u8]) -> Bytes {
    [&pg_key(FINDING, pgid)[..], &[kind], place].concat().into()
}

/// The range of what a scrub of a PG has found of a kind, behind a place.
pub fn findings_after(pgid: PgId, kind: u8, place: &[u8]) -> KeyRange {
    KeyRange {
        from: [&finding_key(pgid, kind, place)[..], &[0]].concat().into(),
        to: finding_key(pgid, kind + 1, &[]),
    }
}

/// The range of all that a scrub of a PG has found.
pub fn findings_range(pgid: PgId) -> KeyRange {
    version_range(FINDING, pgid)
}

/// The range of all log entries of a PG.
pub fn log_range(pgid: PgId) -> KeyRange {
    version_range(LOG, pgid)
}

/// The key of the steps of a change that may not be durable on all members.
pub fn redo_key(pgid: PgId, v: EVersion) -> Bytes {
    version_key(REDO, pgid, v)
}

/// The key at which such records of a PG after `v` begin.
pub fn after_redo_key(pgid: PgId, v: EVersion) -> Bytes {
    redo_key(pgid, EVersion::new(Epoch::NONE, v.version.saturating_add(1)))
}

/// The range of all such records of a PG.
pub fn redo_range(pgid: PgId) -> KeyRange {
    version_range(REDO, pgid)
}

/// The version that a record's key ends with; `None` for other keys.
pub fn version_of(key: &[u8]) -> Option<EVersion> {
    let (_, end) = key.split_last_chunk::<12>()?;
    let (version, epoch) = end.split_first_chunk()?;
    let epoch = Epoch::new(u32::from_be_bytes(epoch.try_into().ok()?));
    Some(EVersion::new(epoch, u64::from_be_bytes(*version)))
}

/// The key of a batch of forgotten requests.
pub fn dups_key(pgid: PgId, first: EVersion) -> Bytes {
    version_key(DUPS, pgid, first)
}

/// The range of all batches of forgotten requests of a PG.
pub fn dups_range(pgid: PgId) -> KeyRange {
    version_range(DUPS, pgid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spirula_maps::snap;

    fn object(nspace: &'static str, key: &'static str, oid: &'static str, hash: u32) -> HObject {
        let n = ObjectName::from_static;
        HObject::new(3, n(nspace), n(key), n(oid), snap::NOSNAP, hash)
    }

    #[test]
    fn keys_round_trip_and_sort_as_objects_do() {
        let mut objects = [
            object("", "", "a", 1),
            object("", "", "a\0", 1),
            object("", "", "a\0b", 1),
            object("", "k", "a", 1),
            object("n", "", "a", 1),
            object("n\0", "", "a", 1),
            object("", "", "zz", 0x8000_0000),
            object("", "", "zz", 0),
        ];
        objects.sort();
        let keys: Vec<_> = objects.iter().map(object_key).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        for (o, k) in objects.iter().zip(&keys) {
            assert_eq!(parse_object_key(k).as_ref(), Some(o));
            for cut in 0..k.len() {
                assert_eq!(parse_object_key(&k[..cut]), None);
            }
        }
    }

    #[test]
    fn a_pg_is_the_range_of_the_hashes_it_contains() {
        for pg_num in [1, 2, 3, 8, 12, 31] {
            for i in 0..500u32 {
                let o = object("", "", "x", i.wrapping_mul(0x9e37_79b1));
                let k = object_key(&o);
                for pg in (0..pg_num).map(|s| PgId::new(PoolId::new(3), s)) {
                    let is_in = pg.contains_hash(pg_num, o.hash);
                    assert_eq!(pg_range(pg, pg_num).contains(&k), is_in, "{pg} of {pg_num}");
                    let staged = coded_stage_key(&k, u8::MAX);
                    let range = coded_stage_range(pg, pg_num);
                    assert_eq!(range.contains(&staged), is_in, "{pg} of {pg_num}");
                }
            }
        }
    }

    #[test]
    fn staging_objects_lie_behind_all_objects() {
        let (a, b) = (
            stage_key(PgId::new(PoolId::new(3), 9), 0),
            stage_key(PgId::new(PoolId::new(3), 9), 1),
        );
        let c = coded_stage_key(&object_key(&object("", "", "a", 0)), 0);
        assert!(a < b && b < c && a != stage_key(PgId::new(PoolId::new(3), 8), 0));
        let last = pg_range(PgId::new(PoolId::try_from(i64::MAX - 1).unwrap(), 0), 1).to;
        for key in [a, b, c] {
            assert!(last < key && is_stage_key(&key));
            assert_eq!(parse_object_key(&key), None);
        }
    }

    #[test]
    fn log_keys_lie_in_their_range_in_order_of_version() {
        let pg = PgId::new(PoolId::new(3), 9);
        let KeyRange { from, to } = log_range(pg);
        let a = log_key(pg, EVersion::new(Epoch::new(9), 1));
        let b = log_key(pg, EVersion::new(Epoch::new(4), 2));
        assert!(from < a && a < b && b < to);
        assert!(log_key(pg, EVersion::MAX) < to);
        assert_eq!(parse_info_key(&info_key(pg)), Some(pg));
    }
}
