//! The official XML formatter's output (`src/common/Formatter.cc`), from the same values as JSON.
//!
//! XML needs names for the whole and for the elements of arrays, which JSON does not have. The
//! whole is named after the command; an array's elements are named after the array's place.

use serde_json::Value;

use crate::json::number;

/// The names of elements in a command's output.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// The outermost element.
    pub root: &'a str,
    /// The elements of a whole that is an array; empty for the usual name.
    pub item: &'a str,
}

/// Elements of arrays whose name depends on the command: root, array (`*` for all), element.
const BY_ROOT: &[(&str, &str, &str)] = &[
    ("status", "quorum", "rank"),
    ("status", "quorum_names", "id"),
    ("pg_map", "up", "up_osd"),
    ("pg_map", "acting", "acting_osd"),
    ("ok_to_stop", "osds", "osd"),
    ("pg_info", "num_pg_by_state", "state"),
    ("features", "*", "group"),
    ("info", "attrs", "attr"),
    ("info", "chunk_map", "chunk"),
    ("info", "cumulative_shard_hashes", "hash"),
    ("info", "extra clones", "snap"),
    ("info", "flags", "flags"),
    ("info", "inconsistents", "inconsistent"),
    ("info", "missing", "snap"),
    ("info", "snaps", "snap"),
    ("info", "union_shard_errors", "error"),
    ("dump_pgstate_history", "pgs", "pg"),
    ("dump_pgstate_history", "history", "epochs"),
    ("dump_pgstate_history", "states", "state"),
    ("dump_transitions", "*", "transition"),
];

/// Elements of arrays whose own name is data, by the enclosing element.
const BY_PARENT: &[(&str, &str)] = &[
    ("mapping", "osd"),
    ("osds", "osd"),
    ("pool_weights", "weight"),
    ("choose_args", "choose_args"),
    ("feature_map", "group"),
    ("crush_node_flags", "flag"),
    ("device_class_flags", "flag"),
    ("always_on_modules", "module"),
    ("mon", "mon"),
    ("osd", "osd"),
];

/// Elements of arrays by the array's name.
const BY_NAME: &[(&str, &str)] = &[
    ("acting", "osd"),
    ("active", "osd"),
    ("active_clients", "client"),
    ("addrvec", "addr"),
    ("auth_dump", "auth_entities"),
    ("available_modules", "module"),
    ("blocked_by", "pg"),
    ("buckets", "bucket"),
    ("changes", "change"),
    ("children", "child"),
    ("clones", "clone"),
    ("datas", "data"),
    ("detail", "detail_item"),
    ("devices", "device"),
    ("enum_allowed", "value"),
    ("errors", "error"),
    ("flags_set", "flag"),
    ("hb_peers", "osd"),
    ("images", "image"),
    ("items", "item"),
    ("lockers", "locker"),
    ("locks", "lock"),
    ("mappings", "mapping"),
    ("missing_stats", "osd"),
    ("modules", "module"),
    ("mons", "mon"),
    ("mutes", "mute"),
    ("network_ping_times", "entry"),
    ("new_purged_snaps", "pool"),
    ("new_removed_snaps", "pool"),
    ("nodes", "item"),
    ("num_pg_by_osd", "count"),
    ("num_pg_by_state", "count"),
    ("ok_become_degraded", "pg"),
    ("ok_become_more_degraded", "pg"),
    ("bad_become_inactive", "pg"),
    ("optional", "bit_flag"),
    ("osd_epochs", "osd"),
    ("osd_metadata", "osd"),
    ("osd_perf_infos", "osd"),
    ("osd_stats", "osd_stat"),
    ("osd_xinfo", "xinfo"),
    ("osds", "osd_info"),
    ("overlaps", "section"),
    ("overrides", "value"),
    ("per_pool", "pool"),
    ("persistent", "bit_flag"),
    ("pg_stats", "pg_stat"),
    ("pg_temp", "osds"),
    ("pg_upmap", "mapping"),
    ("pg_upmap_items", "mapping"),
    ("pgs_by_state", "pgs_by_state_element"),
    ("pool_snaps", "pool_snap_info"),
    ("pool_statfs", "item"),
    ("pool_stats", "pool_stat"),
    ("pools", "pool"),
    ("primary_temp", "osd"),
    ("purged_snaps", "pool"),
    ("quorum", "mon"),
    ("quorum_mon", "bit_flag"),
    ("quorum_names", "mon"),
    ("removed_snaps_queue", "pool"),
    ("required", "bit_flag"),
    ("required_mon", "bit_flag"),
    ("rules", "rule"),
    ("safe_to_destroy", "osd"),
    ("services", "service"),
    ("shards", "shard"),
    ("snaps", "interval"),
    ("snapshots", "snapshot"),
    ("state", "state"),
    ("steps", "step"),
    ("stored_pgs", "osd"),
    ("stray", "item"),
    ("supported", "bit_flag"),
    ("tiers", "pool_id"),
    ("types", "type"),
    ("up", "osd"),
    ("weight_set", "weights"),
    ("weights", "weight"),
];

struct Printer<'a> {
    out: String,
    pretty: bool,
    depth: usize,
    names: Names<'a>,
}

