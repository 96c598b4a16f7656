//! The `config` commands and `injectargs`, which every daemon has (`src/common/ceph_context.cc`).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spirula_conf::options::{self, Kind, Opt, Source, Values};
use spirula_errno::{EINVAL, ENOENT, EPERM, Errno};

use crate::{Answer, Command, Failure};

/// The commands that [`run`] knows; `describe` lists them for every daemon.
pub const COMMANDS: &[Command] = &[
    Command::new(
        "config diff",
        &[],
        "dump diff of current config and default config",
    ),
    Command::new(
        "config diff get",
        &[("var", "CephString")],
        "dump diff get <field>: dump diff of current and default config setting <field>",
    ),
    Command::new(
        "config get",
        &[("var", "CephString")],
        "config get <field>: get the config value",
    ),
    Command::new(
        "config help",
        &[("var?", "CephString")],
        "get config setting schema and descriptions",
    ),
    Command::new(
        "config set",
        &[("var", "CephString"), ("val*", "CephString")],
        "config set <field> <val> [<val> ...]: set a config variable",
    ),
    Command::new("config show", &[], "dump current config settings"),
    Command::new(
        "config unset",
        &[("var", "CephString")],
        "config unset <field>: unset a config variable",
    ),
    Command::new(
        "injectargs",
        &[("injected_args*", "CephString")],
        "inject configuration arguments into running daemon",
    ),
];

fn failure(errno: Errno, message: String) -> Failure {
    Failure { errno, message }
}

/// The daemon whose values are shown or changed.
#[derive(Debug, Clone, Copy)]
pub struct Daemon<'a> {
    /// `osd.0`.
    pub name: &'a str,
    /// Whether a change of this option takes effect while the daemon runs.
    pub live: fn(&str) -> bool,
}

impl Daemon<'_> {
    /// The official daemons' message about a changed value.
    fn confirm(&self, opt: &Opt, value: &str) -> String {
        match opt {
            // They do not watch log levels: each line asks for its own.
            o if o.is_log_level() => String::new(),
            o if (self.live)(o.name) => format!("{} = '{value}' ", o.name),
            o => format!(
                "{} = '{value}' (not observed, change may require restart) ",
                o.name
            ),
        }
    }
}

/// Runs a command; `None` if it is none of [`COMMANDS`]. Afterwards the daemon adopts the values.
pub fn run(
    daemon: Daemon<'_>,
    values: &mut Values,
    prefix: &str,
    args: &Map<String, Value>,
) -> Option<Result<Answer, Failure>> {
    let var = || options::normalize(args.get("var").and_then(Value::as_str).unwrap_or_default());
    if prefix == "injectargs" {
        return Some(inject(daemon, values, &words(args.get("injected_args"))));
    }
    let answer = match prefix {
        "config show" => Ok(show(daemon, values)),
        "config get" => get(values, &var()),
        "config set" => set(daemon, values, &var(), &words(args.get("val"))),
        "config unset" => unset(values, &var()),
        "config diff" => Ok(diff(values, None)),
        "config diff get" => Ok(diff(values, Some(&var()))),
        "config help" => Ok(help(Some(var()).filter(|v| !v.is_empty()).as_deref())),
        _ => return None,
    };
    Some(answer.map(Answer::from))
}

/// The text of a parameter that is a text or a list of texts.
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
    let said = options::find(var)
        .ok_or((ENOENT, String::new()))
        .and_then(|opt| change(daemon, values, opt, val));
    match said {
        Ok(text) => Ok(json!({"success": text})),
        Err((errno, _)) => {
            let why = format!("error setting '{var}' to '{val}': {errno}");
            Err(failure(errno, why))
        }
    }
}

/// Sets an option and returns the confirmation, empty if nothing has changed; or an errno and the
/// reason.
fn change(daemon: Daemon<'_>, values: &mut Values, opt: &Opt, val: &str) -> Result<String, (Errno, String)> {
    let parsed = opt.parse(val).map_err(|why| (options::errno(&why), why))?;
    let is_same = values.canonical(opt.name).is_some_and(|now| now == parsed);
    if !opt.runtime && !is_same {
        let why = format!(
            "Configuration option '{}' may not be modified at runtime",
            opt.name
        );
        return Err((EPERM, why));
    }
    values.overrides.insert(opt.name.to_owned(), parsed.clone());
    Ok(match is_same {
        true => String::new(),
        false => daemon.confirm(opt, &parsed),
    })
}

