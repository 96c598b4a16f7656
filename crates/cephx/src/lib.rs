//! cephx: Ceph's authentication, as state machines without I/O, and its capability grammars.
//!
//! - [`CryptoKey`], [`Keyring`], [`AuthName`], [`EntityAuth`]: entities and their keys.
//! - [`ClientHandshake`] and [`ServerHandshake`]: the login of an entity at a monitor, and the
//!   renewal of its tickets.
//! - [`Authorizer`] and [`AuthorizerVerifier`]: the use of a ticket at a service. Every daemon
//!   authenticates to every other in one of these two ways, but monitors to each other with a
//!   [`Greeting`].
//! - [`ServiceSecrets`]: the rotating secrets that tickets are sealed with; [`RotatingKeys`]: a
//!   service's copy.
//! - [`caps`]: what an entity may do.
//!
//! Time and randomness are passed in with [`Env`]. The public source of the formats is Ceph's
//! `src/auth`.

mod authorizer;
pub mod caps;

mod client;
mod derive;
mod entity;
mod env;
mod error;
mod global_id;
#[cfg(test)]
mod golden;
mod greeting;
mod key;
mod keyring;
mod keyserver;
mod name;
mod outcome;
mod rfc8009;
mod rotating;
mod seal;
mod server;
mod ticket;
mod ticket_seal;
pub mod wire;

pub use authorizer::{Authorizer, AuthorizerVerifier, TicketKeys};
pub use client::{ClientHandshake, ClientKeys, ClientSession, Renewed, TicketStore};
pub use entity::EntityAuth;
pub use env::{Env, OsRandom, RandomSource};
pub use error::{Error, Result};
pub use global_id::{GLOBAL_ID_STEP, GlobalIds};
pub use greeting::Greeting;
pub use key::{ConnectionMode, ConnectionSecret, CryptoKey, KeyType};
pub use keyring::{Keyring, KeyringError};
pub use keyserver::{KeyDatabase, KeyServer};
pub use name::AuthName;
pub use outcome::{Accepted, GlobalIdStatus, Outcome};
pub use rotating::{
    CurrentSecret, ExpiringKey, RotatingKeys, RotatingSecrets, ServiceKeys, ServiceSecrets, TicketLifetimes,
};
pub use server::{AuthReply, ServerHandshake};
pub use wire::{AuthCaps, AuthTicket, method};
