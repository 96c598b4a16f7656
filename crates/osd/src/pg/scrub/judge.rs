//! Judges the copies of an object by what the members say of them: which copies are wrong, and from
//! which one they can be made anew.

use std::collections::BTreeMap;

use spirula_denc::decode_all;
use spirula_erasure::{FragmentDigest, Unit, Verdict};
use spirula_maps::OsdId;
use spirula_proto::osd_op_data::{ObjectErrors, ShardErrors};

use super::account::{Account, Content, Found};
use crate::pg::digests::Digests;
use crate::pg::layout::Shape;
use crate::pg::object::ObjectInfo;

/// A member's copy of the object.
#[derive(Debug, Clone)]
pub(super) struct Copy<'a> {
    pub(super) osd: OsdId,
    /// What the member holds of an object.
    pub(super) shape: Shape,
    /// The member's account; `None` if it has no such object.
    pub(super) account: Option<&'a Account>,
}

/// What is wrong with a member's copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) osd: OsdId,
    /// What is wrong by itself.
    pub(super) errors: ShardErrors,
    /// How it differs from the authoritative copy.
    pub(super) differs: ObjectErrors,
}

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    /// The copies, in the order in which they were given.
    pub(super) shards: Vec<Shard>,
    /// The member whose copy counts; `None` if no copy is good.
    pub(super) auth: Option<OsdId>,
    /// The member whose info counts, also if its contents don't fit that; `None` if no info is sound.
    pub(super) selected: Option<OsdId>,
    /// What the info that counts says of the contents.
    pub(super) digests: Digests,
    /// Whether the copy that counts proves itself: each that differs from it is older, or wrong by
    /// itself.
    pub(super) is_proven: bool,
    /// Whether the object is larger than objects may be.
    pub(super) too_large: bool,
}

/// The numbers of errors, as Ceph counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    /// Errors that a scrub finds without reading contents.
    pub(super) shallow: u32,
    /// Errors that only a deep scrub finds.
    pub(super) deep: u32,
}

impl Count {
    /// All errors.
    pub(super) fn all(self) -> u32 {
        self.shallow.saturating_add(self.deep)
    }

    /// Adds an error.
    fn add(&mut self, deep: bool) {
        let n = if deep { &mut self.deep } else { &mut self.shallow };
        *n = n.saturating_add(1);
    }

    /// Adds others.
    pub(super) fn add_all(&mut self, other: Self) {
        self.shallow = self.shallow.saturating_add(other.shallow);
        self.deep = self.deep.saturating_add(other.deep);
    }
}

impl Shard {
    /// Whether the copy is wrong.
    pub(super) fn is_bad(&self) -> bool {
        !self.errors.is_empty() || !self.differs.is_empty()
    }

    /// Whether nothing is wrong with the copy but that some of it can't be read.
    pub(super) fn is_only_unreadable(&self) -> bool {
        self.errors == ShardErrors::SHARD_READ_ERR && self.differs.is_empty()
    }

    /// Whether the member has no copy.
    pub(super) fn is_missing(&self) -> bool {
        self.errors.contains(ShardErrors::SHARD_MISSING)
    }
}

impl Judgement {
    /// Whether all copies are good and equal, and the object is not too large.
    pub(super) fn is_clean(&self) -> bool {
        !self.too_large && !self.shards.iter().any(Shard::is_bad)
    }

    /// Whether all copies are alike, and only their infos tell of other contents.
    pub(super) fn is_misnoted(&self) -> bool {
        let mismatches = ShardErrors::DATA_DIGEST_MISMATCH_INFO.with(ShardErrors::OMAP_DIGEST_MISMATCH_INFO);
        let is_only_that = |s: &Shard| mismatches.contains(s.errors) && s.differs.is_empty();
        !self.too_large
            && self.auth.is_none()
            && self.selected.is_some()
            && self.shards.len() > 1
            && self.shards.iter().all(is_only_that)
    }

    /// In which ways the copies differ.
    pub(super) fn differences(&self) -> ObjectErrors {
        let of_size = match self.too_large {
            true => ObjectErrors::SIZE_TOO_LARGE,
            false => ObjectErrors::empty(),
        };
        let all = self.shards.iter().map(|s| s.differs);
        all.fold(of_size, ObjectErrors::with)
    }

