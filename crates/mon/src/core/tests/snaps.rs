//! Snapshots of pools.

use spirula_maps::{IntervalSet, PoolId};
use spirula_proto::internal::report::{OsdReportReply, PurgedSnapsWanted};
use spirula_proto::mon::{MPoolOp, MPoolOpReply, PoolOpCode};

use super::*;
use crate::service::Service;

fn op(w: &mut World, session: SessionId, op: PoolOpCode, name: &str, snapid: u64) -> (i32, Option<u64>) {
    let m = MPoolOp {
        fsid: Fsid([7; 16]),
        pool: PoolId::new(1),
        op,
        snapid,
        name: name.to_owned(),
        ..MPoolOp::default()
    };
    w.send(session, m.to_message());
    let reply = w.inbox.entry(session).or_default().pop().unwrap();
    let reply: MPoolOpReply = reply.decode().unwrap();
    assert_eq!(reply.epoch, w.mon.view.state.osd.map.epoch);
    let id = <[u8; 8]>::try_from(&reply.data[..]).ok().map(u64::from_le_bytes);
    (reply.result, id)
}

/// A cluster with a pool of two PGs.
fn world() -> World {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":2}"#);
    w
}

/// Reports as the primary of PG `seed` that it has trimmed `snaps`.
fn trimmed(w: &mut World, seed: u32, snaps: &[u64]) {
    let pg = PgId::new(PoolId::new(1), seed);
    let at = w.mon.view.state.osd.map.map_pg(pg);
    let stat = PgStat {
        state: PgState::ACTIVE.with(PgState::CLEAN),
        acting_primary: at.acting_primary.into(),
        reported_epoch: w.mon.view.state.osd.map.epoch,
        purged_snaps: snaps.iter().copied().collect(),
        ..PgStat::default()
    };
    let report = PgStatsReport {
        pgs: BTreeMap::from([(pg, Blob::of(&stat))]),
        ..PgStatsReport::default()
    };
    let session = 100 + SessionId::from(at.acting_primary.unwrap());
    w.send(session, OsdReport::PgStats(report).to_message());
    w.pass(Duration::from_millis(500));
}

