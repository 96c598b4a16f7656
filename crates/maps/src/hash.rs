//! The hashes from object name to placement seed (Ceph's `src/common/ceph_hash.cc`).

/// The hash that a pool uses (`CEPH_STR_HASH_*`). Unknown values survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StrHash(pub u8);

impl StrHash {
    /// The Linux dcache's.
    pub const LINUX: Self = Self(1);
    /// Robert Jenkins' 1996 hash, which every pool uses.
    pub const RJENKINS: Self = Self(2);

    /// The hash's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::LINUX => "linux",
            Self::RJENKINS => "rjenkins",
            _ => "unknown",
        }
    }

    /// Hashes the concatenation of `parts`. An unknown hash gives all ones, as Ceph's does.
    pub fn hash(self, parts: &[&[u8]]) -> u32 {
        match self {
            Self::LINUX => linux_dcache(parts.iter().copied().flatten().copied()),
            Self::RJENKINS => match parts {
                [one] => rjenkins(one),
                many => rjenkins(&many.concat()),
            },
            _ => u32::MAX,
        }
    }
}

impl Default for StrHash {
    fn default() -> Self {
        Self::RJENKINS
    }
}

spirula_denc::transparent!(StrHash);

fn linux_dcache(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0, |hash: u32, c| {
        let c = u32::from(c);
        hash.wrapping_add(c << 4).wrapping_add(c >> 4).wrapping_mul(11)
    })
}

/// One round of the mixing function of Jenkins' "A hash function for hash table lookup" (1996,
/// public domain).
fn mix(state: &mut [u32; 3]) {
    let [mut a, mut b, mut c] = *state;
    for [x, y, z] in [[13, 8, 13], [12, 16, 5], [3, 10, 15]] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> x);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << y);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> z);
    }
    *state = [a, b, c];
}

/// Jenkins' 1996 string hash with initial value 0.
pub fn rjenkins(bytes: &[u8]) -> u32 {
    const GOLDEN_RATIO: u32 = 0x9e37_79b9;
    let mut state = [GOLDEN_RATIO, GOLDEN_RATIO, 0];
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        for (word, four) in state.iter_mut().zip(block.chunks_exact(4)) {
            *word = word.wrapping_add(u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        }
        mix(&mut state);
    }
    // The lowest byte of the last word belongs to the length (which Ceph keeps in 32 bits too).
    state[2] = state[2].wrapping_add(bytes.len() as u32);
    for (i, &byte) in blocks.remainder().iter().enumerate() {
        let (word, shift) = if i < 8 {
            (i / 4, 8 * (i % 4))
        } else {
            (2, 8 * (i - 7))
        };
        state[word] = state[word].wrapping_add(u32::from(byte) << shift);
    }
    mix(&mut state);
    state[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The raw PG that `ceph osd map POOL NAME [NAMESPACE]` of a real cluster prints.
    #[test]
    fn objects_hash_as_in_a_real_cluster() {
        let pool = crate::PgPool::replicated(3, 2, 1, 0);
        for line in include_str!("../testdata/hashes.txt").lines() {
            let [hash, nspace, name] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let found = pool.hash_object(name.as_bytes(), b"", nspace.as_bytes());
            assert_eq!(format!("{found:x}"), hash, "{line}");
            // A locator key takes the name's place.
            assert_eq!(
                pool.hash_object(b"other", name.as_bytes(), nspace.as_bytes()),
                found
            );
        }
    }

    /// Worked out by hand from the definition.
    #[test]
    fn the_dcache_hash_is_known() {
        assert_eq!(StrHash::LINUX.hash(&[b"a"]), (0x61 * 16 + 0x6) * 11);
        assert_eq!(StrHash::LINUX.hash(&[b"a", b"b"]), StrHash::LINUX.hash(&[b"ab"]));
        assert_eq!(StrHash(9).hash(&[b"a"]), u32::MAX);
    }
}
