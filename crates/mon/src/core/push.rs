//! Subscriptions: sending maps to the sessions that want them.

use std::time::Duration;

use spirula_invariant::{impossible, invariant};
use spirula_proto::mon::MConfig;
use spirula_proto::{Payload, RawMessage};

use super::{Monitor, Session, SessionId, Topic, View};
use crate::service::Published;

/// How long a client that has asked once for the next OSDMap is sent the following ones. It asks
/// when OSDs no longer answer it, and the first map may not show their fate yet; if no OSD is left
/// that would send it another map, it would ask again only after ten seconds.
const FOLLOWED_FOR: Duration = Duration::from_secs(10);

impl View {
    /// The messages that a subscription is due, if there is something new.
    fn due(&mut self, id: SessionId, topic: &Topic) -> Vec<RawMessage> {
        let now = self.steady.now();
        let Some(session) = self.sessions.get_mut(&id) else {
            impossible!("a session that has subscribed"; session = id);
        };
        // Another one in the same message may have taken its place.
        let Some(sub) = session.subs.get(topic).copied() else {
            return Vec::new();
        };
        if sub.ends.is_some_and(|end| end <= now) {
            session.subs.remove(topic);
            return Vec::new();
        }
        let Published { messages, next } = match topic {
            Topic::Config => Published {
                messages: self.new_config(id).into_iter().collect(),
                next: 1,
            },
            _ => match self.state.publish(topic, sub.next) {
                Some(published) => published,
                None => return Vec::new(),
            },
        };
        // Else it would be sent the same maps without end.
        invariant!(
            *topic != Topic::OsdMap || next > sub.next && !messages.is_empty(),
            "a subscription that gets on";
            session = id,
            wanted = sub.next,
            next = next,
        );
        if let Some(session) = self.sessions.get_mut(&id) {
            if sub.onetime && *topic != Topic::OsdMap {
                session.subs.remove(topic);
            } else if let Some(s) = session.subs.get_mut(topic) {
                s.next = next;
                s.ends = sub.onetime.then(|| sub.ends.unwrap_or(now + FOLLOWED_FOR));
            }
        }
        messages
    }

    /// The configuration of a session's owner, if it differs from the one that it was last sent.
    fn new_config(&mut self, id: SessionId) -> Option<RawMessage> {
        let s = self.sessions.get_mut(&id)?;
        let class = s
            .osd()
            .and_then(|o| self.state.osd.map.crush.map().class_of(o.item()))
            .unwrap_or_default();
        let config = self
            .state
            .config
            .for_daemon(s.name.kind.name(), &s.name.id, &s.host, class);
        if s.config.as_ref() == Some(&config) {
            return None;
        }
        s.config = Some(config.clone());
        Some(MConfig { config }.to_message())
    }
}

impl Monitor {
    /// Serves one subscription, if there is something new.
    pub(super) fn push(&mut self, id: SessionId, topic: &Topic) {
        for message in self.view.due(id, topic) {
            self.send(id, message);
        }
    }

    /// Sends the configuration to all subscribers whose configuration has changed.
    pub(super) fn push_config_all(&mut self) {
        let sessions: Vec<SessionId> = self.view.sessions.keys().copied().collect();
        for id in sessions {
            let wants = |s: &Session| s.subs.contains_key(&Topic::Config);
            if self.view.sessions.get(&id).is_some_and(wants)
                && let Some(message) = self.view.new_config(id)
            {
                self.send(id, message);
            }
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
