//! The header of a journal: its clients and tags, the objects with its entries, and its removal.

use std::ops::RangeInclusive;

use spirula_classes::journal::{Client, ObjectPosition, ObjectSetPosition, Tag};
use spirula_client::{BytesList, IoCtx, errno};
use spirula_denc::{Decode, Encode, Reader, Writer, encode_to_vec};
use spirula_maps::PoolOrNone;

use crate::cls::read;
use crate::cls::{self, Nothing, ask_of};
use crate::error::unless;
use crate::{Error, Result, bounds, names};

/// The id of the image itself among the clients of its journal.
const IMAGE: &str = "";
/// The kind of the journal client that is the image itself; its data has the class of the tags.
const IMAGE_CLIENT: u32 = 0;
/// The mirror uuid in tags under which this cluster writes.
const LOCAL: &str = "";
/// Tags or clients asked for at a time.
const BATCH: u64 = 64;

/// Asks for a new class of tags.
const NEW_CLASS: u64 = u64::MAX;
/// The sizes of objects with entries, as powers of two.
const ORDERS: RangeInclusive<u8> = 12..=26;

/// Options of a new journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalOptions {
    /// The size of an object at which the next object set is begun, as a power of two from 12 to
    /// 26.
    pub order: u8,
    /// The number of objects in an object set, over which entries are spread.
    pub splay_width: u8,
    /// The pool of the entries, where it is another than the header's.
    pub pool: Option<String>,
}

impl Default for JournalOptions {
    /// The defaults of `rbd_journal_order` and `rbd_journal_splay_width`.
    fn default() -> Self {
        Self {
            order: 24,
            splay_width: 4,
            pool: None,
        }
    }
}

/// Makes the journal of an image that has none. Remains of an interrupted creation or removal go
/// first.
///
/// # Errors
/// `EDOM` and `EINVAL` for what can't be, `ENOENT` where there is no such pool.
pub(crate) async fn create(io: &IoCtx, id: &str, options: &JournalOptions) -> Result<()> {
    if !ORDERS.contains(&options.order) {
        return Err(Error::os("journal", errno::EDOM));
    }
    if options.splay_width == 0 {
        return Err(Error::os("journal", errno::EINVAL));
    }
    let pool = match &options.pool {
        None => PoolOrNone::NONE,
        Some(name) => io.rados().pool(name).await?.pool_id().into(),
    };
    remove(io, id).await?;
    let created = (options.order, (options.splay_width, pool));
    tell(io, id, "create", &created).await?;
    let writer = LOCAL.to_owned();
    let data = bytes::Bytes::from(encode_to_vec(&TagData { writer, before: None }));
    let number: u64 = ask(io, id, "get_next_tag_tid", &Nothing).await?;
    tell(io, id, "tag_create", &(number, (NEW_CLASS, data))).await?;
    let tag: Tag = ask(io, id, "get_tag", &number).await?;
    let client = (IMAGE.to_owned(), bytes::Bytes::from(image_data(tag.class)));
    tell(io, id, "client_register", &client).await
}

/// The image's data as a client of its journal: the class of its tags, and that no resync is
/// wanted.
fn image_data(tag_class: u64) -> Vec<u8> {
    let mut w = Writer::new();
    w.section(2, 1, |w| {
        w.u32(IMAGE_CLIENT);
        w.u64(tag_class);
        w.bool(false);
    });
    w.into_vec()
}

/// The place of a journal, and its properties that never change.
pub(super) struct JournalHeader {
    io: IoCtx,
    id: String,
    /// The pool and namespace of the entries.
    entries: IoCtx,
    /// The number of objects in an object set, over which entries are spread.
    pub(super) width: u64,
    /// The size of an object in bytes at which the next object set is begun.
    pub(super) object_size: u64,
}

/// The image's data as a client of its journal.
struct ImageClient {
    tag_class: u64,
    position: ObjectSetPosition,
}

/// The data of a tag: the writer, and the position of the writer before.
struct TagData {
    writer: String,
    /// The commit position of the writer before.
    before: Option<ObjectPosition>,
}

impl Encode for TagData {
    fn encode(&self, w: &mut Writer) {
        w.string(&self.writer);
        // The writer before: a tag of this cluster follows on one of this cluster.
        w.string(&self.writer);
        w.bool(self.before.is_some());
        let before = self.before.clone().unwrap_or_default();
        w.u64(before.tag_tid);
        w.u64(before.entry_tid);
    }
}

async fn ask<T: Decode>(io: &IoCtx, id: &str, method: &'static str, input: &impl Encode) -> Result<T> {
    ask_of(io, names::journal(id), "journal", method, input).await
}

async fn tell(io: &IoCtx, id: &str, method: &'static str, input: &impl Encode) -> Result<()> {
    let call = cls::method("journal", method, input)?;
    cls::change(io, "journal", names::journal(id), vec![call]).await
}

