//! Clients that do not read their replies, while others wait for the room that these take.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::shell::Shared;

/// How often they are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// Over which time it is measured how fast a client reads: longer than lost packets are sent again in.
const SPAN: Duration = Duration::from_millis(1500);
/// Bytes a second that a client must read where others wait.
const LEAST_RATE: u64 = 64 << 10;
/// Bytes that may wait for a client anyhow.
const FEW: usize = 64 << 10;

/// What is known of one connection.
#[derive(Debug, Clone, Copy)]
struct Seen {
    since: Instant,
    written: u64,
}

/// How fast clients read that have more than a little to read.
#[derive(Debug, Default)]
struct Readers(BTreeMap<u64, Seen>);

impl Readers {
    /// Looks at all connections: number, bytes that wait, bytes written so far. Returns those that read too slowly.
    fn look(&mut self, now: Instant, connections: impl Iterator<Item = (u64, usize, u64)>) -> Vec<u64> {
        let mut seen = BTreeMap::new();
        let mut slow = Vec::new();
        for (conn, _, written) in connections.filter(|(_, queued, _)| *queued > FEW) {
            let fresh = Seen { since: now, written };
            let before = self.0.get(&conn).copied().unwrap_or(fresh);
            let time = now.duration_since(before.since);
            let is_fast = (written - before.written) as f64 >= time.as_secs_f64() * LEAST_RATE as f64;
            if time >= SPAN && !is_fast {
                slow.push(conn);
            }
            seen.insert(conn, if time >= SPAN && is_fast { fresh } else { before });
        }
        self.0 = seen;
        slow
    }
}

/// Hangs up on clients that read too slowly, for as long as reads of others wait for room or too much waits altogether.
pub(super) async fn watch(shell: Shared) {
    let mut readers = Readers::default();
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tick.tick().await;
        shell.with(|o| {
            let connections = o.sessions.iter().map(|(conn, s)| {
                let sender = &s.sender;
                (*conn, sender.queued_bytes(), sender.written_bytes())
            });
            let slow = readers.look(Instant::now(), connections);
            if o.io.deferred_bytes().is_none() && !shell.guests.is_full() {
                return;
            }
            for session in slow.iter().filter_map(|conn| o.sessions.get(conn)) {
                tracing::info!(
                    "{} does not read its replies, and others wait: hanging up",
                    session.client.name
                );
                session.sender.abort();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_do_not_read_are_slow() {
        let mut readers = Readers::default();
        let start = Instant::now();
        let mut slow = Vec::new();
        for n in 0..8u32 {
            let written = u64::from(n) * 50_000;
            // One reads nothing, one well, one hardly anything, and for one little waits.
            let connections = [
                (1, 1 << 20, 7),
                (2, 1 << 20, written),
                (3, 1 << 20, u64::from(n)),
                (4, FEW, 7),
            ];
            slow = readers.look(start + LOOK * n, connections.into_iter());
            assert!(n >= 3 || slow.is_empty(), "{n}: {slow:?}");
        }
        assert_eq!(slow, [1, 3]);
        assert!(readers.look(start + LOOK * 8, [(1, 0, 7)].into_iter()).is_empty());
        assert!(
            readers
                .look(start + LOOK * 9, [(1, 1 << 20, 7)].into_iter())
                .is_empty()
        );
    }
}
