//! Whether the copies of objects are those of one object: equal, or fragments that belong together.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_erasure::{Layout as Code, Unit};
use spirula_maps::OsdId;
use spirula_osd::pg::digests::Digests;
use spirula_osd::pg::layout::{Layout, Part};
use spirula_osd::pg::object::ObjectInfo;

use crate::contents::Stored;

/// The copies of each object, by the OSDs that they are on.
pub(crate) type Copies = BTreeMap<Bytes, Vec<(OsdId, Stored)>>;

/// Checks that each object has `size` copies, and that they belong together by this layout.
pub(crate) fn belong_together(copies: &Copies, size: usize, layout: Layout) -> Result<(), String> {
    for (key, all) in copies {
        let on: Vec<OsdId> = all.iter().map(|(id, _)| *id).collect();
        let key = key.escape_ascii();
        if on.len() != size {
            return Err(format!("{key} is on {on:?}"));
        }
        if all.iter().any(|(_, copy)| copy.part.layout != layout) {
            let parts: Vec<Part> = all.iter().map(|(_, copy)| copy.part).collect();
            return Err(format!("the copies of {key} on {on:?} are laid out as {parts:?}"));
        }
        let fails = match layout {
            Layout::Whole => whole(all).err(),
            Layout::Coded(code) => fragments(code, all).err(),
        };
        if let Some(why) = fails {
            return Err(format!("the copies of {key} on {on:?} differ{why}"));
        }
    }
    Ok(())
}

/// Checks that copies are equal, and are what their infos tell of.
fn whole(all: &[(OsdId, Stored)]) -> Result<(), String> {
    for (osd, copy) in all {
        let is_equal = |(_, other): &(OsdId, Stored)| copy.is_like(other) && copy.data == other.data;
        if !all.iter().all(is_equal) {
            return Err(String::new());
        }
        let digests = decode_all::<ObjectInfo>(&copy.info).map_or(Digests::default(), |i| i.digests);
        if digests.data.is_some_and(|d| d != !crc32c::crc32c(&copy.data)) {
            return Err(format!(": osd.{osd} has the digest of other data"));
        }
        if digests.omap.is_some_and(|d| d != copy.omap_digest()) {
            return Err(format!(": osd.{osd} has the digest of another omap"));
        }
    }
    Ok(())
}

