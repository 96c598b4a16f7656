//! Disks by their serial numbers: where they are, and which daemons' data is on them, as the
//! daemons' metadata says. Their health is not checked.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use spirula_text::{Align, Table};

use super::{Call, Done, Reply, commands, errno, misc, now, refuse};
use crate::core::{Turn, View};

commands! {
    "device ls" "mgr" "r" ls, "list the disks below monitors and OSDs";
    "device ls-by-daemon who:String" "mgr" "r" ls_by_daemon, "list the disks below a daemon";
    "device ls-by-host host:String" "mgr" "r" ls_by_host, "list the disks of a host";
    "device info devid:String" "mgr" "r" info, "show what is known of a disk";
}

/// A disk on a host.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    host: String,
    /// Its name on that host.
    dev: String,
    /// Its link in `/dev/disk/by-path`.
    path: String,
}

/// A disk.
#[derive(Debug, Default, PartialEq, Eq)]
struct Device {
    places: BTreeSet<Place>,
    daemons: BTreeSet<String>,
}

/// Disks by their ids.
type Devices = BTreeMap<String, Device>;

/// The `name=value` pairs of a list separated by commas.
fn pairs(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.split(',').filter_map(|p| p.split_once('='))
}

/// Adds the disks that a daemon's metadata names.
fn add(all: &mut Devices, daemon: &str, metadata: &BTreeMap<String, String>) {
    let of = |key: &str| metadata.get(key).map(String::as_str).unwrap_or_default();
    let paths: BTreeMap<&str, &str> = pairs(of("device_paths")).collect();
    for (name, id) in pairs(of("device_ids")) {
        let path = paths.get(name).copied().unwrap_or_default();
        let device = all.entry(id.to_owned()).or_default();
        device.places.insert(Place {
            host: of("hostname").to_owned(),
            dev: name.to_owned(),
            path: path.to_owned(),
        });
        device.daemons.insert(daemon.to_owned());
    }
}

fn devices(m: &View) -> Devices {
    let mut all = Devices::new();
    for name in &m.state.monmap.map.ranks {
        add(&mut all, &format!("mon.{name}"), &m.mon_metadata(name));
    }
    for osd in m.state.osd.map.osds() {
        add(&mut all, &format!("osd.{osd}"), &misc::osd_metadata(m, osd));
    }
    all
}

impl Device {
    fn json(&self, id: &str) -> Value {
        let place = |p: &Place| json!({"host": p.host, "dev": p.dev, "path": p.path});
        let places: Vec<Value> = self.places.iter().map(place).collect();
        json!({"devid": id, "location": places, "daemons": self.daemons})
    }

    fn daemons(&self) -> String {
        let all: Vec<&str> = self.daemons.iter().map(String::as_str).collect();
        all.join(" ")
    }

    fn places(&self) -> String {
        let all: Vec<String> = self
            .places
            .iter()
            .map(|p| format!("{}:{}", p.host, p.dev))
            .collect();
        all.join(" ")
    }

    /// The disk's names on a host.
    fn names_on(&self, host: &str) -> String {
        let all: Vec<&str> = self
            .places
            .iter()
            .filter(|p| p.host == host)
            .map(|p| p.dev.as_str())
            .collect();
        all.join(" ")
    }
}

/// Shows disks in these columns after the first, the last ones of which are empty.
fn list<const N: usize>(
    call: &Call<'_>,
    found: &Devices,
    columns: &[&str],
    cells: impl Fn(&Device) -> [String; N],
) -> Done {
    if call.format.is_structured() {
        let all: Vec<Value> = found.iter().map(|(id, d)| d.json(id)).collect();
        return now(Reply::json(call.format, &json!(all)));
    }
    let first = [("DEVICE", Align::Left, Align::Left)];
    let others = columns.iter().map(|c| (*c, Align::Left, Align::Left));
    let columns: Vec<_> = first.into_iter().chain(others).collect();
    let mut t = Table::new(&columns);
    for (id, d) in found {
        t.row([id.clone()].into_iter().chain(cells(d)));
    }
    now(Reply::text(t.render()))
}

fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let columns = ["HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"];
    list(call, &devices(m.view), &columns, |d| [d.places(), d.daemons()])
}

fn ls_by_daemon(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let who = call.args.str("who")?;
    let is_daemon = who
        .split_once('.')
        .is_some_and(|(kind, id)| !id.is_empty() && ["mon", "mgr", "osd", "mds", "client"].contains(&kind));
    if !is_daemon {
        return refuse(errno::EINVAL, format!("{who} is not a valid daemon name"));
    }
    let mut found = devices(m.view);
    found.retain(|_, d| d.daemons.contains(&who));
    list(call, &found, &["HOST:DEV", "EXPECTED FAILURE"], |d| [d.places()])
}

fn ls_by_host(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let host = call.args.str("host")?;
    let mut found = devices(m.view);
    found.retain(|_, d| d.places.iter().any(|p| p.host == host));
    let columns = ["DEV", "DAEMONS", "EXPECTED FAILURE"];
    list(call, &found, &columns, |d| [d.names_on(&host), d.daemons()])
}

fn info(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let id = call.args.str("devid")?;
    let all = devices(m.view);
    let Some(d) = all.get(&id) else {
        return refuse(errno::ENOENT, format!("device {id} not found"));
    };
    if call.format.is_structured() {
        return now(Reply::json(call.format, &d.json(&id)));
    }
    let mut text = format!("device {id}\n");
    for Place { host, dev, path } in &d.places {
        text += &format!("attachment {host} {dev} {path}\n\n");
    }
    let daemons: Vec<&str> = d.daemons.iter().map(String::as_str).collect();
    now(Reply::text(format!("{text}{}\n", daemons.join(","))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(host: &str, ids: &str, paths: &str) -> BTreeMap<String, String> {
        let pairs = [("hostname", host), ("device_ids", ids), ("device_paths", paths)];
        pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }

    #[test]
    fn a_disk_is_where_daemons_say_it_is_and_has_all_of_theirs() {
        let mut all = Devices::new();
        add(
            &mut all,
            "osd.0",
            &metadata("h1", "sda=A_1,sdb=B_2", "sda=/dev/disk/by-path/x"),
        );
        add(
            &mut all,
            "mon.a",
            &metadata("h1", "sda=A_1", "sda=/dev/disk/by-path/x"),
        );
        // It was moved to another host meanwhile.
        add(&mut all, "osd.7", &metadata("h2", "sdc=B_2", ""));
        add(&mut all, "osd.8", &metadata("h2", "", ""));
        add(&mut all, "osd.9", &BTreeMap::new());
        assert_eq!(all.keys().collect::<Vec<_>>(), ["A_1", "B_2"]);
        let (a, b) = (&all["A_1"], &all["B_2"]);
        assert_eq!(
            (a.places(), a.daemons()),
            ("h1:sda".to_owned(), "mon.a osd.0".to_owned())
        );
        assert_eq!(
            (b.places(), b.daemons()),
            ("h1:sdb h2:sdc".to_owned(), "osd.0 osd.7".to_owned())
        );
        assert_eq!(
            (b.names_on("h2"), b.names_on("h3")),
            ("sdc".to_owned(), String::new())
        );
        let want = json!({"devid": "A_1", "daemons": ["mon.a", "osd.0"],
            "location": [{"host": "h1", "dev": "sda", "path": "/dev/disk/by-path/x"}]});
        assert_eq!(a.json("A_1"), want);
    }
}
