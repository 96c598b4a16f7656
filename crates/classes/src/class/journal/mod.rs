//! Journals of events in their order, which several clients follow at their own pace. Formats:
//! Ceph's `src/cls/journal/cls_journal_types.h`.
//!
//! The omap of a journal's header has the journal's fixed properties, the range of object sets with
//! its entries, its clients with their commit positions, and its tags. A tag marks the entries of
//! one writer; it is removed when all clients are beyond it. Entries are appended to other objects,
//! as long as those are small.

pub(crate) mod tags;

use std::ops::ControlFlow;

use bytes::Bytes;
use spirula_denc::{Encode, versioned};
use spirula_maps::PoolOrNone;

use crate::method::{Nothing, class, input, stored, to_bytes};
use crate::omap;
use crate::{Error, Object, Result};

class! { "journal" {
    "create": RD | WR => create;
    "get_order": RD => get_order;
    "get_splay_width": RD => get_splay_width;
    "get_pool_id": RD => get_pool_id;
    "get_minimum_set": RD => get_minimum_set;
    "set_minimum_set": RD | WR => set_minimum_set;
    "get_active_set": RD => get_active_set;
    "set_active_set": RD | WR => set_active_set;
    "get_client": RD => get_client;
    "client_register": RD | WR => client_register;
    "client_update_data": RD | WR => client_update_data;
    "client_update_state": RD | WR => client_update_state;
    "client_unregister": RD | WR => client_unregister;
    "client_commit": RD | WR => client_commit;
    "client_list": RD => client_list;
    "get_next_tag_tid": RD => get_next_tag_tid;
    "get_tag": RD => tags::get;
    "tag_create": RD | WR => tags::create;
    "tag_list": RD => tags::list;
    "guard_append": RD | WR => guard_append;
    "append": RD | WR => append;
} }

const ORDER: &[u8] = b"order";
const SPLAY_WIDTH: &[u8] = b"splay_width";
const POOL_ID: &[u8] = b"pool_id";
const MINIMUM_SET: &[u8] = b"minimum_set";
const ACTIVE_SET: &[u8] = b"active_set";
const NEXT_TAG_TID: &[u8] = b"next_tag_tid";
const NEXT_TAG_CLASS: &[u8] = b"next_tag_class";
const CLIENT_PREFIX: &[u8] = b"client_";

/// Clients that are read at a time to find the slowest position.
const CLIENT_BATCH: u64 = 256;

versioned! {
    /// The position of an entry that a client has processed.
    #[derive(Eq)]
    pub struct ObjectPosition("cls::journal::ObjectPosition", version 1, compat 1) {
        /// The object with the entry.
        pub object_number: u64;
        /// The entry's tag.
        pub tag_tid: u64;
        /// The entry's number under the tag.
        pub entry_tid: u64;
    }

    /// The last entry in each object that a client has processed, the latest first.
    #[derive(Eq)]
    pub struct ObjectSetPosition("cls::journal::ObjectSetPosition", version 1, compat 1) {
        /// One for each object.
        pub positions: Vec<ObjectPosition>;
    }

    /// A client of the journal.
    #[derive(Eq)]
    pub struct Client("cls::journal::Client", version 1, compat 1) {
        /// Its name; empty for the writer.
        pub id: Bytes;
        /// Data for the client's own use.
        pub data: Bytes;
        /// The client's commit position.
        pub commit_position: ObjectSetPosition;
        /// Whether the journal keeps entries for the client.
        pub state: ClientState;
    }
}

/// Whether the journal keeps entries for a client. Unknown values survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientState(pub u8);

impl ClientState {
    pub(crate) const DISCONNECTED: Self = Self(1);
}

spirula_denc::transparent!(ClientState);

impl Client {
    /// Whether the journal keeps entries for the client.
    pub fn is_connected(&self) -> bool {
        self.state != ClientState::DISCONNECTED
    }
}