    /// The errors: one for each copy that is wrong by itself, and one for all differences.
    pub(super) fn count(&self) -> Count {
        let mut count = Count::default();
        for shard in self.shards.iter().filter(|s| !s.errors.is_empty()) {
            count.add(shard.errors.intersects(ShardErrors::DEEP));
        }
        let differences = self.differences();
        if !differences.is_empty() {
            count.add(differences.intersects(ObjectErrors::DEEP));
        }
        count
    }
}

/// A copy whose info can be read.
struct Known<'a> {
    found: &'a Found,
    info: ObjectInfo,
}

impl Shape {
    /// Whether a copy of an object of `size` bytes may have `found`.
    fn has_size(self, found: u64, size: u64) -> bool {
        match self {
            Self::Whole => found == self.size(size),
            // A fragment may have zeros behind what the object needs of it.
            Self::Fragment(..) => found >= self.size(size),
        }
    }
}

/// What is wrong with a copy by itself, and the copy if its info can be read.
fn look<'a>(copy: &Copy<'a>) -> (ShardErrors, Option<Known<'a>>) {
    let Some(account) = copy.account else {
        return (ShardErrors::SHARD_MISSING, None);
    };
    let Some(found) = &account.found else {
        return (ShardErrors::SHARD_STAT_ERR, None);
    };
    let mut errors = ShardErrors::empty();
    if found.content.as_ref().is_some_and(|c| !c.is_readable()) {
        errors.insert(ShardErrors::SHARD_READ_ERR);
    }
    if found.info.is_empty() {
        errors.insert(ShardErrors::INFO_MISSING);
        return (errors, None);
    }
    let Ok(info) = decode_all::<ObjectInfo>(&found.info) else {
        errors.insert(ShardErrors::INFO_CORRUPTED);
        return (errors, None);
    };
    if !copy.shape.has_size(found.size, info.size) {
        errors.insert(match copy.shape {
            Shape::Whole => ShardErrors::OBJ_SIZE_INFO_MISMATCH,
            Shape::Fragment(..) => ShardErrors::SHARD_EC_SIZE_MISMATCH,
        });
    }
    (errors, Some(Known { found, info }))
}

/// How a copy differs from the one that counts.
fn difference(copy: &Known<'_>, auth: &Known<'_>, shape: Shape) -> ObjectErrors {
    let mut differs = ObjectErrors::empty();
    if copy.info.snap_set != auth.info.snap_set {
        differs.insert(ObjectErrors::SNAPSET_INCONSISTENCY);
    }
    let same_snaps = ObjectInfo {
        snap_set: auth.info.snap_set.clone(),
        // A member of the release before knew none.
        digests: match copy.info.digests.agree(auth.info.digests) {
            true => auth.info.digests,
            false => copy.info.digests,
        },
        ..copy.info.clone()
    };
    if same_snaps != auth.info {
        differs.insert(ObjectErrors::OBJECT_INFO_INCONSISTENCY);
    }
    if shape == Shape::Whole && copy.found.size != auth.found.size {
        differs.insert(ObjectErrors::SIZE_MISMATCH);
    }
    differs.insert(attrs_difference(copy.found, auth.found));
    if let (Some(c), Some(a)) = (&copy.found.content, &auth.found.content) {
        differs.insert(content_difference(c, a, shape));
    }
    differs
}

fn attrs_difference(copy: &Found, auth: &Found) -> ObjectErrors {
    if copy.attrs_digest == auth.attrs_digest {
        return ObjectErrors::empty();
    }
    let (Some(copy), Some(auth)) = (&copy.attrs, &auth.attrs) else {
        // The names are asked for when the object is looked at again.
        return ObjectErrors::ATTR_VALUE_MISMATCH;
    };
    let mut differs = ObjectErrors::empty();
    if !copy.keys().eq(auth.keys()) {
        differs.insert(ObjectErrors::ATTR_NAME_MISMATCH);
    }
    if copy
        .iter()
        .any(|(name, value)| auth.get(name).is_some_and(|v| v != value))
    {
        differs.insert(ObjectErrors::ATTR_VALUE_MISMATCH);
    }
    differs
}

