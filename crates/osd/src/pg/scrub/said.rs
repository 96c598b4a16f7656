//! What the cluster log is told of inconsistent objects, in Ceph's words (`PGBackend` and
//! `PrimaryLogScrub` in `src/osd`).

use spirula_denc::decode_all;
use spirula_maps::{HObject, OsdId, PgId, PgShard};
use spirula_proto::osd_op_data::{ObjectErrors, ShardErrors};

use super::account::Found;
use super::judge::{Copy, Judgement, Shard};
use crate::pg::object::ObjectInfo;

/// An inconsistent object of which something is to be said.
pub(super) struct Told<'a> {
    pub(super) pgid: PgId,
    pub(super) object: &'a HObject,
    pub(super) copies: &'a [Copy<'a>],
    pub(super) judgement: &'a Judgement,
    /// The members, in the order of the copies.
    pub(super) members: &'a [PgShard],
    /// The place of the primary's copy.
    pub(super) primary: usize,
    /// The info that counts, as Ceph shows it.
    pub(super) auth_info: Option<String>,
    /// Whether the contents are taken to be right, and the info's digests are made anew.
    pub(super) renotes: bool,
    /// The most bytes that an object may have.
    pub(super) most: u64,
}

impl Told<'_> {
    /// The lines, in Ceph's order.
    pub(super) fn lines(&self) -> Vec<String> {
        let (pgid, object) = (self.pgid, self.object);
        let others = (0..self.copies.len()).filter(|i| *i != self.primary);
        let by_itself = [self.primary].into_iter().chain(others).filter_map(|i| {
            let wrong = self.wrong_by_itself(i).join(", ");
            let member = self.members.get(i)?;
            (!wrong.is_empty()).then(|| format!("{pgid} shard {member} soid {object} : {wrong}"))
        });
        let mut lines: Vec<String> = by_itself.collect();
        let auth = self.place_of(self.judgement.auth);
        let base = auth.or(self.place_of(self.judgement.selected));
        let Some(base) = base else {
            lines.push(format!(
                "{pgid} soid {object} : failed to pick suitable object info"
            ));
            return lines;
        };
        let mut is_size_said = false;
        for (i, shard) in self.judgement.shards.iter().enumerate() {
            let Some(member) = self.members.get(i) else {
                continue;
            };
            if shard.is_missing() {
                lines.push(format!("{pgid} shard {member} {object} : missing"));
                continue;
            }
            if Some(i) == auth {
                continue;
            }
            let mut parts = self.differences(i, base);
            if self.judgement.too_large && !is_size_said {
                is_size_said = true;
                let size = self.found(i).map_or(0, |f| f.size);
                parts.push(format!("size {size} > {} is too large", self.most));
            }
            let parts = parts.join(", ");
            match (parts.is_empty(), shard.errors.is_empty()) {
                (true, _) => {}
                (_, true) => lines.push(format!("{pgid} soid {object} : {parts}")),
                (_, false) => lines.push(format!("{pgid} shard {member} soid {object} : {parts}")),
            }
        }
        if self.renotes {
            let errors = self.shard(base).map_or(ShardErrors::empty(), |s| s.errors);
            let digests = [
                (ShardErrors::DATA_DIGEST_MISMATCH_INFO, "data_digest"),
                (ShardErrors::OMAP_DIGEST_MISMATCH_INFO, "omap_digest"),
            ];
            let wrong = digests.iter().filter(|(error, _)| errors.contains(*error));
            lines.extend(
                wrong.map(|(_, name)| format!("{pgid} soid {object} : repairing object info {name}")),
            );
        } else if auth.is_none() {
            lines.push(format!(
                "{pgid} soid {object} : failed to pick suitable auth object"
            ));
        }
        lines
    }

    fn found(&self, i: usize) -> Option<&Found> {
        self.copies.get(i)?.account?.found.as_ref()
    }

    /// The place of a member's copy.
    fn place_of(&self, osd: Option<OsdId>) -> Option<usize> {
        self.copies.iter().position(|c| Some(c.osd) == osd)
    }

    fn shard(&self, i: usize) -> Option<&Shard> {
        self.judgement.shards.get(i)
    }

    /// What is wrong with a copy without looking at others.
    fn wrong_by_itself(&self, i: usize) -> Vec<String> {
        const SAID: [(ShardErrors, &str); 6] = [
            (ShardErrors::SHARD_READ_ERR, "candidate had a read error"),
            (
                ShardErrors::SHARD_EC_HASH_MISMATCH,
                "candidate had an ec hash mismatch",
            ),
            (
                ShardErrors::SHARD_EC_SIZE_MISMATCH,
                "candidate had an ec size mismatch",
            ),
            (ShardErrors::SHARD_STAT_ERR, "candidate had a stat error"),
            (ShardErrors::INFO_MISSING, "candidate had a missing info key"),
            (ShardErrors::INFO_CORRUPTED, "candidate had a corrupt info"),
        ];
        let errors = self.shard(i).map_or(ShardErrors::empty(), |s| s.errors);
        let said = SAID.iter().filter(|(error, _)| errors.contains(*error));
        let mut parts: Vec<String> = said.map(|(_, what)| (*what).to_owned()).collect();
        if errors.contains(ShardErrors::OBJ_SIZE_INFO_MISMATCH)
            && let Some(found) = self.found(i)
        {
            let size = size_of(found);
            parts.push(format!("candidate size {} info size {size} mismatch", found.size));
        }
        parts
    }

    /// How a copy differs from the one that counts, or whose info does.
    fn differences(&self, i: usize, auth: usize) -> Vec<String> {
        let (Some(shard), Some(found)) = (self.shard(i), self.found(i)) else {
            return Vec::new();
        };
        let (Some(counts), Some(member)) = (self.found(auth), self.members.get(auth)) else {
            return Vec::new();
        };
        let mut parts = Vec::new();
        let contents = found.content.as_ref().zip(counts.content.as_ref());
        let data = contents.and_then(|(a, b)| a.data.zip(b.data));
        let omap = contents.and_then(|(a, b)| Some((a.omap?.digest, b.omap?.digest)));
        let digests = [
            (ObjectErrors::DATA_DIGEST_MISMATCH, "data_digest", data),
            (ObjectErrors::OMAP_DIGEST_MISMATCH, "omap_digest", omap),
        ];
        for (error, name, values) in digests {
            if let Some((is, should)) = values.filter(|_| shard.differs.contains(error)) {
                parts.push(format!(
                    "{name} {is:#x} != {name} {should:#x} from shard {member}"
                ));
            }
        }
        let content = found.content.as_ref();
        let noted = self.judgement.digests;
        let mismatches = [
            (
                ShardErrors::DATA_DIGEST_MISMATCH_INFO,
                "data_digest",
                content.and_then(|c| c.data).zip(noted.data),
            ),
            (
                ShardErrors::OMAP_DIGEST_MISMATCH_INFO,
                "omap_digest",
                content.and_then(|c| c.omap).map(|o| o.digest).zip(noted.omap),
            ),
        ];
        for (error, name, values) in mismatches {
            if let Some((is, should)) = values.filter(|_| shard.errors.contains(error))
                && let Some(info) = &self.auth_info
            {
                parts.push(format!(
                    "{name} {is:#x} != {name} {should:#x} from auth oi {info}"
                ));
            }
        }
        if shard.differs.contains(ObjectErrors::OBJECT_INFO_INCONSISTENCY) {
            parts.push("object info inconsistent ".to_owned());
        }
        if shard.differs.contains(ObjectErrors::SNAPSET_INCONSISTENCY) {
            parts.push("snapset inconsistent ".to_owned());
        }
        if shard.errors.contains(ShardErrors::SIZE_MISMATCH_INFO)
            && let Some(info) = &self.auth_info
            && let Some(copy) = self.copies.get(i)
        {
            // The copy that counts may have another part of the object.
            let (is, should) = (found.size, copy.shape.size(size_of(counts)));
            parts.push(format!("size {is} != size {should} from auth oi {info}"));
        }
        if shard.differs.contains(ObjectErrors::SIZE_MISMATCH) {
            let (is, should) = (found.size, counts.size);
            parts.push(format!("size {is} != size {should} from shard {member}"));
        }
        parts.extend(attribute_differences(found, counts));
        parts
    }
}

/// The size of the object, as a copy's info says.
fn size_of(found: &Found) -> u64 {
    decode_all::<ObjectInfo>(&found.info).map_or(0, |info| info.size)
}

/// Which attributes are not as those of the copy that counts.
fn attribute_differences(found: &Found, counts: &Found) -> Vec<String> {
    let (Some(attrs), Some(should)) = (&found.attrs, &counts.attrs) else {
        return Vec::new();
    };
    let said = |what: &str, name: &[u8]| format!("attr {what} mismatch '_{}'", name.escape_ascii());
    let of_those = should.iter().filter_map(|(name, value)| match attrs.get(name) {
        None => Some(said("name", name)),
        Some(v) if v != value => Some(said("value", name)),
        Some(_) => None,
    });
    let others = attrs.keys().filter(|name| !should.contains_key(*name));
    of_those.chain(others.map(|name| said("name", name))).collect()
}
