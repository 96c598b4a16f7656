//! The `config` commands and `injectargs`, which every daemon has (`src/common/ceph_context.cc`).

use serde_json::{Map, Value, json};
use spirula_conf::options::{self, Kind, Opt, Source, Values};

use crate::{Command, Failure};

const ENOENT: i32 = 2;
const EINVAL: i32 = 22;

/// The commands that [`run`] knows; [`crate::describe`] lists them for every daemon.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "config diff",
        params: &[],
        help: "dump diff of current config and default config",
    },
    Command {
        name: "config diff get",
        params: &[("var", "CephString")],
        help: "dump diff get <field>: dump diff of current and default config setting <field>",
    },
    Command {
        name: "config get",
        params: &[("var", "CephString")],
        help: "config get <field>: get the config value",
    },
    Command {
        name: "config help",
        params: &[("var?", "CephString")],
        help: "get config setting schema and descriptions",
    },
    Command {
        name: "config set",
        params: &[("var", "CephString"), ("val*", "CephString")],
        help: "config set <field> <val> [<val> ...]: set a config variable",
    },
    Command {
        name: "config show",
        params: &[],
        help: "dump current config settings",
    },
    Command {
        name: "config unset",
        params: &[("var", "CephString")],
        help: "config unset <field>: unset a config variable",
    },
    Command {
        name: "injectargs",
        params: &[("injected_args*", "CephString")],
        help: "inject configuration arguments into running daemon",
    },
];

fn failure(errno: i32, message: String) -> Failure {
    Failure {
        code: -errno,
        message,
    }
}

/// Which daemon's values they are.
#[derive(Debug, Clone, Copy)]
pub struct Daemon<'a> {
    /// `osd.0`.
    pub name: &'a str,
    /// Whether a change of this option takes effect while the daemon runs.
    pub live: fn(&str) -> bool,
}

impl Daemon<'_> {
    /// What official daemons say of a value that was set.
    fn confirm(&self, name: &str, value: &str) -> String {
        let note = if (self.live)(name) {
            ""
        } else {
            "(not observed, change may require restart) "
        };
        format!("{name} = '{value}' {note}")
    }
}

/// Runs a command; `None` for one that is none of [`COMMANDS`]. Afterwards the daemon takes the values over.
pub fn run(
    daemon: Daemon<'_>,
    values: &mut Values,
    prefix: &str,
    args: &Map<String, Value>,
) -> Option<Result<Value, Failure>> {
    let var = || options::normalize(args.get("var").and_then(Value::as_str).unwrap_or_default());
    Some(match prefix {
        "config show" => Ok(show(daemon, values)),
        "config get" => get(values, &var()),
        "config set" => set(daemon, values, &var(), &words(args.get("val"))),
        "config unset" => unset(values, &var()),
        "config diff" => Ok(diff(values, None)),
        "config diff get" => Ok(diff(values, Some(&var()))),
        "config help" => Ok(help(Some(var()).filter(|v| !v.is_empty()).as_deref())),
        "injectargs" => inject(daemon, values, &words(args.get("injected_args"))),
        _ => return None,
    })
}

/// One text of a parameter that is a text or a list of them.
fn words(v: Option<&Value>) -> String {
    let one = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    match v {
        None => String::new(),
        Some(Value::Array(all)) => all.iter().map(one).collect::<Vec<_>>().join(" "),
        Some(v) => one(v),
    }
}

fn show(daemon: Daemon<'_>, values: &Values) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), json!(daemon.name));
    out.insert("cluster".into(), json!("ceph"));
    out.extend(values.all().into_iter().map(|(k, v)| (k, json!(v))));
    Value::Object(out)
}

fn get(values: &Values, var: &str) -> Result<Value, Failure> {
    match values.canonical(var) {
        Some(v) => Ok(json!({var: v})),
        None => Err(failure(
            ENOENT,
            format!("error getting '{var}': (2) No such file or directory"),
        )),
    }
}

fn set(daemon: Daemon<'_>, values: &mut Values, var: &str, val: &str) -> Result<Value, Failure> {
    let text = change(daemon, values, var, val).map_err(|(errno, why)| {
        failure(
            errno,
            format!("error setting '{var}' to '{val}': ({errno}) {why}"),
        )
    })?;
    Ok(json!({"success": text}))
}

/// Sets an option and returns the confirmation, or an errno and its text.
fn change(
    daemon: Daemon<'_>,
    values: &mut Values,
    var: &str,
    val: &str,
) -> Result<String, (i32, &'static str)> {
    let opt = options::find(var).ok_or((ENOENT, "No such file or directory"))?;
    let parsed = opt.parse(val).map_err(|_| (EINVAL, "Invalid argument"))?;
    values.overrides.insert(opt.name.to_owned(), parsed.clone());
    Ok(daemon.confirm(opt.name, &parsed))
}

fn unset(values: &mut Values, var: &str) -> Result<Value, Failure> {
    if options::find(var).is_none() {
        let text = format!("error unsetting '{var}': (22) Invalid argument");
        return Err(failure(EINVAL, text));
    }
    values.overrides.remove(var);
    Ok(json!({}))
}

