//! The parts of a multipart upload: omap keys of the upload's meta object. Format:
//! `RGWUploadPartInfo` of Ceph's `src/rgw/rgw_multi_upload_part_info.h` (Pacific:
//! `src/rgw/rgw_multi.h`).
//!
//! A part that is uploaded again takes the place of the one before. Its info remembers by their
//! prefixes which RADOS objects older uploads of it left, so that radosgw removes these.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, UTime, Writer, at_least};

use crate::method::{Nothing, stored, to_bytes};
use crate::{Error, Object, Result, omap};

/// Input of `mp_upload_part_info_update`, of Reef (`cls_rgw_mp_upload_part_info_update_op`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpdateOp {
    /// The omap key.
    part_key: Bytes,
    info: PartInfo,
}

impl Decode for UpdateOp {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("cls_rgw_mp_upload_part_info_update_op", 1, |_, r| {
            let (part_key, info) = r.get()?;
            Ok(Self { part_key, info })
        })
    }
}

/// A part (`RGWUploadPartInfo`). Only what the method needs is decoded: the rest belongs to
/// radosgw, differs between releases, and stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PartInfo {
    version: u8,
    /// The fields before `past_prefixes`.
    before: Bytes,
    manifest: Manifest,
    /// Prefixes of the RADOS objects that older uploads of the part left.
    past_prefixes: BTreeSet<Bytes>,
    /// The fields behind `past_prefixes`.
    after: Bytes,
}

impl PartInfo {
    /// The first version with `past_prefixes`.
    const WITH_PREFIXES: u8 = 5;
    /// The newest version known, of Tentacle.
    const NEWEST: u8 = 6;
}

impl Decode for PartInfo {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("RGWUploadPartInfo", Self::NEWEST, |version, r| {
            at_least("RGWUploadPartInfo", version, 2)?;
            let mut info = Self {
                version,
                ..Self::default()
            };
            let all = Bytes::copy_from_slice(r.rest());
            let mut r = Reader::new(&all);
            // Number, size, etag and time of the part.
            let _: (u32, u64) = r.get()?;
            let _: (Bytes, UTime) = r.get()?;
            if version >= 3 {
                info.manifest = r.get()?;
            }
            if version >= Self::WITH_PREFIXES {
                // Compression and the size before it.
                skip_section(&mut r)?;
                r.u64()?;
                info.before = all.slice(..r.position());
                info.past_prefixes = r.get()?;
                info.after = all.slice(r.position()..);
            }
            Ok(info)
        })
    }
}

impl Encode for PartInfo {
    fn encode(&self, w: &mut Writer) {
        w.section(self.version.min(Self::NEWEST), 2, |w| {
            w.bytes(&self.before);
            w.put(&self.past_prefixes);
            w.bytes(&self.after);
        });
    }
}

/// Where a part's data is (`RGWObjManifest` of Ceph's `src/rgw/rgw_obj_manifest.h`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Manifest {
    /// What the names of its RADOS objects begin with.
    prefix: Bytes,
    /// Whether it names any.
    has_objects: bool,
}

impl Decode for Manifest {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        // Compat is 6 at most so far; a new field would come behind the rules.
        r.section("RGWObjManifest", 8, |version, r| {
            r.u64()?;
            let listed = r.count(8)?;
            for _ in 0..listed {
                r.u64()?;
                skip_section(r)?;
            }
            if version < 3 {
                return Ok(Self {
                    prefix: Bytes::new(),
                    has_objects: listed > 0,
                });
            }
            let explicit = r.bool()?;
            // The head object, its size and its greatest size.
            skip_section(r)?;
            let _: (u64, u64) = r.get()?;
            let prefix = r.get()?;
            let rules = r.count(8)?;
            let has_objects = if explicit { listed > 0 } else { rules > 0 };
            Ok(Self { prefix, has_objects })
        })
    }
}

/// Skips a structure with version, compat and length.
fn skip_section(r: &mut Reader<'_>) -> spirula_denc::Result<()> {
    r.section("structure", u8::MAX, |_, _| Ok(()))
}

