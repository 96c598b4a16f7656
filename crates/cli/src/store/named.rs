//! Objects by the names that people give them.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use spirula_maps::{HObject, PgId};
use spirula_osd::pg::key::{parse_object_key, pg_range};
use spirula_store::ObjectKey;

use super::offline::Offline;
use crate::error::Error;
use crate::rados::attr_value;

/// How an object is named.
#[derive(Debug, PartialEq)]
enum Name {
    /// By its name alone.
    Plain(String),
    /// By fields that it has in a listing.
    Fields(Map<String, Value>),
}

impl Name {
    /// Reads a name, an object of a listing, or a line of a listing (`["1.0",{"oid":…}]`).
    fn parse(text: &str) -> Self {
        let object = match serde_json::from_str(text) {
            Ok(Value::Array(line)) => line.into_iter().nth(1),
            Ok(value) => Some(value),
            Err(_) => None,
        };
        match object {
            Some(Value::Object(fields)) => Self::Fields(fields),
            _ => Self::Plain(text.to_owned()),
        }
    }

    fn is_of(&self, object: &HObject) -> bool {
        let value = attr_value::object(object);
        match self {
            Self::Plain(name) => value["oid"] == *name.as_str(),
            // Official listings name the shard, too.
            Self::Fields(fields) => {
                fields.contains_key("oid")
                    && fields
                        .iter()
                        .all(|(k, v)| value.get(k).is_none_or(|ours| ours == v))
            }
        }
    }
}

/// An object that a store has.
pub(super) struct Found {
    /// Its key in the store.
    pub(super) key: ObjectKey,
    /// Its name.
    pub(super) object: HObject,
}

/// Finds the one object of a PG with this name.
pub(super) fn find(store: &mut Offline, pg: PgId, text: &str) -> Result<Found, Error> {
    let name = Name::parse(text);
    let mut found = Vec::new();
    of_pgs(store, Some(pg), |_, key, object| {
        if name.is_of(object) {
            let key = ObjectKey::new(key);
            let object = object.clone();
            found.push(Found { key, object });
        }
        Ok(())
    })?;
    match (found.pop(), found.len()) {
        (None, _) => Err(Error::Usage(format!("PG {pg} has no object {text} here"))),
        (Some(one), 0) => Ok(one),
        (Some(_), others) => Err(Error::Usage(format!(
            "PG {pg} has {} objects {text}: name one as `list` does",
            others + 1
        ))),
    }
}

/// A line of a listing.
pub(super) fn line(pg: PgId, object: &HObject) -> String {
    json!([pg.to_string(), attr_value::object(object)]).to_string()
}

/// Calls `each` for the objects of a PG, or of all, in order.
pub(super) fn of_pgs(
    store: &mut Offline,
    only: Option<PgId>,
    mut each: impl FnMut(PgId, &Bytes, &HObject) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut pgs = store.pgs()?;
    pgs.retain(|(pg, _)| only.is_none_or(|only| only == *pg));
    if let Some(pg) = only.filter(|_| pgs.is_empty()) {
        return Err(Error::Usage(format!("the store has no copy of PG {pg}")));
    }
    for (pg, info) in pgs {
        store.keys(&pg_range(pg, info.pg_num), |key| {
            parse_object_key(key).map_or(Ok(()), |object| each(pg, key, &object))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use spirula_maps::{ObjectName, PoolId, snap};

    use super::*;

    fn object(id: u64) -> HObject {
        let name = ObjectName::from_static;
        HObject::new(3, name("space"), name(""), name("o"), id, 7)
    }

    #[test]
    fn objects_are_named_by_name_by_fields_or_by_a_line_of_a_listing() {
        let (head, clone) = (object(snap::NOSNAP), object(4));
        assert!(Name::parse("o").is_of(&head) && Name::parse("o").is_of(&clone));
        assert!(!Name::parse("p").is_of(&head));
        let pg = PgId::new(PoolId::new(3), 0x1f);
        let listed = line(pg, &clone);
        let fields = r#"{"oid":"o","key":"","snapid":4,"hash":7,"max":0,"pool":3,"namespace":"space"}"#;
        assert_eq!(listed, format!(r#"["3.1f",{fields}]"#));
        for text in [&listed, fields, r#"{"oid":"o","snapid":4,"shard_id":1}"#] {
            let name = Name::parse(text);
            assert!(name.is_of(&clone) && !name.is_of(&head), "{text}");
        }
        assert!(!Name::parse("{}").is_of(&head));
        let odd = "[3]";
        assert_eq!(Name::parse(odd), Name::Plain(odd.to_owned()));
    }
}
