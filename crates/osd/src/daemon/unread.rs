//! Clients that do not read their replies while others wait for the room that these take.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::shell::Shared;
use super::store_reads;

/// How often such clients are looked for, while others wait.
const LOOK: Duration = Duration::from_millis(100);
/// How long a client may read nothing at all while others wait: longer than it takes to retransmit
/// lost packets, on networks that commonly lose some.
const STILL: Duration = Duration::from_millis(500);
/// The time over which a client's reading rate is measured.
const SPAN: Duration = Duration::from_millis(1500);
/// The bytes a second that a client must read while others wait.
const LEAST_RATE: u64 = 64 << 10;
/// The bytes that may wait for a client in any case.
const FEW: usize = 64 << 10;
/// At most one line in this time is logged about clients that were hung up on.
const PAUSE: Duration = Duration::from_secs(10);

/// Why a client was hung up on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The client read nothing.
    Still,
    /// The client read less than the least rate.
    Slow,
}

/// How often clients were hung up on, by reason.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HungUp {
    still: u64,
    slow: u64,
}

impl HungUp {
    fn count(&mut self, why: Why) {
        match why {
            Why::Still => self.still += 1,
            Why::Slow => self.slow += 1,
        }
    }

    /// The counts for `dump_clients`.
    pub(super) fn to_json(self) -> Value {
        json!({"read_nothing": self.still, "read_slowly": self.slow})
    }
}

/// The observations of one connection.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The time and the bytes from which the rate is measured.
    since: (Instant, u64),
    /// When something was last read, and the bytes then.
    moved: (Instant, u64),
}

/// The reading rates of clients that have more than [`FEW`] bytes to read.
#[derive(Debug, Default)]
struct Readers(BTreeMap<u64, Seen>);

impl Readers {
    /// Checks all connections, each with its number, the bytes that wait and the bytes written so
    /// far. Returns those whose clients read nothing or too slowly.
    fn look(
        &mut self,
        now: Instant,
        connections: impl Iterator<Item = (u64, usize, u64)>,
    ) -> Vec<(u64, Why)> {
        let mut seen = BTreeMap::new();
        let mut found = Vec::new();
        for (conn, _, written) in connections.filter(|(_, queued, _)| *queued > FEW) {
            let fresh = (now, written);
            let mut s = self.0.get(&conn).copied().unwrap_or(Seen {
                since: fresh,
                moved: fresh,
            });
            if s.moved.1 != written {
                s.moved = fresh;
            }
            let time = now.duration_since(s.since.0);
            let is_fast = (written - s.since.1) as f64 >= time.as_secs_f64() * LEAST_RATE as f64;
            if now.duration_since(s.moved.0) >= STILL {
                found.push((conn, Why::Still));
            } else if time >= SPAN && !is_fast {
                found.push((conn, Why::Slow));
            } else if time >= SPAN {
                s.since = fresh;
            }
            seen.insert(conn, s);
        }
        self.0 = seen;
        found
    }
}

/// Logs every now and then how many clients were hung up on.
#[derive(Debug, Default)]
struct Lines {
    said: Option<Instant>,
    unsaid: u64,
}

impl Lines {
    fn say(&mut self, now: Instant, entity: &str, why: Why) {
        if self.said.is_some_and(|at| now.duration_since(at) < PAUSE) {
            self.unsaid += 1;
            return; // The next line counts it.
        }
        let what = match why {
            Why::Still => "reads nothing",
            Why::Slow => "hardly reads anything",
        };
        let more = match std::mem::take(&mut self.unsaid) {
            0 => String::new(),
            n => format!(" ({n} more since the last such line)"),
        };
        tracing::warn!("{entity} {what} of what it asked for, and others wait: hung up{more}");
        self.said = Some(now);
    }
}

/// Hangs up on clients that read too slowly, for as long as reads of others wait for room or too
/// much waits altogether.
pub(super) async fn watch(shell: Shared) {
    let (mut readers, mut lines) = (Readers::default(), Lines::default());
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tick.tick().await;
        shell.with(|o| {
            let starved = o.io.starved();
            if starved.is_none() && !shell.guests.is_full() {
                readers.0.clear();
                return; // Slow readers are in nobody's way.
            }
            let connections = o.clients.sessions.iter().map(|(conn, s)| {
                let sender = &s.sender;
                (*conn, sender.queued_bytes(), sender.written_bytes())
            });
            let now = Instant::now();
            for (conn, why) in readers.look(now, connections) {
                let Some(session) = o.clients.sessions.get(&conn) else {
                    continue;
                };
                // A client that waits for others does not wait for itself.
                if starved == Some(store_reads::party(&session.client)) || session.sender.is_closed() {
                    continue;
                }
                o.clients.hung_up.count(why);
                lines.say(now, &session.client.entity, why);
                session.sender.abort();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_do_not_read_are_found() {
        let mut readers = Readers::default();
        let start = Instant::now();
        let mut slow = Vec::new();
        for n in 0..18u32 {
            let written = u64::from(n) * 10_000;
            // One reads nothing, one well, one hardly anything, and for one little waits.
            let connections = [
                (1, 1 << 20, 7),
                (2, 1 << 20, written),
                (3, 1 << 20, u64::from(n)),
                (4, FEW, 7),
            ];
            slow = readers.look(start + LOOK * n, connections.into_iter());
            let expected = match n {
                0..5 => 0,
                5..15 => 1,
                _ => 2,
            };
            assert_eq!(slow.len(), expected, "{n}: {slow:?}");
        }
        assert_eq!(slow, [(1, Why::Still), (3, Why::Slow)]);
        assert!(
            readers
                .look(start + LOOK * 18, [(1, 0, 7)].into_iter())
                .is_empty()
        );
        assert!(
            readers
                .look(start + LOOK * 19, [(1, 1 << 20, 7)].into_iter())
                .is_empty()
        );
    }
}
