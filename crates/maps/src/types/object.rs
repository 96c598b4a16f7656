//! Object names, locators and the order in which a PG lists its objects.

use std::cmp::Ordering;
use std::fmt;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};

use super::{PoolId, SnapId, or_none, snap};

/// An object's name, locator key or namespace: any bytes. Ordered bytewise.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectName(pub Bytes);

impl ObjectName {
    /// The empty name.
    pub const EMPTY: Self = Self(Bytes::new());

    /// A name without copying.
    pub const fn from_static(name: &'static str) -> Self {
        Self(Bytes::from_static(name.as_bytes()))
    }

    /// The name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name's length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl AsRef<[u8]> for ObjectName {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for ObjectName {
    fn from(s: &str) -> Self {
        Self(Bytes::copy_from_slice(s.as_bytes()))
    }
}

impl From<&String> for ObjectName {
    fn from(s: &String) -> Self {
        Self::from(s.as_str())
    }
}

/// Shares the bytes.
impl From<&ObjectName> for ObjectName {
    fn from(s: &ObjectName) -> Self {
        s.clone()
    }
}

impl From<String> for ObjectName {
    fn from(s: String) -> Self {
        Self(Bytes::from(s))
    }
}

impl From<&[u8]> for ObjectName {
    fn from(s: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(s))
    }
}

impl From<Vec<u8>> for ObjectName {
    fn from(s: Vec<u8>) -> Self {
        Self(Bytes::from(s))
    }
}

impl From<Bytes> for ObjectName {
    fn from(s: Bytes) -> Self {
        Self(s)
    }
}

/// The name as text; bytes that are not printable UTF-8 as `\xNN`.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() {
                    write!(f, "\\x{:02x}", u32::from(c))?
                } else {
                    fmt::Write::write_char(f, c)?
                }
            }
            for b in chunk.invalid() {
                write!(f, "\\x{b:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

spirula_denc::transparent!(ObjectName);

/// `object_locator_t`: the properties besides the name that decide where an object lives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectLocator {
    /// The pool; `None` only in locators that are not an object's.
    pub pool: Option<PoolId>,
    /// Hashed instead of the name where it is not empty.
    pub key: ObjectName,
    /// The namespace within the pool.
    pub nspace: ObjectName,
    /// The PG's hash itself where it is not -1; the key is empty then.
    pub hash: i64,
}

impl ObjectLocator {
    /// The locator of ordinary objects in a pool.
    pub const fn pool(pool: PoolId) -> Self {
        Self::of(Some(pool))
    }

    const fn of(pool: Option<PoolId>) -> Self {
        Self {
            pool,
            key: ObjectName::EMPTY,
            nspace: ObjectName::EMPTY,
            hash: -1,
        }
    }
}

impl Default for ObjectLocator {
    fn default() -> Self {
        Self::of(None)
    }
}

/// `@pool;namespace:key`, empty parts left out.
impl fmt::Display for ObjectLocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", or_none::number(self.pool))?;
        if !self.nspace.is_empty() {
            write!(f, ";{}", self.nspace)?;
        }
        if !self.key.is_empty() {
            write!(f, ":{}", self.key)?;
        }
        Ok(())
    }
}

impl Encode for ObjectLocator {
    fn encode(&self, w: &mut Writer) {
        // A reader that ignores the hash would look in the wrong PG.
        let compat = if self.hash == -1 { 3 } else { 6 };
        w.section(6, compat, |w| {
            or_none::encode(&self.pool, w);
            // Once the preferred OSD.
            w.i32(-1);
            w.put(&self.key);
            w.put(&self.nspace);
            w.i64(self.hash);
        });
    }
}

impl Decode for ObjectLocator {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("object_locator_t", 6, |v, r| {
            let pool = or_none::decode(r)?;
            r.skip(4)?;
            let key: ObjectName = r.get()?;
            let nspace = if v >= 5 { r.get()? } else { ObjectName::EMPTY };
            let hash = if v >= 6 { r.i64()? } else { -1 };
            if hash != -1 && !key.is_empty() {
                return Err(Error::Invalid("object locator with key and hash"));
            }
            Ok(Self {
                pool,
                key,
                nspace,
                hash,
            })
        })
    }
}

/// `hobject_t`: an object (or a place between objects) of a pool, in the order in which PGs list:
/// by pool, bit-reversed hash, namespace, key, name, snapshot. Bit reversal keeps a PG one
/// contiguous range through splits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HObject {
    /// The locator key; empty where it equals the name.
    pub key: ObjectName,
    /// The name.
    pub oid: ObjectName,
    /// The snapshot; [`snap::NOSNAP`] for the head.
    pub snap: SnapId,
    /// The hash of namespace and key or name.
    pub hash: u32,
    /// After all objects of all pools.
    pub max: bool,
    /// The namespace.
    pub nspace: ObjectName,
    /// The pool; `i64::MIN` before all pools.
    pub pool: i64,
}

impl Default for HObject {
    fn default() -> Self {
        Self::min()
    }
}

impl HObject {
    /// The place before all objects.
    pub const fn min() -> Self {
        Self {
            key: ObjectName::EMPTY,
            oid: ObjectName::EMPTY,
            snap: 0,
            hash: 0,
            max: false,
            nspace: ObjectName::EMPTY,
            pool: i64::MIN,
        }
    }

