//! Chunks of deduplicated objects, removed with the last object that refers to them. Formats:
//! Ceph's `src/cls/cas/cls_cas_ops.h` and `cls_cas_internal.h`.
//!
//! A reference names an object that uses the chunk; one object may have several references. Where
//! there are many, other implementations may have stored less: counts by the objects' hashes, by
//! their pools, or one total.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer, versioned};
use spirula_maps::HObject;

use crate::error::unless;
use crate::method::{Nothing, Return, class, stored, to_bytes};
use crate::{Error, Object, Result};

class! { "cas" {
    "chunk_create_or_get_ref": RD | WR => create_or_get_ref;
    "chunk_get_ref": RD | WR => get_ref;
    "chunk_put_ref": RD | WR => put_ref;
    "references_chunk": RD => references_chunk;
} }

const ATTRIBUTE: &[u8] = b"chunk_refs";

/// A flag: compare the content if the chunk exists.
const VERIFY: u64 = 1;

versioned! {
    /// Input of `chunk_create_or_get_ref`.
    #[derive(Eq)]
    pub(crate) struct CreateOp("cls_cas_chunk_create_or_get_ref_op", version 1, compat 1) {
        pub(crate) source: HObject;
        pub(crate) flags: u64;
        pub(crate) data: Bytes;
    }

    /// Input of `chunk_get_ref` and `chunk_put_ref`.
    #[derive(Eq)]
    pub(crate) struct RefOp("cls_cas_chunk_get_ref_op", version 1, compat 1) {
        pub(crate) source: HObject;
    }
}

/// The references to a chunk, as its attribute holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refs {
    /// The number of references of each object.
    ByObject(BTreeMap<HObject, u64>),
    /// The number of references of the objects of a pool and a part of their hashes.
    ByHash {
        /// References altogether.
        total: u64,
        /// The number of known lower bits of the hashes.
        bits: u32,
        /// By pool and hash.
        counts: BTreeMap<(i64, u32), u64>,
    },
    /// The number of references of the objects of a pool.
    ByPool {
        /// References altogether.
        total: u64,
        /// By pool.
        counts: BTreeMap<i64, u64>,
    },
    /// The number of references.
    Count(u64),
}

impl Default for Refs {
    fn default() -> Self {
        Self::ByObject(BTreeMap::new())
    }
}

fn add(n: &mut u64) {
    *n = n.saturating_add(1);
}

/// Subtracts one from the count of a key; returns whether there was one.
fn take<K: Ord>(counts: &mut BTreeMap<K, u64>, key: &K) -> bool {
    let Some(n) = counts.get_mut(key) else {
        return false;
    };
    *n = n.saturating_sub(1);
    if *n == 0 {
        counts.remove(key);
    }
    true
}

fn hash_key(o: &HObject, bits: u32) -> (i64, u32) {
    (o.pool, o.hash & (u32::MAX >> (32 - bits.clamp(1, 32))))
}

impl Refs {
    fn get(&mut self, source: HObject) {
        match self {
            Self::ByObject(counts) => add(counts.entry(source).or_default()),
            Self::ByHash { total, bits, counts } => {
                add(counts.entry(hash_key(&source, *bits)).or_default());
                add(total);
            }
            Self::ByPool { total, counts } => {
                add(counts.entry(source.pool).or_default());
                add(total);
            }
            Self::Count(total) => add(total),
        }
    }

    /// Drops a reference; returns whether there was one. When none is left, later ones are counted
    /// by object again.
    fn put(&mut self, source: &HObject) -> bool {
        let (found, left) = match self {
            Self::ByObject(counts) => return take(counts, source),
            Self::ByHash { total, bits, counts } => (take(counts, &hash_key(source, *bits)), total),
            Self::ByPool { total, counts } => (take(counts, &source.pool), total),
            Self::Count(total) => (*total > 0, total),
        };
        *left = left.saturating_sub(u64::from(found));
        if *left == 0 {
            *self = Self::default();
        }
        found
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::ByObject(counts) => counts.is_empty(),
            Self::ByHash { counts, .. } => counts.is_empty(),
            Self::ByPool { counts, .. } => counts.is_empty(),
            Self::Count(total) => *total == 0,
        }
    }
}

/// Writes seven bits a byte, the lowest first; all bytes but the last have the highest bit set.
fn put_varint(w: &mut Writer, mut v: u64) {
    while v > 0x7f {
        w.put(&(v as u8 | 0x80));
        v >>= 7;
    }
    w.put(&(v as u8));
}

fn varint(r: &mut Reader<'_>) -> spirula_denc::Result<u64> {
    let (mut v, mut shift) = (0, 0);
    loop {
        let byte: u8 = r.get()?;
        if shift > 63 {
            return Err(spirula_denc::Error::Invalid("varint"));
        }
        v |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(v);
        }
        shift += 7;
    }
}

/// Writes a number whose lowest encoded bit is the sign.
fn put_signed_varint(w: &mut Writer, v: i64) {
    put_varint(w, v.unsigned_abs() << 1 | u64::from(v < 0));
}

