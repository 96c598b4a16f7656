//! A daemon's log of refused logins: entity, address and reason, at a bounded rate.
//!
//! The peer is not authenticated: its name is only a claim, and it can fail any number of times
//! from all its addresses. Each address gets a line in [`PAUSE`]; refusals without a line are
//! counted in the next one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use spirula_cephx::{AuthName, Error};

/// An address gets at most one line in this time.
const PAUSE: Duration = Duration::from_secs(10);
/// The number of addresses that are told apart; all others share one line.
const ADDRESSES: usize = 1024;
/// Characters of a claimed name that are shown.
const NAME_MAX: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Said {
    at: Instant,
    since: u64,
}

/// Decides which refusals get a line.
#[derive(Debug, Default)]
struct Refusals {
    /// The last lines by address; `None` stands for all addresses without room.
    said: HashMap<Option<IpAddr>, Said>,
}

impl Refusals {
    /// Counts a refusal; if a line is due, returns how many refusals before had none.
    fn note(&mut self, addr: IpAddr, now: Instant) -> Option<u64> {
        let is_due = |s: &Said| now.saturating_duration_since(s.at) >= PAUSE;
        if self.said.len() >= ADDRESSES && !self.said.contains_key(&Some(addr)) {
            // An address that does not come back is not waited for: its count goes to those that
            // share a line.
            let mut unsaid = 0;
            self.said.retain(|who, s| {
                let gone = who.is_some() && is_due(s);
                unsaid += if gone { s.since } else { 0 };
                !gone
            });
            if unsaid > 0 {
                let shared = self.said.entry(None).or_insert(Said { at: now, since: 0 });
                shared.since = shared.since.saturating_add(unsaid);
            }
        }
        let key = match self.said.len() >= ADDRESSES && !self.said.contains_key(&Some(addr)) {
            true => None,
            false => Some(addr),
        };
        match self.said.get_mut(&key) {
            Some(said) if !is_due(said) => {
                said.since += 1;
                None
            }
            said => {
                let since = said.map_or(0, |s| s.since);
                self.said.insert(key, Said { at: now, since: 0 });
                Some(since)
            }
        }
    }
}

/// The refused logins of a daemon. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct RefusalLog(Rc<RefCell<Refusals>>);

impl RefusalLog {
    /// Logs the refused login from `from`, which claims to be `who` if that could be read.
    pub fn refused(&self, from: SocketAddr, who: Option<&AuthName>, why: &Error) {
        let Some(unsaid) = self.0.borrow_mut().note(from.ip(), Instant::now()) else {
            return;
        };
        let who = who.map_or_else(|| "somebody".to_owned(), claimed);
        let unsaid = match unsaid {
            0 => String::new(),
            n => format!(" ({n} more from there were refused since the last such line)"),
        };
        tracing::warn!("authentication refused: {who} from {from}: {why}{unsaid}");
    }
}

/// A claimed name for the log, escaped and cut to fit a line.
fn claimed(name: &AuthName) -> String {
    let text: String = name.to_string().chars().take(NAME_MAX).collect();
    text.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn an_address_has_a_line_now_and_then_and_the_others_are_counted() {
        let (mut refusals, t0) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.note(ip(1), t0), Some(0));
        for _ in 0..5 {
            assert_eq!(refusals.note(ip(1), t0 + PAUSE / 2), None);
        }
        assert_eq!(refusals.note(ip(2), t0), Some(0));
        assert_eq!(refusals.note(ip(1), t0 + PAUSE), Some(5));
        assert_eq!(refusals.note(ip(1), t0 + PAUSE * 2), Some(0));
    }

    #[test]
    fn many_addresses_take_no_more_memory_and_no_more_lines() {
        let (mut refusals, t0) = (Refusals::default(), Instant::now());
        let said = (0..100_000)
            .filter(|n| refusals.note(ip(*n), t0).is_some())
            .count();
        assert_eq!(said, ADDRESSES + 1);
        assert_eq!(refusals.said.len(), ADDRESSES + 1);
        // Those that have been silent make room, also those of which something was not said.
        for n in 0..1000 {
            refusals.note(ip(n), t0);
        }
        assert_eq!(refusals.note(ip(200_000), t0 + PAUSE), Some(0));
        assert!(refusals.said.len() <= 2);
    }

    #[test]
    fn a_claimed_name_stays_within_its_line() {
        let name = AuthName::new(
            spirula_denc::EntityType::CLIENT,
            format!("x\n{}", "y".repeat(1000)),
        );
        let shown = claimed(&name);
        assert!(shown.starts_with("client.x\\ny") && shown.len() < 2 * NAME_MAX);
        assert!(!shown.contains('\n'));
    }
}
