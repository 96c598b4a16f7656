//! RADOS clients of the manager, each with the rights of one piece of work and living as long.
//!
//! Each has an address that the manager map names, so that the next manager puts it on the
//! blocklist. Each kind of work has a few of them, so that one kind does not keep another waiting.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use spirula_client::{IoCtx, Options, Rados};
use spirula_denc::EntityAddr;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::desk::Desk;
use crate::failure::Failure;
use crate::question::errno;
use crate::rights::{Basis, Place};
use crate::service::News;

/// The kind of work that a client is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A task.
    Task,
    /// A command that reads images.
    Command,
    /// Emptying a trash.
    Purge,
    /// A mirror snapshot.
    Snapshot,
}

/// Tasks that are under way at a time, one in each pool.
pub(crate) const TASKS: usize = 4;

/// The most clients of each kind at a time.
const SEATS: [(Work, usize); 4] = [
    (Work::Task, TASKS),
    (Work::Command, 1),
    (Work::Purge, 1),
    (Work::Snapshot, 4),
];

/// The number of addresses of the manager's clients: one for its reader, and those for the pieces
/// of work.
pub const ADDRESSES: usize = 11;

/// The clients of a kind.
struct Lane {
    work: Work,
    free: RefCell<Vec<EntityAddr>>,
    permits: Arc<Semaphore>,
}

/// Makes clients.
pub(crate) struct Clients {
    desk: Rc<Desk>,
    /// Their options, but for name, key and address.
    options: Options,
    lanes: Vec<Lane>,
}

/// A client, in a pool and namespace.
pub(crate) struct Client {
    pub(crate) io: IoCtx,
    _seat: Seat,
}

/// One of the places for clients of a kind, which a client takes up.
struct Seat {
    clients: Rc<Clients>,
    number: u64,
    lane: usize,
    address: EntityAddr,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.clients.desk.tell(News::Closed(self.number));
        self.clients.lanes[self.lane].free.borrow_mut().push(self.address);
    }
}

impl Clients {
    /// `addresses` are those for the pieces of work.
    pub(crate) fn new(desk: Rc<Desk>, options: Options, addresses: &[EntityAddr]) -> Rc<Self> {
        let mut rest = addresses.iter().copied();
        let lane = |(work, seats): (Work, usize)| {
            let free: Vec<EntityAddr> = rest.by_ref().take(seats).collect();
            Lane {
                work,
                permits: Arc::new(Semaphore::new(free.len())),
                free: RefCell::new(free),
            }
        };
        Rc::new(Self {
            desk,
            options,
            lanes: SEATS.into_iter().map(lane).collect(),
        })
    }

    pub(crate) fn desk(&self) -> &Rc<Desk> {
        &self.desk
    }

    /// Connects a client with rights in a place, and those of its basis.
    pub(crate) async fn open(
        self: &Rc<Self>,
        work: Work,
        place: &Place,
        basis: Basis,
    ) -> Result<Client, Failure> {
        let opening = || format!("error opening pool id '{}'", place.pool);
        let busy = || Failure::Rados(errno::EBUSY, opening());
        let found = self.lanes.iter().enumerate().find(|(_, l)| l.work == work);
        let (at, lane) = found.ok_or_else(busy)?;
        let permit = Arc::clone(&lane.permits).acquire_owned().await;
        let permit = permit.map_err(|_| busy())?;
        let (number, login) = self.desk.login(place.clone(), basis).await?;
        let address = lane.free.borrow_mut().pop().ok_or_else(busy)?;
        let seat = Seat {
            clients: Rc::clone(self),
            number,
            lane: at,
            address,
            _permit: permit,
        };
        let options = Options {
            name: login.name,
            key: login.key,
            address: Some(address),
            ..self.options.clone()
        };
        let connected = Rados::connect(&options).await;
        let rados = connected.map_err(|e| Failure::rados(&e, opening()))?;
        // An OSD that has this map knows that the manager before is shut out.
        let map = rados.latest_map().await;
        map.map_err(|e| Failure::rados(&e, "error waiting for the latest osdmap"))?;
        let io = rados.pool_by_id(place.pool).await;
        let io = io.map_err(|e| Failure::rados(&e, opening()))?;
        Ok(Client {
            io: io.with_namespace(place.namespace.as_str()),
            _seat: seat,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_has_its_work() {
        let seats: usize = SEATS.iter().map(|(_, n)| n).sum();
        assert_eq!(ADDRESSES, 1 + seats);
    }
}