fn signed_varint(r: &mut Reader<'_>) -> spirula_denc::Result<i64> {
    let v = varint(r)?;
    let n = (v >> 1).cast_signed();
    Ok(if v & 1 == 1 { -n } else { n })
}

impl Encode for Refs {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| match self {
            Self::ByObject(counts) => {
                w.put(&1u8);
                w.section(1, 1, |w| {
                    let all = || counts.iter().flat_map(|(o, n)| (0..*n).map(move |_| o));
                    w.count(all().count());
                    all().for_each(|o| w.put(o));
                });
            }
            Self::ByHash { total, bits, counts } => {
                w.put(&2u8);
                w.section(1, 1, |w| {
                    put_varint(w, *total);
                    put_varint(w, (*bits).into());
                    put_varint(w, counts.len() as u64);
                    for ((pool, hash), n) in counts {
                        put_signed_varint(w, *pool);
                        let known = bits.div_ceil(8).min(4) as usize;
                        w.bytes(&hash.to_le_bytes()[..known]);
                        put_varint(w, *n);
                    }
                });
            }
            Self::ByPool { total, counts } => {
                w.put(&4u8);
                w.section(1, 1, |w| {
                    put_varint(w, *total);
                    put_varint(w, counts.len() as u64);
                    for (pool, n) in counts {
                        put_signed_varint(w, *pool);
                        put_varint(w, *n);
                    }
                });
            }
            Self::Count(total) => {
                w.put(&5u8);
                w.section(1, 1, |w| w.put(total));
            }
        });
    }
}

impl Decode for Refs {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("chunk_refs_t", 1, |_, r| match r.get::<u8>()? {
            1 => r.section("chunk_refs_by_object_t", 1, |_, r| {
                let mut counts = BTreeMap::new();
                for _ in 0..r.count(1)? {
                    *counts.entry(r.get()?).or_default() += 1;
                }
                Ok(Self::ByObject(counts))
            }),
            2 => r.section("chunk_refs_by_hash_t", 1, |_, r| {
                let (total, bits, n) = (varint(r)?, varint(r)?, varint(r)?);
                let bits = u32::try_from(bits).ok().filter(|b| (1..=32).contains(b));
                let bits = bits.ok_or(spirula_denc::Error::Invalid("hash bits"))?;
                let mut counts = BTreeMap::new();
                for _ in 0..n {
                    let pool = signed_varint(r)?;
                    let known = r.bytes(bits.div_ceil(8) as usize)?;
                    let mut hash = [0; 4];
                    hash.iter_mut().zip(known).for_each(|(h, k)| *h = *k);
                    counts.insert((pool, u32::from_le_bytes(hash)), varint(r)?);
                }
                Ok(Self::ByHash { total, bits, counts })
            }),
            4 => r.section("chunk_refs_by_pool_t", 1, |_, r| {
                let (total, n) = (varint(r)?, varint(r)?);
                let mut counts = BTreeMap::new();
                for _ in 0..n {
                    counts.insert(signed_varint(r)?, varint(r)?);
                }
                Ok(Self::ByPool { total, counts })
            }),
            5 => r.section("chunk_refs_count_t", 1, |_, r| Ok(Self::Count(r.get()?))),
            _ => Err(spirula_denc::Error::Invalid("kind of references")),
        })
    }
}

fn read_refs(object: &mut dyn Object) -> Result<Refs> {
    match unless(object.getxattr(ATTRIBUTE), &[Error::ENODATA])? {
        Some(bytes) => stored(&bytes),
        None => Ok(Refs::default()),
    }
}

fn write_refs(object: &mut dyn Object, refs: &Refs) -> Result<Nothing> {
    object.setxattr(ATTRIBUTE, to_bytes(refs)).map(|()| Nothing)
}

/// Creates the chunk, or adds a reference if it exists.
fn create_or_get_ref(object: &mut dyn Object, op: CreateOp) -> Result<Nothing> {
    let mut refs = match unless(read_refs(object), &[Error::ENOENT])? {
        Some(refs) => {
            if op.flags & VERIFY != 0 && object.read(0, 0)? != op.data {
                return Err(Error::ENOMSG);
            }
            refs
        }
        None => {
            object.write_full(op.data)?;
            Refs::default()
        }
    };
    refs.get(op.source);
    write_refs(object, &refs)
}

fn get_ref(object: &mut dyn Object, op: RefOp) -> Result<Nothing> {
    let mut refs = read_refs(object)?;
    refs.get(op.source);
    write_refs(object, &refs)
}

fn put_ref(object: &mut dyn Object, op: RefOp) -> Result<Nothing> {
    let mut refs = read_refs(object)?;
    if !refs.put(&op.source) {
        return Err(Error::ENOLINK);
    }
    if refs.is_empty() {
        return object.remove().map(|()| Nothing);
    }
    write_refs(object, &refs)
}

/// The number of references of the object, if it is deduplicated, to the chunk of this name. There
/// are no deduplicated objects here, so the answer is that of any other object.
fn references_chunk(_: &mut dyn Object, _chunk: Bytes) -> Result<Return> {
    Err(Error::ENOLINK)
}
