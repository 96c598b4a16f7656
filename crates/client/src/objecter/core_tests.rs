use spirula_crush::CrushMap;
use spirula_denc::{AddrType, EntityAddrVec, Fsid};
use spirula_maps::{Epoch, ObjectLocator, ObjectName, OsdState, PoolId, PoolType};
use spirula_proto::osd::{BackoffOp, MOsdBackoff, MWatchNotify, OpArgs, OpCode, OsdOpIn};

use super::*;
use crate::objecter::request;

const POOL: PoolId = PoolId::new(1);

fn addr(osd: OsdId, nonce: u32) -> EntityAddr {
    let port = 6800 + osd.item();
    let text = format!("v2:127.0.0.1:{port}/{nonce}");
    let addr: EntityAddr = text.parse().unwrap();
    assert_eq!(addr.kind, AddrType::MSGR2);
    addr
}

/// Two OSDs that are up; `pg_temp` names the acting set of the pool's only PG.
fn map(epoch: Epoch, acting: &[u16]) -> OsdMap {
    let mut map = OsdMap::new(Fsid::default(), CrushMap::default());
    map.epoch = epoch;
    map.set_max_osd(2);
    for osd in OsdId::below(2) {
        let slot = osd.index();
        map.osd_state[slot] = OsdState::EXISTS.with(OsdState::UP);
        map.osd_weight[slot] = 0x10000;
        map.client_addrs[slot] = EntityAddrVec(vec![addr(osd, 1)]);
    }
    map.pools.insert(POOL, PgPool::replicated(2, 1, 1, 0));
    map.pool_names.insert(POOL, "p".into());
    let pg = PgId {
        pool: PoolId::new(1),
        seed: 0,
    };
    map.pg_temp
        .insert(pg, acting.iter().map(|n| OsdId::new(*n)).collect());
    map
}

fn encoded(map: &OsdMap) -> MOsdMap {
    let maps = BTreeMap::from([(map.epoch, map.encode_with_crc().0)]);
    MOsdMap {
        maps,
        newest: map.epoch,
        ..MOsdMap::default()
    }
}

fn write() -> MOsdOp {
    let mut op = request(ObjectLocator::pool(POOL), ObjectName::from("o"));
    op.flags = OsdFlags::WRITE.with(OsdFlags::ONDISK);
    op.ops = vec![OsdOpIn::new(OpCode::DELETE, OpArgs::None, bytes::Bytes::new())];
    op
}

fn reply(op: &MOsdOp, result: i32) -> MOsdOpReply {
    MOsdOpReply {
        tid: op.tid,
        result,
        retry_attempt: op.retry_attempt,
        ..MOsdOpReply::default()
    }
}

struct Cluster {
    core: Core,
    sessions: BTreeMap<OsdId, u64>,
}

impl Cluster {
    fn new() -> Self {
        let mut core = Core::default();
        core.handle_maps(&encoded(&map(Epoch::new(10), &[0, 1])));
        Self {
            core,
            sessions: BTreeMap::new(),
        }
    }

    /// Carries out the core's actions, with sessions established at once, and returns the requests
    /// with their OSDs.
    fn sent(&mut self) -> Vec<(OsdId, MOsdOp)> {
        let mut out = Vec::new();
        while let Some(action) = self.core.poll() {
            match action {
                Action::Open(osd, _, number) => {
                    self.sessions.insert(osd, number);
                    self.core.handle_up(osd, number);
                }
                Action::Close(osd) => assert!(self.sessions.remove(&osd).is_some()),
                Action::Send(osd, msg) => {
                    assert!(self.sessions.contains_key(&osd));
                    if let Ok(op) = msg.decode() {
                        out.push((osd, op));
                    }
                }
                Action::Subscribe(_) | Action::FullMap | Action::Received(_) => {}
            }
        }
        out
    }

    fn one(&mut self) -> (OsdId, MOsdOp) {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1);
        sent.remove(0)
    }
}

#[test]
fn a_request_goes_to_the_primary_once_and_its_answer_to_the_caller() {
    let mut cluster = Cluster::new();
    let mut answer = cluster.core.submit(write(), Aim::Object, Resend::Always);
    let (osd, op) = cluster.one();
    assert_eq!((osd.index(), op.retry_attempt, op.epoch), (0, 0, Epoch::new(10)));
    assert!(!op.flags.intersects(OsdFlags::RETRY));
    cluster.core.handle_maps(&encoded(&map(Epoch::new(11), &[0, 1])));
    assert!(cluster.sent().is_empty(), "nothing changed for it");
    cluster.core.handle_reply(reply(&op, -2));
    assert_eq!(answer.try_recv().unwrap().unwrap().result, -2);
}

