//! Command descriptions as daemons give them for `get_command_descriptions`: an object of commands,
//! each with a signature of literal words and typed arguments, help, and flags.

use serde_json::{Map, Value};
use spirula_proto::mon::CommandFlags;

use super::value::Kind;

/// A literal word or an argument of a command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArgDesc {
    /// `prefix` for literal words.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// How many words it takes, at least one where `many`.
    pub(crate) n: usize,
    pub(crate) many: bool,
    pub(crate) required: bool,
}

/// One command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Command {
    pub(crate) signature: Vec<ArgDesc>,
    pub(crate) help: String,
    pub(crate) flags: CommandFlags,
}

fn text(v: &Value) -> String {
    v.as_str().map_or_else(|| v.to_string(), str::to_owned)
}

impl ArgDesc {
    fn parse(desc: &Value) -> Option<Self> {
        let fields = match desc {
            Value::String(word) => {
                return Some(Self {
                    name: "prefix".into(),
                    kind: Kind::Prefix(word.clone()),
                    n: 1,
                    many: false,
                    required: true,
                });
            }
            Value::Object(fields) => fields,
            _ => return None,
        };
        let n = fields.get("n").map_or_else(|| "1".into(), text);
        let many = n.eq_ignore_ascii_case("n");
        let required = fields.get("req").map_or_else(|| "true".into(), text);
        Some(Self {
            name: fields.get("name").map(text).unwrap_or_default(),
            kind: Kind::parse(fields.get("type")?.as_str()?, |key| fields.get(key).map(text))?,
            n: if many { 1 } else { n.parse().ok()? },
            many,
            required: required.eq_ignore_ascii_case("true"),
        })
    }

    /// Whether this is a literal word.
    pub(crate) fn is_prefix(&self) -> bool {
        matches!(self.kind, Kind::Prefix(_))
    }

    /// The argument's name in error messages.
    pub(crate) fn shown(&self) -> String {
        let literal = match &self.kind {
            Kind::Choices(strings) => strings.len() == 1,
            kind => matches!(kind, Kind::Prefix(_)),
        };
        let mut s = if literal {
            self.kind.shown()
        } else {
            let dots = if self.many { "..." } else { "" };
            format!("{}({}){dots}", self.name, self.kind.shown())
        };
        if !self.required {
            s = format!("[{s}]");
        }
        s
    }

    /// The argument in usage lines.
    fn usage(&self) -> String {
        let name = &self.name;
        let mut s = match &self.kind {
            Kind::Bool => format!("--{}", name.replace('_', "-")),
            Kind::Prefix(prefix) => prefix.clone(),
            Kind::Choices(strings) if name == "format" => format!("--{name} {{{}}}", strings.join("|")),
            Kind::Choices(strings) => strings.join("|"),
            Kind::OsdName => "<id|osd.id>".into(),
            Kind::Name => "<type.id>".into(),
            Kind::Int(_) => format!("<{name}:int>"),
            Kind::Float(_) => format!("<{name}:float>"),
            _ => format!("<{name}>"),
        };
        if self.many {
            s.push_str("...");
        }
        if self.required { s } else { format!("[{s}]") }
    }
}

impl Command {
    fn parse(fields: &Map<String, Value>) -> Option<Self> {
        let signature = fields.get("sig")?.as_array()?;
        Some(Self {
            signature: signature.iter().map(ArgDesc::parse).collect::<Option<_>>()?,
            help: fields.get("help").map(text).unwrap_or_default(),
            flags: CommandFlags(fields.get("flags").and_then(Value::as_u64).unwrap_or(0)),
        })
    }

    /// The whole command in one line.
    pub(crate) fn usage(&self) -> String {
        let words: Vec<String> = self.signature.iter().map(ArgDesc::usage).collect();
        words.join(" ")
    }
}

/// Reads descriptions, in their order. Commands of types that are unknown here are left out, as are
/// those not meant for a command line.
///
/// # Errors
/// Where it is no JSON object.
pub(crate) fn parse(descriptions: &[u8]) -> Result<Vec<Command>, serde_json::Error> {
    let all: Map<String, Value> = serde_json::from_slice(descriptions)?;
    let for_cli = |c: &&Map<String, Value>| c.get("avail").is_none_or(|a| text(a).contains("cli"));
    let commands = all.values().filter_map(Value::as_object).filter(for_cli);
    Ok(commands.filter_map(Command::parse).collect())
}