    /// The place after all objects.
    pub const fn max() -> Self {
        let mut o = Self::min();
        o.max = true;
        o
    }

    /// An object; a key equal to the name is left out.
    pub fn new(
        pool: i64,
        nspace: ObjectName,
        key: ObjectName,
        oid: ObjectName,
        snap: SnapId,
        hash: u32,
    ) -> Self {
        let key = if key == oid { ObjectName::EMPTY } else { key };
        Self {
            key,
            oid,
            snap,
            hash,
            max: false,
            nspace,
            pool,
        }
    }

    /// Whether it is the place before all objects.
    pub fn is_min(&self) -> bool {
        *self == Self::min()
    }

    /// Whether it is an object's head.
    pub fn is_head(&self) -> bool {
        self.snap == snap::NOSNAP
    }

    /// The text that is hashed besides the namespace: the key, or else the name.
    pub fn effective_key(&self) -> &ObjectName {
        if self.key.is_empty() { &self.oid } else { &self.key }
    }

    /// The hash with its bits reversed, the first thing that orders objects within a pool.
    pub fn bitwise_key(&self) -> u32 {
        self.hash.reverse_bits()
    }
}

impl Ord for HObject {
    fn cmp(&self, o: &Self) -> Ordering {
        (self.max, self.pool, self.bitwise_key())
            .cmp(&(o.max, o.pool, o.bitwise_key()))
            .then_with(|| self.nspace.cmp(&o.nspace))
            .then_with(|| {
                if self.key.is_empty() && o.key.is_empty() {
                    Ordering::Equal
                } else {
                    self.effective_key().cmp(o.effective_key())
                }
            })
            .then_with(|| self.oid.cmp(&o.oid))
            .then_with(|| self.snap.cmp(&o.snap))
            // Only for keys equal to the name, which canonical objects leave out: keeps Ord in step
            // with Eq.
            .then_with(|| self.key.cmp(&o.key))
    }
}

impl PartialOrd for HObject {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn write_escaped(f: &mut fmt::Formatter<'_>, name: &ObjectName) -> fmt::Result {
    for &b in name.as_bytes() {
        if matches!(b, 0..32 | 127.. | b'%' | b':' | b'/') {
            write!(f, "%{b:02x}")?;
        } else {
            fmt::Write::write_char(f, char::from(b))?;
        }
    }
    Ok(())
}

/// `pool:reversedhash:namespace:key:name:snap` with `%NN` escapes, or `MIN`, `MAX`: Ceph's own
/// form.
impl fmt::Display for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        if self.is_min() {
            return f.write_str("MIN");
        }
        write!(f, "{}:{:08x}:", self.pool, self.bitwise_key())?;
        for name in [&self.nspace, &self.key, &self.oid] {
            write_escaped(f, name)?;
            f.write_str(":")?;
        }
        write!(f, "{}", snap::Display(self.snap))
    }
}

impl Encode for HObject {
    fn encode(&self, w: &mut Writer) {
        w.section(4, 3, |w| {
            w.put(&self.key);
            w.put(&self.oid);
            w.u64(self.snap);
            w.u32(self.hash);
            w.bool(self.max);
            w.put(&self.nspace);
            w.i64(self.pool);
        });
    }
}

impl Decode for HObject {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("hobject_t", 4, |v, r| {
            let mut o = Self {
                key: r.get()?,
                oid: r.get()?,
                snap: r.u64()?,
                hash: r.u32()?,
                max: r.bool()?,
                ..Self::default()
            };
            if v >= 4 {
                o.nspace = r.get()?;
                o.pool = r.i64()?;
            }
            // Hammer wrote the minimum with pool -1, and some writers a non-canonical maximum.
            let hammer_min = o.pool == -1 && o.snap == 0 && o.hash == 0 && o.oid.is_empty();
            if o.max {
                o = Self::max();
            } else if hammer_min {
                o.pool = i64::MIN;
            }
            Ok(o)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(
        nspace: &'static str,
        key: &'static str,
        oid: &'static str,
        snap: SnapId,
        hash: u32,
    ) -> HObject {
        let name = ObjectName::from_static;
        HObject::new(1, name(nspace), name(key), name(oid), snap, hash)
    }

    #[test]
    fn objects_sort_by_reversed_hash_namespace_key_name_snap() {
        let sorted = [
            HObject::min(),
            object("", "", "z", 1, 0),
            object("", "", "a", 1, 0x8000_0000),
            object("", "", "a", snap::NOSNAP, 0x8000_0000),
            object("", "", "b", 1, 0x8000_0000),
            object("", "c", "a", 1, 0x8000_0000),
            object("n", "", "a", 1, 0x8000_0000),
            object("", "", "a", 1, 1),
            HObject::max(),
        ];
        assert!(sorted.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn prints_as_ceph_does() {
        assert_eq!(
            object("n/1", "", "a:b", snap::NOSNAP, 1).to_string(),
            "1:80000000:n%2f1::a%3ab:head"
        );
        assert_eq!(HObject::max().to_string(), "MAX");
        assert_eq!(HObject::default().to_string(), "MIN");
    }
}
