//! Relinks clones of a migrating image, and the migrating clone itself.
//!
//! Clones are given back to the source when a migration is given up. Each says which snapshot it is
//! a clone of, and is listed with that. After any interruption a clone is listed with one of the
//! two at least (the states of `relink_children` in Ceph's `src/librbd/api/Migration.cc`).

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_classes::rbd::{Features, OpFeatures, ParentImageSpec};
use spirula_client::errno;

use super::pair::Pair;
use super::record::notify;
use crate::clones::{Child, Link, attach_again, children_of, detach_from, forget_child};
use crate::cls::{self, Nothing, change};
use crate::error::unless;
use crate::header::Header;
use crate::site::Site;
use crate::view::View;
use crate::{Error, Result, names};

/// Two snapshots with the same content: the destination's and the source's.
#[derive(Clone, Copy)]
pub(super) struct Twins {
    pub(super) from: u64,
    pub(super) to: u64,
}

fn spec(image: &Site, snap: u64) -> ParentImageSpec {
    ParentImageSpec {
        pool_id: image.io.pool_id().into(),
        pool_namespace: image.io.namespace().as_bytes().to_vec().into(),
        image_id: Bytes::from(image.fixed.id.clone()),
        snap_id: snap,
    }
}

/// Makes all clones of the destination's snapshots clones of the source's snapshots.
pub(super) async fn give_back(
    destination: &View,
    source: &Site,
    twins: impl Iterator<Item = Twins>,
) -> Result<()> {
    for twins in twins {
        let Twins { from, to } = twins;
        let listed = match destination.header().snapshots.contains_key(&from) {
            true => children_of(&destination.site, from).await?,
            false => BTreeSet::new(),
        };
        let there = children_of(source, to).await?;
        for child in listed.union(&there) {
            relink((&destination.site, source), twins, child, listed.contains(child)).await?;
        }
    }
    Ok(())
}

async fn relink(
    (destination, source): (&Site, &Site),
    twins: Twins,
    child: &Child,
    is_listed: bool,
) -> Result<()> {
    let pool = source.io.rados().pool_by_id(child.pool).await?;
    let io = pool.with_namespace(child.namespace.as_str());
    let header = Header::read(&io, &child.id).await?;
    let (old, new) = (spec(destination, twins.from), spec(source, twins.to));
    let parent = header.parent.as_ref().ok_or(Error::os("relink", errno::ESTALE))?;
    if parent.spec == old {
        let ops = attach_ops(&header, parent.overlap, &new)?;
        change(&io, "relink", names::header(&child.id), ops).await?;
    } else if parent.spec != new {
        return Err(Error::os("relink", errno::ESTALE));
    }
    if is_listed {
        let link = |parent, spec| Link {
            parent,
            spec,
            io: &io,
            child: &child.id,
        };
        let is_v2 = header.op_features.contains(OpFeatures::CLONE_CHILD);
        attach_again(&link(&source.io, new), is_v2).await?;
        forget_child(&link(&destination.io, old), is_v2).await?;
    }
    notify(&io, &child.id).await;
    Ok(())
}

/// The operations that give a clone another parent. A parent that only the clone's snapshots see
/// remains so.
fn attach_ops(
    header: &Header,
    overlap: Option<u64>,
    parent: &ParentImageSpec,
) -> Result<Vec<spirula_proto::osd::OsdOpIn>> {
    let attach = |overlap: u64| cls::rbd("parent_attach", &(parent.clone(), (overlap, true)));
    match overlap {
        Some(overlap) if overlap > 0 => Ok(vec![attach(overlap)?]),
        None if !header.has(Features::DEEP_FLATTEN) => {
            Ok(vec![attach(u64::MAX)?, cls::rbd("parent_detach", &Nothing)?])
        }
        _ => Err(Error::os("relink", errno::EOPNOTSUPP)),
    }
}

/// Removes the destination from the list of the source's parent, if the destination has no parent
/// itself. To prepare the migration of a clone, `librbd` first makes the destination a clone too;
/// for a flat destination it then removes the parent and leaves the list as it is, so that the
/// parent's snapshot could never be removed.
pub(super) async fn unlist(pair: &Pair) -> Result<()> {
    let (source, destination) = (&pair.source, &pair.destination);
    let headers = (
        unless(Header::read(&source.io, &source.id).await, errno::ENOENT)?,
        unless(
            Header::read(&destination.io, &destination.id).await,
            errno::ENOENT,
        )?,
    );
    let (Some(from), Some(to)) = headers else {
        return Ok(());
    };
    match from.parent.filter(|_| to.parent.is_none()) {
        Some(parent) => detach_from(&parent.spec, &destination.io, &destination.id).await,
        None => Ok(()),
    }
}