#[test]
fn a_request_to_a_coded_pg_names_the_shard_of_its_primary() {
    let mut cluster = Cluster::new();
    let mut coded = map(Epoch::new(11), &[0, 1]);
    coded.pools.get_mut(&POOL).unwrap().kind = PoolType::ERASURE;
    let pg = PgId::new(POOL, 0);
    coded.primary_temp.insert(pg, OsdId::new(1));
    let _answer = cluster.core.submit(write(), Aim::Object, Resend::Always);
    assert_eq!(cluster.one().1.spg, SpgId::whole(pg));
    cluster.core.handle_maps(&encoded(&coded));
    let (osd, op) = cluster.one();
    assert_eq!((osd.index(), op.spg.pgid, op.spg.shard), (1, pg, 1));
}

#[test]
fn another_acting_set_means_another_attempt_and_old_answers_do_not_count() {
    let mut cluster = Cluster::new();
    let mut answer = cluster.core.submit(write(), Aim::Object, Resend::Always);
    let (_, first) = cluster.one();
    cluster.core.handle_maps(&encoded(&map(Epoch::new(11), &[1, 0])));
    let (osd, second) = cluster.one();
    assert_eq!((osd.index(), second.tid, second.retry_attempt), (1, first.tid, 1));
    assert!(second.flags.intersects(OsdFlags::RETRY));
    cluster.core.handle_reply(reply(&first, 0));
    assert!(answer.try_recv().is_err());
    cluster.core.handle_reply(reply(&second, 0));
    assert!(answer.try_recv().is_ok());
}

#[test]
fn the_same_primary_in_another_interval_gets_it_again() {
    let mut cluster = Cluster::new();
    let _answer = cluster.core.submit(write(), Aim::Object, Resend::Always);
    cluster.one();
    cluster.core.handle_maps(&encoded(&map(Epoch::new(11), &[0])));
    assert_eq!(cluster.one().1.retry_attempt, 1);
    let mut forced = map(Epoch::new(12), &[0]);
    forced.pools.get_mut(&POOL).unwrap().last_force_op_resend = Epoch::new(12);
    cluster.core.handle_maps(&encoded(&forced));
    assert_eq!(cluster.one().1.retry_attempt, 2);
}

/// Full maps of several epochs in one message.
fn batch(maps: &[OsdMap]) -> MOsdMap {
    let mut all = MOsdMap::default();
    for map in maps {
        all.maps.insert(map.epoch, map.encode_with_crc().0);
        all.newest = map.epoch;
    }
    all
}

#[test]
fn an_interval_that_came_and_went_within_a_message_means_another_attempt() {
    let mut cluster = Cluster::new();
    let _answer = cluster.core.submit(write(), Aim::Object, Resend::Always);
    let (_, first) = cluster.one();
    cluster.core.handle_maps(&batch(&[
        map(Epoch::new(11), &[1, 0]),
        map(Epoch::new(12), &[0, 1]),
    ]));
    let (osd, again) = cluster.one();
    assert_eq!((osd.index(), again.tid, again.retry_attempt), (0, first.tid, 1));
    cluster.core.handle_maps(&batch(&[
        map(Epoch::new(13), &[0, 1]),
        map(Epoch::new(14), &[0, 1]),
    ]));
    assert!(cluster.sent().is_empty(), "nothing has changed");
}

#[test]
fn where_maps_were_skipped_everything_is_sent_again() {
    let mut cluster = Cluster::new();
    let _answer = cluster.core.submit(write(), Aim::Object, Resend::Always);
    let mut watch = cluster.core.submit(write(), Aim::Object, Resend::Never);
    assert_eq!(cluster.sent().len(), 2);
    cluster.core.handle_maps(&encoded(&map(Epoch::new(15), &[0, 1])));
    assert_eq!(cluster.one().1.retry_attempt, 1);
    assert_eq!(watch.try_recv().unwrap().unwrap_err(), errno::EAGAIN);
}

#[test]
fn eagain_is_a_new_request_under_a_new_tid() {
    let mut cluster = Cluster::new();
    let mut answer = cluster.core.submit(write(), Aim::Object, Resend::Always);
    let (_, first) = cluster.one();
    cluster.core.handle_reply(reply(&first, -errno::EAGAIN));
    let (_, second) = cluster.one();
    assert!(second.tid > first.tid);
    assert_eq!(second.retry_attempt, 0);
    assert!(!second.flags.intersects(OsdFlags::RETRY));
    assert!(answer.try_recv().is_err(), "never seen by the caller");
}

