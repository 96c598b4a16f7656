//! The configuration of running daemons, as they report it.

use serde_json::{Map, Value, json};
use spirula_text::{Align, Table};

use super::{Call, Done, Reply, errno, now, refuse};
use crate::core::{Turn, View};
use crate::options::{Source, Values, all};

/// The value of an option, and its sources.
struct Setting {
    name: &'static str,
    value: String,
    /// The sources that set it, the strongest first; empty for the default.
    sources: Vec<(Source, String)>,
    /// Whether the configuration database sets it too, without effect.
    ignored: bool,
}

impl Setting {
    fn source(&self) -> &'static str {
        self.sources.first().map_or("default", |(s, _)| s.name())
    }

    /// The sources that the value overrides, the strongest first.
    fn overridden(&self) -> &[(Source, String)] {
        self.sources.get(1..).unwrap_or_default()
    }

    fn row(&self) -> [String; 5] {
        let one = |(source, value): &(Source, String)| match *value == self.value {
            // It does not matter.
            true => format!("({}[{value}])", source.name()),
            false => format!("{}[{value}]", source.name()),
        };
        let overrides: Vec<String> = self.overridden().iter().map(one).collect();
        let ignores = if self.ignored { "mon" } else { "" };
        [
            self.name.to_owned(),
            self.value.clone(),
            self.source().to_owned(),
            overrides.join(","),
            ignores.to_owned(),
        ]
    }

    fn json(&self) -> Value {
        let mut v = Map::new();
        v.insert("name".into(), json!(self.name));
        v.insert("value".into(), json!(self.value));
        v.insert("source".into(), json!(self.source()));
        let overridden = self.overridden().iter().rev();
        let overrides: Vec<Value> = overridden
            .map(|(s, value)| json!({"source": s.name(), "value": value}))
            .collect();
        if !overrides.is_empty() {
            v.insert("overrides".into(), json!(overrides));
        }
        if self.ignored {
            v.insert("ignores".into(), json!("mon"));
        }
        Value::Object(v)
    }
}

/// Every option, by name. The cluster's id and the host's name are facts, and not shown as
/// settings.
fn settings(values: &Values) -> impl Iterator<Item = Setting> {
    let mut by_name: Vec<_> = all().iter().collect();
    by_name.sort_unstable_by_key(|o| o.name);
    by_name.into_iter().map(|o| {
        let hidden = ["fsid", "host"].contains(&o.name);
        let sources = if hidden {
            Vec::new()
        } else {
            values.sources(o.name)
        };
        let value = match sources.first() {
            Some((_, v)) => v.clone(),
            None => o.parse(o.default).unwrap_or_else(|_| o.default.to_owned()),
        };
        Setting {
            name: o.name,
            value,
            sources,
            ignored: !hidden && values.ignored.contains(o.name),
        }
    })
}

/// The options of a connected daemon: of this monitor, or of an OSD that has reported them.
fn running<'a>(m: &'a View, who: &str) -> Result<&'a Values, Reply> {
    let unknown = || Reply::error(errno::ENOENT, format!("no config state for daemon {who}"));
    let Some((kind, id)) = who.split_once('.') else {
        return Err(Reply::error(
            errno::EINVAL,
            "invalid daemon name: use <type>.<id>",
        ));
    };
    if kind == "mon" && id == m.me.name {
        return Ok(&m.values);
    }
    let mut sessions = m.sessions.values().rev();
    // Of a daemon that has just reconnected the old session may still be there.
    let found = sessions.find_map(|s| s.running.as_ref().filter(|_| s.name.to_string() == who));
    found.ok_or_else(unknown)
}

fn list(call: &Call<'_>, settings: impl Iterator<Item = Setting>) -> Done {
    if call.format.is_structured() {
        return now(Reply::json(call.format, &settings.map(|s| s.json()).collect()));
    }
    use Align::Left;
    let headings = ["NAME", "VALUE", "SOURCE", "OVERRIDES", "IGNORES"];
    let mut t = Table::new(&headings.map(|h| (h, Left, Left)));
    settings.for_each(|s| t.row(s.row()));
    now(Reply::text(t.render()))
}

pub(super) fn show(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let values = running(m.view, &call.args.str("who")?)?;
    let Some(key) = call.args.opt_str("key") else {
        let set = |s: &Setting| s.ignored || !s.sources.is_empty();
        return list(call, settings(values).filter(set));
    };
    if key == "fsid" {
        return now(Reply::text(format!("{}\n", m.view.me.fsid)));
    }
    match settings(values).find(|s| s.name == key) {
        Some(s) => now(Reply::text(s.value + "\n")),
        None => refuse(errno::ENOENT, ""),
    }
}

pub(super) fn show_all(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    list(call, settings(running(m.view, &call.args.str("who")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a Ceph 16.2.15 daemon in the same situation.
    #[test]
    fn sources_and_what_they_override_are_shown_as_ceph_does() {
        let map = |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let mut v = Values::from_file(map(&[("osd_pool_default_size", "3")]));
        v.set_central(map(&[
            ("osd_max_pgls", "500"),
            ("osd_max_write_size", "95"),
            ("osd_op_complaint_time", "31"),
            ("osd_pool_default_size", "3"),
            ("public_network", "10.0.0.0/8"),
        ]));
        v.overrides = map(&[
            ("osd_max_write_size", "91"),
            ("osd_op_complaint_time", "31"),
            ("osd_pool_default_size", "2"),
        ]);
        let of = |name: &str| settings(&v).find(|s| s.name == name).unwrap();
        for row in [
            ["osd_max_pgls", "500", "mon", "", ""],
            ["osd_max_write_size", "91", "override", "mon[95]", ""],
            [
                "osd_op_complaint_time",
                "31.000000",
                "override",
                "(mon[31.000000])",
                "",
            ],
            ["osd_pool_default_size", "2", "override", "file[3],mon[3]", ""],
            ["public_network", "", "default", "", "mon"],
            ["osd_max_attr_size", "0", "default", "", ""],
        ] {
            assert_eq!(of(row[0]).row(), row);
        }
        assert_eq!(
            of("osd_pool_default_size").json(),
            json!({"name": "osd_pool_default_size", "value": "2", "source": "override", "overrides": [
                {"source": "mon", "value": "3"}, {"source": "file", "value": "3"}]})
        );
        assert_eq!(
            of("public_network").json(),
            json!({"name": "public_network", "value": "", "source": "default", "ignores": "mon"})
        );
    }
}
