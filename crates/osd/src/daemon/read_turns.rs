//! Reads that wait for room: clients take turns, and so do each client's connections.

use std::collections::{BTreeMap, VecDeque};

use spirula_invariant::impossible;

use super::store_reads::Deferred;

/// Queues that take turns.
#[derive(Default)]
struct Turns<Q> {
    queues: BTreeMap<u64, Q>,
    /// The queues in the order of their turns.
    order: VecDeque<u64>,
}

impl<Q: Default> Turns<Q> {
    fn queue(&mut self, key: u64) -> &mut Q {
        let order = &mut self.order;
        self.queues.entry(key).or_insert_with(|| {
            order.push_back(key);
            Q::default()
        })
    }

    /// Moves the queue at this place of the order to the end, as it has had its turn, or removes it
    /// if it is empty.
    fn had_turn(&mut self, place: usize, is_empty: bool) {
        let Some(key) = self.order.remove(place) else {
            impossible!("a place in the order of turns"; place = place);
        };
        if is_empty {
            self.queues.remove(&key);
        } else {
            self.order.push_back(key);
        }
    }

    fn remove(&mut self, key: u64) -> Option<Q> {
        self.order.retain(|k| *k != key);
        self.queues.remove(&key)
    }
}

/// All reads that wait.
#[derive(Default)]
pub(super) struct ReadTurns(Turns<Turns<VecDeque<Deferred>>>);

impl ReadTurns {
    /// Whether no read waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.queues.is_empty()
    }

    /// Whether a read of this party waits.
    pub(super) fn has(&self, party: u64) -> bool {
        self.0.queues.contains_key(&party)
    }

    /// Adds a read of a connection of a party.
    pub(super) fn push(&mut self, read: Deferred) {
        self.0.queue(read.party()).queue(read.conn()).push_back(read);
    }

    /// The reads whose turn it would be next, one of each party, in the order of the parties'
    /// turns. A party's connections come in the order in which they last had their turn; reads that
    /// may not begin yet (`is_held`) are passed over.
    pub(super) fn heads(&self, is_held: impl Fn(&Deferred) -> bool) -> impl Iterator<Item = &Deferred> {
        let first = move |party: &u64| {
            let conns = self.0.queues.get(party)?;
            let mut queues = conns.order.iter().filter_map(|c| conns.queues.get(c));
            queues.find_map(|q| q.iter().find(|r| !is_held(r)))
        };
        self.0.order.iter().filter_map(first)
    }

    /// Takes the first of these heads that may be read now.
    pub(super) fn take(
        &mut self,
        is_held: impl Fn(&Deferred) -> bool,
        mut may_read: impl FnMut(&Deferred) -> bool,
    ) -> Option<Deferred> {
        for place in 0..self.0.order.len() {
            let Some(conns) = self.0.order.get(place).and_then(|p| self.0.queues.get_mut(p)) else {
                continue;
            };
            let head = conns.order.iter().enumerate().find_map(|(i, c)| {
                let at = conns.queues.get(c)?.iter().position(|r| !is_held(r))?;
                Some((i, *c, at))
            });
            let Some((i, conn, at)) = head else { continue };
            let Some(queue) = conns.queues.get_mut(&conn) else {
                continue;
            };
            if !queue.get(at).is_some_and(&mut may_read) {
                continue;
            }
            let read = queue.remove(at);
            let is_empty = queue.is_empty();
            conns.had_turn(i, is_empty);
            let is_empty = conns.queues.is_empty();
            self.0.had_turn(place, is_empty);
            return read;
        }
        None
    }

    /// Takes all reads of a connection.
    pub(super) fn forget(&mut self, party: u64, conn: u64) -> VecDeque<Deferred> {
        let Some(conns) = self.0.queues.get_mut(&party) else {
            return VecDeque::new();
        };
        let reads = conns.remove(conn).unwrap_or_default();
        if conns.queues.is_empty() {
            self.0.remove(party);
        }
        reads
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::pg::account::Party;
    use crate::pg::op::Client;
    use crate::pg::{Reader, Token};

    fn client(conn: u64, party: &Arc<Party>) -> Arc<Client> {
        let internal = Client::internal();
        Arc::new(Client {
            conn,
            party: Arc::clone(party),
            ..internal
        })
    }

    fn read(client: &Arc<Client>, token: u64) -> Deferred {
        let reader = Reader {
            client: Arc::clone(client),
            held: 0,
            only_reads: true,
            only_once: false,
        };
        Deferred::new(Token(token), Bytes::new(), Vec::new(), Some(reader))
    }

    #[test]
    fn parties_take_turns_and_so_do_their_connections() {
        let (a, b) = (Arc::default(), Arc::default());
        let (a1, a2, b3) = (client(1, &a), client(2, &a), client(3, &b));
        let mut turns = ReadTurns::default();
        for (client, tokens) in [(&a1, 10..14), (&a2, 20..22), (&b3, 30..32)] {
            tokens.for_each(|t| turns.push(read(client, t)));
        }
        assert_eq!(
            turns.heads(|_| false).map(|r| r.token.0).collect::<Vec<_>>(),
            [10, 30]
        );
        // Reads that may not begin yet are passed over, and so are parties that have to wait.
        let held = |r: &Deferred| r.token.0 == 10;
        assert_eq!(turns.heads(held).map(|r| r.token.0).collect::<Vec<_>>(), [11, 30]);
        let mut taken = vec![turns.take(|_| false, |r| r.token.0 >= 30).unwrap().token.0];
        while let Some(r) = turns.take(|_| false, |_| true) {
            taken.push(r.token.0);
        }
        assert_eq!(taken, [30, 10, 31, 20, 11, 21, 12, 13]);
        assert!(turns.is_empty());
    }

    #[test]
    fn what_a_connection_wanted_goes_with_it() {
        let a = Arc::default();
        let (a1, a2) = (client(1, &a), client(2, &a));
        let mut turns = ReadTurns::default();
        for n in 0..5 {
            turns.push(read(&a1, n));
            turns.push(read(&a2, 10 + n));
        }
        let (party, conn) = (read(&a1, 0).party(), a1.conn);
        assert_eq!(turns.forget(party, conn).len(), 5);
        assert!(turns.has(party) && turns.forget(party, conn).is_empty());
        assert_eq!(turns.forget(party, 2).len(), 5);
        assert!(turns.is_empty() && !turns.has(party));
    }
}
