//! The table of all options: Ceph's, with Spirula's differences, and those that only Spirula has.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::built::{self, BUILT, Built};
use super::{Kind, Level, Opt, normalize};

/// The options of Ceph 16.2, in the official order.
const PACIFIC: &str = include_str!("../pacific.tsv");

/// The help's note about options without effect.
const NO_EFFECT: &str = "(has no effect in Spirula)";

/// Options that a daemon only takes from its `ceph.conf` when it starts, never from the monitors'
/// configuration database.
const START_ONLY: &[&str] = &[
    "admin_socket",
    "admin_socket_mode",
    "cluster_addr",
    "cluster_network",
    "cluster_network_interface",
    "crush_location",
    "crush_location_hook",
    "crush_location_hook_timeout",
    "log_file",
    "mon_addr",
    "ms_bind_port_max",
    "ms_bind_port_min",
    "osd_crush_device_class",
    "osd_log_device",
    "osd_memory_target",
    "pid_file",
    "public_addr",
    "public_network",
    "public_network_interface",
    "run_dir",
    "setgroup",
    "setuser",
    "setuser_match_path",
];

struct Table {
    all: Vec<Opt>,
    by_name: HashMap<&'static str, usize>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let built: HashMap<&str, &Built> = BUILT.iter().map(|b| (b.name, b)).collect();
    let lines = PACIFIC.lines().filter(|l| !l.starts_with('#'));
    let mut all: Vec<Opt> = lines.filter_map(official).map(|o| adapt(o, &built)).collect();
    let mut by_name: HashMap<_, _> = all.iter().enumerate().map(|(at, o)| (o.name, at)).collect();
    for b in BUILT {
        by_name.entry(b.name).or_insert_with(|| {
            all.push(own(b));
            all.len() - 1
        });
    }
    Table { all, by_name }
});

/// Reads a line of the table.
fn official(line: &'static str) -> Option<Opt> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    Some(Opt {
        name: next()?,
        kind: Kind::ALL.into_iter().find(named(next()?, Kind::name))?,
        level: Level::ALL.into_iter().find(named(next()?, Level::name))?,
        default: next()?,
        daemon_default: next()?,
        min: next()?,
        max: next()?,
        values: next()?,
        runtime: next()? == "yes",
        flags: next()?,
        services: next()?,
        help: NO_EFFECT,
        effect: false,
    })
}

fn named<T: Copy>(name: &str, of: fn(T) -> &'static str) -> impl Fn(&T) -> bool {
    move |v| of(*v) == name
}

/// Applies Spirula's differences to an official option.
fn adapt(mut o: Opt, built: &HashMap<&str, &Built>) -> Opt {
    let Some(b) = built.get(o.name) else { return o };
    (o.default, o.daemon_default) = (b.default, "");
    (o.help, o.effect) = (b.help, true);
    o.runtime &= !START_ONLY.contains(&o.name);
    // Limits that fit Ceph's default and not ours are none of ours.
    if o.parse(o.default).is_err() {
        (o.min, o.max, o.values) = ("", "", "");
    }
    o
}

/// An option that Ceph's table lacks.
fn own(b: &Built) -> Opt {
    Opt {
        name: b.name,
        kind: b.kind,
        level: b.level,
        default: b.default,
        daemon_default: "",
        min: "",
        max: "",
        values: "",
        runtime: !START_ONLY.contains(&b.name),
        flags: "",
        help: b.help,
        services: b.services,
        effect: true,
    }
}

/// All options of daemons and clients: Ceph's in the official order, then ours.
pub fn all() -> &'static [Opt] {
    &TABLE.all
}

static OF_MODULES: LazyLock<Vec<Opt>> = LazyLock::new(|| built::OF_MODULES.iter().map(own).collect());

/// The options of the manager's modules.
pub fn of_modules() -> &'static [Opt] {
    &OF_MODULES
}

/// The option of this name. Spaces and dashes count as underscores.
pub fn find(name: &str) -> Option<&'static Opt> {
    if name.starts_with("mgr/") {
        return OF_MODULES.iter().find(|o| o.name == name);
    }
    let at = TABLE
        .by_name
        .get(name)
        .or_else(|| TABLE.by_name.get(normalize(name).as_str()))?;
    TABLE.all.get(*at)
}

/// Whether a running daemon takes the option from the monitors' configuration database.
pub(super) fn is_live(o: &Opt) -> bool {
    !START_ONLY.contains(&o.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_whole() {
        let lines = PACIFIC.lines().filter(|l| !l.starts_with('#')).count();
        let own = all()
            .iter()
            .filter(|o| PACIFIC.lines().all(|l| l.split('\t').next() != Some(o.name)));
        assert_eq!(all().len(), lines + own.count());
        for b in BUILT {
            let o = find(b.name).unwrap();
            assert!(o.effect && o.default == b.default, "{}", b.name);
            assert_eq!((o.kind, o.level), (b.kind, b.level), "{}", b.name);
        }
        for name in START_ONLY {
            assert!(find(name).is_some_and(|o| !o.runtime), "{name}");
        }
    }

    #[test]
    fn what_ceph_knows_and_has_no_effect_says_so() {
        let o = find("osd_backfill_scan_min").unwrap();
        assert!(!o.effect && o.help == NO_EFFECT && o.default == "64");
        assert!(find("osd_nonsense").is_none());
    }
}
