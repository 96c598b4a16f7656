//! The structures of cephx on the wire (Ceph's `src/auth/cephx/CephxProtocol.h` and
//! `src/auth/Auth.h`).
//!
//! They have a version byte but, older than versioned sections, no length: only readers that know a
//! newer field can skip it.

use bytes::Bytes;
use spirula_denc::{
    Decode, Encode, EntityType, Error, Reader, Result, UTime, Writer, decode_all, encode_to_vec,
};

use crate::key::{ConnectionSecret, CryptoKey};
use crate::name::AuthName;

/// Authentication methods (`CEPH_AUTH_*`).
pub mod method {
    /// No authentication; Spirula never offers it.
    pub const NONE: u32 = 1;
    /// cephx.
    pub const CEPHX: u32 = 2;
}

/// Types of request (`CEPHX_GET_*`).
pub(crate) mod request {
    /// Prove to hold the entity's key; get the ticket of the monitors' own service.
    pub(crate) const AUTH_SESSION_KEY: u16 = 0x0100;
    /// Get tickets of other services for the ticket of the monitors' service.
    pub(crate) const PRINCIPAL_SESSION_KEY: u16 = 0x0200;
    /// Get the rotating secrets of the entity's own service.
    pub(crate) const ROTATING_KEY: u16 = 0x0400;
}

/// The first byte of a handshake's first message: a version and the kind of peer that is addressed
/// (`AUTH_MODE_*`).
pub(crate) mod mode {
    use std::ops::RangeInclusive;
    /// An authorizer, for a service. Up to 9 are reserved for them; all releases write this one.
    pub(crate) const AUTHORIZER: u8 = 1;
    /// A login, for a monitor.
    pub(crate) const MON: u8 = 10;
    /// All login versions.
    pub(crate) const MONS: RangeInclusive<u8> = 10..=19;
    /// A monitor greets another one ([`crate::greeting`]); not a number of Ceph's.
    pub(crate) const GREETING: u8 = 32;
}

/// The number in the place of the former accounts (`auid`).
const AUID_DEFAULT: u64 = u64::MAX;

/// Declares structures of a version byte and their fields in order: they have neither the oldest
/// readable version nor the length of the sections that [`spirula_denc::versioned!`] declares. All
/// releases write the same version; another one is refused.
macro_rules! version_byte {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident = $version:literal { $($(#[$fmeta:meta])* $field:ident: $t:ty,)* })*) => {$(
        $(#[$meta])*
        $vis struct $name { $($(#[$fmeta])* pub $field: $t,)* }

        impl Encode for $name {
            fn encode(&self, w: &mut Writer) {
                w.u8($version);
                $(w.put(&self.$field);)*
            }
        }
        impl Decode for $name {
            fn decode(r: &mut Reader<'_>) -> Result<Self> {
                if r.u8()? != $version {
                    return Err(spirula_denc::Error::Invalid(stringify!($name)));
                }
                $(let $field = r.get()?;)*
                Ok(Self { $($field,)* })
            }
        }
    )*};
}
pub(crate) use version_byte;

version_byte! {
    /// The monitor's challenge (`CephXServerChallenge`), also an authorizer's
    /// (`CephXAuthorizeChallenge`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Challenge = 1 {
        /// A random number.
        server_challenge: u64,
    }

    /// The holder's data about a ticket (`CephXServiceTicket`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ServiceTicket = 1 {
        /// The key that the ticket's holder shares with the service.
        session_key: CryptoKey,
        /// How long the ticket is valid from now.
        validity: UTime,
    }

    /// The service's data about a ticket (`CephXServiceTicketInfo`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ServiceTicketInfo = 1 {
        /// The holder and its rights.
        ticket: AuthTicket,
        /// The key that the ticket's holder shares with the service.
        session_key: CryptoKey,
    }

    /// An entity's capabilities for one service (`AuthCapsInfo`).
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct AuthCaps = 1 {
        /// Everything is allowed, whatever the text says.
        allow_all: bool,
        /// The encoded text; empty where there is none.
        encoded: Bytes,
    }
}

/// A sealed ticket (`CephXTicketBlob`), opaque to its holder. The version before it is not sealed,
/// and not checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TicketBlob {
    /// The id of the rotating secret with which it is sealed.
    pub secret_id: u64,
    /// The sealed [`ServiceTicketInfo`]; empty where there is no ticket.
    pub blob: Bytes,
}

impl Encode for TicketBlob {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.secret_id);
        w.put(&self.blob);
    }
}

