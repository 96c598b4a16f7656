//! Messages at the beginning of a session: monitor map, subscriptions, configuration, version
//! queries.

use std::collections::BTreeMap;

use spirula_denc::Fsid;

use crate::Blob;
use crate::macros::{message, packed};

message! {
    /// Asks for the monitor map once.
    pub struct MMonGetMap: MON_GET_MAP, version 1, compat 1 {}
}

message! {
    /// The monitor map.
    pub struct MMonMap: MON_MAP, version 1, compat 1, priority HIGH {
        /// An encoded `MonMap`.
        pub monmap: Blob,
    }
}

packed! {
    /// A subscription to a map (`ceph_mon_subscribe_item`).
    pub struct Subscription {
        /// The first epoch wanted; 0 for the newest one in full.
        pub start: u64,
        /// See [`Subscription::ONETIME`].
        pub flags: u8,
    }
}

impl Subscription {
    /// The subscription ends with the first answer.
    pub const ONETIME: u8 = 1;

    /// Whether the first answer ends it.
    pub fn is_onetime(&self) -> bool {
        self.flags & Self::ONETIME != 0
    }
}

message! {
    /// Subscribes to maps: `monmap`, `osdmap`, `config`, `mgrmap`, `fsmap`, `log-info`, …
    ///
    /// Version 1 (before Infernalis) had another layout and is refused.
    pub struct MMonSubscribe: MON_SUBSCRIBE, version 3, compat 1, oldest 2 {
        /// The wanted maps, by name.
        pub what: BTreeMap<String, Subscription>,
        /// The subscriber's host, for per-host configuration.
        pub hostname: String, since 3,
    }
}

message! {
    /// Confirms a subscription; only for clients without `MON_STATEFUL_SUB`.
    pub struct MMonSubscribeAck: MON_SUBSCRIBE_ACK, version 1, compat 1 {
        /// Seconds after which the client must renew it.
        pub interval: u32,
        /// The cluster.
        pub fsid: Fsid,
    }
}

message! {
    /// Asks for the newest version of a map; the answer must be linearizable.
    pub struct MMonGetVersion: MON_GET_VERSION, version 1, compat 1 {
        /// Returned in the reply.
        pub handle: u64,
        /// `osdmap`, `fsmap`, `monmap`, …
        pub what: String,
    }
}

message! {
    /// The newest and the oldest version of a map.
    pub struct MMonGetVersionReply: MON_GET_VERSION_REPLY, version 2, compat 2, oldest 1 {
        /// The request's handle.
        pub handle: u64,
        /// The newest committed version.
        pub version: u64,
        /// The oldest version still kept.
        pub oldest_version: u64, since 2,
    }
}

message! {
    /// The configuration that applies to the receiver. Librados waits for the first one.
    pub struct MConfig: CONFIG, version 1, compat 1 {
        /// Values by option.
        pub config: BTreeMap<String, String>,
    }
}

packed! {
    /// An entity by name (`EntityName` of `src/common/entity_name.h`).
    pub struct NamedEntity {
        /// `CEPH_ENTITY_TYPE_*`.
        pub kind: u32,
        /// The name after the dot: `admin` in `client.admin`.
        pub id: String,
    }
}

message! {
    /// Asks for the configuration of one entity.
    pub struct MGetConfig: GET_CONFIG, version 1, compat 1 {
        /// The entity.
        pub name: NamedEntity,
        /// The entity's host.
        pub host: String,
        /// The OSD's device class, if any.
        pub device_class: String,
    }
}

message! {
    /// A ping. A monitor answers with its health as JSON text in a `u32`-counted string, see
    /// [`MPing::reply`].
    pub struct MPing: PING, version 1, compat 1 {}
}

impl MPing {
    /// The answer to a ping: JSON text in the data of another ping.
    pub fn reply(json: &str) -> crate::RawMessage {
        use crate::Payload;
        let mut m = Self {}.to_message();
        m.front = spirula_denc::encode_to_vec(json).into();
        m
    }
}