#[test]
fn a_lost_session_sends_again_when_it_is_back() {
    let mut cluster = Cluster::new();
    let _answer = cluster.core.submit(write(), Aim::Object, Resend::Always);
    cluster.one();
    let number = cluster.sessions[&OsdId::new(0)];
    cluster.core.handle_down(OsdId::new(0), number + 1);
    cluster.core.handle_up(OsdId::new(0), number);
    assert!(cluster.sent().is_empty(), "news of another session");
    cluster.core.handle_down(OsdId::new(0), number);
    assert!(cluster.sent().is_empty());
    cluster.core.handle_up(OsdId::new(0), number);
    assert_eq!(cluster.one().1.retry_attempt, 1);
}

#[test]
fn a_restarted_osd_gets_a_new_session() {
    let mut cluster = Cluster::new();
    let _answer = cluster.core.submit(write(), Aim::Object, Resend::Always);
    cluster.one();
    let number = cluster.sessions[&OsdId::new(0)];
    let mut next = map(Epoch::new(11), &[0, 1]);
    next.client_addrs[0] = EntityAddrVec(vec![addr(OsdId::new(0), 2)]);
    cluster.core.handle_maps(&encoded(&next));
    assert_eq!(cluster.one().1.retry_attempt, 1);
    assert_ne!(cluster.sessions[&OsdId::new(0)], number);
}

#[test]
fn writes_to_a_full_pool_are_held_until_there_is_room() {
    let mut cluster = Cluster::new();
    let mut full = map(Epoch::new(11), &[0, 1]);
    full.pools.get_mut(&POOL).unwrap().flags.insert(PoolFlags::FULL);
    cluster.core.handle_maps(&encoded(&full));
    let _held = cluster.core.submit(write(), Aim::Object, Resend::Always);
    assert!(cluster.sent().is_empty());
    let mut forced = write();
    forced.flags.insert(OsdFlags::FULL_FORCE);
    let _forced = cluster.core.submit(forced, Aim::Object, Resend::Always);
    cluster.one();
    cluster.core.handle_maps(&encoded(&map(Epoch::new(12), &[0, 1])));
    assert_eq!(cluster.one().1.retry_attempt, 0);
}

#[test]
fn a_write_that_was_on_its_way_when_the_pool_became_full_goes_out_again() {
    let mut cluster = Cluster::new();
    let _dropped = cluster.core.submit(write(), Aim::Object, Resend::Always);
    assert_eq!(cluster.one().1.retry_attempt, 0);
    let mut full = map(Epoch::new(11), &[0, 1]);
    full.pools.get_mut(&POOL).unwrap().flags.insert(PoolFlags::FULL);
    cluster.core.handle_maps(&encoded(&full));
    assert!(cluster.sent().is_empty());
    cluster.core.handle_maps(&encoded(&map(Epoch::new(12), &[0, 1])));
    assert_eq!(cluster.one().1.retry_attempt, 1);
}

#[test]
fn without_pool_or_primary() {
    let mut cluster = Cluster::new();
    let mut lost = write();
    lost.locator.pool = Some(PoolId::new(9));
    let mut answer = cluster.core.submit(lost, Aim::Object, Resend::Always);
    assert_eq!(answer.try_recv().unwrap().unwrap_err(), errno::ENOENT);
    cluster.core.handle_maps(&encoded(&map(Epoch::new(11), &[])));
    let _waiting = cluster.core.submit(write(), Aim::Object, Resend::Always);
    assert!(cluster.sent().is_empty());
    cluster.core.handle_maps(&encoded(&map(Epoch::new(12), &[1])));
    assert_eq!(cluster.one().0, OsdId::new(1));
}

#[test]
fn commands_end_where_their_osd_does() {
    let mut cluster = Cluster::new();
    let mut missing = cluster.core.command(OsdId::new(7), MCommand::default());
    assert_eq!(missing.try_recv().unwrap().unwrap_err(), errno::ENOENT);
    let mut waiting = cluster.core.command(OsdId::new(1), MCommand::default());
    cluster.sent();
    let mut down = map(Epoch::new(11), &[0]);
    down.osd_state[1] = OsdState::EXISTS;
    cluster.core.handle_maps(&encoded(&down));
    assert_eq!(waiting.try_recv().unwrap().unwrap_err(), errno::ENXIO);
}