/// Reads the image's data as a client of its journal.
async fn image_client(io: &IoCtx, id: &str) -> Result<ImageClient> {
    let client: Client = ask(io, id, "get_client", &IMAGE.to_owned()).await?;
    Ok(ImageClient {
        tag_class: tag_class(&mut Reader::new(&client.data))?,
        position: client.commit_position,
    })
}

/// Decodes the class of the tags from the image's data as a client.
fn tag_class(r: &mut Reader<'_>) -> Result<u64> {
    Ok(r.section("librbd::journal::ClientData", 2, |_, r| {
        if r.u32()? != IMAGE_CLIENT {
            return Err(spirula_denc::Error::Invalid("client of an image's journal"));
        }
        r.u64()
    })?)
}

/// Whether this cluster writes the journal, according to its newest tag.
async fn is_local(io: &IoCtx, id: &str, class: u64) -> Result<bool> {
    let mut newest: Option<Tag> = None;
    loop {
        let after = newest.as_ref().map_or(0, |tag| tag.tid);
        let input = ((after, BATCH), (IMAGE.to_owned(), Some(class)));
        let mut tags: Vec<Tag> = ask(io, id, "tag_list", &input).await?;
        let is_last = (tags.len() as u64) < BATCH;
        newest = tags.pop().or(newest);
        if is_last {
            break;
        }
    }
    let Some(tag) = newest else {
        return Err(Error::os("journal", errno::ENOENT));
    };
    let writer: String = Reader::new(&tag.data).get()?;
    Ok(writer == LOCAL)
}

/// Whether this cluster writes the journal.
///
/// # Errors
/// `ENOENT` where there is no journal, `EIO` where it can't be read.
pub(crate) async fn is_primary(io: &IoCtx, id: &str) -> Result<bool> {
    let image = image_client(io, id).await?;
    is_local(io, id, image.tag_class).await
}

/// The context of the entries of a journal whose header names this pool.
async fn entries_at(io: &IoCtx, pool: PoolOrNone) -> Result<IoCtx> {
    match pool.0 {
        Some(pool) => {
            let pool = io.rados().pool_by_id(pool).await?;
            Ok(pool.with_namespace(io.namespace().clone()))
        }
        // Those of its header.
        None => Ok(io.clone()),
    }
}

impl JournalHeader {
    /// Finds the journal of an image. `None` where there is none.
    async fn find(io: &IoCtx, id: &str) -> Result<Option<Self>> {
        let width: Option<u8> = unless(ask(io, id, "get_splay_width", &Nothing).await, errno::ENOENT)?;
        let Some(width) = width else { return Ok(None) };
        let order: u8 = ask(io, id, "get_order", &Nothing).await?;
        let object_size = 1u64.checked_shl(order.into());
        let object_size = object_size.filter(|_| width > 0);
        let pool: PoolOrNone = ask(io, id, "get_pool_id", &Nothing).await?;
        Ok(Some(Self {
            io: io.clone(),
            id: id.to_owned(),
            entries: entries_at(io, pool).await?,
            width: width.into(),
            object_size: object_size.ok_or(Error::os("journal", errno::EINVAL))?,
        }))
    }

    /// Finds the journal of an image for its writer. Returns the commit position too.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `EROFS` where another cluster writes it.
    pub(super) async fn open(io: &IoCtx, id: &str) -> Result<(Self, ObjectSetPosition)> {
        let found = Self::find(io, id).await?;
        let found = found.ok_or(Error::os("journal", errno::ENOENT))?;
        let image = image_client(io, id).await?;
        match is_local(io, id, image.tag_class).await? {
            true => Ok((found, image.position)),
            false => Err(Error::os("journal", errno::EROFS)),
        }
    }

    async fn ask<T: Decode>(&self, method: &'static str, input: &impl Encode) -> Result<T> {
        ask(&self.io, &self.id, method, input).await
    }

    async fn tell(&self, method: &'static str, input: &impl Encode) -> Result<()> {
        tell(&self.io, &self.id, method, input).await
    }

    /// Notifies the clients of the journal that its header has changed.
    pub(super) fn announce(&self) {
        let (io, oid) = (self.io.clone(), names::journal(&self.id));
        tokio::task::spawn_local(async move { cls::announce(&io, oid, bytes::Bytes::new()).await });
    }

    /// The object sets that may have entries: the last one is the active set.
    pub(super) async fn sets(&self) -> Result<RangeInclusive<u64>> {
        let first = self.ask("get_minimum_set", &Nothing).await?;
        bounds::sets(first, self.ask("get_active_set", &Nothing).await?)
    }

    /// Makes an object set the active one, which takes all entries from now on.
    pub(super) async fn set_active_set(&self, set: u64) -> Result<()> {
        self.tell("set_active_set", &set).await?;
        self.announce();
        Ok(())
    }

    /// Makes the tag for entries from now on; `before` is the commit position so far. Returns its
    /// number.
    pub(super) async fn create_tag(&self, before: Option<ObjectPosition>) -> Result<u64> {
        let class = image_client(&self.io, &self.id).await?.tag_class;
        let writer = LOCAL.to_owned();
        let data = bytes::Bytes::from(encode_to_vec(&TagData { writer, before }));
        loop {
            let number: u64 = self.ask("get_next_tag_tid", &Nothing).await?;
            match self.tell("tag_create", &(number, (class, data.clone()))).await {
                Err(e) if e.is(errno::ESTALE) => {}
                Err(e) => return Err(e),
                Ok(()) => {
                    self.announce();
                    return Ok(number);
                }
            }
        }
    }

