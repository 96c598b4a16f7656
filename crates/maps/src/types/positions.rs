//! OSDs by position.

use std::fmt;

use spirula_denc::{Decode, Encode, Reader, Result, Writer};

use super::OsdId;
use super::osd_id::or_hole;

/// OSDs by position. In a pool whose members hold different parts of each object, a position says
/// which part, and a position without an OSD is a hole: the others keep theirs. In a replicated
/// pool all positions are alike, and there are no holes. Ceph writes `ITEM_NONE` for a hole. It has
/// no length, so that a hole is never counted as a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Positions(Vec<Option<OsdId>>);

impl Positions {
    /// No positions.
    pub const EMPTY: Self = Self(Vec::new());

    /// The OSDs, without holes, in the order of their positions.
    pub fn osds(&self) -> impl DoubleEndedIterator<Item = OsdId> + '_ {
        self.0.iter().copied().flatten()
    }

    /// The first OSD.
    pub fn first(&self) -> Option<OsdId> {
        self.osds().next()
    }

    /// The number of OSDs, without holes.
    pub fn count(&self) -> usize {
        self.osds().count()
    }

    /// Whether an OSD has a position.
    pub fn contains(&self, osd: OsdId) -> bool {
        self.0.contains(&Some(osd))
    }

    /// The position of an OSD: the first one, if it has several.
    pub fn of(&self, osd: OsdId) -> Option<usize> {
        self.0.iter().position(|o| *o == Some(osd))
    }

    /// Whether there are no positions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All positions in their order.
    pub fn slots(&self) -> &[Option<OsdId>] {
        &self.0
    }

    /// All positions in their order, to be changed.
    pub fn slots_mut(&mut self) -> &mut [Option<OsdId>] {
        &mut self.0
    }

    /// All positions as Ceph shows them: `ITEM_NONE` for a hole.
    pub fn items(&self) -> impl ExactSizeIterator<Item = i32> + '_ {
        self.0.iter().copied().map(or_hole::number)
    }

    /// As Ceph prints the bare list: `[1,2147483647,2]`, the number of `ITEM_NONE` for a hole.
    pub fn numbers(&self) -> String {
        let items: Vec<String> = self.items().map(|i| i.to_string()).collect();
        format!("[{}]", items.join(","))
    }

    /// Removes all positions behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Removes the OSDs for which `keep` is false. `shift`: the others close up; else holes stay.
    pub fn keep(&mut self, shift: bool, keep: impl Fn(OsdId) -> bool) {
        let kept = |o: &Option<OsdId>| o.is_some_and(&keep);
        if shift {
            self.0.retain(kept);
        } else {
            for slot in self.0.iter_mut().filter(|o| !kept(o)) {
                *slot = None;
            }
        }
    }
}

impl FromIterator<OsdId> for Positions {
    fn from_iter<I: IntoIterator<Item = OsdId>>(osds: I) -> Self {
        osds.into_iter().map(Some).collect()
    }
}

impl FromIterator<Option<OsdId>> for Positions {
    fn from_iter<I: IntoIterator<Item = Option<OsdId>>>(slots: I) -> Self {
        Self(slots.into_iter().collect())
    }
}

impl From<Vec<OsdId>> for Positions {
    fn from(osds: Vec<OsdId>) -> Self {
        osds.into_iter().collect()
    }
}

impl<const N: usize> From<[OsdId; N]> for Positions {
    fn from(osds: [OsdId; N]) -> Self {
        osds.into_iter().collect()
    }
}

/// As Ceph prints it: `[1,NONE,2]`.
impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, slot) in self.0.iter().enumerate() {
            f.write_str(if i > 0 { "," } else { "" })?;
            match slot {
                Some(osd) => osd.fmt(f)?,
                None => f.write_str("NONE")?,
            }
        }
        f.write_str("]")
    }
}

/// A list of numbers, `ITEM_NONE` for a hole.
impl serde::Serialize for Positions {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.collect_seq(self.items())
    }
}

impl Encode for Positions {
    fn encode(&self, w: &mut Writer) {
        w.count(self.0.len());
        self.0.iter().for_each(|slot| or_hole::encode(slot, w));
    }
}

impl Decode for Positions {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.count(4)?;
        (0..n)
            .map(|_| or_hole::decode(r))
            .collect::<Result<_>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use spirula_crush::ITEM_NONE;
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;

    #[test]
    fn a_hole_is_nobody_and_moves_nobody() {
        let [two, four, seven] = [2, 4, 7].map(OsdId::new);
        let acting: Positions = [Some(four), None, Some(two)].into_iter().collect();
        assert_eq!(
            (
                acting.count(),
                acting.slots().len(),
                acting.of(two),
                acting.of(seven)
            ),
            (2, 3, Some(2), None)
        );
        assert!(acting.osds().eq([four, two]) && acting.contains(four));
        assert_ne!(acting, Positions::from([four, two]));
        assert_eq!(acting.to_string(), "[4,NONE,2]");
        let bytes = encode_to_vec(&acting);
        assert_eq!(bytes, encode_to_vec(&vec![4, ITEM_NONE, 2]));
        assert_eq!(decode_all(&bytes), Ok(acting));
        assert!(decode_all::<Positions>(&encode_to_vec(&vec![4, -1])).is_err());
    }

    #[test]
    fn who_is_left_out_leaves_a_hole_or_none() {
        let osds = [2, 4, 7].map(OsdId::new);
        let without_four = |shift| {
            let mut left = Positions::from(osds);
            left.keep(shift, |o| o != osds[1]);
            left.items().collect::<Vec<_>>()
        };
        assert_eq!(
            (without_four(true), without_four(false)),
            (vec![2, 7], vec![2, ITEM_NONE, 7])
        );
    }
}
