//! Requests of a [`RawClient`] to the OSD that leads the one PG of a pool.

use std::time::Duration;

use spirula_denc::UTime;
use spirula_maps::{Epoch, ObjectLocator, ObjectName, OsdId, PgId, PoolId, SnapContext, SpgId, snap};
use spirula_msgr::Connection;
use spirula_proto::osd::{ExtentArgs, MOsdOp, MOsdOpReply, OpArgs, OpCode, OsdFlags, OsdOpIn};
use spirula_proto::{MsgType, Payload};

use super::Cluster;
use super::raw_client::RawClient;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the OSD that leads a pool of one PG, for requests of any kind.
pub struct RawPool {
    /// The connection.
    pub connection: Connection,
    primary: OsdId,
    pool: PoolId,
    epoch: Epoch,
    tid: u64,
}

impl RawPool {
    /// Connects `client` to the OSD that leads the only PG of `pool`.
    pub async fn open(c: &Cluster, client: &RawClient, pool: &str) -> Self {
        let text = c.sh(&format!("ceph osd map {pool} x -f json"));
        let map: serde_json::Value = serde_json::from_str(&text).unwrap();
        let primary = OsdId::try_from(map["acting_primary"].as_u64().unwrap()).unwrap();
        Self {
            connection: client.osd(primary).await.unwrap(),
            primary,
            pool: PoolId::try_from(map["pool_id"].as_u64().unwrap()).unwrap(),
            epoch: Epoch::try_from(map["epoch"].as_u64().unwrap()).unwrap(),
            tid: 0,
        }
    }

    /// Another connection there, for `client`; the OSD may refuse it.
    pub async fn another(&self, client: &RawClient) -> Result<Self, spirula_msgr::Error> {
        Ok(Self {
            connection: client.osd(self.primary).await?,
            tid: 0,
            ..*self
        })
    }

    /// A valid request.
    pub fn request(&mut self, name: &[u8], ops: Vec<OsdOpIn>) -> MOsdOp {
        self.tid += 1;
        MOsdOp {
            tid: self.tid,
            spg: SpgId::whole(PgId::new(self.pool, 0)),
            hash: 0,
            epoch: self.epoch,
            flags: OsdFlags::ONDISK,
            explicit_reqid: Default::default(),
            trace: Default::default(),
            client_inc: 0,
            mtime: UTime::now(),
            locator: ObjectLocator::pool(self.pool),
            oid: ObjectName::from(name),
            ops,
            snapid: snap::NOSNAP,
            snapc: SnapContext::default(),
            retry_attempt: 0,
            features: u64::MAX,
        }
    }

    /// Sends a request and does not wait.
    pub fn send(&self, request: &MOsdOp) {
        self.connection.sender().send(request.to_message());
    }

    /// The answer to the request with this number.
    pub async fn answer(&mut self, tid: u64) -> MOsdOpReply {
        let answer = async {
            loop {
                let m = self.connection.recv().await.unwrap();
                if m.kind() == MsgType::OSD_OP_REPLY && m.header.tid == tid {
                    return m.decode().unwrap();
                }
            }
        };
        tokio::time::timeout(PATIENCE, answer).await.expect("no answer")
    }

    /// The answer to a request.
    pub async fn ask(&mut self, request: &MOsdOp) -> MOsdOpReply {
        self.send(request);
        self.answer(request.tid).await
    }

    /// The result of ops on an object.
    pub async fn result(&mut self, name: &[u8], ops: Vec<OsdOpIn>) -> i32 {
        let request = self.request(name, ops);
        self.ask(&request).await.result
    }
}

/// An op with an extent.
pub fn extent(code: OpCode, offset: u64, length: u64, data: Vec<u8>) -> OsdOpIn {
    let extent = ExtentArgs {
        offset,
        length,
        ..ExtentArgs::default()
    };
    OsdOpIn::new(code, OpArgs::Extent(extent), data)
}

/// Replaces an object's data.
pub fn write_full(data: &[u8]) -> OsdOpIn {
    extent(OpCode::WRITEFULL, 0, data.len() as u64, data.to_vec())
}

/// Reads all of an object.
pub fn read() -> OsdOpIn {
    extent(OpCode::READ, 0, 0, Vec::new())
}