/// Only what both could read is compared.
fn content_difference(copy: &Content, auth: &Content, shape: Shape) -> ObjectErrors {
    let mut differs = ObjectErrors::empty();
    let differ = |a: Option<u32>, b: Option<u32>| a.zip(b).is_some_and(|(a, b)| a != b);
    if shape == Shape::Whole && differ(copy.data, auth.data) {
        differs.insert(ObjectErrors::DATA_DIGEST_MISMATCH);
    }
    if differ(copy.omap.map(|o| o.digest), auth.omap.map(|o| o.digest)) {
        differs.insert(ObjectErrors::OMAP_DIGEST_MISMATCH);
    }
    differs
}

/// In which way a copy's contents are not those that the info which counts tells of.
fn mismatch(copy: &Found, digests: Digests, shape: Shape) -> ShardErrors {
    let mut errors = ShardErrors::empty();
    let Some(content) = &copy.content else {
        return errors;
    };
    let differ = |a: Option<u32>, b: Option<u32>| a.zip(b).is_some_and(|(a, b)| a != b);
    if shape == Shape::Whole && differ(content.data, digests.data) {
        errors.insert(ShardErrors::DATA_DIGEST_MISMATCH_INFO);
    }
    if differ(content.omap.map(|o| o.digest), digests.omap) {
        errors.insert(ShardErrors::OMAP_DIGEST_MISMATCH_INFO);
    }
    errors
}

/// The copy that counts among those of whose errors nothing is said: the newest, and of equals that of
/// `primary` or the first, as in Ceph.
fn newest<'a, 'b>(
    copies: &'a [Copy<'b>],
    seen: &'a [(ShardErrors, Option<Known<'b>>)],
    primary: OsdId,
) -> Option<(&'a Copy<'b>, &'a Known<'b>)> {
    let good = copies.iter().zip(seen).filter_map(|(copy, (errors, known))| {
        let known = known.as_ref().filter(|_| errors.is_empty())?;
        Some((copy, known))
    });
    good.rev()
        .max_by_key(|(copy, known)| (known.info.version, copy.osd == primary))
}

