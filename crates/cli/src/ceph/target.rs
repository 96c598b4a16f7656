//! The daemon that a command is for.

use std::fmt;

use serde_json::Value;

use super::value::{self, Kind, Mismatch};

/// A daemon, or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Any monitor; with a name, the one of that name.
    Mon(Option<String>),
    /// A manager, for its own commands; with a name, the one of that name.
    Mgr(Option<String>),
    /// An OSD by the number that was given, which need not be an OSD's.
    Osd(i32),
    /// The primary OSD of a PG.
    Pg(String),
    /// A metadata server.
    Mds(String),
    /// All daemons of a kind.
    All(String),
}

/// As messages name it: kind, a dot, id.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |id: &Option<String>| id.clone().unwrap_or_else(|| "None".into());
        match self {
            Self::Mon(None) => f.write_str("mon."),
            Self::Mon(name) => write!(f, "mon.{}", id(name)),
            Self::Mgr(name) => write!(f, "mgr.{}", id(name)),
            Self::Osd(osd) => write!(f, "osd.{osd}"),
            Self::Pg(pg) => write!(f, "pg.{pg}"),
            Self::Mds(name) => write!(f, "mds.{name}"),
            Self::All(kind) => write!(f, "{kind}.*"),
        }
    }
}

fn is_pgid(word: &str) -> bool {
    Kind::Pgid.read(word, false).is_ok_and(|v| v != Value::Null)
}

/// The target that the words of a command name.
///
/// # Errors
/// Why the name behind `tell` is none.
pub(crate) fn of(words: &[String]) -> Result<Target, String> {
    match words {
        [tell, name, ..] if tell == "tell" => {
            let parsed = value::name(name);
            if parsed.is_err() && is_pgid(name) {
                return Ok(Target::Pg(name.clone()));
            }
            match parsed {
                Ok((Some(kind), id)) => by_name(&kind, id),
                Ok((None, _)) => Err("Bad target type 'None'".into()),
                Err(Mismatch::Bad(why)) => Err(why),
                Err(_) => Err(format!("{name} is no daemon")),
            }
        }
        [pg, id, ..] if pg == "pg" && is_pgid(id) => Ok(Target::Pg(id.clone())),
        _ => Ok(Target::Mon(None)),
    }
}

fn by_name(kind: &str, id: Option<String>) -> Result<Target, String> {
    if id.as_deref() == Some("*") {
        return Ok(Target::All(kind.to_owned()));
    }
    match (kind, id) {
        ("mon", id) => Ok(Target::Mon(id)),
        ("mgr", id) => Ok(Target::Mgr(id)),
        ("mds", Some(id)) => Ok(Target::Mds(id)),
        ("osd", Some(id)) => id
            .parse()
            .map(Target::Osd)
            .map_err(|_| format!("osd id {id} not integer")),
        _ => Err(format!("Bad target type '{kind}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<Target, String> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        of(&words)
    }

    #[test]
    fn targets_by_their_words() {
        assert_eq!(target("osd tree"), Ok(Target::Mon(None)));
        assert_eq!(target("tell"), Ok(Target::Mon(None)));
        assert_eq!(target("tell osd.3 version"), Ok(Target::Osd(3)));
        assert_eq!(target("tell osd.* version"), Ok(Target::All("osd".into())));
        assert_eq!(target("tell mon.a version"), Ok(Target::Mon(Some("a".into()))));
        assert_eq!(target("tell mgr version"), Ok(Target::Mgr(None)));
        assert_eq!(target("tell 1.0 query"), Ok(Target::Pg("1.0".into())));
        assert_eq!(target("pg 1.0 query"), Ok(Target::Pg("1.0".into())));
        assert_eq!(target("pg dump"), Ok(Target::Mon(None)));
        assert_eq!(target("tell foo version"), Err("CephName: no . in foo".into()));
        assert_eq!(target("tell foo.x version"), Err("unknown type foo".into()));
        assert_eq!(target("tell osd.x version"), Err("osd id x not integer".into()));
    }
}
