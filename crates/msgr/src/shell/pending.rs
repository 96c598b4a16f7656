//! Handshakes under way, and the choice of the one that ends if there are too many.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use spirula_invariant::impossible;
use spirula_random::Rng;
use tokio::sync::Notify;

/// How long a source from which a peer has authenticated is preferred.
const PREFERRED: Duration = Duration::from_secs(3600);
/// The most preferred sources that are remembered.
const PREFERRED_MAX: usize = 4096;
/// A preferred source may have this many times as many handshakes under way as another source
/// before one of its own is ended.
const PREFERENCE: usize = 4;

/// The source of a connection, by which shares are counted: an IPv4 address, or an IPv6 network of
/// 64 bits, as a single host may have all addresses of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Source(IpAddr);

impl Source {
    pub(super) fn of(ip: IpAddr) -> Self {
        Self(match ip.to_canonical() {
            IpAddr::V6(v6) => {
                let s = v6.segments();
                IpAddr::V6(Ipv6Addr::new(s[0], s[1], s[2], s[3], 0, 0, 0, 0))
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

struct Entry {
    source: Source,
    /// The stage of the handshake.
    stage: Rc<Cell<u8>>,
    evicted: Rc<Notify>,
}

/// Handshakes under way. The one that is displaced is of the source that has most of them, and
/// among those one at the earliest stage: so a flood displaces itself, first the connections that
/// do not even speak the protocol. Among equals one is chosen at random: the oldest would be that
/// of the client with the slowest network.
pub(super) struct Pending {
    entries: Vec<Entry>,
    proven: HashMap<Source, Instant>,
    rng: Rng,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            proven: HashMap::new(),
            // Nobody gains by knowing which one is chosen.
            rng: Rng::new(0),
        }
    }
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a handshake, and displaces another if there are more than `most`.
    pub(super) fn enter(&mut self, most: usize, source: Source, stage: Rc<Cell<u8>>, evicted: Rc<Notify>) {
        while self.entries.len() >= most {
            let Some(at) = self.victim() else {
                impossible!("a handshake to give way"; most = most, pending = self.entries.len())
            };
            self.entries.swap_remove(at).evicted.notify_one();
        }
        self.entries.push(Entry {
            source,
            stage,
            evicted,
        });
    }

    /// Removes a handshake that has ended.
    pub(super) fn leave(&mut self, evicted: &Rc<Notify>) {
        self.entries.retain(|e| !Rc::ptr_eq(&e.evicted, evicted));
    }

    /// Notes that a peer has authenticated from this source.
    pub(super) fn proved(&mut self, source: Source) {
        if self.proven.len() >= PREFERRED_MAX && !self.proven.contains_key(&source) {
            self.proven.retain(|_, at| at.elapsed() < PREFERRED);
            if self.proven.len() >= PREFERRED_MAX {
                return; // As many sources as are remembered have come lately.
            }
        }
        self.proven.insert(source, Instant::now());
    }

    fn victim(&mut self) -> Option<usize> {
        let mut by_source: HashMap<Source, usize> = HashMap::new();
        for entry in &self.entries {
            *by_source.entry(entry.source).or_default() += 1;
        }
        let is_preferred = |s: &Source| self.proven.get(s).is_some_and(|at| at.elapsed() < PREFERRED);
        let weight = |(s, n): &(&Source, &usize)| match is_preferred(s) {
            true => **n,
            false => **n * PREFERENCE,
        };
        let heaviest = by_source.iter().map(|s| weight(&s)).max()?;
        let gives_way = |s: &Source| by_source.get_key_value(s).is_some_and(|s| weight(&s) == heaviest);
        let of_it: Vec<(usize, u8)> = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, e)| gives_way(&e.source))
            .map(|(at, e)| (at, e.stage.get()))
            .collect();
        let least = of_it.iter().map(|(_, stage)| *stage).min()?;
        let equal: Vec<usize> = of_it
            .iter()
            .filter(|(_, s)| *s == least)
            .map(|(at, _)| *at)
            .collect();
        self.rng.pick(&equal).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Handle = (Rc<Cell<u8>>, Rc<Notify>);

    fn enter(p: &mut Pending, from: &str, stage: u8) -> Handle {
        let handle = (Rc::new(Cell::new(stage)), Rc::new(Notify::new()));
        p.enter(
            8,
            Source::of(from.parse().unwrap()),
            Rc::clone(&handle.0),
            Rc::clone(&handle.1),
        );
        handle
    }

    fn is_in(p: &Pending, handle: &Handle) -> bool {
        p.entries.iter().any(|e| Rc::ptr_eq(&e.evicted, &handle.1))
    }

    #[test]
    fn a_flood_displaces_itself() {
        let mut p = Pending::default();
        let others = ["10.0.0.1", "10.0.0.2", "2001:db8:0:1::7"].map(|from| enter(&mut p, from, 0));
        for n in 0..1000 {
            // An IPv6 host has a whole network to come from.
            enter(&mut p, if n % 2 == 0 { "10.0.0.3" } else { "10.0.0.4" }, 3);
            enter(&mut p, &format!("2001:db8:0:2::{n:x}"), 3);
        }
        assert_eq!(p.len(), 8);
        assert!(others.iter().all(|o| is_in(&p, o)));
        p.leave(&others[0].1);
        assert_eq!(p.len(), 7);
    }

    #[test]
    fn whoever_speaks_the_protocol_stays_longer_than_neighbours_that_do_not() {
        let mut p = Pending::default();
        let honest = enter(&mut p, "10.0.0.1", 0);
        honest.0.set(1);
        for _ in 0..1000 {
            enter(&mut p, "10.0.0.1", 0);
        }
        assert!(is_in(&p, &honest));
    }

    #[test]
    fn known_sources_are_preferred_to_many_strangers() {
        let mut p = Pending::default();
        p.proved(Source::of("10.0.0.1".parse().unwrap()));
        let known = [0, 0, 0].map(|_| enter(&mut p, "10.0.0.1", 0));
        for n in 0..1000 {
            enter(&mut p, &format!("10.1.{}.{}", n / 250, n % 250), 3);
        }
        assert!(known.iter().all(|k| is_in(&p, k)));
    }
}
