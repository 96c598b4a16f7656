//! An OSD's core with one PG, and a store with one object of any content.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use spirula_cephx::caps::ClassCall;
use spirula_denc::{EntityAddr, EntityName, EntityType, Extent, Micros, UTime};
use spirula_maps::{
    Epoch, HObject, ObjectLocator, ObjectName, OsdId, PgId, PoolId, ReqId, SnapContext, snap,
};
use spirula_osd::core::{Core, Shard};
use spirula_osd::pg::cluster::{ClusterMap, OsdView, Placement, PoolView};
use spirula_osd::pg::config::PgConfig;
use spirula_osd::pg::fetch::{Answer, Fetched, OmapPage, OmapRange, Want};
use spirula_osd::pg::image_io::ImageIo;
use spirula_osd::pg::layout::Layout;
use spirula_osd::pg::op::{Access, Client, ClientOp, OsdOp};
use spirula_osd::pg::perf::CorePerf;
use spirula_osd::pg::placed_data::PlacedData;
use spirula_osd::pg::txn::log_bytes;
use spirula_osd::pg::versions::Versions;
use spirula_osd::pg::{Ctx, Output, StoreReply, StoredObject, key};
use spirula_proto::osd::{OpCode, OsdFlags, OsdOpIn};

const POOL: PoolId = PoolId::new(1);
const ME: OsdId = OsdId::new(0);
/// The most bytes of a store's record, with the log entry.
const MAX_RECORD: usize = 8 << 20;

/// The object as the store has it.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub exists: bool,
    pub info: Bytes,
    pub data: Bytes,
    pub attrs: BTreeMap<Bytes, Bytes>,
    pub omap: BTreeMap<Bytes, Bytes>,
    pub header: Bytes,
}

/// A pool of one PG on one OSD.
#[derive(Debug)]
struct OneOsd {
    epoch: Epoch,
}

impl ClusterMap for OneOsd {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn pool(&self, id: PoolId) -> Option<PoolView> {
        (id == POOL && self.epoch > Epoch::new(1)).then(|| PoolView {
            id,
            name: "pool".to_owned(),
            size: 1,
            min_size: 1,
            pg_num: 1,
            created: Epoch::new(2),
            layout: Some(Layout::Whole),
            ..PoolView::default()
        })
    }

    fn pool_ids(&self) -> Vec<PoolId> {
        Vec::from_iter((self.epoch > Epoch::new(1)).then_some(POOL))
    }

    fn placement(&self, _: PgId) -> Placement {
        Placement {
            raw: [ME].into(),
            up: [ME].into(),
            up_primary: Some(ME),
            acting: [ME].into(),
            primary: Some(ME),
        }
    }

    fn object_to_raw_pg(&self, _: &ObjectName, locator: &ObjectLocator) -> Option<PgId> {
        (locator.pool == Some(POOL)).then(|| PgId::new(POOL, 0))
    }

    fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        (raw.pool == POOL).then(|| PgId::new(POOL, 0))
    }

    fn osd(&self, id: OsdId) -> Option<OsdView> {
        (id == ME).then_some(OsdView {
            up: self.epoch > Epoch::new(1),
            up_from: Epoch::new(2),
            up_thru: Epoch::new(2),
            ..OsdView::default()
        })
    }

    fn no_snap_trim(&self) -> bool {
        false
    }

    fn no_scrub(&self) -> bool {
        false
    }

    fn no_deep_scrub(&self) -> bool {
        false
    }

    fn no_backfill(&self) -> bool {
        false
    }

    fn no_recover(&self) -> bool {
        false
    }

    fn no_rebalance(&self) -> bool {
        false
    }

    fn max_osd(&self) -> u32 {
        1
    }

    fn is_blocklisted(&self, _: &EntityAddr) -> bool {
        false
    }
}

#[derive(Debug)]
struct AllowAll;