#[test]
fn a_pool_has_one_kind_of_snapshots_and_removed_ones_queue_until_all_pgs_trimmed_them() {
    use PoolOpCode as P;
    let mut w = world();
    let queue = |w: &World| {
        w.mon
            .view
            .state
            .osd
            .map
            .removed_snaps_queue
            .get(&PoolId::new(1))
            .map(IntervalSet::to_string)
    };
    assert_eq!(op(&mut w, 1, P::DELETE_UNMANAGED_SNAP, "", 1), (-95, None));
    assert_eq!(op(&mut w, 1, P::CREATE_UNMANAGED_SNAP, "", 0), (0, Some(2)));
    assert_eq!(op(&mut w, 1, P::CREATE_UNMANAGED_SNAP, "", 0), (0, Some(3)));
    assert_eq!(op(&mut w, 1, P::CREATE_SNAP, "s", 0).0, -22);
    let ack = w.command(1, r#"{"prefix":"osd pool mksnap","pool":"p","snap":"s"}"#);
    assert_eq!(
        (ack.result, ack.status.as_str()),
        (-22, "pool p is in unmanaged snaps mode")
    );
    assert_eq!(op(&mut w, 1, P::DELETE_UNMANAGED_SNAP, "", 9), (-2, None));
    assert_eq!(op(&mut w, 1, P::DELETE_UNMANAGED_SNAP, "", 2), (0, None));
    assert_eq!(w.mon.view.state.osd.map.pools[&PoolId::new(1)].snap_seq, 4);
    let epoch = w.mon.view.state.osd.map.epoch;
    assert_eq!(op(&mut w, 1, P::DELETE_UNMANAGED_SNAP, "", 2), (0, None));
    assert_eq!(
        op(&mut w, 1, P::DELETE_UNMANAGED_SNAP, "", 4),
        (0, None),
        "never was one"
    );
    assert_eq!(w.mon.view.state.osd.map.epoch, epoch);
    assert_eq!(queue(&w).as_deref(), Some("[2~1]"));
    trimmed(&mut w, 0, &[2]);
    assert_eq!(queue(&w).as_deref(), Some("[2~1]"));
    trimmed(&mut w, 1, &[1, 2, 3]);
    assert_eq!(queue(&w), None);
    assert_eq!(op(&mut w, 1, P::DELETE_UNMANAGED_SNAP, "", 2), (0, None));
    assert_eq!(queue(&w), None, "purged once is purged for ever");
    // An OSD that has missed the map with the snapshot asks. A monitor that is behind is silent.
    let epoch = w.mon.view.state.osd.map.epoch;
    let mut ask = |epoch| {
        w.inbox.remove(&100);
        w.send(
            100,
            OsdReport::WantPurgedSnaps(PurgedSnapsWanted { epoch }).to_message(),
        );
        w.inbox.remove(&100).unwrap_or_default().pop()
    };
    let OsdReportReply::PurgedSnaps(all) = ask(epoch).unwrap().decode().unwrap() else {
        panic!("another answer");
    };
    assert_eq!(
        (all.epoch, all.pools[&PoolId::new(1)].to_string().as_str()),
        (epoch, "[2~1,4~1]")
    );
    assert!(ask(epoch.next()).is_none());
}

#[test]
fn pool_snapshots_have_names() {
    use PoolOpCode as P;
    let mut w = world();
    let say = |w: &mut World, verb: &str, snap: &str| {
        let ack = w.command(
            1,
            &format!(r#"{{"prefix":"osd pool {verb}","pool":"p","snap":"{snap}"}}"#),
        );
        (ack.result, ack.status)
    };
    assert_eq!(say(&mut w, "mksnap", "a"), (0, "created pool p snap a".into()));
    assert_eq!(
        say(&mut w, "mksnap", "a"),
        (0, "pool p snap a already exists".into())
    );
    assert_eq!(op(&mut w, 1, P::CREATE_SNAP, "b", 0), (0, None));
    assert_eq!(op(&mut w, 1, P::CREATE_UNMANAGED_SNAP, "", 0), (-22, None));
    assert_eq!(op(&mut w, 1, P::DELETE_SNAP, "x", 0), (0, None));
    assert_eq!(op(&mut w, 1, P::DELETE_SNAP, "a", 0), (0, None));
    assert_eq!(
        say(&mut w, "rmsnap", "a"),
        (0, "pool p snap a does not exist".into())
    );
    assert_eq!(say(&mut w, "rmsnap", "b"), (0, "removed pool p snap b".into()));
    let map = &w.mon.view.state.osd.map;
    assert_eq!(map.removed_snaps_queue[&PoolId::new(1)].to_string(), "[1~2]");
    assert_eq!(
        (
            map.pools[&PoolId::new(1)].snap_seq,
            map.pools[&PoolId::new(1)].snap_epoch
        ),
        (4, map.epoch)
    );
    w.command(
        1,
        r#"{"prefix":"osd pool rm","pool":"p","pool2":"p","yes_i_really_really_mean_it":true}"#,
    );
    w.pass(Duration::from_secs(1));
    assert!(
        w.mon.view.state.osd.map.removed_snaps_queue.is_empty(),
        "nobody trims a pool that is gone"
    );
}

#[test]
fn who_may_write_in_a_pool_manages_its_snapshots() {
    let mut w = world();
    let entity = |osd: &str| {
        let caps = [("mon", "allow r"), ("osd", osd)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        spirula_cephx::EntityAuth {
            caps: caps.into_iter().collect(),
            ..spirula_cephx::EntityAuth::default()
        }
    };
    let entries = [
        ("w", "allow rw pool=p"),
        ("q", "allow rw pool=q"),
        ("r", "allow r"),
    ];
    for (id, (name, caps)) in (20..).zip(entries) {
        let mut txn = Txn::default();
        let name = AuthName::new(EntityType::CLIENT, name);
        Auth::put(&name, &entity(caps), &mut txn);
        for op in &txn.ops {
            w.mon
                .view
                .state
                .auth
                .apply(&op.service, &op.key, op.value.as_ref())
                .unwrap();
        }
        w.open(id, name, "allow r");
        let wanted = if id == 20 { 0 } else { -1 };
        assert_eq!(op(&mut w, id, PoolOpCode::CREATE_UNMANAGED_SNAP, "", 0).0, wanted);
        assert_eq!(op(&mut w, id, PoolOpCode::CREATE_SNAP, "s", 0).0, -1);
    }
}
