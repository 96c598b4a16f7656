//! Journals of images (the feature `journaling`), as far as removing an image has to do with them. Names and formats: Ceph's
//! `src/journal` and `src/librbd/journal/Types.h`.

use spirula_classes::journal::{Client, Tag};
use spirula_client::{IoCtx, errno};
use spirula_denc::{Decode, Encode, Reader};

use crate::cls::{Nothing, ask_of};
use crate::error::unless;
use crate::{Error, Result, names};

/// The id of the image itself among the clients of its journal.
const IMAGE: &str = "";
/// What kind of client notes the class of the image's tags.
const IMAGE_CLIENT: u32 = 0;
/// Who writes what is tagged so: this cluster.
const LOCAL: &str = "";
/// Tags asked for at a time.
const BATCH: u64 = 64;

async fn ask<T: Decode>(io: &IoCtx, id: &str, method: &'static str, input: &impl Encode) -> Result<T> {
    ask_of(io, names::journal(id), "journal", method, input).await
}

/// Whether this cluster writes the journal, as the newest of its tags says.
///
/// # Errors
/// `ENOENT` where there is no journal, `EIO` where it can't be read.
pub(crate) async fn is_primary(io: &IoCtx, id: &str) -> Result<bool> {
    let client: Client = ask(io, id, "get_client", &IMAGE.to_owned()).await?;
    let class = tag_class(&mut Reader::new(&client.data))?;
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

/// What an image notes with its journal: here only the class of its tags.
fn tag_class(r: &mut Reader<'_>) -> Result<u64> {
    Ok(r.section("librbd::journal::ClientData", 2, |_, r| {
        if r.u32()? != IMAGE_CLIENT {
            return Err(spirula_denc::Error::Invalid("client of an image's journal"));
        }
        r.u64()
    })?)
}

/// Removes the journal of an image, where there is one. Its header goes last, so that an interrupted removal can go on.
pub(crate) async fn remove(io: &IoCtx, id: &str) -> Result<()> {
    let width: Option<u8> = unless(ask(io, id, "get_splay_width", &Nothing).await, errno::ENOENT)?;
    let Some(width) = width.map(u64::from) else {
        return Ok(());
    };
    let pool: i64 = ask(io, id, "get_pool_id", &Nothing).await?;
    let entries = match pool {
        0.. => {
            let pool = io.rados().pool_by_id(pool).await?;
            pool.with_namespace(io.namespace().clone())
        }
        // Those of its header.
        _ => io.clone(),
    };
    let first: u64 = ask(io, id, "get_minimum_set", &Nothing).await?;
    let last: u64 = ask(io, id, "get_active_set", &Nothing).await?;
    for number in first.saturating_mul(width)..last.saturating_add(1).saturating_mul(width) {
        let object = names::journal_entries(id, io.pool_id(), number);
        unless(entries.remove(object).await.map_err(Error::from), errno::ENOENT)?;
    }
    let removed = io.remove(names::journal(id)).await;
    unless(removed.map_err(Error::from), errno::ENOENT).map(drop)
}
