//! Services that have registered themselves with the manager, such as gateways and mirrors
//! (`ServiceMap` of Ceph's `src/mgr/ServiceMap.h`).
//!
//! The map is committed, so that every monitor shows it and the next manager goes on with it. The
//! daemons' reports in between are known to the manager only. A daemon that has not reported for
//! `mgr_service_beacon_grace` is removed; when it reports again its session ends, upon which it
//! registers anew.

use std::collections::BTreeMap;
use std::time::Duration;

use spirula_cephx::AuthName;
use spirula_denc::{EntityAddr, UTime};
use spirula_maps::Epoch;
use spirula_proto::mgr::{MMgrReport, Service, ServiceDaemon, ServiceMap, ServiceRegistration};
use spirula_text::cut;

/// The most daemons in the map.
const MOST: usize = 1000;
/// Longest name of a service or a daemon, in bytes.
const MAX_NAME: usize = 256;
/// The most bytes of a daemon's metadata, and of its status and its tasks.
const MAX_SAID: usize = 16 << 10;
/// The most bytes that all daemons in the map have together.
const MAX_MAP: usize = 4 << 20;
/// Kinds of daemons that can't register as services.
const NO_SERVICES: [&str; 5] = ["osd", "client", "mon", "mds", "mgr"];

/// A daemon of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) service: String,
    pub(crate) daemon: String,
}

impl Key {
    pub(crate) fn new(service: &str, daemon: &str) -> Self {
        Self {
            service: service.to_owned(),
            daemon: daemon.to_owned(),
        }
    }
}

/// The manager's last information on a daemon.
#[derive(Debug)]
pub(crate) struct Report {
    /// The entity that registered it, if it did so with this manager.
    owner: Option<AuthName>,
    heard: Duration,
    /// The time of the last report, by the wall clock.
    pub(crate) beacon: UTime,
    /// The daemon's status.
    pub(crate) status: BTreeMap<String, String>,
    /// When the status changed; zero if it is the first one.
    pub(crate) status_stamp: UTime,
}

impl Report {
    fn new(status: BTreeMap<String, String>, now: Now) -> Self {
        Self {
            owner: None,
            heard: now.steady,
            beacon: now.wall,
            status,
            status_stamp: UTime::ZERO,
        }
    }
}

/// The client of a session with the manager.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client<'a> {
    pub(crate) name: &'a AuthName,
    pub(crate) gid: u64,
    pub(crate) addr: EntityAddr,
}

/// The bytes that pairs of texts take.
fn size(pairs: &BTreeMap<String, String>) -> usize {
    pairs.iter().map(|(k, v)| k.len() + v.len()).sum()
}

/// The time by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// The time since the monitor was started.
    pub(crate) steady: Duration,
    /// The time of day.
    pub(crate) wall: UTime,
}

/// The services.
#[derive(Debug)]
pub(crate) struct Services {
    /// The committed map.
    pub(crate) map: ServiceMap,
    /// The next map, if it changes.
    next: Option<BTreeMap<String, Service>>,
    reports: BTreeMap<Key, Report>,
}

impl Services {
    pub(crate) fn new() -> Self {
        let map = ServiceMap {
            epoch: Epoch::new(1),
            ..ServiceMap::default()
        };
        Self {
            map,
            next: None,
            reports: BTreeMap::new(),
        }
    }

    /// Begins as another manager, which has no reports yet.
    pub(crate) fn restart(&mut self) {
        self.next = None;
        self.reports.clear();
    }

    /// The information on a daemon of the map.
    pub(crate) fn report_of(&self, service: &str, daemon: &str) -> Option<&Report> {
        self.reports.get(&Key::new(service, daemon))
    }

    fn all(&self) -> &BTreeMap<String, Service> {
        self.next.as_ref().unwrap_or(&self.map.services)
    }

    fn daemon(&self, key: &Key) -> Option<&ServiceDaemon> {
        self.all().get(&key.service)?.daemons.get(&key.daemon)
    }

    fn change(&mut self) -> &mut BTreeMap<String, Service> {
        self.next.get_or_insert_with(|| self.map.services.clone())
    }

