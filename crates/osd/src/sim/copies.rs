//! Whether the members' copies belong together.

use std::collections::BTreeMap;

use spirula_denc::decode_all;
use spirula_erasure::{Layout as Code, Unit};
use spirula_maps::{OsdId, PgId};

use super::*;
use crate::pg::digests::Digests;
use crate::pg::key;
use crate::pg::layout::{Layout, Part};
use crate::pg::object::ObjectInfo;

/// The copies of an object, by the OSDs that have them.
type Copies<'a> = BTreeMap<OsdId, &'a store::Object>;

impl Sim {
    /// What is wrong with the copies of an object, if anything is: all have the same data or
    /// fragments that belong together, and the same everything else.
    fn fault(&self, key: &Bytes, copies: &Copies<'_>) -> Option<String> {
        let Some(object) = key::parse_object_key(key) else {
            return Some(format!("{key:?} is left of something"));
        };
        let (pgid, name) = (self.pgid_of(&object), key::named(key));
        let first = *copies.values().next()?;
        for (osd, o) in copies {
            let info = |o: &store::Object| ObjectInfo::without_digests(&o.info);
            let same = (info(o), &o.attrs, &o.omap, &o.omap_header)
                == (info(first), &first.attrs, &first.omap, &first.omap_header);
            if !same {
                return Some(format!("osd.{osd} has other metadata of {name}"));
            }
        }
        let parts: Vec<(OsdId, Part)> = copies.keys().map(|osd| (*osd, self.part(*osd, pgid))).collect();
        let layout = parts[0].1.layout;
        if parts.iter().any(|(_, part)| part.layout != layout) {
            return Some(format!("copies of {name} have different layouts"));
        }
        let digests = copies.values().map(|o| (digests_of(o), &o.omap_header, &o.omap));
        let digests: Vec<_> = digests.collect();
        let is_omap = |(d, header, omap): &(Digests, &Bytes, &BTreeMap<Bytes, Bytes>)| {
            d.omap.is_none_or(|d| d == digest_of_omap(header, omap))
        };
        if !digests.iter().all(is_omap) {
            return Some(format!("{name} has the digest of another omap"));
        }
        let is_of = |data: &[u8]| {
            let noted = digests.iter().filter_map(|(d, ..)| d.data);
            noted.into_iter().all(|d| d == !crc32c::crc32c(data))
        };
        let other = format!("{name} has the digest of other data");
        let Layout::Coded(code) = layout else {
            if !is_of(&first.data) {
                return Some(other);
            }
            let same = copies.values().all(|o| o.data == first.data);
            return (!same).then(|| format!("the copies of {name} differ"));
        };
        let mut units = BTreeMap::new();
        for (osd, part) in parts {
            let unit = code.unit_of(part.role).unwrap();
            if units.insert(unit, &copies[&osd].data).is_some() {
                return Some(format!("two copies of {name} have {unit:?}"));
            }
        }
        if let Some(wrong) = wrong_unit(code, &units) {
            return Some(format!("{wrong:?} of {name} is not that of the others"));
        }
        let size = decode_all::<ObjectInfo>(&first.info).map_or(0, |info| info.size);
        for (unit, data) in &units {
            let (has, should) = (data.len() as u64, code.fragment_len(*unit, size));
            if has != should {
                return Some(format!("{unit:?} of {name} has {has} bytes of {should}"));
            }
        }
        let data = joined(code, &units, size)?;
        (!is_of(&data)).then_some(other)
    }

    /// The part that an OSD's copy of a PG holds, as its store says.
    pub(super) fn part(&self, osd: OsdId, pgid: PgId) -> Part {
        self.nodes[&osd]
            .store
            .info(pgid)
            .map(|i| i.part)
            .unwrap_or_default()
    }

    /// What is wrong with any copies of these OSDs, or of all.
    fn fault_of(&self, osds: Option<&[OsdId]>) -> Option<String> {
        let mut all: BTreeMap<&Bytes, Copies<'_>> = BTreeMap::new();
        for (osd, n) in &self.nodes {
            for (key, object) in n.store.objects() {
                all.entry(key).or_default().insert(*osd, object);
            }
        }
        for (key, copies) in &all {
            if let Some(osd) = osds.unwrap_or_default().iter().find(|o| !copies.contains_key(o)) {
                return Some(format!("osd.{osd} lacks {}", key::named(key)));
            }
            if let Some(fault) = self.fault(key, copies) {
                return Some(fault);
            }
        }
        None
    }