/// What the copies of this version that are good by themselves say of the contents.
fn known_digests(seen: &[(ShardErrors, Option<Known<'_>>)], selected: &ObjectInfo) -> Digests {
    let good = seen.iter().filter(|(errors, _)| errors.is_empty());
    let infos = good.filter_map(|(_, known)| known.as_ref().map(|k| &k.info));
    let same = infos.filter(|info| info.version == selected.version);
    same.fold(selected.digests, |all, info| all.or(info.digests))
}

/// Judges the copies of an object, which may have `most` bytes. The info that counts is the newest of
/// those that are good by themselves. The copy that counts is one with this version whose contents are
/// what the info tells of; if several are, that of `primary` or the first.
pub(super) fn judge(copies: &[Copy<'_>], primary: OsdId, most: u64) -> Judgement {
    let mut seen: Vec<_> = copies.iter().map(look).collect();
    let selected = newest(copies, &seen, primary).map(|(copy, known)| (copy.osd, known.info.clone()));
    let mut digests = Digests::default();
    if let Some((_, info)) = &selected {
        digests = known_digests(&seen, info);
    }
    for (copy, (errors, known)) in copies.iter().zip(&mut seen) {
        if let Some(known) = known {
            errors.insert(mismatch(known.found, digests, copy.shape));
        }
    }
    let is_current = |known: &Known<'_>| {
        selected
            .as_ref()
            .is_some_and(|(_, i)| known.info.version == i.version)
    };
    let auth = newest(copies, &seen, primary).filter(|(_, known)| is_current(known));
    // Where no copy counts, they are held against the one whose info does.
    let of_selected = copies.iter().zip(&seen).find_map(|(copy, (_, known))| {
        let is_it = selected.as_ref().is_some_and(|(osd, _)| copy.osd == *osd);
        known.as_ref().filter(|_| is_it)
    });
    let base = auth.map(|(_, known)| known).or(of_selected);
    let mut is_proven = auth.is_some();
    let mut shards = Vec::with_capacity(copies.len());
    for (copy, (errors, known)) in copies.iter().zip(&seen) {
        let compared = known.as_ref().zip(base);
        let differs = compared.map_or(ObjectErrors::empty(), |(known, base)| {
            difference(known, base, copy.shape)
        });
        let is_older = compared.is_some_and(|(known, base)| known.info.version < base.info.version);
        is_proven &= differs.is_empty() || !errors.is_empty() || is_older;
        let has_other_size =
            compared.is_some_and(|(known, base)| !copy.shape.has_size(known.found.size, base.info.size));
        let mut errors = *errors;
        if has_other_size {
            errors.insert(ShardErrors::SIZE_MISMATCH_INFO);
        }
        shards.push(Shard {
            osd: copy.osd,
            errors,
            differs,
        });
    }
    let mut judgement = Judgement {
        shards,
        auth: auth.map(|(copy, _)| copy.osd),
        selected: auth.map(|(copy, _)| copy.osd).or(selected.map(|(osd, _)| osd)),
        digests,
        is_proven,
        too_large: base.is_some_and(|known| known.info.size > most),
    };
    judgement.compare_fragments(copies);
    judgement
}

impl Judgement {
    /// Holds the fragments of copies that are good so far against each other. If nothing tells which
    /// one is wrong, those with coding units are said to differ: they can be made of the data.
    fn compare_fragments(&mut self, copies: &[Copy<'_>]) {
        let mut digests = BTreeMap::new();
        let mut code = None;
        for (copy, _) in copies.iter().zip(&self.shards).filter(|(_, s)| !s.is_bad()) {
            if let (Shape::Fragment(layout, unit), Some(digest)) = (copy.shape, copy.digest()) {
                digests.insert(unit, digest);
                code.get_or_insert_with(|| layout.code());
            }
        }
        let verdict = code.map_or(Verdict::Whole, |code| code.judge(&digests));
        for (copy, shard) in copies.iter().zip(&mut self.shards) {
            let Shape::Fragment(_, unit) = copy.shape else {
                continue;
            };
            match verdict {
                Verdict::Wrong(wrong) if wrong == unit => {
                    shard.errors.insert(ShardErrors::SHARD_EC_HASH_MISMATCH)
                }
                Verdict::Undecided if matches!(unit, Unit::Parity(_)) => {
                    shard.differs.insert(ObjectErrors::DATA_DIGEST_MISMATCH);
                }
                _ => {}
            }
        }
        self.is_proven &= verdict != Verdict::Undecided;
    }
}

impl Copy<'_> {
    /// The digest of the copy's fragment.
    fn digest(&self) -> Option<[u8; FragmentDigest::LEN]> {
        let found = self.account?.found.as_ref()?;
        let digest = found.content.as_ref()?.fragment.as_ref()?;
        digest[..].try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use spirula_denc::encode_to_vec;
    use spirula_maps::{EVersion, Epoch};

    use super::super::account::Omap;
    use super::super::digest;
    use super::*;
    use crate::pg::object::Attrs;

    fn account(version: u64, data: u32) -> Account {
        let info = ObjectInfo {
            size: 8,
            version: EVersion::new(Epoch::new(3), version),
            ..ObjectInfo::default()
        };
        let attrs = Attrs::from([(Bytes::from_static(b"name"), Bytes::from_static(b"value"))]);
        let omap = Omap {
            digest: 1,
            keys: 2,
            bytes: 3,
        };
        Account {
            key: Bytes::from_static(b"key"),
            found: Some(Found {
                info: encode_to_vec(&info).into(),
                size: 8,
                attrs_digest: digest::of_attrs(&attrs),
                attrs: Some(attrs),
                content: Some(Content {
                    data: Some(data),
                    fragment: None,
                    omap: Some(omap),
                }),
            }),
        }
    }

    /// Judges three copies, that of OSD 0 being the primary's. Returns the authoritative one, whether
    /// it proves itself, and of the last copy what is wrong.
    fn of(copies: [Option<Account>; 3]) -> (Option<u32>, bool, String) {
        let copies: Vec<Copy<'_>> = (0u16..)
            .zip(&copies)
            .map(|(osd, account)| Copy {
                osd: OsdId::new(osd),
                shape: Shape::Whole,
                account: account.as_ref(),
            })
            .collect();
        let j = judge(&copies, OsdId::new(0), 1 << 20);
        let last = &j.shards[2];
        let wrong = format!("{} {}", last.errors, last.differs);
        assert_eq!(j.is_clean(), !j.shards.iter().any(Shard::is_bad));
        (
            j.auth.map(|o| u32::from(u16::try_from(i64::from(o)).unwrap())),
            j.is_proven,
            wrong,
        )
    }

    fn with(f: impl FnOnce(&mut Found)) -> Option<Account> {
        let mut a = account(5, 7);
        f(a.found.as_mut().unwrap());
        Some(a)
    }

    fn good() -> Option<Account> {
        Some(account(5, 7))
    }

    #[test]
    fn equal_copies_are_clean() {
        let (auth, proven, wrong) = of([good(), good(), good()]);
        assert_eq!((auth, proven, wrong.as_str()), (Some(0), true, " "));
    }

    #[test]
    fn a_copy_that_is_wrong_by_itself_never_counts() {
        let cases: [(Option<Account>, &str); 6] = [
            (None, "missing "),
            (
                Some(Account {
                    found: None,
                    ..account(5, 7)
                }),
                "stat_error ",
            ),
            (with(|f| f.info = Bytes::new()), "info_missing "),
            (with(|f| f.info = Bytes::from_static(b"?")), "info_corrupted "),
            (
                with(|f| f.size = 3),
                "size_mismatch_info,obj_size_info_mismatch size_mismatch",
            ),
            (with(|f| f.content.as_mut().unwrap().data = None), "read_error "),
        ];
        for (bad, wrong) in cases {
            assert_eq!(
                of([good(), good(), bad.clone()]),
                (Some(0), true, wrong.to_owned())
            );
            // Nor if it is the primary's, and the only other one is alone.
            let (auth, proven, _) = of([bad.clone(), bad, good()]);
            assert_eq!((auth, proven), (Some(2), true));
        }
    }

    #[test]
    fn the_newest_copy_counts_and_equals_do_not_prove_each_other_wrong() {
        let newer = || Some(account(6, 7));
        let (auth, proven, wrong) = of([newer(), good(), good()]);
        assert_eq!(
            (auth, proven, wrong.as_str()),
            (Some(0), true, " object_info_inconsistency")
        );
        let (auth, proven, _) = of([good(), good(), newer()]);
        assert_eq!((auth, proven), (Some(2), true), "no majority");
        let (auth, proven, wrong) = of([good(), good(), Some(account(5, 8))]);
        assert_eq!(
            (auth, proven, wrong.as_str()),
            (Some(0), false, " data_digest_mismatch")
        );
        let omap = with(|f| f.content.as_mut().unwrap().omap.as_mut().unwrap().digest = 9);
        assert_eq!(of([good(), good(), omap]).2, " omap_digest_mismatch");
    }

    #[test]
    fn attributes_are_compared_by_name_and_value() {
        let attr = |name: &'static [u8], value: &'static [u8]| {
            with(|f| {
                let attrs = Attrs::from([(Bytes::from_static(name), Bytes::from_static(value))]);
                f.attrs_digest = digest::of_attrs(&attrs);
                f.attrs = Some(attrs);
            })
        };
        let wrong = |last| of([good(), good(), last]).2;
        assert_eq!(wrong(attr(b"name", b"other")), " attr_value_mismatch");
        assert_eq!(wrong(attr(b"other", b"value")), " attr_name_mismatch");
    }

    #[test]
    fn where_no_copy_is_good_none_counts() {
        let (auth, proven, wrong) = of([None, None, with(|f| f.size = 3)]);
        assert_eq!(
            (auth, proven, wrong.as_str()),
            (None, false, "obj_size_info_mismatch ")
        );
    }
}