impl Access for AllowAll {
    fn allows(&self, _: &PoolView, _: &[u8], _: &[u8], _: bool, _: bool, _: &[ClassCall<'_>]) -> bool {
        true
    }

    fn allows_all(&self) -> bool {
        true
    }
}

/// A configuration with limits so small that they allow little memory.
fn config() -> PgConfig {
    PgConfig {
        max_object_size: 64 << 10,
        max_attr_size: 16 << 10,
        max_attrs_total: 16 << 10,
        max_write_size: 64 << 10,
        max_omap_bytes: 64 << 10,
        max_class_bytes: 64 << 10,
        max_class_page: 4 << 10,
        max_work: 4 << 20,
        ..PgConfig::default()
    }
}

struct Host<'a> {
    core: Core,
    stored: &'a Stored,
    key: Bytes,
    full: BTreeSet<OsdId>,
    versions: Versions,
    images: ImageIo,
    usec: Micros,
    /// The core's outputs that are to be carried out.
    out: VecDeque<Output>,
    replies: usize,
}

/// Executes a request on the object. It must be answered, unless it notifies, and make no change
/// that a store refuses.
pub(super) fn execute(stored: &Stored, ops: Vec<OsdOpIn>, snapc: SnapContext, returns: bool) {
    let map: Arc<dyn ClusterMap> = Arc::new(OneOsd { epoch: Epoch::new(1) });
    let object = HObject::new(
        POOL.signed(),
        ObjectName::EMPTY,
        ObjectName::EMPTY,
        ObjectName::from("o"),
        snap::NOSNAP,
        0,
    );
    let mut host = Host {
        core: Core::new(ME, Shard::WHOLE, Arc::new(config()), map),
        stored,
        key: key::object_key(&object),
        full: BTreeSet::new(),
        versions: Versions::default(),
        images: ImageIo::default(),
        usec: Micros::new(1),
        out: VecDeque::new(),
        replies: 0,
    };
    host.with(|core, cx| core.handle_map(Arc::new(OneOsd { epoch: Epoch::new(2) }), false, true, cx));
    let name = EntityName::new(EntityType::CLIENT, 4100);
    let waits = ops.iter().any(|o| o.op.code == OpCode::NOTIFY);
    let mut flags = OsdFlags::ONDISK;
    if returns {
        flags.insert(OsdFlags::RETURNVEC);
    }
    let op = ClientOp {
        client: Arc::new(Client::new(1, name, EntityAddr::default(), Arc::new(AllowAll))),
        tid: 1,
        reqid: ReqId { name, tid: 1, inc: 0 },
        pgid: PgId::new(POOL, 0),
        object,
        epoch: Epoch::new(2),
        flags,
        mtime: UTime::from_secs(77),
        ops: ops.into_iter().map(OsdOp::from).collect(),
        snapid: snap::NOSNAP,
        snapc,
        retry_attempt: 0,
        trace: Default::default(),
        stamps: Default::default(),
        taken: Default::default(),
    };
    host.with(|core, cx| core.handle_op(PgId::new(POOL, 0), op, cx));
    for _ in 0..8 {
        if host.replies > 0 {
            break;
        }
        host.usec += Micros::from_secs(4);
        host.with(Core::handle_tick);
    }
    assert!(host.replies == 1 || waits, "{} replies", host.replies);
}