    /// Whether these OSDs have all objects that there are, and all copies belong together.
    pub(super) fn agree(&self, osds: &[OsdId]) -> bool {
        self.fault_of(Some(osds)).is_none()
    }

    /// Asserts that there are so many copies of each object, and that they belong together.
    #[track_caller]
    pub(super) fn assert_copies(&self, count: usize, what: impl std::fmt::Display) {
        for key in self.nodes.values().flat_map(|n| n.store.objects().keys()) {
            let has = |n: &&Node| n.store.objects().contains_key(key);
            let found = self.nodes.values().filter(has).count();
            assert_eq!(found, count, "{what}: copies of {}", key::named(key));
        }
        self.assert_copies_agree(what);
    }

    /// Asserts that copies belong together, wherever they are.
    #[track_caller]
    pub(super) fn assert_copies_agree(&self, what: impl std::fmt::Display) {
        let fault = self.fault_of(None);
        assert!(fault.is_none(), "{what}: {fault:?}");
    }

    /// Asserts that these OSDs have all objects that there are, and all copies belong together.
    #[track_caller]
    pub(super) fn assert_agree(&self, osds: impl IntoIterator<Item = OsdId>) {
        let fault = self.fault_of(Some(&Vec::from_iter(osds)));
        assert!(fault.is_none(), "{fault:?}");
    }

    /// As [`Sim::assert_agree`], for all OSDs.
    #[track_caller]
    pub(super) fn assert_all_agree(&self) {
        self.assert_agree(self.nodes.keys().copied());
    }
}

/// The digests in a copy's info.
fn digests_of(copy: &store::Object) -> Digests {
    decode_all::<ObjectInfo>(&copy.info).map_or(Digests::default(), |info| info.digests)
}

/// The digest of an omap, as Ceph has it.
fn digest_of_omap(header: &[u8], pairs: &BTreeMap<Bytes, Bytes>) -> u32 {
    let counted = |b: &Bytes| [&(b.len() as u32).to_le_bytes()[..], b].concat();
    let pairs = pairs.iter().flat_map(|(k, v)| [counted(k), counted(v)]);
    let all = pairs.fold(header.to_vec(), |all, next| [all, next].concat());
    !crc32c::crc32c(&all)
}

/// The data of an object, if all data units are there.
fn joined(layout: Code, units: &BTreeMap<Unit, &Vec<u8>>, size: u64) -> Option<Vec<u8>> {
    let (size, unit) = (usize::try_from(size).ok()?, usize::try_from(layout.unit()).ok()?);
    let mut all = vec![0; size];
    for (n, out) in all.chunks_mut(unit).enumerate() {
        let (k, n) = (usize::from(layout.k()), n);
        let data = units.get(&Unit::Data((n % k) as u8))?;
        let has = data.get(n / k * unit..).unwrap_or_default();
        let len = out.len().min(has.len());
        out[..len].copy_from_slice(&has[..len]);
    }
    Some(all)
}

/// A unit that is not that of the others, if the data units are there.
fn wrong_unit(layout: Code, units: &BTreeMap<Unit, &Vec<u8>>) -> Option<Unit> {
    let data: Option<Vec<&[u8]>> = (0..layout.k())
        .map(|i| Some(&units.get(&Unit::Data(i))?[..]))
        .collect();
    let data = data?;
    let longest = units.values().map(|d| d.len()).max().unwrap_or(0);
    let mut coded = vec![vec![0; longest]; layout.m().into()];
    let mut outputs: Vec<&mut [u8]> = coded.iter_mut().map(Vec::as_mut_slice).collect();
    layout.code().encode(&data, &mut outputs);
    let coded = (0..layout.m()).map(Unit::Parity).zip(coded);
    for (unit, coded) in coded {
        let Some(found) = units.get(&unit) else { continue };
        let mut found = found.to_vec();
        found.resize(longest, 0);
        if found != coded {
            return Some(unit);
        }
    }
    None
}
