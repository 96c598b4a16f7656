//! Subscriptions: who is sent which map.

use std::time::Duration;

use spirula_proto::mgr::{MMgrMap, MServiceMap};
use spirula_proto::mon::{FsMapUser, MConfig, MFsMap, MFsMapUser, MLog, MMonMap, PaxosVersion};
use spirula_proto::{Blob, Payload};

use super::{Monitor, SessionId, Sub};
use crate::service::FSMAP_EPOCH;

/// How long a client that has asked once for the next OSDMap hears of those that follow. It asks when OSDs no longer answer it, and
/// the first map may not say yet what became of them; where none is left that would send it another, it would ask again only
/// after ten seconds.
const FOLLOWED_FOR: Duration = Duration::from_secs(10);
/// Epochs in one MOSDMap.
const MAPS_PER_MESSAGE: u32 = 40;

impl Monitor {
    /// Serves one subscription as far as there is something new.
    pub(super) fn push(&mut self, session: SessionId, what: &str) {
        let Some(sub) = self
            .sessions
            .get(&session)
            .and_then(|s| s.subs.get(what))
            .copied()
        else {
            return;
        };
        let now = self.steady.now();
        if sub.ends.is_some_and(|end| end <= now) {
            if let Some(s) = self.sessions.get_mut(&session) {
                s.subs.remove(what);
            }
            return;
        }
        let next = match what {
            "osdmap" => self.push_osdmap(session, sub),
            "monmap" => {
                let epoch = u64::from(self.monmap.map.epoch);
                self.push_if(session, sub, epoch, |m| {
                    MMonMap {
                        monmap: Blob::of(&m.monmap.map),
                    }
                    .to_message()
                })
            }
            "mgrmap" => {
                let epoch = u64::from(self.manager.map.epoch);
                self.push_if(session, sub, epoch, |m| {
                    let map = m.manager.map.clone();
                    MMgrMap { map }.to_message()
                })
            }
            "servicemap" => {
                let epoch = u64::from(self.manager.services.map.epoch);
                self.push_if(session, sub, epoch, |m| {
                    let map = m.manager.services.map.clone();
                    MServiceMap { map }.to_message()
                })
            }
            "fsmap" => self.push_if(session, sub, u64::from(FSMAP_EPOCH), |_| {
                MFsMap::empty(FSMAP_EPOCH).to_message()
            }),
            "fsmap.user" => self.push_if(session, sub, u64::from(FSMAP_EPOCH), |_| {
                let fsmap = FsMapUser {
                    epoch: FSMAP_EPOCH,
                    legacy_client_fscid: -1,
                    ..FsMapUser::default()
                };
                MFsMapUser {
                    epoch: FSMAP_EPOCH,
                    fsmap,
                }
                .to_message()
            }),
            "config" => {
                self.push_config(session);
                Some(1)
            }
            log if log.starts_with("log-") => self.push_log(session, log, sub),
            // Maps of services that do not exist here never change.
            _ => None,
        };
        let Some(next) = next else { return };
        if let Some(subs) = self.sessions.get_mut(&session).map(|s| &mut s.subs) {
            if sub.onetime && what != "osdmap" {
                subs.remove(what);
            } else if let Some(s) = subs.get_mut(what) {
                s.next = next;
                s.ends = sub.onetime.then(|| sub.ends.unwrap_or(now + FOLLOWED_FOR));
            }
        }
    }

    fn push_if(
        &mut self,
        session: SessionId,
        sub: Sub,
        version: u64,
        make: impl FnOnce(&Self) -> spirula_proto::RawMessage,
    ) -> Option<u64> {
        if sub.next > version {
            return None;
        }
        let msg = make(self);
        self.send(session, msg);
        Some(version + 1)
    }

    fn push_osdmap(&mut self, session: SessionId, sub: Sub) -> Option<u64> {
        let epoch = self.osd.map.epoch;
        if sub.next > u64::from(epoch) {
            return None;
        }
        let mut first = u32::try_from(sub.next).unwrap_or(0);
        if first == 0 {
            let msg = self.osd.full_message(epoch)?;
            self.send(session, msg);
        } else {
            while first <= epoch {
                let last = epoch.min(first.saturating_add(MAPS_PER_MESSAGE - 1));
                let Some((msg, sent)) = self.osd.range_message(first, last) else {
                    tracing::error!("osdmaps {first} to {last} cannot be read");
                    return None;
                };
                self.send(session, msg);
                first = sent + 1;
            }
        }
        Some(u64::from(epoch) + 1)
    }

    pub(crate) fn push_config(&mut self, session: SessionId) {
        let Some(s) = self.sessions.get(&session) else {
            return;
        };
        let class = s
            .osd()
            .and_then(|o| self.osd.map.crush.map().class_of(o))
            .unwrap_or_default();
        let config = self
            .config
            .for_daemon(s.name.kind.name(), &s.name.id, &s.host, class);
        if s.config.as_ref() == Some(&config) {
            return;
        }
        self.send(
            session,
            MConfig {
                config: config.clone(),
            }
            .to_message(),
        );
        if let Some(s) = self.sessions.get_mut(&session) {
            s.config = Some(config);
        }
    }

    pub(super) fn push_config_all(&mut self) {
        let subscribed: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.subs.contains_key("config"))
            .map(|(id, _)| *id)
            .collect();
        for id in subscribed {
            self.push_config(id);
        }
    }

    fn push_log(&mut self, session: SessionId, what: &str, sub: Sub) -> Option<u64> {
        let last = self.clog.version();
        if sub.next > last && sub.next != 0 {
            return None;
        }
        // From the start means from now on, as for `ceph -w`.
        let from = if sub.next == 0 { last + 1 } else { sub.next };
        let entries = self.clog.since(from, what.trim_start_matches("log-"));
        if !entries.is_empty() {
            let log = MLog {
                paxos: PaxosVersion(last),
                fsid: self.me.fsid,
                entries,
            };
            self.send(session, log.to_message());
        }
        Some(last + 1)
    }

    /// Serves every subscription.
    pub(super) fn push_all(&mut self) {
        let all: Vec<(SessionId, String)> = self
            .sessions
            .iter()
            .flat_map(|(id, s)| s.subs.keys().filter(|k| *k != "config").map(|k| (*id, k.clone())))
            .collect();
        for (id, what) in all {
            self.push(id, &what);
        }
    }
}
