//! What a scrub found as trees (`dump_inconsistent` and `dump_shard` in
//! `src/tools/rados/rados.cc`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use spirula_denc::{Decode, Reader};
use spirula_maps::{PgShard, SpgId, snap};
use spirula_proto::osd_op_data::attr::{ObjectInfo, SnapSet};
use spirula_proto::osd_op_data::{
    InconsistentObject, InconsistentSnapSet, ObjectErrors, ObjectId, ShardErrors, ShardInfo, SnapSetErrors,
    attr,
};

use super::attr_value::{digest, hash_info, object_info, snap_set};
use super::format::text;

/// An entry of a listing as a tree.
pub(super) trait Shown {
    /// The fields of the entry.
    fn shown(&self) -> Map<String, Value>;
}

/// Bytes as text; as Base64, which the second part tells, if there is a control character.
fn clean(value: &[u8]) -> (String, bool) {
    match value.iter().any(u8::is_ascii_control) {
        true => (STANDARD.encode(value), true),
        false => (text(value), false),
    }
}

fn decoded<T: Decode>(value: &[u8]) -> Option<T> {
    Reader::new(value).get().ok()
}

/// The value of an attribute: as a tree if it is sound, else as it is.
fn attribute<T: Decode>(value: &Bytes, is_corrupted: bool, tree: impl Fn(&T) -> Value) -> Value {
    let sound = decoded::<T>(value).filter(|_| !is_corrupted);
    sound.map_or_else(|| clean(value).0.into(), |sound| tree(&sound))
}

fn object_id(o: &ObjectId) -> Map<String, Value> {
    let snap = match o.snap {
        snap::NOSNAP => json!("head"),
        snap::SNAPDIR => json!("snapdir"),
        id => json!(id),
    };
    Map::from_iter([
        ("name".to_owned(), text(o.name.as_bytes()).into()),
        ("nspace".to_owned(), text(o.nspace.as_bytes()).into()),
        ("locator".to_owned(), text(o.locator.as_bytes()).into()),
        ("snap".to_owned(), snap),
    ])
}

/// An attribute of the OSD's own, and the errors that decide whether it is shown.
struct Own {
    missing: ShardErrors,
    corrupted: ShardErrors,
    differs: ObjectErrors,
}

impl Own {
    const OBJECT_INFO: Self = Self {
        missing: ShardErrors::INFO_MISSING,
        corrupted: ShardErrors::INFO_CORRUPTED,
        differs: ObjectErrors::OBJECT_INFO_INCONSISTENCY,
    };
    const SNAP_SET: Self = Self {
        missing: ShardErrors::SNAPSET_MISSING,
        corrupted: ShardErrors::SNAPSET_CORRUPTED,
        differs: ObjectErrors::SNAPSET_INCONSISTENCY,
    };
    const HASH_INFO: Self = Self {
        missing: ShardErrors::HINFO_MISSING,
        corrupted: ShardErrors::HINFO_CORRUPTED,
        differs: ObjectErrors::HINFO_INCONSISTENCY,
    };

    /// Whether something is wrong with the attribute in any copy.
    fn concerns(&self, object: &InconsistentObject) -> bool {
        let wrong = self.missing.with(self.corrupted);
        object.union_shards.intersects(wrong) || object.errors.contains(self.differs)
    }
}

/// The fields of one copy or shard.
struct ShardFields<'a> {
    object: &'a InconsistentObject,
    shard: &'a ShardInfo,
    fields: Map<String, Value>,
}

impl ShardFields<'_> {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    fn has(&self, errors: ShardErrors) -> bool {
        self.shard.errors.intersects(errors)
    }

    /// Shows an attribute of the OSD's own, if the copy has it.
    fn put_own<T: Decode>(&mut self, name: &str, key: &Bytes, own: &Own, tree: impl Fn(&T) -> Value) {
        if self.has(own.missing) {
            return;
        }
        if let Some(value) = self.shard.attrs.get(key) {
            self.put(name, attribute(value, self.has(own.corrupted), tree));
        }
    }

    /// Shows the users' attributes.
    fn put_users(&mut self) {
        let attr = |(key, value): (&Bytes, &Bytes)| {
            let name = attr::user_name(key)?;
            let (value, is_base64) = clean(value);
            Some(json!({"name": text(name), "value": value, "Base64": is_base64}))
        };
        let attrs: Vec<Value> = self.shard.attrs.iter().filter_map(attr).collect();
        self.put("attrs", attrs);
    }

    fn put_content(&mut self) {
        if !self.has(ShardErrors::SHARD_STAT_ERR) {
            self.put("size", self.shard.size);
        }
        if let Some(omap) = self.shard.omap_digest {
            self.put("omap_digest", digest(omap));
        }
        if let Some(data) = self.shard.data_digest {
            self.put("data_digest", digest(data));
        }
    }

    fn put_attributes(&mut self) {
        let object = self.object;
        let of_other_size = self.has(ShardErrors::OBJ_SIZE_INFO_MISMATCH);
        if Own::OBJECT_INFO.concerns(object) || of_other_size {
            self.put_own("object_info", &attr::OBJECT_INFO, &Own::OBJECT_INFO, object_info);
        }
        if Own::SNAP_SET.concerns(object) {
            self.put_own("snapset", &attr::SNAP_SET, &Own::SNAP_SET, snap_set);
        }
        if Own::HASH_INFO.concerns(object) {
            self.put_own("hashinfo", &attr::HASH_INFO, &Own::HASH_INFO, hash_info);
        }
        let differ = ObjectErrors::ATTR_NAME_MISMATCH.with(ObjectErrors::ATTR_VALUE_MISMATCH);
        if object.errors.intersects(differ) {
            self.put_users();
        }
    }
}

