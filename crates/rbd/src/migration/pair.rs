//! The two images of a migration, found from either.

use bytes::Bytes;
use spirula_classes::rbd::migration::{DESTINATION, Migration, SOURCE, state};
use spirula_client::{IoCtx, errno};
use spirula_maps::PoolId;

use super::record::record;
use crate::error::unless;
use crate::header::text;
use crate::remove::is_gone;
use crate::{Error, Result, directory, trash};

/// The trash entry's origin: the source of a migration.
pub(super) const BY_MIGRATION: u8 = 2;

/// What a header says of a migration.
#[derive(Debug)]
pub(super) enum Mark {
    /// The image does not exist any more.
    Gone,
    /// The image does not migrate.
    None,
    /// The image's migration record.
    Record(Box<Migration>),
}

impl Mark {
    async fn read(io: &IoCtx, id: &str) -> Result<Self> {
        match record(io, id).await {
            Ok(record) => Ok(Self::Record(Box::new(record))),
            Err(e) if e.is(errno::EINVAL) => Ok(Self::None),
            Err(e) if e.is(errno::ENOENT) => Ok(Self::Gone),
            Err(e) => Err(e),
        }
    }

    pub(super) fn record(&self) -> Option<&Migration> {
        match self {
            Self::Record(record) => Some(record),
            _ => None,
        }
    }
}

/// One of the two images.
pub(super) struct Side {
    pub(super) io: IoCtx,
    pub(super) name: String,
    pub(super) id: String,
    pub(super) mark: Mark,
}

impl Side {
    /// The other image, as a record names it.
    async fn other(io: &IoCtx, record: &Migration) -> Result<Self> {
        if !record.source_spec.is_empty() || record.image_id.is_empty() {
            // Another cluster or a file, or an image of the first format.
            return Err(Error::os("migration", errno::EOPNOTSUPP));
        }
        let pool_id = record.pool_id.0.ok_or(Error::os("migration", errno::ENOENT))?;
        let pool = io.rados().pool_by_id(pool_id).await?;
        let io = pool.with_namespace(text(&record.pool_namespace));
        let id = text(&record.image_id);
        Ok(Self {
            mark: Mark::read(&io, &id).await?,
            name: text(&record.image_name),
            io,
            id,
        })
    }

    /// Whether a record of the other image names this one.
    fn is_named_by(&self, record: &Migration) -> bool {
        record.pool_id == self.io.pool_id().into()
            && record.pool_namespace == self.io.namespace().as_bytes()
            && record.image_id == self.id.as_bytes()
    }
}

/// A migration: at least one of the two images has a record.
pub(super) struct Pair {
    pub(super) source: Side,
    pub(super) destination: Side,
    /// Whether the caller's name is the source's.
    found_by_source: bool,
}

impl Pair {
    /// Finds a migration by the name of its destination, or of its source.
    ///
    /// # Errors
    /// `ENOENT` where there is no such image, `EINVAL` where it is not migrating, `EOPNOTSUPP`
    /// where the source is none that is read here.
    pub(super) async fn find(io: &IoCtx, name: &str) -> Result<Self> {
        let id = match unless(directory::image_id(io, name).await, errno::ENOENT)? {
            Some(id) if !is_gone(io, &id).await? => id,
            // The destination that had the source's name too is not there any more.
            _ => in_trash(io, name).await?,
        };
        let this = Side {
            io: io.clone(),
            name: name.to_owned(),
            mark: Mark::None,
            id,
        };
        let record = record(io, &this.id).await?;
        let other = Side::other(io, &record).await?;
        let this = Side {
            mark: Mark::Record(Box::new(record.clone())),
            ..this
        };
        let pair = match record.header_type {
            SOURCE => Self {
                source: this,
                destination: other,
                found_by_source: true,
            },
            DESTINATION => Self {
                source: other,
                destination: this,
                found_by_source: false,
            },
            _ => return Err(Error::os("migration", errno::EINVAL)),
        };
        pair.check()?;
        Ok(pair)
    }

    /// Checks that the two records belong to one migration.
    fn check(&self) -> Result<()> {
        if let (Some(source), Some(destination)) = self.records()
            && !(source.header_type == SOURCE
                && destination.header_type == DESTINATION
                && self.source.is_named_by(destination)
                && self.destination.is_named_by(source))
        {
            return Err(Error::os("migration", errno::EIO));
        }
        Ok(())
    }

    /// The records of the source and of the destination.
    pub(super) fn records(&self) -> (Option<&Migration>, Option<&Migration>) {
        (self.source.mark.record(), self.destination.mark.record())
    }

    /// Whether the caller's name is, or may be, the source's: both images may have the same name in
    /// the same place.
    pub(super) fn is_known_by_source(&self) -> bool {
        let place = |side: &Side| (side.io.pool_id(), side.io.namespace().clone());
        let share_name = self.source.name == self.destination.name;
        self.found_by_source || share_name && place(&self.source) == place(&self.destination)
    }
}

async fn in_trash(io: &IoCtx, name: &str) -> Result<String> {
    let images = trash::trash_list(io).await?;
    let mut images = images.into_iter();
    let found = images.find(|(_, image)| image.source == BY_MIGRATION && image.name == name.as_bytes());
    found
        .map(|(id, _)| id)
        .ok_or(Error::os("migration", errno::ENOENT))
}

/// The images of a migration and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStatus {
    /// The pool, namespace and name of the source.
    pub source: (PoolId, String, String),
    /// The pool, namespace and name of the destination.
    pub destination: (PoolId, String, String),
    /// The destination's id.
    pub destination_id: String,
    /// Whether the source's data can be copied.
    pub is_prepared: bool,
    /// Whether the source's data was copied.
    pub is_executed: bool,
}

/// The state of an image's migration, by the name of the destination or of the source.
///
/// # Errors
/// `ENOENT` where there is no such image, `EINVAL` where it is not migrating.
pub async fn migration_status(io: &IoCtx, name: &str) -> Result<MigrationStatus> {
    let pair = Pair::find(io, name).await?;
    let place = |side: &Side| {
        let namespace = Bytes::copy_from_slice(side.io.namespace().as_bytes());
        (side.io.pool_id(), text(&namespace), side.name.clone())
    };
    let (_, record) = pair.records();
    let state = record.ok_or(Error::os("migration", errno::ENOENT))?.state;
    Ok(MigrationStatus {
        source: place(&pair.source),
        destination: place(&pair.destination),
        destination_id: pair.destination.id.clone(),
        is_prepared: matches!(state, state::PREPARED | state::EXECUTING),
        is_executed: state == state::EXECUTED,
    })
}
