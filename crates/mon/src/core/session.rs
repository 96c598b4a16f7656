//! A client's or daemon's session.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use spirula_cephx::{AuthName, ServerHandshake};
use spirula_denc::{EntityAddr, EntityName};
use spirula_maps::OsdId;
use spirula_proto::RawMessage;
use spirula_proto::internal::Neighbour;
use spirula_proto::internal::report::OsdReportReply;

use super::{Topic, View};
use crate::caps::MonCap;
use crate::options::Values;

/// The id of a session; never reused by the daemon.
pub type SessionId = u64;

/// A subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sub {
    /// The next version wanted; 0 for the newest in full.
    pub next: u64,
    /// Whether the first answer ends it.
    pub onetime: bool,
    /// When an answered one-time subscription for OSDMaps ends, on the steady clock.
    pub ends: Option<Duration>,
}

/// A peer's properties as the handshake found them.
#[derive(Debug)]
pub struct NewSession {
    /// The peer's entity name.
    pub name: AuthName,
    /// Its session number.
    pub global_id: u64,
    /// Its monitor capabilities, as text.
    pub caps: String,
    /// The address that the peer claims.
    pub addr: EntityAddr,
    /// The address that the connection comes from, to which capabilities may be bound.
    pub ip: Option<IpAddr>,
    /// Its features.
    pub features: u64,
    /// The finished handshake, which renews the peer's tickets.
    pub handshake: ServerHandshake,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    /// The peer's entity name.
    pub name: AuthName,
    /// Its session number.
    pub global_id: u64,
    /// The peer's rights.
    pub caps: MonCap,
    /// Its address.
    pub addr: EntityAddr,
    /// Its features.
    pub features: u64,
    /// The peer's host, once it has named it.
    pub host: String,
    /// Its subscriptions.
    pub subs: BTreeMap<Topic, Sub>,
    /// The configuration it was last sent.
    pub config: Option<BTreeMap<String, String>>,
    /// The options that a daemon runs with, if it has reported them.
    pub running: Option<Values>,
    /// Whether the client's connection is to another monitor, which forwards its messages.
    pub forwarded: bool,
    /// The edition that the peer speaks, if it is an OSD.
    pub(crate) osd_speaks: Neighbour,
    /// The peer's capabilities, as text.
    pub(crate) caps_text: String,
    /// The address that the connection comes from.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) handshake: ServerHandshake,
}

impl View {
    /// Whether a session with the monitor has these capabilities for a whole service, not just for
    /// some commands.
    pub(crate) fn may(&self, session: SessionId, service: &str, perm: &str) -> bool {
        let session = self.sessions.get(&session);
        session.is_some_and(|s| s.caps.is_allowed_service(service, perm))
    }

    /// The session of an OSD.
    pub(crate) fn osd_session(&self, osd: OsdId) -> Option<SessionId> {
        let mut of_osd = self.sessions.iter().filter(|(_, s)| s.osd() == Some(osd));
        of_osd.next_back().map(|(id, _)| *id)
    }

    /// A message to the OSD that has this session.
    pub(crate) fn to_osd(&self, session: SessionId, msg: &OsdReportReply) -> RawMessage {
        let speaks = self.sessions.get(&session).map(|s| s.osd_speaks);
        speaks.unwrap_or_default().write(msg)
    }
}

impl Session {
    pub(crate) fn new(new: NewSession) -> Self {
        Self {
            caps: MonCap::parse(&new.caps, new.name.clone(), new.ip),
            name: new.name,
            global_id: new.global_id,
            addr: new.addr,
            features: new.features,
            host: String::new(),
            subs: BTreeMap::new(),
            config: None,
            running: None,
            forwarded: false,
            osd_speaks: Neighbour::default(),
            caps_text: new.caps,
            ip: new.ip,
            handshake: new.handshake,
        }
    }

    /// The OSD's number, if the peer is an OSD: it is named so, and has the capabilities that Ceph
    /// asks of a reporting OSD.
    pub fn osd(&self) -> Option<OsdId> {
        let may = || self.caps.is_allowed_service("osd", "x");
        self.name.osd_number().and_then(OsdId::of_item).filter(|_| may())
    }

    /// The name in messages: daemons have their number, clients the global id.
    pub fn entity(&self) -> EntityName {
        let num = match self.osd() {
            Some(id) => i64::from(id),
            None => i64::try_from(self.global_id).unwrap_or(0),
        };
        EntityName::new(self.name.kind, num)
    }
}
