//! Names of principals: `EntityName` of Ceph's `src/common/entity_name.h`.

use std::fmt;
use std::str::FromStr;

use spirula_denc::{Decode, Encode, EntityType, Error, Reader, Result, Writer};

/// The name under which an entity authenticates: a type and a text id, `client.admin` or `osd.3`.
/// The key that all monitors share belongs to the name with an empty id, `mon.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AuthName {
    /// The type.
    pub kind: EntityType,
    /// What follows the first dot; may itself hold dots.
    pub id: String,
}

impl AuthName {
    /// The name of this type and id.
    pub fn new(kind: EntityType, id: impl Into<String>) -> Self {
        Self { kind, id: id.into() }
    }

    /// `mon.`, the owner of the key that all monitors share.
    pub fn monitors() -> Self {
        Self::new(EntityType::MON, "")
    }

    /// The number of the OSD of this name. Names such as `osd.03`, which only look like an OSD's,
    /// have none.
    pub fn osd_number(&self) -> Option<i32> {
        let number = self.id.parse::<i32>().ok()?;
        (self.kind == EntityType::OSD && number >= 0 && self.id == number.to_string()).then_some(number)
    }
}

impl fmt::Display for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == EntityType::default() {
            return Ok(());
        }
        write!(f, "{}.{}", self.kind.name(), self.id)
    }
}

impl FromStr for AuthName {
    type Err = Error;

    /// Parses `TYPE.ID`.
    fn from_str(text: &str) -> Result<Self> {
        let (kind, id) = text.split_once('.').ok_or(Error::Invalid("entity name"))?;
        let kind = EntityType::from_name(kind).ok_or(Error::Invalid("entity type"))?;
        Ok(Self::new(kind, id))
    }
}

impl Encode for AuthName {
    fn encode(&self, w: &mut Writer) {
        w.u32(u32::from(self.kind.0));
        w.string(&self.id);
    }
}

impl Decode for AuthName {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let kind = u8::try_from(r.u32()?).map_err(|_| Error::Invalid("entity type"))?;
        Ok(Self {
            kind: EntityType(kind),
            id: r.string()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_the_first_dot_splits() {
        for text in ["client.admin", "mon.", "osd.12", "client.rgw.a.b"] {
            assert_eq!(text.parse::<AuthName>().unwrap().to_string(), text);
        }
        assert_eq!("client.rgw.a".parse::<AuthName>().unwrap().id, "rgw.a");
        assert!("client".parse::<AuthName>().is_err());
        assert!("foo.bar".parse::<AuthName>().is_err());
        assert!(" client.x".parse::<AuthName>().is_err());
    }

    #[test]
    fn only_a_number_as_it_is_written_names_an_osd() {
        let number = |text: &str| text.parse::<AuthName>().unwrap().osd_number();
        assert_eq!([number("osd.0"), number("osd.12")], [Some(0), Some(12)]);
        for other in [
            "osd.03",
            "osd.+3",
            "osd.-3",
            "osd.3 ",
            "osd.",
            "osd.99999999999",
            "client.3",
        ] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn names_sort_as_the_official_maps_do() {
        let mut names: Vec<AuthName> = ["mgr.x", "client.a", "osd.0", "mon.", "mds.a"]
            .iter()
            .map(|n| n.parse().unwrap())
            .collect();
        names.sort();
        let sorted: Vec<_> = names.iter().map(ToString::to_string).collect();
        assert_eq!(sorted, ["mon.", "mds.a", "osd.0", "client.a", "mgr.x"]);
    }
}
