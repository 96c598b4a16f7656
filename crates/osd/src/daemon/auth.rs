//! Authentication of peers: the daemon admits a peer that has a ticket for the service OSD.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use spirula_cephx::caps::{ClassCall, OsdCap, OsdRequest};
use spirula_cephx::{Accepted, AuthName, CryptoKey, RotatingKeys, RotatingSecrets, TicketKeys};
use spirula_denc::EntityType;
use spirula_maps::OsdId;

use crate::pg::cluster::PoolView;
use crate::pg::op::Access;

/// The secrets with which tickets for this service are sealed, as last fetched. Clones share them.
#[derive(Clone)]
pub(super) struct Secrets(Rc<RefCell<RotatingKeys>>);

impl Secrets {
    /// Without any secrets yet.
    pub(super) fn new() -> Self {
        Self(Rc::new(RefCell::new(RotatingKeys::new(EntityType::OSD))))
    }

    /// Adopts the secrets that the monitor has sent.
    pub(super) fn set(&self, new: RotatingSecrets) {
        self.0.borrow_mut().set(new);
    }
}

impl TicketKeys for Secrets {
    fn ticket_key(&self, service: EntityType, secret_id: u64) -> Option<CryptoKey> {
        self.0.borrow().ticket_key(service, secret_id)
    }
}

/// An authenticated peer.
#[derive(Debug)]
pub(super) struct PeerInfo {
    pub(super) name: AuthName,
    pub(super) global_id: u64,
    /// The peer's capabilities; `None` if the ticket's text is not understood.
    pub(super) caps: Option<OsdCap>,
}

impl PeerInfo {
    /// The number of the OSD that the peer is: its entity is named as an OSD and may do what OSDs
    /// must. One with a client's capabilities is a client.
    pub(super) fn osd(&self) -> Option<OsdId> {
        let may = self.caps.as_ref().is_some_and(OsdCap::is_allow_all);
        self.name.osd_number().and_then(OsdId::of_item).filter(|_| may)
    }
}

impl From<Accepted> for PeerInfo {
    fn from(accepted: Accepted) -> Self {
        let text = accepted.caps.text().ok();
        Self {
            name: accepted.name,
            global_id: accepted.global_id,
            caps: text.and_then(|text| OsdCap::parse(&text).ok()),
        }
    }
}

/// A client's capabilities, with the address they may be bound to.
#[derive(Debug)]
pub(super) struct CapAccess {
    pub(super) caps: Option<OsdCap>,
    pub(super) addr: Option<IpAddr>,
}

impl Access for CapAccess {
    fn allows(
        &self,
        pool: &PoolView,
        nspace: &[u8],
        key: &[u8],
        read: bool,
        write: bool,
        calls: &[ClassCall<'_>],
    ) -> bool {
        let Some(caps) = &self.caps else { return false };
        caps.is_allow_all()
            || caps.is_capable(&OsdRequest {
                pool: &pool.name,
                namespace: nspace,
                application: &pool.applications,
                object: key,
                read,
                write,
                classes: calls,
                addr: self.addr,
            })
    }

    fn allows_nothing(&self) -> bool {
        self.caps.as_ref().is_none_or(OsdCap::is_empty)
    }

    fn allows_all(&self) -> bool {
        self.caps.as_ref().is_some_and(OsdCap::is_allow_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_osds_name_with_an_osds_rights_makes_an_osd() {
        let osd = |name: &str, caps: &str| {
            let info = PeerInfo {
                name: name.parse().unwrap(),
                global_id: 5,
                caps: OsdCap::parse(caps).ok(),
            };
            info.osd()
        };
        assert_eq!(osd("osd.3", "allow *"), Some(OsdId::new(3)));
        for (name, caps) in [
            ("osd.3", "allow rwx"),
            ("osd.3", "allow r pool=a"),
            ("osd.3", "nonsense"),
            ("osd.03", "allow *"),
            ("client.3", "allow *"),
            ("mon.3", "allow *"),
        ] {
            assert_eq!(osd(name, caps), None, "{name} {caps}");
        }
    }
}
