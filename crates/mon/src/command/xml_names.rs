//! The XML names of commands' outputs.

use spirula_text::Names;

use super::Args;

/// The command, its outermost element, and the name of its elements if it is an array.
const NAMES: &[(&str, &str, &str)] = &[
    ("osd dump", "osdmap", ""),
    ("osd tree", "tree", ""),
    ("osd tree-from", "tree", ""),
    ("osd stat", "osdmap", ""),
    ("osd perf", "pg_info", ""),
    ("osd ls", "osds", "osd"),
    ("osd ls-tree", "osds", "osd"),
    ("osd find", "osd_location", ""),
    ("osd metadata", "osd_metadata", "osd"),
    ("osd versions", "ceph_version", ""),
    ("osd numa-status", "osds", "osd"),
    ("osd info", "osds", "osd_info"),
    ("osd blocked-by", "pg_info", ""),
    ("osd map", "osd_map", ""),
    ("osd lspools", "pools", "pool"),
    ("osd pool ls", "pools", "pool_name"),
    ("osd pool stats", "pool_stats", "pool"),
    ("osd pool get", "pool", ""),
    ("osd pool get-quota", "pool_quotas", ""),
    ("osd pool application get", "pools", ""),
    ("osd blocklist ls", "blocklist", "entry"),
    ("osd blacklist ls", "blocklist", "entry"),
    ("osd crush dump", "crush_map", ""),
    ("osd crush rule ls", "rules", "name"),
    ("osd crush rule dump", "rules", "rule"),
    ("osd crush rule ls-by-class", "rules", "name"),
    ("osd crush class ls", "crush_classes", "class"),
    ("osd crush class ls-osd", "osds", "osd"),
    ("osd crush tree", "crush_tree", ""),
    ("osd crush show-tunables", "crush_map_tunables", ""),
    ("osd crush get-tunable", "tunable", ""),
    ("osd crush ls", "items", "item"),
    (
        "osd crush get-device-class",
        "osd_device_classes",
        "osd_device_class",
    ),
    ("osd crush weight-set ls", "weight_sets", "pool"),
    ("osd crush weight-set dump", "choose_args", ""),
    ("osd erasure-code-profile ls", "erasure-code-profiles", "profile"),
    ("osd erasure-code-profile get", "profile", ""),
    ("osd ok-to-stop", "ok_to_stop", ""),
    ("osd safe-to-destroy", "osd_status", ""),
    ("osd test-reweight-by-utilization", "reweight_by_utilization", ""),
    ("osd reweight-by-utilization", "reweight_by_utilization", ""),
    ("osd test-reweight-by-pg", "reweight_by_utilization", ""),
    ("osd reweight-by-pg", "reweight_by_utilization", ""),
    ("df", "stats", ""),
    ("pg map", "pg_map", ""),
    ("mon dump", "monmap", ""),
    ("mon stat", "monmap", ""),
    ("mon metadata", "mon_metadata", "mon"),
    ("mon versions", "ceph_version", ""),
    ("versions", "version", ""),
    ("node ls", "nodes", ""),
    ("time-sync-status", "time_sync", ""),
    ("mgr dump", "mgrmap", ""),
    ("mgr metadata", "mgr_metadata", "mgr"),
    ("mgr versions", "ceph_version", ""),
    ("mds stat", "mds_stat", ""),
    ("fs ls", "filesystems", "filesystem"),
    ("fs dump", "fsmap", ""),
    ("service dump", "service_map", ""),
    ("service status", "service_status", ""),
    ("auth get", "auth", "auth_entities"),
    ("config dump", "config", "option"),
    ("config help", "option", ""),
    ("config ls", "options", "option"),
    ("config log", "changesets", "changeset"),
    ("config show", "config", "value"),
    ("config show-with-defaults", "config", "value"),
    ("config get", "config", ""),
    ("config-key ls", "keys", "key"),
    ("config-key dump", "config-key_store", ""),
    ("log last", "tail", "entry"),
    ("sessions", "sessions", "session"),
];

/// Families of commands that share a name.
const PREFIXES: &[(&str, &str)] = &[("auth ", "auth"), ("pg ", "pg_info"), ("config ", "config")];

/// The names for a command's output.
pub(super) fn of(args: &Args) -> NamesOwned {
    let prefix = args.prefix();
    let listed = NAMES.iter().find(|(p, _, _)| *p == prefix);
    let (mut root, mut item) = match listed {
        Some((_, root, item)) => ((*root).to_owned(), *item),
        None => {
            let family = PREFIXES.iter().find(|(p, _)| prefix.starts_with(p));
            // Most others are called like the command's last word: `osd df`, `health`,
            // `osd getmaxosd`.
            let last = || prefix.rsplit(' ').next().unwrap_or(prefix);
            (family.map_or_else(last, |(_, r)| r).to_owned(), "")
        }
    };
    let given = |name: &str| args.opt_str(name);
    match prefix {
        "osd pool ls" if given("detail").is_some() => item = "pool",
        "osd info" if given("id").is_some() => root = "osd_info".to_owned(),
        "osd crush rule dump" if given("name").is_some() => root = "rule".to_owned(),
        "node ls" => root = given("type").filter(|t| t != "all").unwrap_or(root),
        "osd count-metadata" | "mon count-metadata" => root = given("property").unwrap_or(root),
        "osd pool application get" => {
            root = ["key", "app", "pool"]
                .iter()
                .find_map(|n| given(n))
                .unwrap_or(root);
        }
        _ => {}
    }
    NamesOwned { root, item }
}

/// See [`Names`].
pub(super) struct NamesOwned {
    root: String,
    item: &'static str,
}

impl NamesOwned {
    pub(super) fn get(&self) -> Names<'_> {
        Names {
            root: &self.root,
            item: self.item,
        }
    }
}
