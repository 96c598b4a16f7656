//! The committed state as services: the trait of one, and all of them.

use std::ops::RangeInclusive;
use std::rc::Rc;

use bytes::Bytes;
use spirula_denc::UTime;
use spirula_maps::Epoch;
use spirula_proto::RawMessage;

use super::{Auth, ClusterLog, Config, FsMaps, MonMaps, OsdMaps, Stats};
use crate::core::{Identity, LoadError, Manager, Topic, View};
use crate::crashes::Crashes;
use crate::health::{HealthLog, Mutes};
use crate::kv::{KvRead, Txn};

/// The sources from which services are made.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The committed state.
    pub(crate) kv: &'a Rc<dyn KvRead>,
    /// This monitor.
    pub(crate) me: &'a Identity,
    pub(crate) now: UTime,
}

/// The messages to a subscriber.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) messages: Vec<RawMessage>,
    /// The next version for this subscriber.
    pub(crate) next: u64,
}

impl Published {
    /// The newest map, if a subscriber that wants `next` does not know it.
    pub(crate) fn newest(next: u64, version: Epoch, message: impl FnOnce() -> RawMessage) -> Option<Self> {
        let version = u64::from(version);
        (next <= version).then(|| Self {
            messages: vec![message()],
            next: version + 1,
        })
    }
}

/// A service: a part of the committed state, of which a monitor keeps the needed part in memory
/// (Ceph's `PaxosService`).
pub(crate) trait Service: Sized {
    /// The names under which its values are stored.
    const NAMES: &'static [&'static str];

    /// Reads the committed state.
    fn load(from: Source<'_>) -> Result<Self, LoadError>;

    /// Reads the committed state anew, as much of it may have changed at once. Other state is
    /// dropped, unless a service says otherwise.
    fn reload(&mut self, from: Source<'_>) -> Result<(), LoadError> {
        *self = Self::load(from)?;
        Ok(())
    }

    /// Applies a committed change: the new value of `key` of the `name`, or `None` if it was
    /// removed.
    fn apply(&mut self, name: &str, key: &str, value: Option<&Bytes>) -> Result<(), LoadError>;

    /// The messages now due to a subscriber to a topic of this service that has everything before
    /// version `next`, or nothing if that is 0.
    fn publish(&self, _topic: &Topic, _next: u64) -> Option<Published> {
        None
    }

    /// Adds to `txn` that what is old is forgotten. The leader asks now and then; a service that
    /// forgets as it writes has nothing to add.
    fn trim(&self, _view: &View, _txn: &mut Txn) {}

    /// The versions from the oldest to the newest of a topic of this service.
    fn versions(&self, _topic: &Topic) -> Option<RangeInclusive<Epoch>> {
        None
    }
}

/// Declares the state: a service a line.
macro_rules! state {
    ($($(#[$doc:meta])* $field:ident: $service:ty,)*) => {
        /// The committed state.
        pub struct State {
            $($(#[$doc])* pub(crate) $field: $service,)*
        }

        impl State {
            pub(crate) fn load(from: Source<'_>) -> Result<Self, LoadError> {
                Ok(Self { $($field: <$service as Service>::load(from)?,)* })
            }

            /// Adopts the state of another monitor.
            pub(crate) fn reload(&mut self, from: Source<'_>) -> Result<(), LoadError> {
                $(Service::reload(&mut self.$field, from)?;)*
                Ok(())
            }

            /// Applies a committed transaction.
            pub(crate) fn apply(&mut self, txn: &Txn) -> Result<(), LoadError> {
                for op in &txn.ops {
                    $(if <$service as Service>::NAMES.contains(&op.service.as_str()) {
                        Service::apply(&mut self.$field, &op.service, &op.key, op.value.as_ref())?;
                    })*
                }
                Ok(())
            }

            /// The messages now due to a subscriber ([`Service::publish`]).
            pub(crate) fn publish(&self, topic: &Topic, next: u64) -> Option<Published> {
                $(if let Some(published) = Service::publish(&self.$field, topic, next) {
                    return Some(published);
                })*
                None
            }

            /// Adds to `txn` that what is old is forgotten ([`Service::trim`]).
            pub(crate) fn trim(&self, view: &View, txn: &mut Txn) {
                $(Service::trim(&self.$field, view, txn);)*
            }

            /// The oldest and the newest version of a topic, if it has any.
            pub(crate) fn versions(&self, topic: &Topic) -> Option<RangeInclusive<Epoch>> {
                $(if let Some(versions) = Service::versions(&self.$field, topic) {
                    return Some(versions);
                })*
                None
            }
        }
    };
}

state! {
    /// The monitors.
    monmap: MonMaps,
    /// The OSDs.
    osd: OsdMaps,
    /// The file systems.
    fs: FsMaps,
    /// The entities and their keys.
    auth: Auth,
    /// The options.
    config: Config,
    /// The cluster log.
    clog: ClusterLog,
    /// The statistics of PGs, pools and OSDs.
    stats: Stats,
    /// Muted health checks.
    mutes: Mutes,
    /// Crashes of daemons.
    crashes: Crashes,
    /// The health as reported in the cluster log.
    health_log: HealthLog,
    /// The manager and the services that have registered with it.
    manager: Manager,
}