    /// Stores the image's commit position.
    pub(super) async fn commit(&self, position: &ObjectSetPosition) -> Result<()> {
        let input = (IMAGE.to_owned(), position.clone());
        self.tell("client_commit", &input).await?;
        self.announce();
        Ok(())
    }

    /// The oldest object set that a registered client still needs; `active` where none needs an
    /// older one.
    async fn first_needed(&self, active: u64) -> Result<Option<u64>> {
        let mut first = active;
        let mut after = String::new();
        loop {
            let clients: Vec<Client> = self.ask("client_list", &(after, BATCH)).await?;
            for client in clients.iter().filter(|c| c.is_connected()) {
                let positions = &client.commit_position.positions;
                let Some(oldest) = positions.iter().map(|p| p.object_number / self.width).min() else {
                    return Ok(None);
                };
                first = first.min(oldest);
            }
            match clients.last() {
                Some(last) if clients.len() as u64 == BATCH => {
                    after = String::from_utf8_lossy(&last.id).into_owned();
                }
                _ => return Ok(Some(first)),
            }
        }
    }

    /// Removes the object sets before `active` that no client needs any more.
    pub(super) async fn trim(&self, active: u64) -> Result<()> {
        let first = *self.sets().await?.start();
        if first >= active {
            return Ok(());
        }
        let Some(needed) = self.first_needed(active).await? else {
            return Ok(());
        };
        for set in first..needed {
            self.remove_set(set).await?;
            self.tell("set_minimum_set", &(set + 1)).await?;
        }
        Ok(())
    }

    /// The number of an object, from its set and its place in the set.
    pub(super) fn object_of(&self, set: u64, place: u64) -> u64 {
        set.saturating_mul(self.width).saturating_add(place)
    }

    async fn remove_set(&self, set: u64) -> Result<()> {
        for place in 0..self.width {
            let object = self.object(self.object_of(set, place));
            let removed = self.entries.remove(object).await;
            unless(removed.map_err(Error::from), errno::ENOENT)?;
        }
        Ok(())
    }

    fn object(&self, number: u64) -> String {
        names::journal_entries(&self.id, self.io.pool_id(), number)
    }

    /// The size in bytes of an object with entries.
    pub(super) async fn size_of(&self, object: u64) -> Result<u64> {
        let stat = self.entries.stat(self.object(object)).await;
        let size = unless(stat.map_err(Error::from), errno::ENOENT)?;
        Ok(size.map_or(0, |(size, _)| size))
    }

    /// Reads from an object with entries, up to its end.
    pub(super) async fn read(&self, object: u64, offset: u64, len: u64) -> Result<bytes::Bytes> {
        let read = self.entries.read(self.object(object), offset, len).await;
        Ok(unless(read.map_err(Error::from), errno::ENOENT)?.unwrap_or_default())
    }

    /// Appends entries to an object. Fails where the object has its full size already.
    pub(super) async fn append(&self, object: u64, entries: &BytesList) -> Result<()> {
        // The entries follow as a blob: their length, then they.
        let len = u32::try_from(entries.len()).map_err(|_| Error::os("journal", errno::E2BIG))?;
        let call = cls::method_with_data("journal", "append", &(self.object_size, len), entries)?;
        cls::change(&self.entries, "journal", self.object(object), vec![call]).await
    }
}

/// Decodes the clients' and tags' data of a header.
pub(super) fn read_stored(data: &[u8]) {
    if let Some(client) = read::<Client>(data) {
        let _ = tag_class(&mut Reader::new(&client.data));
    }
    if let Some(tag) = read::<Tag>(data) {
        let _ = read::<String>(&tag.data);
    }
    if let Some((first, active)) = read::<(u64, u64)>(data) {
        let _ = bounds::sets(first, active);
    }
}

/// Removes the journal of an image, where there is one. Its header goes last, so that an
/// interrupted removal can go on.
pub(crate) async fn remove(io: &IoCtx, id: &str) -> Result<()> {
    let Some(journal) = JournalHeader::find(io, id).await? else {
        return Ok(());
    };
    for set in journal.sets().await? {
        journal.remove_set(set).await?;
    }
    let removed = io.remove(names::journal(id)).await;
    unless(removed.map_err(Error::from), errno::ENOENT).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_say_what_was_committed_before() {
        let writer = LOCAL.to_owned();
        let before = Some(ObjectPosition {
            object_number: 9,
            tag_tid: 2,
            entry_tid: 3,
        });
        let wanted = [vec![0; 8], vec![1, 2], vec![0; 7], vec![3], vec![0; 7]].concat();
        assert_eq!(encode_to_vec(&TagData { writer, before }), wanted);
    }
}