fn client_key(id: &[u8]) -> Vec<u8> {
    [CLIENT_PREFIX, id].concat()
}

/// A value of the header; EINVAL where it can't be decoded.
fn read<T: spirula_denc::Decode>(object: &mut dyn Object, key: &[u8]) -> Result<T> {
    input(&omap::get(object, key)?)
}

fn write(object: &mut dyn Object, key: &[u8], value: &impl Encode) -> Result<Nothing> {
    omap::set(object, Bytes::copy_from_slice(key), to_bytes(value))?;
    Ok(Nothing)
}

type Creation = (u8, (u8, PoolOrNone));

fn create(object: &mut dyn Object, (order, (splay_width, pool_id)): Creation) -> Result<Nothing> {
    if omap::find(object, ORDER)?.is_some() {
        return Err(Error::EEXIST);
    }
    write(object, ORDER, &order)?;
    write(object, SPLAY_WIDTH, &splay_width)?;
    write(object, POOL_ID, &pool_id)?;
    for key in [ACTIVE_SET, MINIMUM_SET, NEXT_TAG_TID, NEXT_TAG_CLASS] {
        write(object, key, &0u64)?;
    }
    Ok(Nothing)
}

fn get_order(object: &mut dyn Object, _: Nothing) -> Result<u8> {
    read(object, ORDER)
}

fn get_splay_width(object: &mut dyn Object, _: Nothing) -> Result<u8> {
    read(object, SPLAY_WIDTH)
}

fn get_pool_id(object: &mut dyn Object, _: Nothing) -> Result<PoolOrNone> {
    read(object, POOL_ID)
}

fn get_minimum_set(object: &mut dyn Object, _: Nothing) -> Result<u64> {
    read(object, MINIMUM_SET)
}

fn get_active_set(object: &mut dyn Object, _: Nothing) -> Result<u64> {
    read(object, ACTIVE_SET)
}

fn get_next_tag_tid(object: &mut dyn Object, _: Nothing) -> Result<u64> {
    read(object, NEXT_TAG_TID)
}

fn set_minimum_set(object: &mut dyn Object, set: u64) -> Result<Nothing> {
    if read::<u64>(object, ACTIVE_SET)? < set {
        return Err(Error::EINVAL);
    }
    advance(object, MINIMUM_SET, set)
}

fn set_active_set(object: &mut dyn Object, set: u64) -> Result<Nothing> {
    if read::<u64>(object, MINIMUM_SET)? > set {
        return Err(Error::EINVAL);
    }
    advance(object, ACTIVE_SET, set)
}

/// Sets an end of the range of object sets, which only advances.
fn advance(object: &mut dyn Object, key: &[u8], set: u64) -> Result<Nothing> {
    let current: u64 = read(object, key)?;
    match set.cmp(&current) {
        std::cmp::Ordering::Less => Err(Error::ESTALE),
        std::cmp::Ordering::Equal => Ok(Nothing),
        std::cmp::Ordering::Greater => write(object, key, &set),
    }
}

fn get_client(object: &mut dyn Object, id: Bytes) -> Result<Client> {
    read(object, &client_key(&id))
}

/// Clients in the order of their ids: those after `id`, or from the first on.
fn clients_after(object: &mut dyn Object, id: &[u8], max: u64) -> Result<Vec<Client>> {
    let after = if id.is_empty() {
        // The id may be empty: begin before its key.
        Vec::new()
    } else {
        client_key(id)
    };
    omap::list(object, &after, CLIENT_PREFIX, max, |_, client| stored(&client))
}

fn client_list(object: &mut dyn Object, (after, max): (Bytes, u64)) -> Result<Vec<Client>> {
    clients_after(object, &after, max)
}