impl Decode for TicketBlob {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u8()?;
        Ok(Self {
            secret_id: r.u64()?,
            blob: r.get()?,
        })
    }
}

/// A request for service tickets (`CephXServiceTicketRequest`). It is not sealed, and Linux leaves
/// its version open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTicketRequest {
    /// The services, one bit each ([`EntityType`]).
    pub keys: u32,
}

impl Encode for ServiceTicketRequest {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u32(self.keys);
    }
}

impl Decode for ServiceTicketRequest {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u8()?;
        Ok(Self { keys: r.u32()? })
    }
}

impl AuthCaps {
    /// Capabilities of this text.
    pub fn from_text(text: &str) -> Self {
        Self {
            allow_all: false,
            encoded: encode_to_vec(text).into(),
        }
    }

    /// The text, empty where there is none.
    ///
    /// # Errors
    /// Where the bytes are not an encoded string.
    pub fn text(&self) -> Result<String> {
        if self.encoded.is_empty() {
            Ok(String::new())
        } else {
            decode_all(&self.encoded)
        }
    }
}

/// A ticket's holder and its rights (`AuthTicket`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthTicket {
    /// The holder.
    pub name: AuthName,
    /// The number that the monitors gave the holder's session.
    pub global_id: u64,
    /// When the ticket was made.
    pub created: UTime,
    /// When its life ends.
    pub expires: UTime,
    /// The holder's rights at the service.
    pub caps: AuthCaps,
    /// Unused.
    pub flags: u32,
}

impl AuthTicket {
    const VERSION: u8 = 2;
}

impl Encode for AuthTicket {
    fn encode(&self, w: &mut Writer) {
        w.u8(Self::VERSION);
        w.put(&self.name);
        w.u64(self.global_id);
        w.u64(AUID_DEFAULT);
        w.put(&self.created);
        w.put(&self.expires);
        w.put(&self.caps);
        w.u32(self.flags);
    }
}

impl Decode for AuthTicket {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        if r.u8()? != Self::VERSION {
            return Err(Error::Invalid("AuthTicket"));
        }
        let (name, global_id) = (r.get()?, r.u64()?);
        r.u64()?;
        Ok(Self {
            name,
            global_id,
            created: r.get()?,
            expires: r.get()?,
            caps: r.get()?,
            flags: r.u32()?,
        })
    }
}

/// The header of a request (`CephXRequestHeader`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// Its type.
    pub request_type: u16,
}

impl Encode for RequestHeader {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.request_type);
    }
}

impl Decode for RequestHeader {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            request_type: r.u16()?,
        })
    }
}

/// The header of a reply (`CephXResponseHeader`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The type of the request that is answered.
    pub request_type: u16,
    /// 0 or a negative errno.
    pub status: i32,
}

impl Encode for ResponseHeader {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.request_type);
        w.i32(self.status);
    }
}

impl Decode for ResponseHeader {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            request_type: r.u16()?,
            status: r.i32()?,
        })
    }
}

/// Both challenges, whose sealed form proves knowledge of the key (`CephXChallengeBlob`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChallengeBlob {
    /// The monitor's.
    pub server_challenge: u64,
    /// The client's.
    pub client_challenge: u64,
}

impl Encode for ChallengeBlob {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.server_challenge);
        w.u64(self.client_challenge);
    }
}

impl Decode for ChallengeBlob {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            server_challenge: r.u64()?,
            client_challenge: r.u64()?,
        })
    }
}

