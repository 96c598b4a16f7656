//! Our own messages between daemons, in the same framing and under the same authentication as the
//! official ones. Clients never see them.
//!
//! One enum is one protocol and one message type: the front segment starts with the variant's
//! number, then come its fields. A protocol is declared with two versions, the newest and the one
//! of the release before; each bump says why where the protocol is declared. [`Edition`] says in
//! which of them a peer is written to.
//!
//! The messages of OSDs to each other about PGs are declared beside the PG, in the `osd` crate.

mod edition;
pub mod heartbeat;
pub mod image_io;
pub mod quorum;
pub mod report;

pub use edition::{Edition, Neighbour, Protocol};

use spirula_denc::{Reader, Result};

use crate::{Body, RawMessage};

/// A variant of a protocol.
pub(crate) trait Part: Sized {
    fn encode_part(&self, out: &mut Body);
    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self>;
}

/// Variants that are only fields in the front segment.
macro_rules! plain_parts {
    ($($name:ty),* $(,)?) => {$(
        impl $crate::internal::Part for $name {
            fn encode_part(&self, out: &mut $crate::Body) {
                out.front.put(self);
            }

            fn decode_part(
                r: &mut spirula_denc::Reader<'_>,
                _: &$crate::RawMessage,
            ) -> spirula_denc::Result<Self> {
                r.get()
            }
        }
    )*};
}

/// Declares a protocol: the enum and the numbers of its variants.
macro_rules! protocol {
    (
        $(#[$doc:meta])*
        pub enum $name:ident: $kind:ident, version $version:literal, oldest $oldest:literal,
        priority $priority:ident {
            $($(#[$vdoc:meta])* $variant:ident($body:ty) = $number:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name {
            $($(#[$vdoc])* $variant($body),)*
        }

        impl $crate::Payload for $name {
            const TYPE: $crate::MsgType = $crate::MsgType::$kind;
            const VERSION: u16 = $version;
            // Written so for a peer of which nothing is known.
            const COMPAT: u16 = $oldest;
            const PRIORITY: u16 = $crate::priority::$priority;

            fn encode(&self, out: &mut $crate::Body) {
                match self {
                    $(Self::$variant(body) => {
                        out.front.u8($number);
                        $crate::internal::Part::encode_part(body, out);
                    })*
                }
            }

            fn decode(
                r: &mut spirula_denc::Reader<'_>,
                msg: &$crate::RawMessage,
            ) -> spirula_denc::Result<Self> {
                match r.u8()? {
                    $($number => $crate::internal::Part::decode_part(r, msg).map(Self::$variant),)*
                    _ => Err(spirula_denc::Error::Invalid(concat!(stringify!($name), " variant"))),
                }
            }
        }

        impl $crate::internal::Protocol for $name {
            const CURRENT: u16 = $version;
            const PREVIOUS: u16 = $oldest;

            // No body differs between the editions.
            fn compose(&self, _: $crate::internal::Edition) -> $crate::RawMessage {
                $crate::Payload::to_message(self)
            }

            fn parse(msg: &$crate::RawMessage, _: $crate::internal::Edition) -> $crate::Result<Self> {
                msg.decode()
            }
        }
    };
}

pub(crate) use {plain_parts, protocol};