    /// Why a daemon may not register; `None` if it may.
    fn refusal(&self, key: &Key, what: &ServiceRegistration, who: &AuthName) -> Option<&'static str> {
        let all = || {
            self.all()
                .iter()
                .flat_map(|(s, service)| service.daemons.iter().map(move |d| (s, d)))
        };
        let bytes = |(s, (name, d)): (&String, (&String, &ServiceDaemon))| {
            s.len() + name.len() + size(&d.metadata) + size(&d.task_status)
        };
        let owner = self.reports.get(key).and_then(|r| r.owner.as_ref());
        if key.service.is_empty() || NO_SERVICES.contains(&key.service.as_str()) {
            Some("that is no service")
        } else if key.service.len() > MAX_NAME || key.daemon.len() > MAX_NAME {
            Some("its name is too long")
        } else if size(&what.metadata) > MAX_SAID || size(&what.status) > MAX_SAID {
            Some("it says too much of itself")
        } else if owner.is_some_and(|o| o != who) {
            Some("the daemon of this name has another key")
        } else if self.daemon(key).is_none()
            && (all().count() >= MOST || all().map(bytes).sum::<usize>() + size(&what.metadata) > MAX_MAP)
        {
            Some("there are too many")
        } else {
            None
        }
    }

    /// Registers a daemon, on the session of this client.
    pub(crate) fn register(&mut self, key: Key, what: ServiceRegistration, client: Client<'_>, now: Now) {
        if let Some(why) = self.refusal(&key, &what, client.name) {
            let (service, name) = (cut(key.service, MAX_NAME), cut(key.daemon, MAX_NAME));
            tracing::warn!(
                "{}: {service}.{name} can't register as a service: {why}",
                client.name
            );
            return;
        }
        let (gid, addr) = (client.gid, client.addr);
        let known = self.daemon(&key).map(|d| d.gid);
        let report = Report {
            owner: Some(client.name.clone()),
            ..Report::new(what.status, now)
        };
        self.reports.insert(key.clone(), report);
        if known == Some(gid) {
            return;
        }
        let daemon = ServiceDaemon {
            gid,
            addr,
            start_epoch: self.map.epoch.next(),
            start_stamp: now.wall,
            metadata: what.metadata,
            task_status: BTreeMap::new(),
        };
        let service = self.change().entry(key.service).or_default();
        service.daemons.insert(key.daemon, daemon);
    }

    /// Handles a daemon's report, on the session of this client; returns false if that has not
    /// registered it.
    ///
    /// # Errors
    /// Where the report is malformed.
    pub(crate) fn report(&mut self, report: MMgrReport, gid: u64, now: Now) -> spirula_proto::Result<bool> {
        let tasks = report.task_status()?;
        let key = Key {
            service: report.service_name,
            daemon: report.daemon_name,
        };
        let Some(known) = self.daemon(&key).filter(|d| d.gid == gid) else {
            return Ok(false);
        };
        let said = [&report.daemon_status, &tasks].into_iter().flatten();
        if said.map(size).any(|bytes| bytes > MAX_SAID) {
            tracing::warn!("{}.{} says too much of itself", key.service, key.daemon);
            return Ok(true);
        }
        let news = tasks.filter(|t| *t != known.task_status);
        let heard = self
            .reports
            .entry(key.clone())
            .or_insert_with(|| Report::new(BTreeMap::new(), now));
        (heard.heard, heard.beacon) = (now.steady, now.wall);
        if let Some(status) = report.daemon_status {
            (heard.status, heard.status_stamp) = (status, now.wall);
        }
        if let Some(tasks) = news
            && let Some(service) = self.change().get_mut(&key.service)
            && let Some(daemon) = service.daemons.get_mut(&key.daemon)
        {
            daemon.task_status = tasks;
        }
        Ok(true)
    }

    /// Removes a daemon that ends, on the session of this client.
    pub(crate) fn end(&mut self, key: &Key, gid: u64) {
        if self.daemon(key).is_some_and(|d| d.gid == gid) {
            self.close(key);
        }
    }

    fn close(&mut self, key: &Key) {
        self.reports.remove(key);
        let services = self.change();
        if let Some(service) = services.get_mut(&key.service) {
            service.daemons.remove(&key.daemon);
            if service.daemons.is_empty() {
                services.remove(&key.service);
            }
        }
    }

    /// Removes the daemons that have been silent for longer than `grace`. Returns the map to be
    /// committed, if it changes.
    pub(crate) fn review(&mut self, grace: Duration, now: Now) -> Option<ServiceMap> {
        let keys: Vec<Key> = self
            .all()
            .iter()
            .flat_map(|(s, service)| service.daemons.keys().map(|d| Key::new(s, d)))
            .collect();
        for key in keys {
            // A manager that has just begun takes them all for alive.
            let report = self.reports.entry(key.clone());
            let heard = report.or_insert_with(|| Report::new(BTreeMap::new(), now)).heard;
            if now.steady.saturating_sub(heard) > grace {
                tracing::info!(
                    "{}.{} has not reported and is no service any more",
                    key.service,
                    key.daemon
                );
                self.close(&key);
            }
        }
        let services = self.next.take().filter(|next| *next != self.map.services)?;
        self.next = Some(services.clone());
        Some(ServiceMap {
            epoch: self.map.epoch.next(),
            modified: now.wall,
            services,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u32) -> Now {
        Now {
            steady: Duration::from_secs(secs.into()),
            wall: UTime::from_secs(1000 + secs),
        }
    }

    fn key(daemon: &str) -> Key {
        Key::new("rgw", daemon)
    }

    fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn open(s: &mut Services, name: &str, gid: u64, now: Now) {
        let what = ServiceRegistration {
            metadata: pairs(&[("hostname", name)]),
            status: pairs(&[("state", "new")]),
        };
        register(s, key(name), what, gid, now);
    }

    fn register(s: &mut Services, key: Key, what: ServiceRegistration, gid: u64, now: Now) {
        let name = "client.rgw".parse().unwrap();
        let client = Client {
            name: &name,
            gid,
            addr: EntityAddr::default(),
        };
        s.register(key, what, client, now);
    }

    fn report(s: &mut Services, name: &str, gid: u64, now: Now) -> bool {
        let report = MMgrReport {
            daemon_name: name.to_owned(),
            service_name: "rgw".to_owned(),
            daemon_status: Some(pairs(&[("state", "old")])),
            perf_reports: MMgrReport::NO_PERF_REPORTS,
            ..MMgrReport::default()
        };
        s.report(report, gid, now).unwrap()
    }

    const GRACE: Duration = Duration::from_secs(60);

    /// The names of the daemons after a review whose map is committed.
    fn reviewed(s: &mut Services, now: Now) -> Vec<String> {
        if let Some(map) = s.review(GRACE, now) {
            assert_eq!(map.epoch, s.map.epoch.next());
            s.map = map;
            assert_eq!(s.review(GRACE, now), None, "nothing changes twice");
        }
        let daemons = s.map.services.values().flat_map(|s| s.daemons.keys().cloned());
        daemons.collect()
    }

    #[test]
    fn daemons_come_report_and_go() {
        let mut s = Services::new();
        open(&mut s, "a", 1, at(0));
        open(&mut s, "b", 2, at(10));
        assert_eq!(reviewed(&mut s, at(11)), ["a", "b"]);
        assert_eq!(s.map.services["rgw"].daemons["b"].gid, 2);
        assert!(report(&mut s, "a", 1, at(30)));
        let heard = s.report_of("rgw", "a").unwrap();
        assert_eq!((heard.beacon, heard.status_stamp), (at(30).wall, at(30).wall));
        assert_eq!(heard.status, pairs(&[("state", "old")]));
        // `b` was silent for too long, and is not known when it reports again.
        assert_eq!(reviewed(&mut s, at(70)), ["a", "b"]);
        assert_eq!(reviewed(&mut s, at(71)), ["a"]);
        assert!(!report(&mut s, "b", 2, at(72)));
        open(&mut s, "b", 3, at(73));
        assert_eq!(reviewed(&mut s, at(73)), ["a", "b"]);
        // Another process under the same name takes its place.
        open(&mut s, "b", 4, at(73));
        reviewed(&mut s, at(73));
        let b = &s.map.services["rgw"].daemons["b"];
        assert_eq!((b.gid, b.start_epoch), (4, s.map.epoch));
        // Only the client that has registered a daemon ends it, and reports for it.
        s.end(&key("b"), 3);
        assert!(!report(&mut s, "b", 3, at(73)));
        assert_eq!(reviewed(&mut s, at(73)), ["a", "b"]);
        s.end(&key("b"), 4);
        s.end(&key("a"), 1);
        assert!(reviewed(&mut s, at(74)).is_empty() && s.map.services.is_empty());
    }

    #[test]
    fn the_next_manager_takes_all_for_alive_at_first() {
        let mut s = Services::new();
        open(&mut s, "a", 1, at(0));
        open(&mut s, "b", 2, at(0));
        reviewed(&mut s, at(1));
        open(&mut s, "c", 3, at(100));
        s.restart();
        assert_eq!(reviewed(&mut s, at(200)), ["a", "b"]);
        assert!(report(&mut s, "a", 1, at(210)));
        assert_eq!(reviewed(&mut s, at(260)), ["a", "b"]);
        assert_eq!(reviewed(&mut s, at(261)), ["a"]);
    }

    #[test]
    fn not_everybody_can_register() {
        let mut s = Services::new();
        for service in NO_SERVICES.into_iter().chain([""]) {
            let key = Key::new(service, "x");
            register(&mut s, key, Default::default(), 1, at(0));
        }
        let large = |bytes: usize| ServiceRegistration {
            metadata: pairs(&[("x", &"x".repeat(bytes))]),
            ..Default::default()
        };
        register(&mut s, key("x"), large(MAX_SAID), 1, at(0));
        register(&mut s, key(&"x".repeat(300)), large(1), 1, at(0));
        assert!(reviewed(&mut s, at(0)).is_empty());
        (0..1000).for_each(|n| register(&mut s, key(&n.to_string()), large(16_000), n, at(0)));
        let many = reviewed(&mut s, at(0)).len();
        assert!(many * 16_000 <= MAX_MAP && many > 200, "{many}");
        // Another entity does not take a daemon's place.
        let other = "client.other".parse().unwrap();
        let client = Client {
            name: &other,
            gid: 7,
            addr: EntityAddr::default(),
        };
        s.register(key("0"), large(1), client, at(0));
        reviewed(&mut s, at(0));
        assert_eq!(s.map.services["rgw"].daemons["0"].gid, 0);
        let mut s = Services::new();
        for n in 0..=MOST {
            open(&mut s, &n.to_string(), n as u64, at(0));
        }
        assert_eq!(reviewed(&mut s, at(0)).len(), MOST);
    }
}
