//! Lines that daemons and clients write to the cluster log.

use std::time::Duration;

use spirula_cephx::AuthName;
use spirula_proto::mon::{LogEntry, LogPriority, MLog, MLogAck};

use super::{Sender, SessionId, View};
use crate::pace::Pace;

/// Lines of one entity that are accepted in each [`PERIOD`].
const LINES: u32 = 500;
const PERIOD: Duration = Duration::from_secs(60);
/// Longest name of a channel that is not one of ours, in bytes.
const MAX_CHANNEL: usize = 32;
/// The channel that only monitors write to: it is about the senders of such lines.
const AUDIT: &str = "audit";

/// The lines that daemons and clients write to the cluster log.
pub(super) struct ClientLog {
    /// The limit of lines of each entity.
    lines: Pace<AuthName>,
}

impl Default for ClientLog {
    fn default() -> Self {
        Self {
            lines: Pace::new(LINES, PERIOD),
        }
    }
}

impl ClientLog {
    /// Handles a session's lines. Acknowledged lines need not have been accepted; `None` if there
    /// are no lines.
    pub(super) fn take(&mut self, view: &mut View, id: SessionId, m: MLog) -> Option<MLogAck> {
        let last = m.entries.last()?;
        let ack = MLogAck {
            fsid: view.me.fsid,
            last: last.seq,
            channel: spirula_text::cut(last.channel.clone(), MAX_CHANNEL),
        };
        if view.may(id, "log", "w")
            && let Some(sender) = view.sender(id)
        {
            m.entries
                .into_iter()
                .for_each(|e| self.take_line(view, &sender, e));
        }
        Some(ack)
    }

    /// Adds a line, under the name of the session's entity.
    fn take_line(&mut self, view: &mut View, s: &Sender, e: LogEntry) {
        if e.channel == AUDIT || e.channel.len() > MAX_CHANNEL {
            tracing::debug!(
                "{}: a line for channel {}",
                s.name,
                spirula_text::cut(e.channel, MAX_CHANNEL)
            );
            return; // It is acknowledged all the same.
        }
        if !self.lines.admits(&s.name, view.steady.now()) {
            return; // It is counted, and told of later.
        }
        view.state.clog.add(LogEntry {
            name: s.named(),
            rank: s.entity,
            addrs: s.addr.into(),
            ..e
        });
    }

    /// Logs how many lines were not accepted.
    pub(super) fn tell_suppressed(&mut self, view: &mut View) {
        for (name, count) in self.lines.over(view.steady.now()) {
            let text = format!("{count} more lines of {name} within {} s", PERIOD.as_secs());
            view.log_event(LogPriority::WARN, text);
        }
    }
}