/// The client's answer to the challenge (`CephXAuthenticate`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticate {
    /// The version that the client wrote: below 3 it may leave out the old ticket when it reclaims
    /// its global id.
    pub version: u8,
    /// The client's random number.
    pub client_challenge: u64,
    /// The folded proof.
    pub key: u64,
    /// The ticket of the session that is reclaimed.
    pub old_ticket: TicketBlob,
    /// The services for which tickets are wanted, one bit each.
    pub other_keys: u32,
}

impl Authenticate {
    /// The version that Spirula's client writes.
    pub(crate) const VERSION: u8 = 3;

    /// Whether the client is so old that it may leave out the ticket of the session that it
    /// reclaims.
    pub(crate) fn may_omit_ticket(&self) -> bool {
        self.version < 3
    }
}

impl Encode for Authenticate {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.version);
        w.u64(self.client_challenge);
        w.u64(self.key);
        w.put(&self.old_ticket);
        if self.version >= 2 {
            w.u32(self.other_keys);
        }
    }
}

impl Decode for Authenticate {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let version = r.u8()?;
        let (client_challenge, key, old_ticket) = (r.u64()?, r.u64()?, r.get()?);
        let other_keys = if version >= 2 { r.u32()? } else { 0 };
        Ok(Self {
            version,
            client_challenge,
            key,
            old_ticket,
            other_keys,
        })
    }
}

/// The sealed part of an authorizer (`CephXAuthorize`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorize {
    /// The client's random number.
    pub nonce: u64,
    /// The service's challenge plus one, once it is known.
    pub challenge_plus_one: Option<u64>,
}

impl Authorize {
    /// The version of all releases since 12.2.6: with room for the challenge.
    const VERSION: u8 = 2;
}

impl Encode for Authorize {
    fn encode(&self, w: &mut Writer) {
        w.u8(Self::VERSION);
        w.u64(self.nonce);
        w.bool(self.challenge_plus_one.is_some());
        w.u64(self.challenge_plus_one.unwrap_or(0));
    }
}

impl Decode for Authorize {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        if r.u8()? != Self::VERSION {
            return Err(Error::Invalid("CephXAuthorize"));
        }
        let nonce = r.u64()?;
        let (have, value) = (r.bool()?, r.u64()?);
        Ok(Self {
            nonce,
            challenge_plus_one: have.then_some(value),
        })
    }
}

/// The service's proof that it could read the ticket (`CephXAuthorizeReply`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizeReply {
    /// The client's nonce plus one.
    pub nonce_plus_one: u64,
    /// The connection's secret; empty in crc mode.
    pub connection_secret: ConnectionSecret,
}

impl Encode for AuthorizeReply {
    fn encode(&self, w: &mut Writer) {
        w.u8(if self.connection_secret.is_empty() { 1 } else { 2 });
        w.u64(self.nonce_plus_one);
        if !self.connection_secret.is_empty() {
            w.put(&self.connection_secret);
        }
    }
}

impl Decode for AuthorizeReply {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let version = r.u8()?;
        let nonce_plus_one = r.u64()?;
        let connection_secret = match version {
            1 => ConnectionSecret::default(),
            2 => r.get()?,
            _ => return Err(Error::Invalid("CephXAuthorizeReply")),
        };
        Ok(Self {
            nonce_plus_one,
            connection_secret,
        })
    }
}

impl Encode for ConnectionSecret {
    fn encode(&self, w: &mut Writer) {
        w.blob(&self.0);
    }
}

impl Decode for ConnectionSecret {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self(r.blob()?.to_vec().into()))
    }
}

/// The services whose bits are set in a mask of wanted keys, lowest first.
pub(crate) fn services_in(mask: u32) -> impl Iterator<Item = EntityType> {
    // Types have 8 bits; higher ones name no service.
    (0..8)
        .map(|bit| EntityType(1 << bit))
        .filter(move |t| mask & u32::from(t.0) != 0)
}

/// A service as the 32-bit number that stands on the wire.
pub(crate) fn read_service(r: &mut Reader<'_>) -> Result<EntityType> {
    u8::try_from(r.u32()?)
        .map(EntityType)
        .map_err(|_| Error::Invalid("service"))
}
