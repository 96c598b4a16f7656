//! Descriptions of a daemon's commands: names and parameters, also in the form for the official
//! tool.

use serde_json::{Map, Value, json};

use crate::config;

/// A command the socket offers.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// Literal words, such as `config show`. Several commands of one name differ in their
    /// parameters.
    pub name: &'static str,
    /// Parameters: name and Ceph type, such as `("var", "CephString")`; a name that ends with `?`
    /// is optional, one that ends with `*` (or `*?`) may be given more than once. A type
    /// `CephChoices,strings=a|b` names its choices, and `CephInt,range=0|9` its bounds.
    pub params: &'static [(&'static str, &'static str)],
    /// One line of help; empty for commands that `help` does not list.
    pub help: &'static str,
}

impl Command {
    /// A command of that name, parameters and help.
    pub const fn new(
        name: &'static str,
        params: &'static [(&'static str, &'static str)],
        help: &'static str,
    ) -> Self {
        Self { name, params, help }
    }

    /// Whether the arguments fit the command: required ones are present, and all are of their
    /// types.
    pub(crate) fn takes(&self, args: &Map<String, Value>) -> bool {
        self.params.iter().map(Param::of).all(|p| p.takes(args))
    }
}

/// Parameters of commands that show counters: of all loggers, of one logger, or one counter.
pub const COUNTER: &[(&str, &str)] = &[("logger?", "CephString"), ("counter?", "CephString")];

/// The commands that every daemon has besides those of [`config`].
pub(crate) const BUILTIN: &[Command] = &[
    Command::new("0", &[], ""),
    Command::new("1", COUNTER, ""),
    Command::new("2", &[], ""),
    Command::new("get_command_descriptions", &[], "list available commands"),
    Command::new("git_version", &[], "get git sha1"),
    Command::new("help", &[], "list available commands"),
    Command::new("perfcounters_dump", COUNTER, ""),
    Command::new("perfcounters_schema", &[], ""),
    Command::new("version", &[], "get ceph version"),
];

/// A parameter in parts.
struct Param {
    name: &'static str,
    kind: &'static str,
    /// `strings` or `range`, with its value.
    detail: Option<(&'static str, &'static str)>,
    list: bool,
    optional: bool,
}

impl Param {
    fn of((name, kind): &(&'static str, &'static str)) -> Self {
        let (kind, detail) = match kind.split_once(',') {
            Some((kind, detail)) => (kind, detail.split_once('=')),
            None => (*kind, None),
        };
        Self {
            name: name.trim_end_matches(['?', '*']),
            kind,
            detail,
            list: name.trim_end_matches('?').ends_with('*'),
            optional: name.ends_with('?'),
        }
    }

    fn describe(&self) -> Value {
        let mut out = Map::from_iter([
            ("name".to_owned(), json!(self.name)),
            ("type".to_owned(), json!(self.kind)),
        ]);
        if let Some((key, value)) = self.detail {
            out.insert(key.to_owned(), json!(value));
        }
        if self.optional {
            out.insert("req".to_owned(), json!("false"));
        }
        if self.list {
            out.insert("n".to_owned(), json!("N"));
        }
        Value::Object(out)
    }

    fn takes(&self, args: &Map<String, Value>) -> bool {
        match args.get(self.name) {
            None => self.optional,
            Some(Value::Array(all)) if self.list => all.iter().all(Value::is_string),
            Some(Value::Number(n)) => self.kind == "CephInt" && n.as_i64().is_some_and(|n| self.in_range(n)),
            Some(Value::Bool(_)) => self.kind == "CephBool",
            Some(Value::String(s)) => match (self.kind, self.detail) {
                ("CephInt", _) => false,
                (_, Some(("strings", choices))) => choices.split('|').any(|c| c == s),
                _ => true,
            },
            Some(_) => false,
        }
    }

    fn in_range(&self, n: i64) -> bool {
        let Some(("range", range)) = self.detail else {
            return true;
        };
        let (least, most) = range.split_once('|').unwrap_or((range, ""));
        let bound = |text: &str| text.parse::<i64>().ok();
        bound(least).is_none_or(|l| n >= l) && bound(most).is_none_or(|m| n <= m)
    }
}

/// All commands of a daemon with these of its own, by name.
pub(crate) fn all(own: &[Command]) -> Vec<&Command> {
    let mut all: Vec<&Command> = own.iter().chain(config::COMMANDS).chain(BUILTIN).collect();
    all.sort_by_key(|c| c.name);
    all
}

/// The commands with their help.
pub(crate) fn help(own: &[Command]) -> Value {
    let shown = all(own).into_iter().filter(|c| !c.help.is_empty());
    shown.map(|c| (c.name.to_owned(), json!(c.help))).collect()
}

/// The JSON that the official `ceph` tool parses to validate a command line.
pub(crate) fn describe(own: &[Command]) -> Value {
    let one = |(i, c): (usize, &Command)| {
        let words = c.name.split(' ').map(Value::from);
        let params = c.params.iter().map(|p| Param::of(p).describe());
        let sig: Vec<Value> = words.chain(params).collect();
        (format!("cmd{i:03}"), json!({"sig": sig, "help": c.help}))
    };
    all(own).into_iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_of_their_types() {
        let command = Command::new(
            "x",
            &[
                ("n?", "CephInt,range=0|9"),
                ("how?", "CephChoices,strings=a|b"),
                ("text*?", "CephString"),
                ("pgid?", "CephPgid"),
            ],
            "",
        );
        let takes = |v: Value| v.as_object().is_some_and(|args| command.takes(args));
        for good in [
            json!({}),
            json!({"n": 9, "how": "b", "text": ["c", "d"], "pgid": "1.0"}),
            json!({"text": "c", "more": [1]}),
        ] {
            assert!(takes(good.clone()), "{good}");
        }
        for bad in [
            json!({"n": "9"}),
            json!({"n": 10}),
            json!({"n": 1.5}),
            json!({"how": "c"}),
            json!({"how": ["a"]}),
            json!({"text": [1]}),
            json!({"pgid": 1}),
        ] {
            assert!(!takes(bad.clone()), "{bad}");
        }
    }
}