/// Checks that these are all fragments of one object: each part is held once, with the same
/// metadata and omap, and the coding fragments are those of the data.
fn fragments(layout: Code, all: &[(OsdId, Stored)]) -> Result<(), String> {
    let by_role: BTreeMap<u8, &Stored> = all.iter().map(|(_, copy)| (copy.part.role, copy)).collect();
    let first = by_role.get(&0);
    let Some(first) = first.filter(|_| by_role.len() == usize::from(layout.roles())) else {
        let roles: Vec<u8> = all.iter().map(|(_, copy)| copy.part.role).collect();
        return Err(format!(": they have the roles {roles:?}"));
    };
    let info: ObjectInfo = decode_all(&first.info).map_err(|e| format!(": {e}"))?;
    let mut by_unit = BTreeMap::new();
    for (role, copy) in &by_role {
        if !copy.is_like(first) {
            return Err(format!(" but in data: roles 0 and {role}"));
        }
        let unit = layout.unit_of(*role).ok_or(": there is no such role")?;
        let (has, should) = (copy.data.len() as u64, layout.fragment_len(unit, info.size));
        if has != should {
            return Err(format!(
                ": role {role} has {has} bytes of {should}, the object {}",
                info.size
            ));
        }
        by_unit.insert(unit, &copy.data);
    }
    let data: Vec<&[u8]> = by_unit.range(..Unit::Parity(0)).map(|(_, d)| &d[..]).collect();
    let longest = data.iter().map(|d| d.len()).max().unwrap_or(0);
    let mut coded = vec![vec![0; longest]; layout.m().into()];
    let mut outputs: Vec<&mut [u8]> = coded.iter_mut().map(Vec::as_mut_slice).collect();
    layout.code().encode(&data, &mut outputs);
    for ((unit, has), should) in by_unit.range(Unit::Parity(0)..).zip(&coded) {
        if let Some(at) = has.iter().zip(should).position(|(a, b)| a != b) {
            return Err(format!(": {unit:?} is not that of the data, from byte {at} on"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use spirula_denc::encode_to_vec;

    use super::*;

    /// An object with these copies beside one whose copies are equal.
    fn check(copies: &[(u16, Stored)], layout: Layout) -> Result<(), String> {
        let on: Vec<_> = copies.iter().map(|(n, c)| (OsdId::new(*n), c.clone())).collect();
        let all = Copies::from([(Bytes::from_static(b"b"), on)]);
        belong_together(&all, usize::from(layout.roles()).max(3), layout)
    }

    fn whole(data: &'static [u8]) -> Stored {
        Stored {
            data: Bytes::from_static(data),
            ..Stored::default()
        }
    }

    #[test]
    fn a_copy_that_is_missing_too_many_or_different_is_noticed() {
        let check = |all: &[(u16, &'static [u8])]| {
            let all: Vec<_> = all.iter().map(|(n, data)| (*n, whole(data))).collect();
            check(&all, Layout::Whole)
        };
        assert_eq!(check(&[(0, b"5"), (1, b"5"), (4, b"5")]), Ok(()));
        let differ = |e: &str| Err(e.to_owned());
        assert_eq!(check(&[(0, b"5"), (1, b"5")]), differ("b is on [0, 1]"));
        assert_eq!(
            check(&[(0, b"5"), (1, b"5"), (2, b"5"), (3, b"5")]),
            differ("b is on [0, 1, 2, 3]")
        );
        for odd in 0..3 {
            let mut all = [(0, &b"5"[..]), (1, b"5"), (2, b"5")];
            all[odd].1 = b"6";
            assert_eq!(check(&all), differ("the copies of b on [0, 1, 2] differ"));
        }
    }

    /// Copies, with the numbers of their OSDs.
    type Numbered = Vec<(u16, Stored)>;

    /// The fragments of an object of this size, by roles.
    fn coded(layout: Code, size: u64) -> Numbered {
        let object = ObjectInfo {
            size,
            ..ObjectInfo::default()
        };
        let info = Bytes::from(encode_to_vec(&object));
        let len = |unit| usize::try_from(layout.fragment_len(unit, size)).unwrap();
        let data: Vec<Vec<u8>> = (0..layout.k())
            .map(|i| (0..len(Unit::Data(i))).map(|at| (at % 251) as u8 ^ i).collect())
            .collect();
        let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity = vec![vec![0; len(Unit::Data(0))]; layout.m().into()];
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        layout.code().encode(&slices, &mut outputs);
        let fragment = |role| match layout.unit_of(role).unwrap() {
            Unit::Data(i) => data[usize::from(i)].clone(),
            Unit::Parity(i) => parity[usize::from(i)].clone(),
        };
        let copy = |role| {
            let copy = Stored {
                part: Part {
                    layout: Layout::Coded(layout),
                    role,
                },
                info: info.clone(),
                data: fragment(role).into(),
                ..Stored::default()
            };
            // The roles are not in the OSDs' order.
            (u16::from(layout.roles() - role), copy)
        };
        (0..layout.roles()).map(copy).collect()
    }

    #[test]
    fn a_wrong_fragment_is_noticed() {
        let layout = Code::new(4, 2, Code::MIN_UNIT).unwrap();
        for size in [0, 10, 5000, 40_000] {
            let good = coded(layout, size);
            assert_eq!(check(&good, Layout::Coded(layout)), Ok(()), "{size} bytes");
            let notices = |change: &dyn Fn(&mut Numbered), why: &str| {
                let mut bad = good.clone();
                change(&mut bad);
                let found = check(&bad, Layout::Coded(layout)).expect_err(why);
                assert!(found.contains(why), "{size} bytes: {found}");
            };
            notices(&|all| all[2].1.part.role = 1, "roles [0, 1, 1, 3, 4, 5]");
            notices(&|all| drop(all.pop()), "is on");
            notices(&|all| all[3].1.part = Part::default(), "laid out");
            notices(&|all| all[4].1.header = Bytes::from_static(b"h"), "roles 0 and 4");
            for role in 0..6 {
                let data = good[role].1.data.to_vec();
                let put = |all: &mut Numbered, data: Vec<u8>| all[role].1.data = data.into();
                let why = format!("role {role} has {} bytes", data.len() + 1);
                notices(&|all| put(all, [&data[..], &[0]].concat()), &why);
                if let Some((last, rest)) = data.split_last() {
                    notices(&|all| put(all, rest.to_vec()), &format!("role {role} has"));
                    notices(
                        &|all| put(all, [rest, &[last ^ 1]].concat()),
                        "not that of the data",
                    );
                }
            }
        }
    }
}