/// `--name=value` or `--name value`, any number of them.
fn inject(daemon: Daemon<'_>, values: &mut Values, text: &str) -> Result<Value, Failure> {
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let bad = || {
            failure(
                EINVAL,
                format!("failed to parse arguments: {}", word.trim_start_matches('-')),
            )
        };
        let body = word.strip_prefix("--").ok_or_else(bad)?;
        let (var, val) = match body.split_once('=') {
            Some(pair) => pair,
            None => (body, words.next_if(|w| !w.starts_with("--")).unwrap_or("true")),
        };
        change(daemon, values, &options::normalize(var), val).map_err(|_| bad())?;
    }
    Ok(json!({}))
}

/// A value as JSON of its option's type. Official daemons print sizes as text.
fn typed(opt: Option<&Opt>, text: &str) -> Value {
    let parsed = opt.and_then(|o| o.parse(text).ok());
    let text = parsed.as_deref().unwrap_or(text);
    let number = |v: Option<Value>| v.unwrap_or_else(|| json!(text));
    match opt.map(|o| o.kind) {
        Some(Kind::Bool) => json!(text == "true"),
        Some(Kind::Int) => number(text.parse::<i64>().ok().map(Value::from)),
        Some(Kind::Uint) => number(text.parse::<u64>().ok().map(Value::from)),
        Some(Kind::Float) => number(text.parse::<f64>().ok().map(Value::from)),
        _ => json!(text),
    }
}

fn diff(values: &Values, only: Option<&str>) -> Value {
    let mut out = Map::new();
    for (name, last) in values.all() {
        if values.is_default(&name) || only.is_some_and(|o| o != name) {
            continue;
        }
        let opt = options::find(&name);
        let mut one = Map::new();
        one.insert("default".into(), typed(opt, opt.map_or("", |o| o.default)));
        for source in Source::ALL {
            if let Some(v) = values.layer(source).get(&name) {
                one.insert(source.name().into(), typed(opt, v));
            }
        }
        one.insert("final".into(), typed(opt, &last));
        out.insert(name, Value::Object(one));
    }
    json!({"diff": out})
}

fn help(var: Option<&str>) -> Value {
    let list = options::all().iter().filter(|o| var.is_none_or(|v| v == o.name));
    list.map(|o| {
        json!({
            "name": o.name, "type": o.kind.name(), "level": o.level.name(), "desc": o.help,
            "default": typed(Some(o), o.default),
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OSD: Daemon<'_> = Daemon {
        name: "osd.0",
        live: |name| name == "osd_max_object_size",
    };

    fn ask(values: &mut Values, prefix: &str, args: &Value) -> Result<Value, String> {
        let args = args.as_object().unwrap();
        run(OSD, values, prefix, args).unwrap().map_err(|f| f.message)
    }

    #[test]
    fn answers_are_those_of_an_official_daemon() {
        let mut v = Values::default();
        let size = json!({"var": "osd_max_object_size", "val": "2G"});
        assert_eq!(
            ask(&mut v, "config set", &size),
            Ok(json!({"success": "osd_max_object_size = '2147483648' "}))
        );
        let ratio = json!({"var": "osd_failsafe_full_ratio", "val": ["0.97"]});
        let text = "osd_failsafe_full_ratio = '0.970000' (not observed, change may require restart) ";
        assert_eq!(ask(&mut v, "config set", &ratio), Ok(json!({"success": text})));
        assert_eq!(
            ask(&mut v, "config get", &size),
            Ok(json!({"osd_max_object_size": "2147483648"}))
        );
        assert_eq!(
            ask(&mut v, "config diff get", &size),
            Ok(json!({"diff": {"osd_max_object_size":
                {"default": "134217728", "override": "2147483648", "final": "2147483648"}}}))
        );
        assert_eq!(ask(&mut v, "config unset", &size), Ok(json!({})));
        assert_eq!(
            ask(&mut v, "config get", &size),
            Ok(json!({"osd_max_object_size": "134217728"}))
        );
        let args = json!({"injected_args": ["--osd-max-object-size=1G --mon-allow-pool-delete", "--osd_max_pgls", "7"]});
        assert_eq!(ask(&mut v, "injectargs", &args), Ok(json!({})));
        assert_eq!(
            (v.uint("osd_max_object_size"), v.uint("osd_max_pgls")),
            (1 << 30, 7)
        );
        assert!(v.flag("mon_allow_pool_delete"));
    }

    #[test]
    fn errors_are_those_of_an_official_daemon() {
        let mut v = Values::default();
        let errors = [
            (
                "config set",
                "osd_max_object_size",
                "error setting 'osd_max_object_size' to 'abc': (22) Invalid argument",
            ),
            (
                "config set",
                "nope",
                "error setting 'nope' to 'abc': (2) No such file or directory",
            ),
            (
                "config get",
                "nope",
                "error getting 'nope': (2) No such file or directory",
            ),
            (
                "config unset",
                "nope",
                "error unsetting 'nope': (22) Invalid argument",
            ),
        ];
        for (prefix, var, text) in errors {
            let args = json!({"var": var, "val": "abc"});
            assert_eq!(ask(&mut v, prefix, &args), Err(text.to_owned()));
        }
        assert!(v.overrides.is_empty());
    }
}