fn unset(values: &mut Values, var: &str) -> Result<Value, Failure> {
    if options::find(var).is_none() {
        let text = format!("error unsetting '{var}': (22) Invalid argument");
        return Err(failure(EINVAL, text));
    }
    values.overrides.remove(var);
    Ok(json!({}))
}

/// The result of `injectargs`.
#[derive(Default)]
struct Injected {
    /// The errno of the last refused option.
    errno: Option<Errno>,
    /// The messages about refused options.
    refused: String,
    /// Confirmations by option.
    changed: BTreeMap<&'static str, String>,
    /// Words that are no options.
    unknown: Vec<String>,
}

impl Injected {
    fn set(&mut self, daemon: Daemon<'_>, values: &mut Values, opt: &'static Opt, val: &str) {
        match change(daemon, values, opt, val) {
            Ok(text) => {
                self.changed.insert(opt.name, text);
            }
            Err((errno, why)) => self.refuse(errno, opt, val, &why),
        }
    }

    fn refuse(&mut self, errno: Errno, opt: &Opt, val: &str, why: &str) {
        self.errno = Some(errno);
        self.refused += &format!("Parse error setting {} to '{val}' using injectargs", opt.name);
        if !why.is_empty() {
            self.refused += &format!(" ({why})");
        }
        self.refused += ".\n";
    }
}

/// Applies `--name=value`, `--name value`, and for flags `--name` and `--no-name`, any number of
/// them. Valid options are applied, whatever the others are.
fn inject(daemon: Daemon<'_>, values: &mut Values, text: &str) -> Result<Answer, Failure> {
    let mut out = Injected::default();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let Some(body) = word.strip_prefix("--") else {
            out.unknown.push(word.to_owned());
            continue;
        };
        let (name, given) = match body.split_once('=') {
            Some((name, val)) => (options::normalize(name), Some(val)),
            None => (options::normalize(body), None),
        };
        let negated = name.strip_prefix("no_").filter(|_| given.is_none());
        let negated = negated.and_then(options::find).filter(|o| o.kind == Kind::Bool);
        if let Some(opt) = negated {
            out.set(daemon, values, opt, "false");
            continue;
        }
        let is_bool = |text: &str| ["true", "1", "false", "0"].contains(&text);
        match (options::find(&name), given) {
            (None, _) => out.unknown.push(word.to_owned()),
            (Some(opt), Some(val)) if opt.kind == Kind::Bool && !is_bool(val) => {
                out.refused += &format!(
                    "Parse error parsing binary flag  --{}. Expected true or false, but got '{val}'\n",
                    opt.name
                );
                out.refuse(EINVAL, opt, "", "");
            }
            (Some(opt), Some(val)) => out.set(daemon, values, opt, val),
            (Some(opt), None) if opt.kind == Kind::Bool => {
                let val = words.next_if(|w| is_bool(w)).unwrap_or("true");
                out.set(daemon, values, opt, val);
            }
            (Some(opt), None) => match words.next() {
                Some(val) => out.set(daemon, values, opt, val),
                None => {
                    let why = format!("Option --{} requires an argument.\n", opt.name);
                    out.refuse(EINVAL, opt, "", &why);
                }
            },
        }
    }
    let mut said = out.refused;
    if !out.unknown.is_empty() {
        said += &format!(" failed to parse arguments: {}\n", out.unknown.join(","));
        out.errno = Some(EINVAL);
    }
    said.extend(out.changed.into_values());
    match out.errno {
        None => Ok(Answer {
            value: json!({}),
            status: said,
        }),
        Some(errno) => Err(failure(errno, said)),
    }
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
    let one = |o: &Opt| {
        json!({
            "name": o.name, "type": o.kind.name(), "level": o.level.name(), "desc": o.help, "long_desc": "",
            "default": typed(Some(o), o.default),
            "daemon_default": match o.daemon_default {
                "" => json!(""),
                text => typed(Some(o), text),
            },
            "tags": [], "services": words_of(o.services), "see_also": [],
            "min": limit(o, o.min), "max": limit(o, o.max), "can_update_at_runtime": o.runtime,
            "flags": words_of(o.flags),
        })
    };
    match var {
        Some(name) => options::find(name).map_or_else(|| json!({}), |o| json!({"option": one(o)})),
        None => options::all().iter().map(one).collect(),
    }
}