#[test]
fn waiters_are_told_by_epoch() {
    let mut core = Core::default();
    let mut wait = core.wait_for_map(Epoch::new(11));
    assert!(matches!(core.poll(), Some(Action::Subscribe(Epoch::NONE))));
    core.handle_maps(&encoded(&map(Epoch::new(10), &[0])));
    assert!(wait.try_recv().is_err());
    core.handle_maps(&encoded(&map(Epoch::new(11), &[0])));
    assert!(wait.try_recv().is_ok());
}

#[test]
fn a_registration_ends_with_its_session_and_its_owner_hears_of_it() {
    let mut cluster = Cluster::new();
    let mut end = cluster
        .core
        .linger(ObjectName::from("o"), ObjectLocator::pool(POOL));
    end.moved.mark_unchanged();
    let mut answer = cluster.core.submit(write(), Aim::Object, Resend::Never);
    cluster.one();
    cluster
        .core
        .handle_down(OsdId::new(0), cluster.sessions[&OsdId::new(0)]);
    assert_eq!(answer.try_recv().unwrap().unwrap_err(), errno::EAGAIN);
    assert!(end.moved.has_changed().unwrap());
    end.moved.mark_unchanged();
    let mut answer = cluster.core.submit(write(), Aim::Object, Resend::Never);
    assert!(cluster.sent().is_empty(), "waits for the session");
    cluster
        .core
        .handle_up(OsdId::new(0), cluster.sessions[&OsdId::new(0)]);
    cluster.one();
    cluster.core.handle_maps(&encoded(&map(Epoch::new(11), &[1, 0])));
    assert_eq!(answer.try_recv().unwrap().unwrap_err(), errno::EAGAIN);
    assert!(end.moved.has_changed().unwrap());
    let event = MWatchNotify {
        cookie: end.cookie,
        notify_id: 7,
        ..MWatchNotify::default()
    };
    cluster.core.handle_watch_notify(event.clone());
    assert_eq!(end.events.try_recv().unwrap().notify_id, 7);
    cluster.core.unlinger(end.cookie);
    cluster.core.handle_watch_notify(event);
    assert!(end.events.try_recv().is_err());
}

#[test]
fn what_an_osd_backs_off_from_is_held_and_sent_again() {
    let mut cluster = Cluster::new();
    let _before = cluster.core.submit(write(), Aim::Object, Resend::Always);
    let (_, first) = cluster.one();
    let backoff = |op| MOsdBackoff {
        spg: first.spg,
        epoch: Epoch::new(10),
        op,
        id: 5,
        begin: spirula_maps::HObject::min(),
        end: spirula_maps::HObject::max(),
    };
    let number = cluster.sessions[&OsdId::new(0)];
    cluster
        .core
        .handle_backoff(OsdId::new(0), number + 1, backoff(BackoffOp::BLOCK));
    assert!(cluster.core.poll().is_none(), "of another session");
    cluster
        .core
        .handle_backoff(OsdId::new(0), number, backoff(BackoffOp::BLOCK));
    let Some(Action::Send(osd, ack)) = cluster.core.poll() else {
        panic!("a backoff is acknowledged");
    };
    assert_eq!(osd, OsdId::new(0));
    assert_eq!(ack.decode::<MOsdBackoff>().unwrap().op, BackoffOp::ACK_BLOCK);
    let _held = cluster.core.submit(write(), Aim::Object, Resend::Always);
    assert!(cluster.sent().is_empty());
    cluster
        .core
        .handle_backoff(OsdId::new(0), number, backoff(BackoffOp::UNBLOCK));
    let attempts: Vec<i32> = cluster.sent().iter().map(|(_, op)| op.retry_attempt).collect();
    assert_eq!(attempts, [1, 0]);
}

#[test]
fn nobody_waits_so_nothing_is_sent() {
    let mut cluster = Cluster::new();
    drop(cluster.core.submit(write(), Aim::Object, Resend::Always));
    cluster.sent();
    cluster.core.handle_maps(&encoded(&map(Epoch::new(11), &[1, 0])));
    assert!(cluster.sent().is_empty());
    let mut broken = map(Epoch::new(12), &[0, 1]);
    broken.pools.get_mut(&POOL).unwrap().flags.insert(PoolFlags::EIO);
    cluster.core.handle_maps(&encoded(&broken));
    let mut answer = cluster.core.submit(write(), Aim::Object, Resend::Always);
    assert_eq!(answer.try_recv().unwrap().unwrap_err(), errno::EIO);
}