/// Renders a value as the formatter for `xml` or `xml-pretty` does.
pub(crate) fn render(v: &Value, names: Names<'_>, pretty: bool) -> Vec<u8> {
    let mut p = Printer {
        out: String::new(),
        pretty,
        depth: 0,
        names,
    };
    p.element(names.root, v, "");
    if pretty {
        p.out.push('\n');
    }
    p.out.into_bytes()
}

impl Printer<'_> {
    fn item_name(&self, array: &str, parent: &str) -> &'static str {
        let by_root = BY_ROOT
            .iter()
            .find(|(r, a, _)| *r == self.names.root && (*a == array || *a == "*"))
            .map(|(_, _, e)| *e);
        let by_parent = || BY_PARENT.iter().find(|(p, _)| *p == parent).map(|(_, e)| *e);
        let by_name = || BY_NAME.iter().find(|(a, _)| *a == array).map(|(_, e)| *e);
        // At the top of a command's output no list is named by data.
        let named = by_name().filter(|_| parent == self.names.root);
        by_root
            .or(named)
            .or_else(by_parent)
            .or_else(by_name)
            .unwrap_or("item")
    }

    fn newline(&mut self) {
        if self.pretty {
            self.out.push('\n');
        }
    }

    fn indent(&mut self) {
        if self.pretty {
            self.out.extend(std::iter::repeat_n(' ', self.depth));
        }
    }

    fn element(&mut self, name: &str, v: &Value, parent: &str) {
        let tag = tag(name);
        self.indent();
        self.out.push_str(&format!("<{tag}>"));
        match v {
            Value::Array(items) => {
                let top = self.depth == 0 && !self.names.item.is_empty();
                let item = match top {
                    true => self.names.item,
                    false => self.item_name(name, parent),
                };
                self.inside(|p| items.iter().for_each(|i| p.element(item, i, name)));
            }
            Value::Object(fields) => {
                self.inside(|p| fields.iter().for_each(|(k, v)| p.element(k, v, name)));
            }
            Value::String(s) => escape(&mut self.out, s),
            Value::Number(n) => self.out.push_str(&number(n)),
            Value::Bool(b) => self.out.push_str(if *b { "true" } else { "false" }),
            Value::Null => {}
        }
        self.out.push_str(&format!("</{tag}>"));
        self.newline();
    }

    fn inside(&mut self, print: impl FnOnce(&mut Self)) {
        self.newline();
        self.depth += 1;
        print(self);
        self.depth -= 1;
        self.indent();
    }
}

/// Replaces spaces by underscores, except in the few names that the official monitor writes as
/// streams: these end in a space.
fn tag(name: &str) -> String {
    match name.ends_with(' ') {
        true => name.to_owned(),
        false => name.replace(' ', "_"),
    }
}

fn escape(out: &mut String, s: &str) {
    for c in s.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' => out.push(c),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => out.push_str(&format!("&#x{:02x};", u32::from(c))),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(v: &Value, root: &str, item: &str, pretty: bool) -> String {
        String::from_utf8(render(v, Names { root, item }, pretty)).unwrap()
    }

    /// As `ceph` 16.2.15 prints them.
    #[test]
    fn layout_is_the_official_one() {
        let v =
            json!({"quorum": [0], "health": {"checks": {}, "mutes": []}, "v": "0'0<", "f": 0.5, "b": true});
        assert_eq!(
            text(&v, "status", "", false),
            "<status><quorum><rank>0</rank></quorum><health><checks></checks><mutes></mutes></health>\
             <v>0&apos;0&lt;</v><f>0.5</f><b>true</b></status>"
        );
        assert_eq!(
            text(
                &json!({"checks": {"X": {"count": 1}}, "mutes": []}),
                "health",
                "",
                true
            ),
            "<health>\n <checks>\n  <X>\n   <count>1</count>\n  </X>\n </checks>\n <mutes>\n </mutes>\n</health>\n\n"
        );
    }

    #[test]
    fn members_of_a_pg_are_no_osds_in_full() {
        let v = json!({"osds": [{"osd": 0}], "pg_temp": [{"osds": [1]}], "pg_upmap": [{"osds": [2]}]});
        assert_eq!(
            text(&v, "osdmap", "", false),
            "<osdmap><osds><osd_info><osd>0</osd></osd_info></osds><pg_temp><osds><osds><osd>1</osd></osds></osds></pg_temp>\
             <pg_upmap><mapping><osds><osd>2</osd></osds></mapping></pg_upmap></osdmap>"
        );
        let v = json!({"mon": [1]});
        assert_eq!(
            text(&v, "features", "", false),
            "<features><mon><group>1</group></mon></features>"
        );
    }

    #[test]
    fn elements_are_named_after_their_place() {
        assert_eq!(
            text(&json!(["p"]), "pools", "pool_name", false),
            "<pools><pool_name>p</pool_name></pools>"
        );
        let v = json!({"mon": {"vm": ["a"]}, "osd": {"vm": [0]}});
        assert_eq!(
            text(&v, "nodes", "", false),
            "<nodes><mon><vm><mon>a</mon></vm></mon><osd><vm><osd>0</osd></vm></osd></nodes>"
        );
        let v = json!({"(compat)": [1], "a b": 1, "removed_ranks: ": ""});
        assert_eq!(
            text(&v, "pool_weights", "", false),
            "<pool_weights><(compat)><weight>1</weight></(compat)><a_b>1</a_b><removed_ranks: ></removed_ranks: ></pool_weights>"
        );
    }
}