/// A limit of an option as JSON.
fn limit(opt: &Opt, text: &str) -> Value {
    match text {
        "" => json!(""),
        text => typed(Some(opt), text),
    }
}

fn words_of(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
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
        let answer = run(OSD, values, prefix, args).unwrap();
        answer.map(|a| a.value).map_err(|f| f.message)
    }

    fn inject(values: &mut Values, text: &str) -> (i32, String) {
        let args = Map::from_iter([("injected_args".to_owned(), json!([text]))]);
        match run(OSD, values, "injectargs", &args).unwrap() {
            Ok(answer) => (0, answer.status),
            Err(e) => (-e.errno, e.message),
        }
    }

    /// As an official daemon answers.
    #[test]
    fn arguments_are_injected_one_by_one() {
        let mut v = Values::default();
        let may = "(not observed, change may require restart) ";
        let confirmed = format!("osd_max_backfills = '5' {may}");
        for (text, code, said) in [
            ("--osd-max-backfills=5", 0, confirmed.as_str()),
            ("--osd_max_backfills 5", 0, ""),
            ("--no-osd_scrub_auto_repair", 0, ""),
            ("--debug_osd 5/5", 0, ""),
            ("--nope=1", -22, " failed to parse arguments: --nope=1\n"),
            ("foo", -22, " failed to parse arguments: foo\n"),
            (
                "--no-osd_max_backfills",
                -22,
                " failed to parse arguments: --no-osd_max_backfills\n",
            ),
            (
                "--osd_max_backfills",
                -22,
                "Parse error setting osd_max_backfills to '' using injectargs (Option --osd_max_backfills requires an argument.\n).\n",
            ),
            (
                "--debug_osd=-1",
                -34,
                "Parse error setting debug_osd to '-1' using injectargs (value must be in range [0, 99]).\n",
            ),
            (
                "--osd_scrub_auto_repair=maybe",
                -22,
                "Parse error parsing binary flag  --osd_scrub_auto_repair. Expected true or false, but got 'maybe'\n\
                 Parse error setting osd_scrub_auto_repair to '' using injectargs.\n",
            ),
            (
                "--osd_objectstore=memstore",
                -1,
                "Parse error setting osd_objectstore to 'memstore' using injectargs (Configuration option \
                 'osd_objectstore' may not be modified at runtime).\n",
            ),
        ] {
            assert_eq!(inject(&mut v, text), (code, said.to_owned()), "{text}");
        }
        let said = format!("osd_scrub_auto_repair = 'true' {may}");
        assert_eq!(inject(&mut v, "--osd_scrub_auto_repair"), (0, said.clone()));
        let said = said.replace("true", "false");
        assert_eq!(inject(&mut v, "--no-osd_scrub_auto_repair"), (0, said));
        // Valid options are applied.
        let said = format!(" failed to parse arguments: --nope,3\nosd_max_backfills = '1' {may}");
        assert_eq!(inject(&mut v, "--osd_max_backfills=1 --nope 3"), (-22, said));
        assert_eq!(v.uint("osd_max_backfills"), 1);
    }

    #[test]
    fn answers_are_those_of_an_official_daemon() {
        let mut v = Values::default();
        let size = json!({"var": "osd_max_object_size", "val": "2G"});
        assert_eq!(
            ask(&mut v, "config set", &size),
            Ok(json!({"success": "osd_max_object_size = '2147483648' "}))
        );
        let ratio = json!({"var": "osd_failsafe_full_ratio", "val": ["0.98"]});
        let text = "osd_failsafe_full_ratio = '0.980000' (not observed, change may require restart) ";
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
