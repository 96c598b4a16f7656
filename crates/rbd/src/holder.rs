//! The holder of an image's lock, as all clients see it, and the end of a dead one.
//!
//! A holder whose watch is gone is dead. Before another client takes its lock, the dead one is put
//! on the cluster's blocklist, so that its late requests can't change the image any more.

use spirula_client::{
    LockType,
    errno::{self, Errno},
};
use spirula_denc::{AddrType, EntityAddr, EntityName};
use spirula_proto::osd_op_data::WatchItem;

use crate::site::Site;
use crate::{Error, Result, cls};

/// The prefix of cookies.
pub(crate) const COOKIE: &str = "auto ";

/// The holder of the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    name: EntityName,
    cookie: String,
    addr: EntityAddr,
    /// The number of its watch.
    handle: u64,
}

impl Holder {
    fn is_watching(&self, watchers: &[WatchItem]) -> bool {
        let addr = |a: EntityAddr| a.with_kind(AddrType::ANY);
        watchers
            .iter()
            .any(|w| w.cookie == self.handle && addr(w.addr) == addr(self.addr))
    }
}

impl Site {
    /// The holder of the lock. `EBUSY` where that is no client that passes it on.
    pub(crate) async fn holder(&self) -> Result<Option<Holder>> {
        let info = self.io.lock_info(self.header_oid(), cls::LOCK).await?;
        let Some(locker) = info.lockers.into_iter().next() else {
            return Ok(None);
        };
        let handle = locker.cookie.strip_prefix(COOKIE).and_then(|n| n.parse().ok());
        match handle {
            Some(handle)
                if info.tag == cls::LOCK_TAG
                    && info.kind == LockType::EXCLUSIVE
                    && !locker.addr.is_blank() =>
            {
                Ok(Some(Holder {
                    name: locker.name,
                    cookie: locker.cookie,
                    addr: locker.addr,
                    handle,
                }))
            }
            _ => Err(Error::os("lock", errno::EBUSY)),
        }
    }

    /// Takes the lock away from a dead holder. Returns false where the holder is alive.
    pub(crate) async fn take_from_dead(&self, holder: &Holder) -> Result<bool> {
        let watchers = self.io.list_watchers(self.header_oid()).await?;
        if holder.is_watching(&watchers) {
            return Ok(false);
        }
        // A new holder's watch may be newer than the list of watchers that was read.
        if self.holder().await?.as_ref() != Some(holder) {
            return Ok(true);
        }
        tracing::warn!(
            "{} at {} is dead: its lock is taken away",
            holder.name,
            holder.addr
        );
        self.shut_out(holder.addr).await?;
        let broken = self
            .io
            .break_lock(self.header_oid(), cls::LOCK, holder.name, &holder.cookie);
        match broken.await {
            Err(e) if e.errno() != errno::ENOENT => Err(e.into()),
            _ => Ok(true),
        }
    }

    /// Puts a client on the cluster's blocklist.
    pub(crate) async fn shut_out(&self, addr: EntityAddr) -> Result<()> {
        let addr = addr.with_kind(AddrType::ANY);
        let rados = self.io.rados();
        let command = |prefix: &str, key: &str| {
            format!(r#"{{"prefix": "osd {prefix}", "{key}": "add", "addr": "{addr}"}}"#)
        };
        let add = command("blocklist", "blocklistop");
        let mut reply = rados.mon_command(&add, bytes::Bytes::new()).await?;
        if reply.result == -errno::EINVAL {
            // The command's name before Pacific.
            let add = command("blacklist", "blacklistop");
            reply = rados.mon_command(&add, bytes::Bytes::new()).await?;
        }
        if let Some(errno) = Errno::of_result(reply.result) {
            return Err(Error::os("blocklist", errno));
        }
        // Requests carry this map's epoch: an OSD that executes one knows the list.
        rados.latest_map().await?;
        Ok(())
    }
}