fn shard(object: &InconsistentObject, (member, shard): (&PgShard, &ShardInfo)) -> Value {
    let mut shown = ShardFields {
        object,
        shard,
        fields: Map::new(),
    };
    shown.put("osd", member.osd.index());
    shown.put("primary", shard.primary);
    if member.shard != SpgId::NO_SHARD {
        shown.put("shard", member.shard);
    }
    shown.put("errors", errors(shard.errors.names()));
    if !shown.has(ShardErrors::SHARD_MISSING) {
        shown.put_content();
        shown.put_attributes();
    }
    Value::Object(shown.fields)
}

fn errors<'a>(names: impl Iterator<Item = &'a str>) -> Value {
    names.collect()
}

impl Shown for InconsistentObject {
    fn shown(&self) -> Map<String, Value> {
        let mut object = object_id(&self.object);
        object.insert("version".to_owned(), self.version.into());
        let mut fields = Map::from_iter([
            ("object".to_owned(), Value::Object(object)),
            ("errors".to_owned(), errors(self.errors.names())),
            ("union_shard_errors".to_owned(), errors(self.union_shards.names())),
        ]);
        let selected = self.shards.values().find(|s| s.selected_oi);
        let info = selected.and_then(|s| s.attrs.get(&attr::OBJECT_INFO));
        if let Some(info) = info.and_then(|info| decoded::<ObjectInfo>(info)) {
            fields.insert("selected_object_info".to_owned(), object_info(&info));
        }
        let shards = self.shards.iter().map(|s| shard(self, s)).collect();
        fields.insert("shards".to_owned(), shards);
        fields
    }
}

impl Shown for InconsistentSnapSet {
    fn shown(&self) -> Map<String, Value> {
        let mut fields = object_id(&self.object);
        let set = Some(&self.ss_bl).filter(|set| !set.is_empty());
        if let Some(set) = set.and_then(|set| decoded::<SnapSet>(set)) {
            fields.insert("snapset".to_owned(), snap_set(&set));
        }
        fields.insert("errors".to_owned(), errors(self.errors.names()));
        if self.errors.contains(SnapSetErrors::EXTRA_CLONES) {
            fields.insert("extra clones".to_owned(), json!(self.clones));
        }
        if self.errors.contains(SnapSetErrors::CLONE_MISSING) {
            fields.insert("missing".to_owned(), json!(self.missing));
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use spirula_client::{Inconsistency, InconsistentPage};
    use spirula_denc::decode_all;
    use spirula_maps::OsdId;
    use spirula_proto::osd_op_data::ScrubLsResult;
    use spirula_text::Format;

    use super::*;
    use crate::rados::format::render;
    use crate::rados::scrub::listing;

    /// Damage, what is listed, the structure and its encoding: as OSDs of 16.2.15 sent them.
    const SENT: &str = include_str!("../../../proto/testdata/scrub.txt");
    /// Damage, what is listed, the format and the text: as `rados` 16.2.15 printed them then.
    const PRINTED: &str = include_str!("../../testdata/scrub.txt");

    fn rows(text: &'static str) -> impl Iterator<Item = [&'static str; 4]> {
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        rows.map(|line| {
            let columns: Vec<&str> = line.splitn(4, ' ').collect();
            columns.try_into().unwrap()
        })
    }

    fn sent(damage: &str, list: &str) -> ScrubLsResult {
        let of_reply = |row: &[&str; 4]| row[..3] == [damage, list, "scrub_ls_result_t"];
        let digits = rows(SENT).find(of_reply).unwrap()[3].as_bytes();
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
        decode_all(&bytes).unwrap()
    }

    fn tree<T: Inconsistency + Shown>(result: &ScrubLsResult) -> Value {
        listing(&[InconsistentPage::<T> {
            interval: result.interval,
            entries: result.entries().unwrap(),
        }])
    }

    #[test]
    fn findings_print_as_the_official_tool_prints_them() {
        let mut seen = 0;
        for [damage, list, format, text] in rows(PRINTED) {
            let result = sent(damage, list);
            let tree = match list {
                "obj" => tree::<InconsistentObject>(&result),
                _ => tree::<InconsistentSnapSet>(&result),
            };
            let ours = render(Format::parse(Some(format)), &tree, "info", "");
            assert_eq!(String::from_utf8(ours).unwrap(), text, "{damage} {list}");
            seen += 1;
        }
        assert!(seen > 20);
    }

    #[test]
    fn what_is_not_as_it_says_is_shown_as_it_is_or_left_out() {
        let member = PgShard {
            osd: OsdId::new(1),
            shard: SpgId::NO_SHARD,
        };
        let mut object = InconsistentObject {
            errors: ObjectErrors::OBJECT_INFO_INCONSISTENCY.with(ObjectErrors::SNAPSET_INCONSISTENCY),
            ..InconsistentObject::default()
        };
        let attrs = [(attr::OBJECT_INFO, Bytes::from("no info\n"))];
        let shard = ShardInfo {
            attrs: attrs.into(),
            selected_oi: true,
            ..ShardInfo::default()
        };
        object.insert(member, shard);
        let shown = object.shown();
        assert!(!shown.contains_key("selected_object_info"));
        assert_eq!(shown["shards"][0]["object_info"], "bm8gaW5mbwo=");
        assert_eq!(shown["shards"][0].get("snapset"), None);
    }
}
