//! Subscriptions: who is sent which map.

use std::time::Duration;

use spirula_proto::Payload;
use spirula_proto::mon::MConfig;

use super::{Monitor, SessionId, Topic};
use crate::service::Published;

/// How long a client that has asked once for the next OSDMap hears of those that follow. It asks when OSDs no longer answer it, and
/// the first map may not say yet what became of them; where none is left that would send it another, it would ask again only
/// after ten seconds.
const FOLLOWED_FOR: Duration = Duration::from_secs(10);

impl Monitor {
    /// Serves one subscription as far as there is something new.
    pub(super) fn push(&mut self, id: SessionId, topic: &Topic) {
        let now = self.view.steady.now();
        let Some(session) = self.view.sessions.get_mut(&id) else {
            return;
        };
        let Some(sub) = session.subs.get(topic).copied() else {
            return;
        };
        if sub.ends.is_some_and(|end| end <= now) {
            session.subs.remove(topic);
            return;
        }
        let next = match topic {
            Topic::Config => {
                self.push_config(id);
                1
            }
            _ => {
                let Some(Published { messages, next }) = self.view.state.publish(topic, sub.next) else {
                    return;
                };
                messages.into_iter().for_each(|m| self.send(id, m));
                next
            }
        };
        let Some(session) = self.view.sessions.get_mut(&id) else {
            return;
        };
        if sub.onetime && *topic != Topic::OsdMap {
            session.subs.remove(topic);
        } else if let Some(s) = session.subs.get_mut(topic) {
            s.next = next;
            s.ends = sub.onetime.then(|| sub.ends.unwrap_or(now + FOLLOWED_FOR));
        }
    }

    pub(crate) fn push_config(&mut self, session: SessionId) {
        let Some(s) = self.view.sessions.get(&session) else {
            return;
        };
        let class = s
            .osd()
            .and_then(|o| self.view.state.osd.map.crush.map().class_of(o))
            .unwrap_or_default();
        let config = self
            .view
            .state
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
        if let Some(s) = self.view.sessions.get_mut(&session) {
            s.config = Some(config);
        }
    }

    pub(super) fn push_config_all(&mut self) {
        let subscribed: Vec<_> = self
            .view
            .sessions
            .iter()
            .filter(|(_, s)| s.subs.contains_key(&Topic::Config))
            .map(|(id, _)| *id)
            .collect();
        for id in subscribed {
            self.push_config(id);
        }
    }

    /// Serves every subscription.
    pub(super) fn push_all(&mut self) {
        let sessions: Vec<SessionId> = self.view.sessions.keys().copied().collect();
        for id in sessions {
            let subs = self.view.sessions.get(&id).map(|s| s.subs.keys());
            let topics: Vec<Topic> = subs.into_iter().flatten().cloned().collect();
            for topic in topics.iter().filter(|t| **t != Topic::Config) {
                self.push(id, topic);
            }
        }
    }
}
