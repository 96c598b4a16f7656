//! The peers of a daemon by entity, with bounds for their sessions, for memory of arriving messages
//! and for unread replies.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use spirula_buf::Pool;
use spirula_cephx::AuthName;
use spirula_msgr::{Connection, QueueAccount, QueueBound};

/// Limits for all guests of a daemon together. Of each resource an entity may have at most as much
/// as it leaves free for others, so half of it if it is alone: a guest that comes later always
/// finds room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestLimits {
    /// Sessions.
    pub sessions: usize,
    /// Bytes of unread replies, beyond which requests of guests that do not read wait.
    pub queued: usize,
    /// Bytes of unread replies on one connection, at which it is ended.
    pub queued_per_connection: usize,
}

/// One entity's share.
struct Party {
    sessions: usize,
    pool: Pool,
    queue: QueueAccount,
}

impl Party {
    /// Whether it has sessions, or replies of it are still counted.
    fn is_in_use(&self) -> bool {
        self.sessions > 0 || self.queue.is_shared()
    }
}

struct State {
    limits: GuestLimits,
    pool: Pool,
    queue: QueueAccount,
    sessions: usize,
    refused: u64,
    parties: HashMap<AuthName, Party>,
}

/// The guests of a daemon. Clones share them.
#[derive(Clone)]
pub struct Guests(Rc<RefCell<State>>);

/// A session's place; given back when it is dropped.
pub struct Seat {
    guests: Guests,
    name: AuthName,
    queue: QueueAccount,
    pool: Pool,
}

impl Seat {
    /// Counts the arriving messages on all connections of the entity.
    pub fn arrivals(&self) -> &Pool {
        &self.pool
    }

    /// Counts the unread replies on all connections of the entity.
    pub fn unread(&self) -> &QueueAccount {
        &self.queue
    }
}

impl Guests {
    /// Counts the unread replies to all guests together.
    pub fn unread(&self) -> QueueAccount {
        self.0.borrow().queue.clone()
    }

    /// A daemon without guests; payloads are received into `pool`.
    pub fn new(limits: GuestLimits, pool: Pool) -> Self {
        Self(Rc::new(RefCell::new(State {
            limits,
            pool,
            queue: QueueAccount::default(),
            sessions: 0,
            refused: 0,
            parties: HashMap::new(),
        })))
    }

    /// Admits a connection of the entity `name`; `None` if it has its share of sessions already.
    pub fn admit(&self, name: &AuthName, connection: &mut Connection) -> Option<Seat> {
        let (seat, pool, bound) = self.take_seat(name)?;
        connection.set_pool(pool);
        connection.sender().set_bound(bound);
        Some(seat)
    }

    fn take_seat(&self, name: &AuthName) -> Option<(Seat, Pool, QueueBound)> {
        let mut state = self.0.borrow_mut();
        let State {
            limits,
            pool,
            queue,
            sessions,
            refused,
            parties,
        } = &mut *state;
        let free = limits.sessions.saturating_sub(*sessions);
        if parties.get(name).map_or(0, |p| p.sessions) >= free {
            *refused += 1;
            // The first one, and then fewer and fewer.
            if refused.is_power_of_two() {
                tracing::warn!(
                    "{name} has its share of {sessions} sessions; {refused} connections were refused so far"
                );
            }
            return None;
        }
        *sessions += 1;
        if !parties.contains_key(name) {
            parties.retain(|_, p| p.is_in_use());
        }
        let party = parties.entry(name.clone()).or_insert_with(|| Party {
            sessions: 0,
            pool: pool.party(),
            queue: QueueAccount::default(),
        });
        party.sessions += 1;
        let bound = QueueBound {
            connection: limits.queued_per_connection,
            party: party.queue.clone(),
            all: queue.clone(),
            total: limits.queued,
        };
        let seat = Seat {
            guests: self.clone(),
            name: name.clone(),
            queue: party.queue.clone(),
            pool: party.pool.clone(),
        };
        Some((seat, party.pool.clone(), bound))
    }

    /// Whether there are more unread replies than the limit.
    pub fn is_full(&self) -> bool {
        let state = self.0.borrow();
        state.queue.bytes() > state.limits.queued
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.guests.0.borrow_mut();
        state.sessions -= 1;
        if let Some(party) = state.parties.get_mut(&self.name) {
            party.sessions -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_finds_a_seat_whoever_has_many() {
        let limits = GuestLimits {
            sessions: 100,
            queued: 1 << 20,
            queued_per_connection: 1 << 20,
        };
        let guests = Guests::new(limits, Pool::new(1 << 20));
        let mut seats = Vec::new();
        let mut fill = |name: &str| {
            let name: AuthName = name.parse().unwrap();
            let mut got = 0;
            while let Some((seat, ..)) = guests.take_seat(&name) {
                seats.push(seat);
                got += 1;
            }
            got
        };
        assert_eq!(
            [fill("client.a"), fill("client.b"), fill("client.c")],
            [50, 25, 13]
        );
        let a: AuthName = "client.a".parse().unwrap();
        let used = || guests.0.borrow().parties.get(&a).map(|p| p.sessions);
        assert_eq!((guests.0.borrow().refused, used()), (3, Some(50)));
        seats.clear();
        assert_eq!((used(), guests.0.borrow().sessions), (Some(0), 0));
        let d: AuthName = "client.d".parse().unwrap();
        drop(guests.take_seat(&d));
        assert_eq!((used(), guests.0.borrow().parties.len()), (None, 1));
    }
}
