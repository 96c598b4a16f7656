//! Lines that daemons and clients write to the cluster log.

use std::time::Duration;

use spirula_cephx::AuthName;
use spirula_proto::Payload;
use spirula_proto::mon::{LogEntry, LogPriority, MLog, MLogAck, NamedEntity};

use super::{Monitor, SessionId};
use crate::pace::Pace;

/// Lines of one entity that are taken in each [`PERIOD`].
const LINES: u32 = 500;
const PERIOD: Duration = Duration::from_secs(60);
/// Longest name of a channel that is not one of ours, in bytes.
const MAX_CHANNEL: usize = 32;
/// Only monitors write here, as it is about those who would.
const AUDIT: &str = "audit";

/// How lines are taken.
pub(super) fn lines() -> Pace<AuthName> {
    Pace::new(LINES, PERIOD)
}

impl Monitor {
    pub(super) fn client_log(&mut self, id: SessionId, m: MLog) {
        let Some(last) = m.entries.last() else { return };
        let ack = MLogAck {
            fsid: self.view.me.fsid,
            last: last.seq,
            channel: crate::fmt::cut(last.channel.clone(), MAX_CHANNEL),
        };
        if self.may(id, "log", "w") {
            m.entries.into_iter().for_each(|e| self.client_line(id, e));
        }
        self.send(id, ack.to_message());
    }

    /// A line, under the name of whoever the session belongs to.
    fn client_line(&mut self, id: SessionId, e: LogEntry) {
        let Some(s) = self.sender(id) else { return };
        if e.channel == AUDIT || e.channel.len() > MAX_CHANNEL {
            tracing::debug!(
                "{}: a line for channel {}",
                s.name,
                crate::fmt::cut(e.channel, MAX_CHANNEL)
            );
            return;
        }
        if !self.lines.admits(&s.name, self.view.steady.now()) {
            return;
        }
        let name = NamedEntity {
            kind: u32::from(s.name.kind.0),
            id: s.name.id,
        };
        self.view.state.clog.add(LogEntry {
            name,
            rank: s.entity,
            addrs: s.addr.into(),
            ..e
        });
    }

    /// Tells of lines that were not taken.
    pub(super) fn lines_suppressed(&mut self) {
        for (name, count) in self.lines.over(self.view.steady.now()) {
            let text = format!("{count} more lines of {name} within {} s", PERIOD.as_secs());
            self.log_event(LogPriority::WARN, text);
        }
    }
}
