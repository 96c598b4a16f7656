//! Users of an image: the clients that watch its header, and the holders of its lock, taken by the
//! client itself or by hand.

use std::time::Duration;

use spirula_client::{LockInfo, LockRequest, LockType, errno};
use spirula_denc::{EntityName, EntityType};
use spirula_proto::osd_op_data::WatchItem;

use crate::cls::LOCK;
use crate::image::Image;
use crate::{Error, Result};

impl Image {
    /// The clients that watch the header, without this one.
    ///
    /// # Errors
    /// Where they can't be asked for.
    pub async fn watchers(&self) -> Result<Vec<WatchItem>> {
        let inner = &self.inner;
        let mut all = inner.site.io.list_watchers(inner.site.header_oid()).await?;
        let own = inner.client_id();
        all.retain(|w| (w.name.num.cast_unsigned(), w.cookie) != (own.gid, own.handle));
        Ok(all)
    }

    /// The lock on the image, and its holders.
    ///
    /// # Errors
    /// Where they can't be asked for.
    pub async fn lockers(&self) -> Result<LockInfo> {
        let inner = &self.inner;
        Ok(inner.site.io.lock_info(inner.site.header_oid(), LOCK).await?)
    }

    /// Takes the lock for a person, under a cookie of their own; the lock outlives this client.
    /// With a tag, several clients may hold the lock under that tag.
    ///
    /// # Errors
    /// `EBUSY` and `EEXIST` where it is held already.
    pub async fn lock_by_hand(&self, cookie: &str, tag: Option<&str>) -> Result<()> {
        let inner = &self.inner;
        let request = LockRequest {
            name: LOCK.to_owned(),
            kind: tag.map_or(LockType::EXCLUSIVE, |_| LockType::SHARED),
            cookie: cookie.to_owned(),
            tag: tag.unwrap_or_default().to_owned(),
            description: String::new(),
            duration: Duration::ZERO,
            flags: 0,
        };
        inner.site.io.lock(inner.site.header_oid(), &request).await?;
        inner.site.announce_header().await;
        Ok(())
    }

    /// Takes the lock away from a holder, `client.N`, after the client is on the blocklist: it may
    /// be writing.
    ///
    /// # Errors
    /// `EINVAL` where that names no client, `ENOENT` where it holds nothing under the cookie.
    pub async fn break_lock_by_hand(&self, holder: &str, cookie: &str) -> Result<()> {
        let inner = &self.inner;
        let number = holder.strip_prefix("client.").and_then(|n| n.parse().ok());
        let number = number.ok_or(Error::os("locker", errno::EINVAL))?;
        let name = EntityName::new(EntityType::CLIENT, number);
        let held = self.lockers().await?;
        let found = held.lockers.iter().find(|l| l.name == name);
        let locker = found.ok_or(Error::os("break lock", errno::ENOENT))?;
        inner.site.shut_out(locker.addr).await?;
        let broken = inner
            .site
            .io
            .break_lock(inner.site.header_oid(), LOCK, name, cookie)
            .await;
        broken?;
        inner.site.announce_header().await;
        Ok(())
    }
}