/// Stores a part, with the prefixes of what was uploaded as it before. EEXIST where it has the
/// prefix of one of these: its data would be removed with theirs. radosgw then tries another one.
pub(super) fn part_info_update(object: &mut dyn Object, op: UpdateOp) -> Result<Nothing> {
    let UpdateOp { part_key, mut info } = op;
    // A client that calls the method knows the prefixes.
    if info.version < PartInfo::WITH_PREFIXES {
        return Err(Error::EINVAL);
    }
    if let Some(bytes) = omap::find(object, &part_key)? {
        let before: PartInfo = stored(&bytes)?;
        if before.manifest.has_objects {
            info.past_prefixes.insert(before.manifest.prefix);
        }
        info.past_prefixes.extend(before.past_prefixes);
    }
    if info.past_prefixes.contains(&info.manifest.prefix) {
        return Err(Error::EEXIST);
    }
    omap::set(object, part_key, to_bytes(&info)).map(|()| Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, unhex};

    /// Parts as radosgw made them, of Ceph's object corpus: of 16.2, 18.2 and 20.3.
    const PARTS: [&str; 3] = [
        include_str!("../../../testdata/rgw_part_16.2.hex"),
        include_str!("../../../testdata/rgw_part_18.2.hex"),
        include_str!("../../../testdata/rgw_part_20.3.hex"),
    ];

    fn part(n: usize) -> Vec<u8> {
        unhex(PARTS[n])
    }

    fn decoded(bytes: &[u8]) -> PartInfo {
        stored(&Bytes::copy_from_slice(bytes)).unwrap()
    }

    fn op(info: &[u8]) -> Vec<u8> {
        let mut w = Writer::new();
        w.section(1, 1, |w| {
            w.put(&Bytes::from_static(b"part.00000001"));
            w.bytes(info);
        });
        w.into_vec()
    }

    fn update(world: &mut World, info: &[u8]) -> i32 {
        world.call("rgw", "mp_upload_part_info_update", &op(info)).0
    }

    fn kept(world: &World) -> Bytes {
        world.state.omap[&b"part.00000001"[..]].clone()
    }

    #[test]
    fn parts_of_radosgw_are_kept_byte_by_byte() {
        for n in [1, 2] {
            let mut world = World::default();
            assert_eq!(update(&mut world, &part(n)), 0);
            assert_eq!(kept(&world), part(n));
        }
    }

    #[test]
    fn what_was_uploaded_before_is_remembered_by_its_prefixes() {
        let mut world = World::default();
        assert_eq!(update(&mut world, &part(1)), 0);
        assert_eq!(update(&mut world, &part(2)), 0);
        let (first, second) = (decoded(&part(1)), decoded(&part(2)));
        let now = decoded(&kept(&world));
        let mut prefixes = second.past_prefixes.clone();
        prefixes.insert(first.manifest.prefix.clone());
        prefixes.extend(first.past_prefixes.clone());
        assert_eq!(prefixes.len(), 3);
        assert_eq!(
            now,
            PartInfo {
                past_prefixes: prefixes,
                ..second
            }
        );
        assert_eq!(update(&mut world, &part(1)), -17, "a prefix of before");
        assert_eq!(update(&mut world, &part(2)), -17, "the prefix of now");
        assert_eq!(decoded(&kept(&world)), now);
    }

    #[test]
    fn a_part_of_an_older_radosgw_is_taken_over() {
        let mut world = World::default();
        world.state.exists = true;
        world.state.omap.insert("part.00000001".into(), part(0).into());
        assert_eq!(update(&mut world, &part(2)), 0);
        let old = decoded(&part(0));
        assert_eq!(
            old.manifest.prefix,
            "srcmultipart.2~A1s0dfXlQeeEWq5Bs-GKqLv5msUd8ER"
        );
        assert!(
            decoded(&kept(&world))
                .past_prefixes
                .contains(&old.manifest.prefix)
        );
    }

    #[test]
    fn bad_parts_are_refused() {
        let mut world = World::default();
        assert_eq!(update(&mut world, &part(0)), -22, "without prefixes");
        let good = part(2);
        for end in 0..good.len() {
            assert_eq!(update(&mut world, &good[..end]), -22);
        }
        assert!(!world.state.exists);
        world.state.exists = true;
        world
            .state
            .omap
            .insert("part.00000001".into(), Bytes::from_static(b"\x05\x02bad"));
        assert_eq!(update(&mut world, &good), -5);
    }
}