impl Host<'_> {
    /// Makes the core handle an event, and carries out its outputs.
    fn with(&mut self, f: impl FnOnce(&mut Core, &mut Ctx<'_>)) {
        self.once(f);
        while let Some(o) = self.out.pop_front() {
            self.carry_out(o);
        }
    }

    fn once(&mut self, f: impl FnOnce(&mut Core, &mut Ctx<'_>)) {
        let (mut out, mut perf) = (Vec::new(), CorePerf::default());
        let mut cx = Ctx {
            now: UTime::from_secs(1000),
            usec: self.usec,
            kept_since: None,
            full: &self.full,
            versions: &self.versions,
            out: &mut out,
            perf: &mut perf,
            images: &mut self.images,
            slow_after: Micros::ZERO,
            described: None,
        };
        f(&mut self.core, &mut cx);
        self.out.extend(out);
    }

    fn carry_out(&mut self, o: Output) {
        let (token, reply) = match o {
            Output::Submit { token, txn, .. } => {
                let bytes = log_bytes(&txn.objects);
                assert!(bytes < MAX_RECORD, "a transaction of {bytes} bytes");
                (token, StoreReply::Committed)
            }
            Output::Place { token, data } => (token, StoreReply::Placed(Some(PlacedData::new(data)))),
            Output::Lookup { token, key } => (token, StoreReply::Object(Ok(self.lookup(&key)))),
            Output::Read {
                token, key, wants, ..
            } => {
                let is_it = key == self.key;
                let answer = |want: Want| Fetched {
                    answer: Ok(self.answer(&want, is_it)),
                    want,
                };
                let answers = wants.into_iter().map(answer).collect();
                (token, StoreReply::Fetched(answers, Default::default()))
            }
            Output::List { token, from, to, .. } => {
                let is_there = self.stored.exists && from <= self.key && self.key < to;
                let found = is_there.then(|| (self.key.clone(), self.stored.info.clone()));
                (token, StoreReply::Objects(Ok((Vec::from_iter(found), None))))
            }
            Output::ListRecords { token, .. } => (token, StoreReply::Records(Ok(Vec::new()))),
            Output::Send { osd, msg, .. } => {
                // What it sends it can read.
                let msg = self.versions.read(ME, &msg);
                assert!(osd == ME && msg.is_ok(), "{msg:?} to osd.{osd}");
                return msg.map_or((), |msg| self.once(|core, cx| core.handle_peer(ME, msg, cx)));
            }
            Output::Reply { .. } => return self.replies += 1,
            Output::WatchNotify { .. }
            | Output::HangUp { .. }
            | Output::Alarm { .. }
            | Output::Alive { .. }
            | Output::PgTemp { .. }
            | Output::ClusterLog { .. }
            | Output::ShareMap { .. } => return,
        };
        self.once(|core, cx| core.handle_store(token, reply, cx));
    }

    fn lookup(&self, key: &Bytes) -> Option<StoredObject> {
        (*key == self.key && self.stored.exists).then(|| StoredObject {
            info: self.stored.info.clone(),
            attrs: self.stored.attrs.clone(),
            size: self.stored.data.len() as u64,
        })
    }

    fn answer(&self, want: &Want, is_it: bool) -> Answer {
        let none = Stored::default();
        let o = if is_it { self.stored } else { &none };
        let cut = |offset: u64, len: u64| {
            let end = offset.saturating_add(len).min(o.data.len() as u64);
            (offset < end).then_some(offset as usize..end as usize)
        };
        match want {
            Want::Data(r) => {
                let piece = cut(r.offset, r.len).map(|range| (r.offset, o.data.slice(range)));
                Answer::Data(Vec::from_iter(piece))
            }
            Want::Extents(e) => {
                let found = cut(e.offset, e.len).map(|range| Extent {
                    offset: e.offset,
                    len: range.len() as u64,
                });
                Answer::Extents(Vec::from_iter(found))
            }
            Want::Omap(range) => Answer::Omap(o.page(range)),
            Want::OmapKeys(k) => {
                let mut page = OmapPage::default();
                let mut bytes = 0;
                for (key, value) in k.keys.iter().filter_map(|key| o.omap.get_key_value(key)) {
                    page.more = bytes >= k.max_bytes;
                    if page.more {
                        break;
                    }
                    bytes += key.len() + value.len();
                    let value = if k.values { value.clone() } else { Bytes::new() };
                    page.pairs.push((key.clone(), value));
                }
                Answer::Omap(page)
            }
            Want::OmapHeader => Answer::OmapHeader(o.header.clone()),
            Want::Room(_) => Answer::Room,
            Want::Object(key) => Answer::Object(self.lookup(key)),
            Want::Base(..) | Want::Copy(_) | Want::Staged { .. } | Want::Large(..) => {
                unreachable!("the PG answers it")
            }
        }
    }
}

impl Stored {
    fn page(&self, range: &OmapRange) -> OmapPage {
        let (mut page, mut bytes) = (OmapPage::default(), 0);
        for (key, value) in self.omap.range(range.from.clone()..) {
            if range.to.as_ref().is_some_and(|to| key >= to) {
                break;
            }
            if page.pairs.len() == range.max || bytes >= range.max_bytes {
                page.more = true;
                break;
            }
            let value = if range.values { value.clone() } else { Bytes::new() };
            bytes += key.len() + value.len() + OmapRange::PAIR_OVERHEAD;
            page.pairs.push((key.clone(), value));
        }
        page
    }
}