/// The position of the slowest client for which the journal keeps entries. A client without a
/// position hides the others of its batch.
fn slowest_position(object: &mut dyn Object) -> Result<ObjectSetPosition> {
    let mut slowest = ObjectSetPosition::default();
    let mut least: Option<(u64, u64)> = None;
    let mut after = Bytes::new();
    loop {
        let batch = clients_after(object, &after, CLIENT_BATCH)?;
        for client in &batch {
            if !client.is_connected() {
                continue;
            }
            let Some(first) = client.commit_position.positions.first() else {
                slowest = ObjectSetPosition::default();
                break;
            };
            let at = (first.tag_tid, first.entry_tid);
            if least.is_none_or(|least| at < least) {
                least = Some(at);
                slowest = client.commit_position.clone();
            }
        }
        match batch.last() {
            Some(last) if batch.len() as u64 == CLIENT_BATCH => after = last.id.clone(),
            _ => return Ok(slowest),
        }
    }
}

fn client_register(object: &mut dyn Object, (id, data): (Bytes, Bytes)) -> Result<Nothing> {
    read::<u8>(object, ORDER)?;
    let key = client_key(&id);
    if omap::find(object, &key)?.is_some() {
        return Err(Error::EEXIST);
    }
    let client = Client {
        id,
        data,
        commit_position: slowest_position(object)?,
        state: ClientState::default(),
    };
    write(object, &key, &client)
}

/// Changes the record of a client.
fn update(object: &mut dyn Object, id: &[u8], change: impl FnOnce(&mut Client)) -> Result<Nothing> {
    let key = client_key(id);
    let mut client: Client = read(object, &key)?;
    change(&mut client);
    write(object, &key, &client)
}

fn client_update_data(object: &mut dyn Object, (id, data): (Bytes, Bytes)) -> Result<Nothing> {
    update(object, &id, |client| client.data = data)
}

fn client_update_state(object: &mut dyn Object, (id, state): (Bytes, ClientState)) -> Result<Nothing> {
    update(object, &id, |client| client.state = state)
}

fn client_unregister(object: &mut dyn Object, id: Bytes) -> Result<Nothing> {
    let key = client_key(&id);
    omap::get(object, &key)?;
    omap::remove(object, key.clone())?;
    tags::expire(object, Some(&key))?;
    Ok(Nothing)
}

type Commit = (Bytes, ObjectSetPosition);

fn client_commit(object: &mut dyn Object, (id, position): Commit) -> Result<Nothing> {
    let splay_width: u8 = read(object, SPLAY_WIDTH)?;
    if position.positions.len() > usize::from(splay_width) {
        return Err(Error::EINVAL);
    }
    let key = client_key(&id);
    let mut client: Client = read(object, &key)?;
    if client.commit_position == position {
        return Ok(Nothing);
    }
    client.commit_position = position;
    write(object, &key, &client)
}

/// Calls `visit` with the clients in the order of their keys.
fn scan_clients(
    object: &mut dyn Object,
    mut visit: impl FnMut(&[u8], &Client) -> ControlFlow<()>,
) -> Result<()> {
    omap::scan(object, b"", CLIENT_PREFIX, |key, client| {
        Ok(visit(&key, &stored(&client)?))
    })
}

/// The size of the object, `None` where it does not exist; EOVERFLOW where it is `max` or more.
fn size_below(object: &mut dyn Object, max: u64) -> Result<Option<u64>> {
    let size = crate::error::unless(object.stat(), &[Error::ENOENT])?.map(|stat| stat.size);
    if size.is_some_and(|size| size >= max) {
        return Err(Error::EOVERFLOW);
    }
    Ok(size)
}

fn guard_append(object: &mut dyn Object, max: u64) -> Result<Nothing> {
    size_below(object, max).map(|_| Nothing)
}

/// Appends an entry. Ceph's OSDs fill the object up to the next block if all clients can skip such
/// padding, as they append faster then. Every client can read entries without it.
fn append(object: &mut dyn Object, (max, data): (u64, Bytes)) -> Result<Nothing> {
    let size = size_below(object, max)?.unwrap_or_default();
    if max == 0 {
        return Err(Error::EOVERFLOW);
    }
    object.write(size, data)?;
    Ok(Nothing)
}
